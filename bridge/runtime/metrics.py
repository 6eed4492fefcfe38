"""Metrics: what there is to measure, in one table, and Prometheus's text format for it.

A registry of our own, because a node needs only counters and values that are read when somebody asks:
nothing is computed between scrapes. Format: Prometheus text exposition 0.0.4.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import accumulate
from typing import Final, Literal, NamedTuple

_PREFIX: Final = "core_bridge_"


@dataclass(frozen=True, slots=True)
class Metric:
    """One name, and what it means."""

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
DUPLICATES_REJECTED: Final = _counter(
    "duplicates_rejected_total",
    "Messages not stored again: a producer's known ID, or a bridge's replay after a reconnect.",
    ("address", "kind"),
)
#: The one name that has two sets of labels: dashboards go by it since there are metrics.
TARGET_DUPLICATES: Final = replace(DUPLICATES_REJECTED, labels=("bridge", "kind"))
IN_FLIGHT_MESSAGES: Final = _gauge("in_flight_messages", "Messages sent and not yet confirmed.", _BRIDGE)
LAG_MESSAGES: Final = _gauge(
    "lag_messages", "Messages stored at the source that wait for the target.", _BRIDGE
)
LAG_SECONDS: Final = _gauge("lag_seconds", "Age of the oldest message that waits for the target.", _BRIDGE)
PARKED_PARTITIONS: Final = _gauge(
    "parked_partitions", "Source partitions that stand still: a record cannot be decoded.", _BRIDGE
)
CONNECTED: Final = _gauge("connected", "1 while the bridge has its target, else 0.", _BRIDGE)
STATE: Final = _gauge(
    "state", "1 for the state that the bridge is in, 0 for the others.", ("bridge", "state")
)
THROTTLED_SECONDS: Final = _counter(
    "throttled_seconds_total", "How long the target's brokers have asked to wait (quotas).", _BRIDGE
)
RECONNECTS: Final = _counter("reconnects_total", "Times that the bridge connected again.", _BRIDGE)
QUEUE_LAG_MESSAGES: Final = _gauge(
    "queue_lag_messages", "Messages that the queue's readers have still to settle.", ("address", "queue")
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
REQUESTS_REFUSED: Final = _counter(
    "requests_refused_total",
    "Requests refused for want of credentials or a right, or for their Origin or Host.",
    ("listener", "code"),
)
BUILD_INFO: Final = _gauge("build_info", "1; the labels say which program this is.", ("version", "python"))
REQUEST_DURATION: Final = Metric(
    _PREFIX + "http_request_duration_seconds",
    "histogram",
    ("listener", "kind"),
    "How long requests took, from their headers to their answer; reads with the wait for messages.",
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

#: Every metric there is, in the order of the scrape.
METRICS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Metric))


class Sample(NamedTuple):
    """One value at the moment of a scrape; None: there is none now, and the sample is left out."""

    metric: Metric
    value: float | None
    labels: dict[str, str]
    #: Of a histogram's sample: ``_bucket`` with the bucket's upper bound, ``_sum`` or ``_count``.
    part: str = ""
    bound: str = ""


#: Upper bounds of the buckets of a duration, in seconds; above the last there is one more, without.
BUCKETS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0)


class Histogram:
    """How many durations fell into each of `BUCKETS`. Adding costs some 200 ns; one thread adds."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds

    def samples(self, metric: Metric, labels: dict[str, str]) -> Iterator[Sample]:
        """As Prometheus reads it: each bucket with those below it."""
        for bound, upto in zip((*map(str, BUCKETS), "+Inf"), accumulate(self.counts), strict=True):
            yield Sample(metric, upto, labels, "_bucket", bound)
        yield Sample(metric, self.sum, labels, "_sum")
        yield Sample(metric, sum(self.counts), labels, "_count")


class Counter:
    """A number that only grows. Adding costs some 50 ns; one thread adds, any thread reads."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, number: int = 1) -> None:
        """Count `number` more."""
        self.value += number


class Registry:
    """What one node measures."""

    def __init__(self) -> None:
        self._counters: dict[tuple[Metric, tuple[tuple[str, str], ...]], Counter] = {}
        self._collectors: list[Callable[[], Iterable[Sample]]] = []

    def counter(self, metric: Metric, **labels: str) -> Counter:
        """The counter for these labels, new at 0 or as it stands: keep it where the counting is done.

        Raises:
            ValueError: `metric` is no counter, or has other labels.
        """
        if metric.kind != "counter":
            raise ValueError(f"{metric.name} is a {metric.kind}: it is read, not counted")
        _check_labels(metric, labels)
        return self._counters.setdefault((metric, tuple(sorted(labels.items()))), Counter())

    def read(self, metric: Metric, value: Callable[[], float | None], **labels: str) -> None:
        """Ask `value` at each scrape.

        Raises:
            ValueError: `metric` has other labels.
        """
        _check_labels(metric, labels)
        self._collectors.append(lambda: (Sample(metric, value(), labels),))

    def collect(self, samples: Callable[[], Iterable[Sample]]) -> None:
        """Ask for samples at each scrape: for bridges and addresses that come and go."""
        self._collectors.append(samples)

    def text(self) -> bytes:
        """Everything as Prometheus reads it.

        Raises:
            ValueError: a collector gave a sample twice, or with other labels than its metric has.
        """
        lines: dict[str, dict[str, str]] = {metric.name: {} for metric in METRICS}
        for metric, value, labels, part, bound in self._samples():
            if value is None:
                continue
            _check_labels(metric, labels)
            series = metric.name + part + _label_text(labels | ({"le": bound} if bound else {}))
            if series in lines[metric.name]:
                raise ValueError(f"two values for one series: {series}")
            lines[metric.name][series] = f"{series} {_number(value)}"
        families = {metric.name: metric for metric in reversed(METRICS)}
        return "".join(_family(families[name], found.values()) for name, found in lines.items()).encode()

    def _samples(self) -> Iterator[Sample]:
        for (metric, labels), counter in self._counters.items():
            yield Sample(metric, counter.value, dict(labels))
        for collector in self._collectors:
            yield from collector()


def state_samples(bridge: str, current: Enum) -> Iterator[Sample]:
    """A sample for each state that there is: 1 for the current one."""
    for state in type(current):
        yield Sample(STATE, int(state is current), {"bridge": bridge, "state": str(state.value)})


def _check_labels(metric: Metric, labels: dict[str, str]) -> None:
    if labels.keys() != set(metric.labels):
        wanted, found = (", ".join(names) or "none" for names in (metric.labels, labels))
        raise ValueError(f"{metric.name} has the labels {wanted}; found {found}")


def _family(metric: Metric, samples: Iterable[str]) -> str:
    help_text = metric.help.replace("\\", r"\\").replace("\n", r"\n")
    head = (f"# HELP {metric.name} {help_text}", f"# TYPE {metric.name} {metric.kind}")
    return "\n".join((*head, *samples, ""))


def _label_text(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(labels[name])}"' for name in sorted(labels)) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(int(value))  # a bool is 0 or 1
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)
