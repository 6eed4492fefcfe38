"""A token bucket: bytes that may pass in a second, and at once after a silence. Pure: times are handed in."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class TokenBucket:
    """Callers pass in the order in which they ask, each after the wait that it is told.

    What is larger than the bucket passes when the bucket is full, and those behind it wait for the debt. So
    nothing starves, and over a long time no more than `rate` bytes a second pass.
    """

    #: Bytes a second.
    rate: float
    #: Most bytes that pass at once after a silence.
    burst: float
    #: Bytes that may pass now; below 0: a debt.
    _level: float = field(init=False)
    #: The time of `_level`, seconds.
    _at_s: float = float("-inf")

    def __post_init__(self) -> None:
        assert self.rate > 0 < self.burst, f"bytes pass at some rate; found {self.rate}, {self.burst}"
        self._level = self.burst

    def take(self, size: int, now_s: float) -> float:
        """Seconds to wait before `size` bytes may pass; they count from now on."""
        if now_s > self._at_s:
            self._level = min(self.burst, self._level + (now_s - self._at_s) * self.rate)
            self._at_s = now_s
        missing = min(size, self.burst) - self._level
        self._level -= size
        return max(missing / self.rate, 0.0)

    def give_back(self, size: int) -> None:
        """Count bytes no more that have not passed."""
        self._level = min(self.burst, self._level + size)
