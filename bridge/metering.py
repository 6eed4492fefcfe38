"""What each metric is read from; nothing is computed between scrapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bridge import metrics
from bridge.journal.journal import Journal
from bridge.journal.measures import IdCacheStatus
from bridge.journal.reader import BridgeLag
from bridge.metrics import Registry, Sample
from bridge.operated import Operated
from bridge.store import AddressStatus


class Metering:
    """The metrics of one node."""

    def __init__(self) -> None:
        self._registry = Registry()
        self._journal: Journal | None = None
        self._relays: Mapping[str, Operated] = {}
        #: As of the scrape that is being answered.
        self._lags: Sequence[BridgeLag] = ()
        self._caches: Sequence[IdCacheStatus] = ()
        self._addresses: Sequence[AddressStatus] = ()
        self._registry.collect(self._of_bridges)
        self._registry.collect(self._of_addresses)
        self._registry.collect(self._of_journal)

    def watch(self, journal: Journal, relays: Mapping[str, Operated]) -> None:
        """From now on."""
        self._journal = journal
        self._relays = relays

    async def text(self) -> bytes:
        """Prometheus's text format."""
        if self._journal is not None:
            self._lags = await self._journal.bridge_lags()
            self._caches = await self._journal.id_caches()
            self._addresses = await self._journal.addresses()
        return self._registry.text()

    def _of_bridges(self) -> Iterator[Sample]:
        journal = self._journal
        for name, relay in self._relays.items():
            labels = {"bridge": name}
            counts = relay.counts
            yield Sample(metrics.MESSAGES_SENT, counts.sent, labels)
            yield Sample(metrics.MESSAGES_ACKNOWLEDGED, counts.acknowledged, labels)
            yield Sample(metrics.MESSAGES_REFUSED, counts.refused, labels)
            yield Sample(metrics.MESSAGES_RESENT, counts.resent, labels)
            yield Sample(metrics.MESSAGES_FILTERED, 0, labels)
            yield Sample(metrics.DUPLICATES_REJECTED, counts.replayed, {"kind": "replay", **labels})
            yield Sample(metrics.DUPLICATES_REJECTED, counts.repeated, {"kind": "producer", **labels})
            yield Sample(metrics.IN_FLIGHT_MESSAGES, relay.in_flight, labels)
            yield Sample(metrics.PARKED_PARTITIONS, counts.parked, labels)
            yield Sample(metrics.CONNECTED, int(relay.connected), labels)
            yield Sample(metrics.THROTTLED_SECONDS, counts.throttled_ms / 1000, labels)
            yield Sample(metrics.RECONNECTS, counts.reconnects, labels)
            yield Sample(metrics.LAST_PROGRESS, counts.last_progress_ms / 1000 or None, labels)
            yield from metrics.state_samples(name, relay.state)
            messages, oldest_ms = relay.lag or self._journal_lag(name)
            yield Sample(metrics.LAG_MESSAGES, messages, labels)
            age_ms = 0 if oldest_ms is None or journal is None else journal.clock.wall_ms() - oldest_ms
            yield Sample(metrics.LAG_SECONDS, max(age_ms, 0) / 1000, labels)

    def _journal_lag(self, bridge: str) -> tuple[int, int | None]:
        lags = [lag for lag in self._lags if lag.bridge == bridge]
        oldest_ms = min((lag.oldest_ms for lag in lags if lag.oldest_ms is not None), default=None)
        return sum(lag.messages for lag in lags), oldest_ms

    def _of_addresses(self) -> Iterator[Sample]:
        if self._journal is None:
            return
        for address, counts in list(self._journal.counts.of_address.items()):
            labels = {"address": address}
            yield Sample(metrics.MESSAGES_STORED, counts.stored, labels)
            yield Sample(metrics.DUPLICATES_REJECTED, counts.repeated, {"kind": "producer", **labels})
            yield Sample(metrics.DUPLICATES_REJECTED, counts.replayed, {"kind": "replay", **labels})
        for status in self._addresses:
            labels = {"address": status.address}
            yield Sample(metrics.ADDRESS_BYTES, status.bytes, labels)
            yield Sample(metrics.ADDRESS_MAX_BYTES, status.max_bytes, labels)
            for queue in status.queues:
                yield Sample(metrics.QUEUE_LAG_MESSAGES, queue.lag, {**labels, "queue": queue.name})
        for cache in self._caches:
            labels = {"address": cache.address}
            yield Sample(metrics.ID_CACHE_ENTRIES, cache.entries, labels)
            yield Sample(metrics.ID_CACHE_CAPACITY, cache.capacity, labels)
            yield Sample(metrics.ID_CACHE_EVICTIONS, cache.evicted, labels)
            yield Sample(metrics.ID_CACHE_OLDEST_SECONDS, cache.oldest_seconds, labels)

    def _of_journal(self) -> Iterator[Sample]:
        if self._journal is None:
            return
        sizes = self._journal.sizes()
        yield Sample(metrics.JOURNAL_BYTES, sizes.file, {})
        yield Sample(metrics.JOURNAL_WAL_BYTES, sizes.write_ahead_log, {})
        yield Sample(metrics.JOURNAL_COMMITS, self._journal.commits, {})
