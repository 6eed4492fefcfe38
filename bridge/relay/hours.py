"""The hours of a bridge's `schedule`, waited for by the wall clock."""

from __future__ import annotations

import asyncio
from typing import Final

from bridge.runtime.clock import Clock
from bridge.runtime.schedule import Schedule

#: Longest sleep between two looks at the wall clock, in seconds: it may be set, and it goes on while a
#: machine sleeps.
LOOK_S: Final = 15.0
#: Shortest, in seconds: timers go off a little early.
_SHORTEST_S: Final = 0.001
_DAY_MS: Final = 24 * 3_600_000


class Hours:
    """When a bridge may send."""

    def __init__(self, schedule: Schedule, clock: Clock) -> None:
        self._schedule = schedule
        self._clock = clock

    @property
    def are_on(self) -> bool:
        """Whether the bridge may send now."""
        return self._schedule.is_open(self._clock.wall_ms())

    @property
    def waits_for(self) -> str:
        """The next opening for people, outside the hours."""
        return self._schedule.waits_for(self._clock.wall_ms())

    async def opened(self) -> None:
        """Returns when the bridge may send."""
        while not self._schedule.is_open(now_ms := self._clock.wall_ms()):
            at_ms, _ = self._schedule.opening(now_ms)
            await self._between(now_ms, at_ms)

    async def closed(self) -> None:
        """Returns when the bridge may send no more."""
        while self._schedule.is_open(now_ms := self._clock.wall_ms()):
            at_ms = self._schedule.closing_ms(now_ms)
            await self._between(now_ms, now_ms + _DAY_MS if at_ms is None else at_ms)

    async def _between(self, first_ms: int, end_ms: int) -> None:
        """Returns when the wall clock is not between these times any more."""
        while first_ms <= (now_ms := self._clock.wall_ms()) < end_ms:  # noqa: ASYNC110 - no event tells the time
            await asyncio.sleep(min(max((end_ms - now_ms) / 1000, _SHORTEST_S), LOOK_S))
