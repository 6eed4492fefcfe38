"""The offset of the other end's clock from this node's, from pings and their answers. Pure.

As in RFC 5905: a ping that comes back after `r` ms was answered about `r/2` after it left (section 8), at
most `r/2` wrong, so of the last samples the one that came back soonest counts (the clock filter, section 10).
"""

from __future__ import annotations

from collections import deque
from typing import Final

#: Number of samples kept: of some five minutes, in which two clocks drift apart by a few ms.
SAMPLES: Final = 32
#: An end that measures does so at most this often, ms.
MEASURE_INTERVAL_MS: Final = 10_000


class ClockOffset:
    """The other end's clock less this node's."""

    def __init__(self) -> None:
        #: Round trip in ms, and the offset that it gives, ms; oldest first.
        self._samples: deque[tuple[int, float]] = deque(maxlen=SAMPLES)

    def answered(self, sent_epoch_ms: int, round_trip_ms: int, received_epoch_ms: int) -> None:
        """Add the sample of a ping that has come back.

        Args:
            sent_epoch_ms: this node's clock as it left, ms since the epoch.
            round_trip_ms: how long it took, by a clock that never goes back.
            received_epoch_ms: the other clock as it came there, ms since the epoch.
        """
        offset_ms = received_epoch_ms - (sent_epoch_ms + round_trip_ms / 2)
        self._samples.append((round_trip_ms, offset_ms))

    @property
    def best(self) -> tuple[int, float] | None:
        """Round trip and offset of the best sample, ms; None: there is none. The error is at most half the
        trip.
        """
        if not self._samples:
            return None
        # Of equally good samples the newest counts: clocks drift, and are set.
        return min(reversed(self._samples), key=lambda sample: sample[0])
