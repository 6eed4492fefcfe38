"""Ownership of lanes: which lanes of a bridge belong to this process, asked through `Ownership`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol


class Ownership(Protocol):
    """The lanes of a bridge that belong to this process. It gives no safety by itself: targets protect."""

    @property
    def owned(self) -> frozenset[int]:
        """The lanes that this process owns as far as is known now."""

    async def open(self) -> None:
        """Take part; returns when it is known which lanes this process owns. Called again after `changed` has
        raised.

        Raises:
            TargetUnavailable, SourceUnavailable: try again. TargetRefused, SourceRefused: no use.
        """

    async def changed(self, known: frozenset[int]) -> frozenset[int]:
        """Wait until the owned lanes differ from `known`; returns them.

        Raises:
            As `open`: this process owns no lane any more, and will own none before `open`.
        """

    async def confirmed(self, lane: int) -> None:
        """Returns when it has been confirmed, after the call, that this process owns the lane.

        Raises:
            As `open`, also where it does not own the lane.
        """

    def give_up(self, lane: int) -> None:
        """Give a lane that has FAILED here to another process, and do not take it again before `take_again`.

        A process that shares with no other keeps it.
        """

    def take_again(self) -> None:
        """Forget the lanes that were given up: this process may own them again."""

    async def close(self) -> None:
        """Give every lane back at once, and forget what was given up. Never raises."""


@dataclass(frozen=True, slots=True)
class Member:
    """A process that shares a bridge's lanes, as the others see it."""

    #: Node, and worker where there are several in it.
    name: str
    #: Where its connection comes from.
    host: str
    #: The lanes that it owns now.
    lanes: frozenset[int]
    #: The lanes that have FAILED on it since it was started, and are not given to it any more.
    failed: frozenset[int]


@dataclass(frozen=True, slots=True)
class Division:
    """The division of the lanes, over all nodes."""

    members: tuple[Member, ...] = ()
    #: Lanes that no member owns.
    nobody: frozenset[int] = frozenset()


#: Asks how the lanes are divided. Raises: BridgeError: the division cannot be known now.
AskDivision = Callable[[], Awaitable[Division]]


class AllLanes:
    """`Ownership` of a process that shares with no other."""

    def __init__(self, lanes: int) -> None:
        self.owned = frozenset(range(lanes))

    async def open(self) -> None:
        """Does nothing: this process owns every lane."""

    async def changed(self, known: frozenset[int]) -> frozenset[int]:
        """All lanes, and never anything else."""
        if known == self.owned:
            await asyncio.Event().wait()
        return self.owned

    async def confirmed(self, lane: int) -> None:
        """Returns at once: this process owns every lane."""

    def give_up(self, lane: int) -> None:
        """Does nothing: there is no other process."""

    def take_again(self) -> None:
        """Does nothing: no lane was given up."""

    async def close(self) -> None:
        """Does nothing: there is no process to give a lane back to."""
