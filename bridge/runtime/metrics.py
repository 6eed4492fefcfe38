"""Metrics: all of them in one table, and their sources at a scrape.

Nothing is computed between scrapes: the hot paths add to plain numbers, and a scrape turns those into the
families that `prometheus_client` writes (docs/decisions/0018-metrics-are-pulled-at-a-scrape.md).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import accumulate
from typing import Final, Literal, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

_PREFIX: Final = "core_bridge_"


@dataclass(frozen=True, slots=True)
class Metric:
    """The name of a metric, and its meaning."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    #: The labels that each sample of it has.
    labels: tuple[str, ...]
    help: str


def _counter(name: str, help_text: str, labels: tuple[str, ...]) -> Metric:
    return Metric(_PREFIX + name, "counter", labels, help_text)


def _gauge(name: str, help_text: str, labels: tuple[str, ...]) -> Metric:
    return Metric(_PREFIX + name, "gauge", labels, help_text)


_BRIDGE: Final = ("bridge",)
_ADDRESS: Final = ("address",)
#: With `partition-metrics` in `[operations]`.
_PARTITION: Final = ("bridge", "topic", "partition")

MESSAGES_STORED: Final = _counter("messages_stored_total", "Messages stored at an address.", _ADDRESS)
MESSAGES_SENT: Final = _counter("messages_sent_total", "Messages handed to the target, repeats too.", _BRIDGE)
MESSAGES_ACKNOWLEDGED: Final = _counter(
    "messages_acknowledged_total", "Messages that the target confirmed.", _BRIDGE
)
MESSAGES_REFUSED: Final = _counter(
    "messages_refused_total", "Messages that the target refused for good; see the dead letters.", _BRIDGE
)
MESSAGES_RESENT: Final = _counter(
    "messages_resent_total",
    "Messages sent in vain, that were or will be sent again: not taken, or their transaction failed.",
    _BRIDGE,
)
MESSAGES_FILTERED: Final = _counter(
    "messages_filtered_total", "Messages that the bridge's filter passed over.", _BRIDGE
)
MESSAGES_NOT_EVALUATED: Final = _counter(
    "messages_not_evaluated_total",
    "Those of the filtered messages for which the bridge's condition could not be evaluated.",
    _BRIDGE,
)
FILTER_DOUBTFUL: Final = _gauge(
    "filter_doubtful",
    "1 where the bridge's filter took none of 1,000 messages or more, or names what none of them had.",
    _BRIDGE,
)
MESSAGES_DROPPED: Final = _counter(
    "messages_dropped_total", "Messages that the bridge's transformer dropped.", _BRIDGE
)
DUPLICATES_REJECTED: Final = _counter(
    "duplicates_rejected_total",
    "Messages not stored again: a producer's known ID, or a bridge's replay after a reconnect.",
    ("address", "kind"),
)
#: The only name that has two sets of labels: dashboards have used it since there are metrics.
TARGET_DUPLICATES: Final = replace(DUPLICATES_REJECTED, labels=("bridge", "kind"))
IN_FLIGHT_MESSAGES: Final = _gauge("in_flight_messages", "Messages sent and not yet confirmed.", _BRIDGE)
IN_FLIGHT_BYTES: Final = _gauge("in_flight_bytes", "Bytes sent and not yet confirmed.", _BRIDGE)
IN_FLIGHT_WANTED_BYTES: Final = _gauge(
    "in_flight_wanted_bytes", "Bytes that are to be on their way, by what the line has shown.", _BRIDGE
)
LINE_RATE: Final = _gauge(
    "line_bytes_per_second", "What the line to the target has carried; 0 while it is not known.", _BRIDGE
)
ROUND_TRIP: Final = _gauge(
    "round_trip_seconds",
    "Shortest round trip to another node; none while it is not measured.",
    _BRIDGE,
)
LIMIT: Final = _gauge(
    "limit", "1 for what keeps the bridge from sending more, 0 for the others.", ("bridge", "limit")
)
BYTES_RESENT: Final = _counter(
    "bytes_resent_total", "Bytes of messages sent in vain, as far as this end knows.", _BRIDGE
)
LAG_MESSAGES: Final = _gauge(
    "lag_messages", "Messages at the source that wait for the target; none while it is not known.", _BRIDGE
)
LAG_SECONDS: Final = _gauge(
    "lag_seconds", "Age of the oldest message that waits for the target; none while it is not known.", _BRIDGE
)
PARKED_PARTITIONS: Final = _gauge(
    "parked_partitions",
    "Source partitions that stand still: a record cannot be decoded, or the target has no place for it.",
    _BRIDGE,
)
PARTITION_POSITION: Final = _gauge(
    "partition_position", "First position of a source partition that the target has not covered.", _PARTITION
)
PARTITION_END: Final = _gauge(
    "partition_end", "One beyond the last record of a source partition, committed or not.", _PARTITION
)
PARTITION_LAG_MESSAGES: Final = _gauge(
    "partition_lag_messages", "Positions of a source partition that wait for the target.", _PARTITION
)
CONNECTED: Final = _gauge("connected", "1 while the bridge has its target, else 0.", _BRIDGE)
STATE: Final = _gauge(
    "state", "1 for the state that the bridge is in, 0 for the others.", ("bridge", "state")
)
THROTTLED_SECONDS: Final = _counter(
    "throttled_seconds_total", "How long the target's brokers have asked to wait (quotas).", _BRIDGE
)
RECONNECTS: Final = _counter("reconnects_total", "Times that the bridge connected again.", _BRIDGE)
FRAME_BYTES: Final = _counter(
    "link_frame_bytes_total", "Bytes of batches and bodies sent to another node, before compression.", _BRIDGE
)
WIRE_BYTES: Final = _counter(
    "link_wire_bytes_total", "Bytes that they took on the line, compressed where that paid.", _BRIDGE
)
MESSAGES_UNROUTED: Final = _counter(
    "messages_unrouted_total", "Messages that no queue of the address took: each has a filter.", _ADDRESS
)
QUEUE_LAG_MESSAGES: Final = _gauge(
    "queue_lag_messages", "Messages that the queue's readers have still to settle.", ("address", "queue")
)
QUEUE_NOT_EVALUATED: Final = _counter(
    "queue_messages_not_evaluated_total",
    "Messages that the queue did not get because its filter could not be evaluated for them.",
    ("address", "queue"),
)
ADDRESS_BYTES: Final = _gauge("address_bytes", "What the address's messages take of the journal.", _ADDRESS)
ADDRESS_MAX_BYTES: Final = _gauge(
    "address_max_bytes", "From where on the address is full (max-size-bytes).", _ADDRESS
)
ID_CACHE_ENTRIES: Final = _gauge("id_cache_entries", "Duplicate IDs remembered.", _ADDRESS)
ID_CACHE_CAPACITY: Final = _gauge("id_cache_capacity", "Duplicate IDs that can be remembered.", _ADDRESS)
ID_CACHE_EVICTIONS: Final = _counter(
    "id_cache_evictions_total", "Duplicate IDs forgotten because newer ones came.", _ADDRESS
)
ID_CACHE_OLDEST_SECONDS: Final = _gauge(
    "id_cache_oldest_seconds", "Age of the oldest duplicate ID that is remembered.", _ADDRESS
)
LINKS: Final = _gauge("links", "Links of other nodes' bridges that are open here.", ())
LINKS_OPENED: Final = _counter("links_opened_total", "Links that other nodes' bridges have opened.", ())
RECEIVED_FRAME_BYTES: Final = _counter(
    "links_received_frame_bytes_total",
    "Bytes of batches and bodies that came over links, before compression.",
    (),
)
RECEIVED_WIRE_BYTES: Final = _counter(
    "links_received_wire_bytes_total", "Bytes that they took on the line, compressed where that paid.", ()
)
REQUESTS_REFUSED: Final = _counter(
    "requests_refused_total",
    "Requests refused for want of credentials or a right, or for their Origin or Host.",
    ("listener", "code"),
)
READY: Final = _gauge("ready", "1 while the node is ready, as /ready says with its reasons, else 0.", ())
BUILD_INFO: Final = _gauge("build_info", "1; the labels say which program this is.", ("version", "python"))
REQUEST_DURATION: Final = Metric(
    _PREFIX + "http_request_duration_seconds",
    "histogram",
    ("listener", "kind"),
    "How long requests took, from their headers to their answer; reads with the wait for messages.",
)
CERTIFICATE_EXPIRES: Final = _gauge(
    "certificate_expires_seconds",
    "Time until the certificate of this setting expires; negative: since it has.",
    ("setting",),
)
LOG_LINES_DROPPED: Final = _counter(
    "log_lines_dropped_total", "Log lines dropped because the reader of stderr stood still.", ()
)
DISK_FREE_BYTES: Final = _gauge(
    "disk_free_bytes", "Free space of the disk that the data directory is on.", ()
)
DISK_SIZE_BYTES: Final = _gauge("disk_size_bytes", "Size of that disk.", ())
JOURNAL_BYTES: Final = _gauge("journal_bytes", "Size of the journal's file.", ())
JOURNAL_WAL_BYTES: Final = _gauge("journal_wal_bytes", "Size of the journal's write-ahead log.", ())
JOURNAL_COMMITS: Final = _counter("journal_commits_total", "Transactions of the journal.", ())
LAST_PROGRESS: Final = _gauge(
    "last_progress_timestamp_seconds", "When the target last confirmed something, since the epoch.", _BRIDGE
)

