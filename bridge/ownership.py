"""Which lanes of a bridge belong to this process: somebody else's decision, asked through `Ownership`."""

from __future__ import annotations

import asyncio
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

    async def close(self) -> None:
        """Give every lane back at once. Never raises."""


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

    async def close(self) -> None:
        """Nothing to give back."""
