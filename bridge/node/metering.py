"""The sources of each metric; nothing is computed between scrapes."""

from __future__ import annotations

import asyncio
import contextlib
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest

from bridge.errors import BridgeError
from bridge.http.links import LinkService
from bridge.http.meter import HttpMeter
from bridge.journal import measures
from bridge.journal.counts import AddressCounts
from bridge.journal.journal import Journal
from bridge.journal.measures import IdCacheStatus
from bridge.journal.sqlite.reader import BridgeLag
from bridge.journal.values.store import AddressStatus
from bridge.node.bridge_set import BridgeSet, NodeBridge
from bridge.node.extension import Extension
from bridge.relay.counts import Traffic
from bridge.relay.filtering import filter_doubt
from bridge.relay.lag import Lag, PartitionStatus, total
from bridge.relay.line import LIMITS, LineStatus
from bridge.runtime import log_output, metrics
from bridge.runtime.metrics import Family, Sample
from bridge.runtime.version import version

#: The counts of an address to which nothing has come since the node started.
_NOTHING: Final = AddressCounts()


def lag_of(bridge: str, found: NodeBridge, lags: Sequence[BridgeLag] | None) -> Lag | None:
    """Messages that wait for a bridge, and the time at which the oldest was stored (ms; None: none waits).

    `lags`: the journal's; None: it could not be read. The answer is None where it is not known.
    """
    if not found.summary.from_journal:
        return found.relay.lag
    if lags is None:
        return None
    own = [(lag.messages, lag.oldest_ms) for lag in lags if lag.bridge == bridge]
    return total(own)


