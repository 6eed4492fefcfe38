"""The clock by which files age: it follows the wall clock, and not faster than time can pass."""

from __future__ import annotations

from typing import Final

#: Ages grow at most so many times as fast as the monotonic clock: a day in which the node did not run, or by
#: which its clock was set forward, counts after an hour; a clock that is wrong for a second has no effect.
CATCH_UP: Final = 24


class AgeClock:
    """A clock that is never ahead of the wall clock. Where that leaps forward this one follows, `CATCH_UP`
    times as fast.

    Times are in ms: of the wall clock and of files since the epoch, monotonic ones since any moment.
    """

    def __init__(self, wall_ms: int, monotonic_ms: int, newest_ms: int | None) -> None:
        """`newest_ms`: when the newest file was written, the last time known from an earlier run; None: no
        file.
        """
        self._ms = wall_ms if newest_ms is None else min(wall_ms, newest_ms)
        self._looked_ms = monotonic_ms

    def now_ms(self, wall_ms: int, monotonic_ms: int) -> int:
        """The time now, by which ages are measured."""
        passed_ms = monotonic_ms - self._looked_ms
        self._looked_ms = monotonic_ms
        self._ms = min(wall_ms, self._ms + CATCH_UP * passed_ms)
        return self._ms
