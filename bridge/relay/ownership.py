"""Which lanes of a bridge belong to this process: somebody else's decision, asked through `Ownership`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol


class Ownership(Protocol):
    """Which lanes of a bridge belong to this process. Nothing here is safe by itself: targets protect."""

    @property
    def owned(self) -> frozenset[int]:
        """The lanes that are ours as far as is known now."""

    async def open(self) -> None:
        """Take part; returns when it is known which lanes are ours. Again after `changed` has raised.

        Raises:
            TargetUnavailable, SourceUnavailable: try again. TargetRefused, SourceRefused: no use.
        """

    async def changed(self, known: frozenset[int]) -> frozenset[int]:
        """Wait until what is ours differs from `known`; returns it.

        Raises:
            As `open`: no lane is ours any more, and none will be before `open`.
        """

    async def confirmed(self, lane: int) -> None:
        """Returns when it has been confirmed, after the call, that the lane is ours.

        Raises:
            As `open`, also where the lane is not ours.
        """

    def give_up(self, lane: int) -> None:
        """The lane has FAILED here: give it to another process, and take it no more before `take_again`.

        A process that shares with nobody keeps it.
        """

    def take_again(self) -> None:
        """Forget what was given up: it may be ours again."""

    async def close(self) -> None:
        """Give every lane back at once, and forget what was given up. Never raises."""


@dataclass(frozen=True, slots=True)
class Member:
    """A process that shares a bridge's lanes, as the others see it."""

    #: Node, and worker where there are several in it.
    name: str
    #: Where its connection comes from.
    host: str
    #: What it has now.
    lanes: frozenset[int]
    #: What has FAILED on it since it was started, and is not given to it any more.
    failed: frozenset[int]


@dataclass(frozen=True, slots=True)
class Division:
    """Who has which lane, over all nodes."""

    members: tuple[Member, ...] = ()
    #: Lanes that no member has.
    nobody: frozenset[int] = frozenset()


#: Asks how the lanes are divided. Raises: BridgeError: that cannot be known now.
AskDivision = Callable[[], Awaitable[Division]]


class AllLanes:
    """`Ownership` of a process that shares with nobody."""

    def __init__(self, lanes: int) -> None:
        self.owned = frozenset(range(lanes))

    async def open(self) -> None:
        """Nothing to ask."""

    async def changed(self, known: frozenset[int]) -> frozenset[int]:
        """All lanes, and never anything else."""
        if known == self.owned:
            await asyncio.Event().wait()
        return self.owned

    async def confirmed(self, lane: int) -> None:
        """Ours it is."""

    def give_up(self, lane: int) -> None:
        """There is no other process."""

    def take_again(self) -> None:
        """Nothing was given up."""

    async def close(self) -> None:
        """Nothing to give back."""
