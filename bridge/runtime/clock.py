"""Time as a value that is passed in, so that tests control it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A wall clock and a monotonic one, both in milliseconds."""

    def wall_ms(self) -> int:
        """The time since the epoch."""

    def monotonic_ms(self) -> int:
        """The time since some fixed moment; never goes back."""


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        """The time since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """The time since some fixed moment; never goes back."""
        return time.monotonic_ns() // 1_000_000