#: All metrics, in the order of the scrape.
METRICS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Metric))


#: Upper bounds of the buckets of a duration, in seconds; above the last there is a bucket without a bound.
BUCKETS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0)


class Histogram:
    """The number of durations in each of `BUCKETS`. Adding costs some 200 ns; one thread adds."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bounds as Prometheus writes them, each with the count of its bucket and of those below it."""
        return list(zip((*map(str, BUCKETS), "+Inf"), accumulate(self.counts), strict=True))


class Sample(NamedTuple):
    """One value at the moment of a scrape; a histogram's is all of it."""

    metric: Metric
    value: float | Histogram
    labels: dict[str, str]


Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


def families(samples: Iterable[Sample]) -> list[Family]:
    """All metrics with their samples, in the order of `METRICS`, for `prometheus_client`.

    Raises:
        ValueError: a sample has other labels than its metric, or is a histogram's where its metric is none.
    """
    found = {metric: _family(metric) for metric in METRICS}
    for metric, value, labels in samples:
        if labels.keys() != set(metric.labels):
            wanted, given = (", ".join(names) or "none" for names in (metric.labels, labels))
            raise ValueError(f"{metric.name} has the labels {wanted}; found {given}")
        values = [labels[name] for name in metric.labels]
        if metric not in found:  # of an extension of the node
            found[metric] = _family(metric)
        match found[metric], value:
            case HistogramMetricFamily() as family, Histogram():
                family.add_metric(values, value.buckets(), value.sum)
            case (CounterMetricFamily() | GaugeMetricFamily()) as family, int() | float():
                family.add_metric(values, value)
            case _:
                raise ValueError(f"{metric.name} is a {metric.kind}; found a {type(value).__name__}")
    # Two sets of labels are two families here, and one for a scraper.
    found[DUPLICATES_REJECTED].samples += found.pop(TARGET_DUPLICATES).samples
    return list(found.values())


def _family(metric: Metric) -> Family:
    match metric.kind:
        case "counter":
            return CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
        case "gauge":
            return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
        case "histogram":
            return HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)


def state_samples(bridge: str, current: Enum) -> Iterator[Sample]:
    """A sample for each possible state: 1 for the current one."""
    for state in type(current):
        yield Sample(STATE, int(state is current), {"bridge": bridge, "state": str(state.value)})
