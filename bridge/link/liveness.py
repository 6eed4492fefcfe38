"""The times at which an end asks whether the other is there, and at which it gives it up."""

from __future__ import annotations

from enum import Enum


class Duty(Enum):
    """The action that is due after a silence."""

    NOTHING = "nothing"
    PING = "ping"
    GIVE_UP = "give up"


class Liveness:
    """Silence, measured from the last frame that came: one ping a silence, then the end.

    As Artemis's `check-period` and `connection-ttl` (chapter "Detecting dead connections"), at both
    ends alike. Times are ms of a clock that never goes back.
    """

    def __init__(self, check_period_ms: int, connection_ttl_ms: int, now_ms: int) -> None:
        #: -1: never.
        self._check_period_ms = check_period_ms
        self.connection_ttl_ms = connection_ttl_ms
        self._heard_ms = now_ms
        self._pinged = False

    def heard(self, now_ms: int) -> None:
        """A frame of any kind came."""
        self._heard_ms = now_ms
        self._pinged = False

    def duty(self, now_ms: int) -> Duty:
        """The action that is due now. PING is returned once a silence: the caller sends it."""
        silent_ms = now_ms - self._heard_ms
        if 0 <= self.connection_ttl_ms <= silent_ms:
            return Duty.GIVE_UP
        if not self._pinged and 0 <= self._check_period_ms <= silent_ms:
            self._pinged = True
            return Duty.PING
        return Duty.NOTHING

    def deadline_ms(self) -> int | None:
        """The time at which `duty` next returns an action, unless a frame comes; None: never."""
        deadlines = []
        if self._check_period_ms >= 0 and not self._pinged:
            deadlines.append(self._heard_ms + self._check_period_ms)
        if self.connection_ttl_ms >= 0:
            deadlines.append(self._heard_ms + self.connection_ttl_ms)
        return min(deadlines, default=None)