class Metering:
    """The metrics of one node."""

    def __init__(self, *, with_partitions: bool = False) -> None:
        """`with_partitions`: with series for each partition of bridges that read Kafka."""
        self._with_partitions = with_partitions
        #: By bridge, the partitions at the scrape that is being answered.
        self._partitions: dict[str, Sequence[PartitionStatus]] = {}
        #: The metrics of this node alone, without those that the library adds about the process.
        self._registry = CollectorRegistry()
        #: Counts of the listeners.
        self.acceptor = HttpMeter("acceptor", "sends", "reads", "settlements")
        self.operations = HttpMeter("operations", "reads", "settlements")
        #: When each certificate of the settings expires, in seconds since the epoch, by its key.
        self.certificate_expiries: Callable[[], Mapping[str, float]] = dict
        self._links: LinkService | None = None
        self._journal: Journal | None = None
        self._bridges = BridgeSet()
        self._extensions: Sequence[Extension] = ()
        #: The lags at the scrape that is being answered; None: the journal could not be read yet.
        self._lags: Sequence[BridgeLag] | None = None
        self._caches: Sequence[IdCacheStatus] = ()
        self._addresses: Sequence[AddressStatus] = ()
        #: Whether the node is ready, at the scrape that is being answered.
        self._ready = False
        self._registry.register(self)

    def watch(
        self, journal: Journal, bridges: BridgeSet, links: LinkService, extensions: Sequence[Extension]
    ) -> None:
        """Read the metrics of these from now on."""
        self._links = links
        self._journal = journal
        self._bridges = bridges
        self._extensions = extensions

    async def text(self, *, ready: bool) -> bytes:
        """The metrics in Prometheus's text format; `ready`: whether the node is."""
        self._ready = ready
        if self._journal is not None:
            with contextlib.suppress(BridgeError):  # it cannot be read now: its last values are shown
                self._lags = await self._journal.bridge_lags()
                self._caches = await self._journal.id_caches()
                self._addresses = await self._journal.addresses()
        if self._with_partitions:
            names, found = [*self._bridges], [one.relay.partitions() for one in self._bridges.values()]
            self._partitions = dict(zip(names, await asyncio.gather(*found), strict=True))
        return generate_latest(self._registry)

    def collect(self) -> list[Family]:
        """The metrics of a scrape; the registry calls it."""
        samples = (self._of_bridges(), self._of_addresses(), self._of_journal(), self._of_process())
        added = (extension.samples() for extension in self._extensions)
        return metrics.families(chain(*samples, *added))

    def _of_bridges(self) -> Iterator[Sample]:
        journal = self._journal
        for name, found in self._bridges.items():
            relay = found.relay
            labels = {"bridge": name}
            counts = relay.counts
            yield Sample(metrics.MESSAGES_SENT, counts.sent, labels)
            yield Sample(metrics.MESSAGES_ACKNOWLEDGED, counts.acknowledged, labels)
            yield Sample(metrics.MESSAGES_REFUSED, counts.refused, labels)
            yield Sample(metrics.MESSAGES_RESENT, counts.resent, labels)
            yield Sample(metrics.MESSAGES_FILTERED, counts.filtered, labels)
            yield Sample(metrics.MESSAGES_NOT_EVALUATED, counts.not_evaluated, labels)
            doubt = filter_doubt(counts.examined, counts.taken, counts.missing)
            yield Sample(metrics.FILTER_DOUBTFUL, int(bool(doubt)), labels)
            yield Sample(metrics.MESSAGES_DROPPED, counts.dropped, labels)
            yield Sample(metrics.TARGET_DUPLICATES, counts.replayed, {"kind": "replay", **labels})
            yield Sample(metrics.TARGET_DUPLICATES, counts.repeated, {"kind": "producer", **labels})
            yield Sample(metrics.IN_FLIGHT_MESSAGES, relay.in_flight, labels)
            yield Sample(metrics.BYTES_RESENT, counts.resent_bytes, labels)
            if relay.line is not None:
                yield from _of_line(relay.line, labels)
            if counts.parked or relay.connected:
                yield Sample(metrics.PARKED_PARTITIONS, counts.parked, labels)
            yield Sample(metrics.CONNECTED, int(relay.connected), labels)
            yield Sample(metrics.THROTTLED_SECONDS, counts.throttled_ms / 1000, labels)
            yield Sample(metrics.RECONNECTS, counts.reconnects, labels)
            yield Sample(metrics.FRAME_BYTES, counts.frame_bytes, labels)
            yield Sample(metrics.WIRE_BYTES, counts.wire_bytes, labels)
            yield Sample(metrics.LAST_PROGRESS, counts.last_progress_ms / 1000, labels)
            yield from metrics.state_samples(name, relay.state)
            lag = lag_of(name, found, self._lags)
            if lag is not None:
                messages, oldest_ms = lag
                yield Sample(metrics.LAG_MESSAGES, messages, labels)
                age_ms = 0 if oldest_ms is None or journal is None else journal.clock.wall_ms() - oldest_ms
                yield Sample(metrics.LAG_SECONDS, max(age_ms, 0) / 1000, labels)

            for row in self._partitions.get(name, ()):
                of_row = {**labels, "topic": row.topic, "partition": str(row.partition)}
                yield Sample(metrics.PARTITION_POSITION, row.position, of_row)
                yield Sample(metrics.PARTITION_END, row.end, of_row)
                yield Sample(metrics.PARTITION_LAG_MESSAGES, row.lag, of_row)

    def _of_addresses(self) -> Iterator[Sample]:
        if self._journal is None:
            return
        for status in self._addresses:
            labels = {"address": status.address}
            counts = self._journal.counts.of_address.get(status.address, _NOTHING)
            yield Sample(metrics.MESSAGES_STORED, counts.stored, labels)
            yield Sample(metrics.DUPLICATES_REJECTED, counts.repeated, {"kind": "producer", **labels})
            yield Sample(metrics.DUPLICATES_REJECTED, counts.replayed, {"kind": "replay", **labels})
            yield Sample(metrics.MESSAGES_UNROUTED, counts.unrouted, labels)
            yield Sample(metrics.ADDRESS_BYTES, status.bytes, labels)
            yield Sample(metrics.ADDRESS_MAX_BYTES, status.max_bytes, labels)
            for queue in status.queues:
                of_queue = {**labels, "queue": queue.name}
                yield Sample(metrics.QUEUE_LAG_MESSAGES, queue.lag, of_queue)
                not_evaluated = self._journal.counts.not_evaluated.get((status.address, queue.name), 0)
                if queue.filter or not_evaluated:
                    yield Sample(metrics.QUEUE_NOT_EVALUATED, not_evaluated, of_queue)
        for cache in self._caches:
            labels = {"address": cache.address}
            yield Sample(metrics.ID_CACHE_ENTRIES, cache.entries, labels)
            yield Sample(metrics.ID_CACHE_CAPACITY, cache.capacity, labels)
            yield Sample(metrics.ID_CACHE_EVICTIONS, cache.evicted, labels)
            yield Sample(metrics.ID_CACHE_OLDEST_SECONDS, cache.oldest_seconds or 0, labels)

    def _of_process(self) -> Iterator[Sample]:
        yield Sample(metrics.READY, int(self._ready), {})
        yield Sample(metrics.BUILD_INFO, 1, {"version": version(), "python": platform.python_version()})
        for setting, expires_s in self.certificate_expiries().items():
            yield Sample(metrics.CERTIFICATE_EXPIRES, expires_s - time.time(), {"setting": setting})
        yield Sample(metrics.LOG_LINES_DROPPED, log_output.dropped_lines(), {})
        yield Sample(metrics.LINKS, 0 if self._links is None else len(self._links.open), {})
        yield Sample(metrics.LINKS_OPENED, 0 if self._links is None else self._links.opened, {})
        received = Traffic() if self._links is None else self._links.received()
        yield Sample(metrics.RECEIVED_FRAME_BYTES, received.frame_bytes, {})
        yield Sample(metrics.RECEIVED_WIRE_BYTES, received.wire_bytes, {})
        for meter in (self.acceptor, self.operations):
            for code, count in meter.refused.items():
                labels = {"listener": meter.listener, "code": code}
                yield Sample(metrics.REQUESTS_REFUSED, count, labels)
            for kind, durations in meter.durations.items():
                labels = {"listener": meter.listener, "kind": kind}
                yield Sample(metrics.REQUEST_DURATION, durations, labels)

    def _of_journal(self) -> Iterator[Sample]:
        if self._journal is None:
            return
        yield Sample(metrics.JOURNAL_COMMITS, self._journal.commits, {})
        try:
            sizes = measures.sizes(self._journal.options.directory)
        except OSError:  # the directory or its disk is gone: no number would be correct
            return
        yield Sample(metrics.DISK_FREE_BYTES, sizes.disk_free, {})
        yield Sample(metrics.DISK_SIZE_BYTES, sizes.disk, {})
        yield Sample(metrics.JOURNAL_BYTES, sizes.file, {})
        yield Sample(metrics.JOURNAL_WAL_BYTES, sizes.write_ahead_log, {})


def _of_line(line: LineStatus, labels: dict[str, str]) -> Iterator[Sample]:
    """The series of a bridge's line."""
    yield Sample(metrics.IN_FLIGHT_BYTES, line.in_flight, labels)
    yield Sample(metrics.IN_FLIGHT_WANTED_BYTES, line.wanted, labels)
    yield Sample(metrics.LINE_RATE, line.rate, labels)
    if line.round_trip_ms is not None:
        yield Sample(metrics.ROUND_TRIP, line.round_trip_ms / 1000, labels)
    for limit in LIMITS:
        yield Sample(metrics.LIMIT, int(line.limit == limit), {**labels, "limit": limit})
