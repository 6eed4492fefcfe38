"""The size of transactions where brokers throttle, and the counts of it.

A transaction waits as long as brokers ask, and may be open for a limited time. So one that had to wait long
is followed by a smaller one; while no broker asks to wait they grow again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from bridge.kafka.client.throttling import Throttle
from bridge.kafka.target.delivery_queue import TRANSACTION_BYTES
from bridge.relay.counts import Counts

#: Longest that one transaction should wait for quotas, ms.
AIM_MS: Final = 5_000
#: Least bytes of a transaction, if there is more than one batch.
LEAST_BYTES: Final = 16 * 1024


class Pace:
    """The transaction size of one lane."""

    def __init__(self, counts: Counts, log: structlog.typing.FilteringBoundLogger) -> None:
        """`counts` gets the measurements."""
        self._counts = counts
        self._log = log
        #: Bytes of batches that the next transaction takes; one batch at least.
        self.most_bytes = TRANSACTION_BYTES

    @contextmanager
    def measured(self, throttle: Throttle, size: int) -> Iterator[None]:
        """Measure one transaction with `size` bytes, successful or not."""
        before_ms = throttle.asked_ms
        try:
            yield
        finally:
            self._took(throttle.asked_ms - before_ms, size)

    def rest(self) -> None:
        """Reset the count: nothing is sent now, so nothing is throttled."""
        self._counts.throttled = ""

    def _took(self, asked_ms: float, size: int) -> None:
        counts = self._counts
        counts.throttled_ms += round(asked_ms)
        if asked_ms > AIM_MS:
            self.most_bytes = max(LEAST_BYTES, min(self.most_bytes, round(size * AIM_MS / asked_ms)))
        elif not asked_ms:
            self.most_bytes = min(TRANSACTION_BYTES, self.most_bytes * 2)
        if asked_ms and not counts.throttled:
            self._log.warning("throttled", **{"throttle-ms": round(asked_ms), "bytes": size})
        said = f"they asked to wait {asked_ms:.0f} ms for {size} bytes"
        counts.throttled = f"the brokers throttle (quota producer_byte_rate): {said}" if asked_ms else ""
