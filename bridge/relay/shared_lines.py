"""Lanes that share a line: those with a lower priority give way while one with a higher one sends. Pure."""

from __future__ import annotations

from typing import Protocol

from bridge.relay.window import Window


class Sharing(Protocol):
    """A lane, as the others see it."""

    @property
    def priority(self) -> int:
        """The higher one goes first (`priority` of its bridge)."""

    @property
    def window(self) -> Window:
        """What it has on its way."""

    @property
    def target_name(self) -> str:
        """Name of the connector that it uses now."""


class SharedLines:
    """The lanes of a process that run. Those that use the same connector share a line."""

    def __init__(self) -> None:
        self._lanes: list[Sharing] = []
        #: The highest priority of any.
        self._most = 0

    def join(self, lane: Sharing) -> None:
        """The lane begins."""
        self._lanes.append(lane)
        self._most = max(one.priority for one in self._lanes)

    def leave(self, lane: Sharing) -> None:
        """The lane has ended. Does nothing where it had not begun."""
        self._lanes = [one for one in self._lanes if one is not lane]
        self._most = max((one.priority for one in self._lanes), default=0)

    def gives_way(self, lane: Sharing) -> bool:
        """Whether a lane with a higher priority has something on its way over the same connector."""
        if lane.priority >= self._most:
            return False
        return any(
            one.priority > lane.priority and one.window.batches and one.target_name == lane.target_name
            for one in self._lanes
        )
