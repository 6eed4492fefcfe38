"""The scrape, read back by a strict reader of the text format."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from bridge.runtime import metrics
from bridge.runtime.metrics import METRICS, Family, Histogram, Metric, Sample

#: The contract's names: written out, so that one cannot go missing unseen.
CONTRACT = {
    *(
        f"core_bridge_messages_{what}_total"
        for what in ("stored", "sent", "acknowledged", "refused", "filtered", "dropped", "not_evaluated")
    ),
    "core_bridge_duplicates_rejected_total",
    "core_bridge_http_request_duration_seconds",
    "core_bridge_certificate_expires_seconds",
    "core_bridge_log_lines_dropped_total",
    "core_bridge_disk_free_bytes",
    "core_bridge_filter_doubtful",
    "core_bridge_disk_size_bytes",
    "core_bridge_in_flight_messages",
    "core_bridge_in_flight_bytes",
    "core_bridge_in_flight_wanted_bytes",
    "core_bridge_line_bytes_per_second",
    "core_bridge_round_trip_seconds",
    "core_bridge_limit",
    "core_bridge_bytes_resent_total",
    "core_bridge_lag_messages",
    "core_bridge_lag_seconds",
    "core_bridge_parked_partitions",
    "core_bridge_partition_position",
    "core_bridge_partition_end",
    "core_bridge_partition_lag_messages",
    "core_bridge_connected",
    "core_bridge_state",
    "core_bridge_messages_resent_total",
    "core_bridge_throttled_seconds_total",
    "core_bridge_reconnects_total",
    "core_bridge_link_frame_bytes_total",
    "core_bridge_link_wire_bytes_total",
    "core_bridge_links_received_frame_bytes_total",
    "core_bridge_links_received_wire_bytes_total",
    "core_bridge_links",
    "core_bridge_links_opened_total",
    "core_bridge_requests_refused_total",
    "core_bridge_ready",
    "core_bridge_build_info",
    "core_bridge_messages_unrouted_total",
    "core_bridge_queue_lag_messages",
    "core_bridge_queue_messages_not_evaluated_total",
    "core_bridge_address_bytes",
    "core_bridge_address_max_bytes",
    "core_bridge_id_cache_entries",
    "core_bridge_id_cache_capacity",
    "core_bridge_id_cache_evictions_total",
    "core_bridge_id_cache_oldest_seconds",
    "core_bridge_journal_bytes",
    "core_bridge_journal_wal_bytes",
    "core_bridge_journal_commits_total",
    "core_bridge_last_progress_timestamp_seconds",
}

SAMPLE = re.compile(r"([a-z_]+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\["\\n])*)"(?:,|$)')
UNESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}

Series = tuple[str, frozenset[tuple[str, str]]]


def parse(text: bytes) -> tuple[dict[str, str], dict[Series, float]]:
    """Types by name, values by series; fails on whatever the format does not allow."""
    kinds: dict[str, str] = {}
    values: dict[Series, float] = {}
    helped = ""
    assert text.endswith(b"\n")
    for line in text.decode().removesuffix("\n").split("\n"):
        if line.startswith("# HELP "):
            helped = line.split(" ", 3)[2]
            assert helped not in kinds, f"{helped} is not in one place"
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == helped
            kinds[name] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            name, inside, number = match[1], match[2] or "", match[3]
            part = r"(_bucket|_sum|_count)" if kinds[helped] == "histogram" else ""
            assert re.fullmatch(helped + part, name), f"{name} stands under {helped}"
            found = LABEL.findall(inside)
            assert "".join(f'{key}="{value}",' for key, value in found) == (inside + "," if inside else "")
            labels = frozenset(
                (key, re.sub(r"\\.", lambda m: UNESCAPED[m[0]], value)) for key, value in found
            )
            assert (name, labels) not in values
            values[name, labels] = float(number)
    return kinds, values


def text(*samples: Sample) -> bytes:
    """These samples in the text that a scrape gets."""

    class Collector:
        def collect(self) -> Iterable[Family]:
            return metrics.families(samples)

    registry = CollectorRegistry()
    registry.register(Collector())
    return generate_latest(registry)


def values(*samples: Sample) -> dict[Series, float]:
    return parse(text(*samples))[1]


def test_every_name_of_the_contract_is_declared_with_type_and_meaning() -> None:
    kinds, series = parse(text())
    assert set(kinds) == CONTRACT == {metric.name for metric in METRICS}
    assert {name for name, kind in kinds.items() if kind == "counter"} == {
        name for name in CONTRACT if name.endswith("_total")
    }
    assert set(kinds.values()) == {"counter", "gauge", "histogram"}
    assert series == {}
    assert all(metric.help.endswith(".") for metric in METRICS)


def test_a_metric_has_one_set_of_labels() -> None:
    """So that a sum over a name adds up what is of one kind. The contract has one name with two."""
    names = [metric.name for metric in METRICS]
    twice = {metric for metric in METRICS if names.count(metric.name) > 1}
    assert twice == {metrics.DUPLICATES_REJECTED, metrics.TARGET_DUPLICATES}
    assert {metric.labels for metric in METRICS} == {
        (),
        ("bridge",),
        ("address",),
        ("bridge", "state"),
        ("bridge", "limit"),
        ("address", "queue"),
        ("address", "kind"),
        ("bridge", "kind"),
        ("bridge", "topic", "partition"),
        ("listener", "code"),
        ("listener", "kind"),
        ("version", "python"),
        ("setting",),
    }


def test_durations_are_counted_in_buckets_that_hold_those_below_them() -> None:
    durations = Histogram()
    labels = {"listener": "acceptor", "kind": "sends"}
    name = metrics.REQUEST_DURATION.name

    def value(part: str, **more: str) -> float:
        series = values(Sample(metrics.REQUEST_DURATION, durations, labels))
        return series[name + part, frozenset((labels | more).items())]

    def buckets() -> list[float]:
        return [value("_bucket", le=bound) for bound in (*map(str, metrics.BUCKETS), "+Inf")]

    assert buckets() == [0] * 8
    for seconds in (0.0005, 0.001, 0.002, 0.4, 11.0):
        durations.observe(seconds)
    assert buckets() == [2, 3, 3, 3, 4, 4, 4, 5], "a bound belongs to its bucket"
    assert value("_count") == 5
    assert value("_sum") == pytest.approx(11.4035)


def test_duplicates_are_told_apart_by_kind() -> None:
    """D56: counters by kind. The one name with two sets of labels is still one family."""
    found = [
        (metrics.DUPLICATES_REJECTED, 3, {"kind": "producer", "address": "orders"}),
        (metrics.DUPLICATES_REJECTED, 4, {"address": "orders", "kind": "replay"}),
        (metrics.TARGET_DUPLICATES, 5, {"kind": "replay", "bridge": "orders"}),
    ]
    name = "core_bridge_duplicates_rejected_total"
    assert values(*(Sample(*sample) for sample in found)) == {
        (name, frozenset(labels.items())): number for _, number, labels in found
    }


class State(Enum):
    STOPPED = "STOPPED"
    RUNNING = "RUNNING"
    FAILED = "FAILED"


def test_a_bridge_is_in_exactly_one_state() -> None:
    found = values(*metrics.state_samples("b", State.RUNNING))
    assert {dict(labels)["state"]: number for (_, labels), number in found.items()} == {
        "STOPPED": 0,
        "RUNNING": 1,
        "FAILED": 0,
    }


@given(st.text())
def test_any_name_of_a_bridge_comes_back_as_it_was(name: str) -> None:
    labels = {"bridge": name}
    found = values(Sample(metrics.MESSAGES_SENT, 7, labels))
    assert found == {("core_bridge_messages_sent_total", frozenset(labels.items())): 7}


@pytest.mark.parametrize(
    ("number", "text_"),
    [
        (True, "1.0"),
        (2**40, "1.099511627776e+12"),
        (0.5, "0.5"),
        (1e21, "1e+21"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_numbers_are_written_as_prometheus_writes_them(number: float, text_: str) -> None:
    assert f"\ncore_bridge_journal_bytes {text_}\n".encode() in text(
        Sample(metrics.JOURNAL_BYTES, number, {})
    )


@given(st.floats(allow_nan=False) | st.integers(-(2**53), 2**53))
def test_any_number_comes_back_as_it_was(number: float) -> None:
    assert values(Sample(metrics.JOURNAL_BYTES, number, {})) == {
        ("core_bridge_journal_bytes", frozenset()): number
    }


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({}, "has the labels address; found none"),
        ({"bridge": "b"}, "has the labels address; found bridge"),
        ({"address": "a", "bridge": "b"}, "has the labels address; found address, bridge"),
    ],
)
def test_a_label_that_the_metric_has_not_is_an_error(labels: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metrics.families([Sample(metrics.MESSAGES_STORED, 1, labels)])


@pytest.mark.parametrize(
    ("metric", "value", "message"),
    [
        (metrics.LINKS, Histogram(), "core_bridge_links is a gauge; found a Histogram"),
        (metrics.REQUEST_DURATION, 1, "duration_seconds is a histogram; found a int"),
    ],
)
def test_a_value_of_another_kind_is_an_error(metric: Metric, value: float | Histogram, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metrics.families([Sample(metric, value, dict.fromkeys(metric.labels, "x"))])
