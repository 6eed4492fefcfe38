"""The wait between attempts, by Artemis's options. Pure.

Artemis's rule: the first wait is `retry-interval`, each further one is multiplied, capped by
`max-retry-interval`; no jitter; `attempts` N means N + 1 tries, -1 endless (semantics.md R5, R6).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """The options of a bridge's retries. Times in milliseconds."""

    retry_interval_ms: int = 2000
    multiplier: float = 1.0
    max_retry_interval_ms: int = 2000

    def delay_ms(self, failures: int) -> int:
        """The wait after this many failures in a row, counted from 1.

        A bridge's first start is a try at once in place of the first wait; the wait after it is
        ``delay_ms(2)``.
        """
        assert failures >= 1, f"failures are counted from 1; found {failures}"
        try:
            delay = self.retry_interval_ms * self.multiplier ** (failures - 1)
        except OverflowError:
            return self.max_retry_interval_ms
        return int(min(delay, self.max_retry_interval_ms))
