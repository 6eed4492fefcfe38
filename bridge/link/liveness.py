"""The times at which an end asks whether the other is there, and at which it gives it up."""

from __future__ import annotations

from enum import Enum

from bridge.link.limits import PACE_MOST_MS
from bridge.link.pace import Pace


class Duty(Enum):
    """The action that is due."""

    NOTHING = "nothing"
    PING = "ping"
    #: Give up: no byte came.
    SILENT = "silent"
    #: Give up: the bytes of a frame came below the lowest rate.
    TOO_SLOW = "too slow"


class Liveness:
    """Silence, measured from the last byte that came, and the pace of a frame that has not come whole.

    As Artemis's `check-period` and `connection-ttl` (chapter "Detecting dead connections"), at both
    ends alike, but bytes count, not packets. A PING goes out in each `check-period` without a whole frame,
    and while a frame comes in each `unfinished_period_ms`: the end that sends a large frame over a slow line
    receives nothing else meanwhile. Times are ms of a clock that never goes back.
    """

    def __init__(self, check_period_ms: int, connection_ttl_ms: int, now_ms: int) -> None:
        #: -1: never.
        self._check_period_ms = check_period_ms
        self.connection_ttl_ms = connection_ttl_ms
        #: A quarter of the ttl: a PING that a cut of half of it delays comes in time.
        self.unfinished_period_ms = PACE_MOST_MS
        if check_period_ms >= 0:
            self.unfinished_period_ms = min(check_period_ms, PACE_MOST_MS)
        if connection_ttl_ms >= 0:
            self.unfinished_period_ms = min(self.unfinished_period_ms, connection_ttl_ms // 4)
        #: The last byte.
        self._byte_ms = now_ms
        #: The last whole frame, or the PING since.
        self._asked_ms = now_ms
        never = connection_ttl_ms < 0
        self._pace = Pace(PACE_MOST_MS if never else min(connection_ttl_ms, PACE_MOST_MS))
        #: This end reads nothing: the other one cannot be judged.
        self.held = False
        #: With TOO_SLOW: its numbers.
        self.slowness = ""

    def heard(self, now_ms: int) -> None:
        """A whole frame of any kind came."""
        self._byte_ms = self._asked_ms = now_ms
        self._pace.end()

    def heard_bytes(self, size: int, now_ms: int) -> None:
        """So many bytes came, of whatever."""
        self._byte_ms = now_ms
        self._pace.add(size, now_ms)

    def begin_frame(self, now_ms: int) -> None:
        """A frame has begun that has not come whole."""
        self._pace.begin(now_ms)

    def hold(self) -> None:
        """This end reads nothing from now on."""
        self.held = True

    def resume(self, now_ms: int) -> None:
        """This end reads again: silence is measured from now on."""
        if self.held:
            self.held = False
            self._byte_ms = now_ms
            if self._pace.is_running:
                self._pace.begin(now_ms)

    def duty(self, now_ms: int) -> Duty:
        """The action that is due now. PING is returned once in a `check-period`: the caller sends it."""
        if not self.held:
            if 0 <= self.connection_ttl_ms <= now_ms - self._byte_ms:
                return Duty.SILENT
            if (slowness := self._pace.too_slow(now_ms)) is not None:
                self.slowness = slowness
                return Duty.TOO_SLOW
        if self._check_period_ms >= 0 and now_ms >= self._asked_ms + self._ping_period_ms:
            self._asked_ms = now_ms
            return Duty.PING
        return Duty.NOTHING

    @property
    def _ping_period_ms(self) -> int:
        return self.unfinished_period_ms if self._pace.is_running else self._check_period_ms

    def deadline_ms(self) -> int | None:
        """The time at which `duty` next returns an action, unless bytes come; None: never."""
        deadlines = []
        if self._check_period_ms >= 0:
            deadlines.append(self._asked_ms + self._ping_period_ms)
        if not self.held:
            if self.connection_ttl_ms >= 0:
                deadlines.append(self._byte_ms + self.connection_ttl_ms)
            if (slow_ms := self._pace.deadline_ms()) is not None:
                deadlines.append(slow_ms)
        return min(deadlines, default=None)
