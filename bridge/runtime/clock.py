"""Time as a value that can be handed in, so that tests own it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Both in milliseconds."""

    def wall_ms(self) -> int:
        """Since the epoch."""

    def monotonic_ms(self) -> int:
        """Since some fixed moment; never goes back."""


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        """Since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Since some fixed moment; never goes back."""
        return time.monotonic_ns() // 1_000_000
