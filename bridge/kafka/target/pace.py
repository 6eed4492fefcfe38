"""The size of transactions where the line is slow or brokers throttle, and the counts of it.

A transaction may be open for a limited time, and it waits as long as brokers ask and the line needs. So one
that took long is followed by a smaller one; while they are quick they grow again. The first one is small:
what the line carries is not known before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import structlog

from bridge.kafka.client.connection import END_TRANSACTION_TIMEOUT_MS
from bridge.kafka.client.line import LEAST_RATE
from bridge.kafka.client.throttling import Throttle
from bridge.kafka.target.delivery_queue import TRANSACTION_BYTES
from bridge.kafka.target.transaction import LineTooSlow, SendFailed
from bridge.relay.counts import Counts
from bridge.runtime.clock import Clock

#: Longest that one transaction should wait for quotas, ms.
AIM_MS: Final = 5_000
#: Time that one transaction should take on the line, ms, besides the round trips below.
LINE_AIM_MS: Final = 2_000
#: Round trips that its requests take in any case, and TCP until it knows what the line carries.
ROUND_TRIPS: Final = 12
#: Bytes of a first transaction.
FIRST_BYTES: Final = 16 * 1024
#: Least bytes of a transaction; one message may be larger.
LEAST_BYTES: Final = 8 * 1024
#: The factor by which transactions grow while they take less than this part of `LINE_AIM_MS`...
GROW: Final = 4
#: ...and by which the next one is smaller than one that ran out of time.
SHRINK: Final = 4
#: A line that carries less, bytes per second, is asked less often whether its cluster is there, as much as it
#: carries less...
QUICK_RATE: Final = 64_000
#: ...and at least so often, ms.
MOST_WATCH_INTERVAL_MS: Final = 10_000
#: Longest that brokers let a transaction be open, unless they are told otherwise (their
#: transaction.max.timeout.ms), ms.
MOST_TRANSACTION_MS: Final = 900_000
#: The factor by which a transaction may take longer than the line has shown that it needs.
SLACK: Final = 1.5
#: Transactions shorter than this, ms, show no rate: their requests' own times count for more.
_SHOWS_RATE_MS: Final = 200


@dataclass(frozen=True, slots=True)
class Measured:
    """What one transaction is measured by."""

    throttle: Throttle
    #: Bytes of its record batches.
    size: int
    #: Time of a small request and its answer, ms; 0: not known.
    round_trip_ms: float = 0.0


class Pace:
    """The transaction size of one lane."""

    def __init__(self, counts: Counts, log: structlog.typing.FilteringBoundLogger, clock: Clock) -> None:
        """`counts` gets the measurements."""
        self._counts = counts
        self._log = log
        self._clock = clock
        #: Bytes of batches that the next transaction takes; one message at least.
        self.most_bytes = FIRST_BYTES
        #: Bytes per second of the last transaction that showed it; 0: none has.
        self._rate = 0.0

    def expected_ms(self, size: int) -> float:
        """How long a transaction of `size` bytes will be on the line, by what it has shown; 0: not known."""
        return size / self._rate * 1000 if self._rate else 0.0

    def watch_interval_ms(self, usual_ms: int) -> float:
        """How often the cluster is asked whether it is there."""
        slower = QUICK_RATE / self._rate if self._rate else 1.0
        return max(usual_ms, min(usual_ms * slower, MOST_WATCH_INTERVAL_MS))

    @contextmanager
    def measured(self, one: Measured) -> Iterator[None]:
        """Measure one transaction, successful or not."""
        before_ms, began_ms = one.throttle.asked_ms, self._clock.monotonic_ms()
        late: TimeoutError | None = None
        try:
            yield
        except SendFailed as failed:
            late = failed.error if isinstance(failed.error, TimeoutError) else None
            raise
        finally:
            asked_ms = one.throttle.asked_ms - before_ms
            line_ms = self._clock.monotonic_ms() - began_ms - asked_ms - ROUND_TRIPS * one.round_trip_ms
            self._count(asked_ms, one.size)
            self._fit(one.size, asked_ms, line_ms, late)

    def rest(self) -> None:
        """Reset the count: nothing is sent now, so nothing is throttled."""
        self._counts.throttled = ""

    def _fit(self, size: int, asked_ms: float, line_ms: float, late: TimeoutError | None) -> None:
        if late is not None and not asked_ms:
            self._shrink(min(self.most_bytes, size) / SHRINK)
            if isinstance(late, LineTooSlow):
                # It needs longer, and buffers on the way may hide how much: each attempt waits longer.
                self._rate = max(LEAST_RATE, size * 1000 / max(line_ms, 1) / 2)
            return
        if line_ms >= _SHOWS_RATE_MS:
            self._rate = size * 1000 / line_ms
        if asked_ms > AIM_MS:
            self._shrink(size * AIM_MS / asked_ms)
        elif line_ms > LINE_AIM_MS:
            self._shrink(size * LINE_AIM_MS / line_ms)
        elif not asked_ms and GROW * line_ms < LINE_AIM_MS and 2 * size >= self.most_bytes:
            self.most_bytes = min(TRANSACTION_BYTES, self.most_bytes * GROW)

    def _shrink(self, wanted: float) -> None:
        self.most_bytes = max(LEAST_BYTES, min(self.most_bytes, round(wanted)))

    def _count(self, asked_ms: float, size: int) -> None:
        counts = self._counts
        counts.throttled_ms += round(asked_ms)
        if asked_ms and not counts.throttled:
            self._log.warning("throttled", **{"throttle-ms": round(asked_ms), "bytes": size})
        said = f"they asked to wait {asked_ms:.0f} ms for {size} bytes"
        counts.throttled = f"the brokers throttle (quota producer_byte_rate): {said}" if asked_ms else ""


def longer_ms(late: BaseException, now_ms: int, size: int) -> int:
    """How long a transaction is to be open for one message of `size` bytes that did not fit in `now_ms`.

    0: it was not the time that was short.
    """
    if not isinstance(late, LineTooSlow) or not late.is_at_limit:
        return 0
    needed_ms = size / max(late.rate, LEAST_RATE) * 1000 * SLACK + END_TRANSACTION_TIMEOUT_MS
    return min(MOST_TRANSACTION_MS, max(2 * now_ms, round(needed_ms)))
