"""The wait between attempts, by Artemis's options. Pure.

Artemis's rule: the first wait is `retry-interval`, each further one is multiplied, capped by
`max-retry-interval`; `attempts` N means N + 1 tries, -1 endless (semantics.md R5, R6). Artemis has no jitter.
Here chance takes up to `JITTER_SHARE` off each wait: a thousand nodes that lose one hub at the same moment do
not come back at the same moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

#: The share of each wait that chance takes off, or adds where the other end names the shortest wait.
JITTER_SHARE: Final = 0.5
#: Longest wait that the other end can ask for (`Retry-After`), ms.
ASKED_MOST_MS: Final = 60_000


def no_chance() -> float:
    """Waits are exact."""
    return 0.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """The options of a bridge's retries. Times in milliseconds."""

    retry_interval_ms: int = 2000
    multiplier: float = 1.0
    max_retry_interval_ms: int = 2000
    #: Returns a number from 0 to below 1, another one at each call (`random.random`).
    chance: Callable[[], float] = no_chance

    def delay_ms(self, failures: int) -> int:
        """The wait after this many failures in a row, counted from 1.

        A bridge's first start is a try at once in place of the first wait; the wait after it is
        ``delay_ms(2)``.
        """
        assert failures >= 1, f"failures are counted from 1; found {failures}"
        try:
            delay = self.retry_interval_ms * self.multiplier ** (failures - 1)
        except OverflowError:
            delay = self.max_retry_interval_ms
        delay = min(delay, self.max_retry_interval_ms)
        return int(delay * (1 - JITTER_SHARE * self.chance()))

    def asked_ms(self, asked_ms: int) -> int:
        """The wait where the other end asks for one: at least as long as it asks, up to `ASKED_MOST_MS`."""
        return int(min(asked_ms, ASKED_MOST_MS) * (1 + JITTER_SHARE * self.chance()))

    def spread_ms(self) -> int:
        """A wait of up to `retry-interval` before what many nodes do at the same time of day."""
        return int(self.retry_interval_ms * self.chance())
