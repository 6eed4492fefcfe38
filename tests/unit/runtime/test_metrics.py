"""The scrape, read back by a strict reader of the text format."""

from __future__ import annotations

import math
import re
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.runtime import metrics
from bridge.runtime.metrics import METRICS, Histogram, Registry, Sample

#: The contract's names: written out, so that one cannot go missing unseen.
CONTRACT = {
    *(
        f"core_bridge_messages_{what}_total"
        for what in ("stored", "sent", "acknowledged", "refused", "filtered")
    ),
    "core_bridge_duplicates_rejected_total",
    "core_bridge_http_request_duration_seconds",
    "core_bridge_disk_free_bytes",
    "core_bridge_disk_size_bytes",
    "core_bridge_in_flight_messages",
    "core_bridge_lag_messages",
    "core_bridge_lag_seconds",
    "core_bridge_parked_partitions",
    "core_bridge_connected",
    "core_bridge_state",
    "core_bridge_messages_resent_total",
    "core_bridge_throttled_seconds_total",
    "core_bridge_reconnects_total",
    "core_bridge_links",
    "core_bridge_links_opened_total",
    "core_bridge_requests_refused_total",
    "core_bridge_build_info",
    "core_bridge_queue_lag_messages",
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


def value(registry: Registry, name: str, **labels: str) -> float:
    return parse(registry.text())[1][name, frozenset(labels.items())]


def test_every_name_of_the_contract_is_declared_with_type_and_meaning() -> None:
    kinds, values = parse(Registry().text())
    assert set(kinds) == CONTRACT == {metric.name for metric in METRICS}
    assert {name for name, kind in kinds.items() if kind == "counter"} == {
        name for name in CONTRACT if name.endswith("_total")
    }
    assert set(kinds.values()) == {"counter", "gauge", "histogram"}
    assert values == {}
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
        ("address", "queue"),
        ("address", "kind"),
        ("bridge", "kind"),
        ("listener", "code"),
        ("listener", "kind"),
        ("version", "python"),
    }


def test_durations_are_counted_in_buckets_that_hold_those_below_them() -> None:
    registry, durations = Registry(), Histogram()
    labels = {"listener": "acceptor", "kind": "sends"}
    registry.collect(lambda: durations.samples(metrics.REQUEST_DURATION, labels))
    name = metrics.REQUEST_DURATION.name

    def buckets() -> list[float]:
        bounds = [*map(str, metrics.BUCKETS), "+Inf"]
        return [value(registry, f"{name}_bucket", le=bound, **labels) for bound in bounds]

    assert buckets() == [0] * 8
    for seconds in (0.0005, 0.001, 0.002, 0.4, 11.0):
        durations.observe(seconds)
    assert buckets() == [2, 3, 3, 3, 4, 4, 4, 5], "a bound belongs to its bucket"
    assert value(registry, f"{name}_count", **labels) == 5
    assert value(registry, f"{name}_sum", **labels) == pytest.approx(11.4035)


def test_counting_shows_in_the_next_scrape_and_a_counter_begins_at_zero() -> None:
    registry = Registry()
    stored = registry.counter(metrics.MESSAGES_STORED, address="orders")
    assert value(registry, "core_bridge_messages_stored_total", address="orders") == 0
    stored.add(500)
    stored.add()
    registry.counter(metrics.MESSAGES_STORED, address="orders").add(2)
    registry.counter(metrics.MESSAGES_STORED, address="other").add(1)
    assert value(registry, "core_bridge_messages_stored_total", address="orders") == 503
    assert value(registry, "core_bridge_messages_stored_total", address="other") == 1


def test_duplicates_are_told_apart_by_kind() -> None:
    """D56: counters by kind."""
    registry = Registry()
    registry.counter(metrics.DUPLICATES_REJECTED, kind="producer", address="orders").add(3)
    registry.counter(metrics.DUPLICATES_REJECTED, kind="replay", address="orders").add(4)
    name = "core_bridge_duplicates_rejected_total"
    assert value(registry, name, kind="producer", address="orders") == 3
    assert value(registry, name, kind="replay", address="orders") == 4


def test_values_are_read_when_somebody_asks_and_one_that_is_not_known_is_left_out() -> None:
    registry = Registry()
    now: dict[str, float | None] = {"lag": None}
    registry.read(metrics.LAG_SECONDS, lambda: now["lag"], bridge="b")
    registry.read(metrics.JOURNAL_BYTES, lambda: 2**40)
    series = ("core_bridge_lag_seconds", frozenset({("bridge", "b")}))
    assert series not in parse(registry.text())[1]
    now["lag"] = 0.25
    assert parse(registry.text())[1][series] == 0.25
    assert b"core_bridge_journal_bytes 1099511627776\n" in registry.text()


def test_addresses_may_come_and_go_between_scrapes() -> None:
    registry = Registry()
    entries = {"a": 1, "b": 2}
    registry.collect(
        lambda: [
            Sample(metrics.ID_CACHE_ENTRIES, number, {"address": name}) for name, number in entries.items()
        ]
    )
    assert len(parse(registry.text())[1]) == 2
    del entries["a"]
    assert parse(registry.text())[1] == {("core_bridge_id_cache_entries", frozenset({("address", "b")})): 2}


class State(Enum):
    STOPPED = "STOPPED"
    RUNNING = "RUNNING"
    FAILED = "FAILED"


def test_a_bridge_is_in_exactly_one_state() -> None:
    registry = Registry()
    registry.collect(lambda: metrics.state_samples("b", State.RUNNING))
    _, values = parse(registry.text())
    assert {dict(labels)["state"]: number for (_, labels), number in values.items()} == {
        "STOPPED": 0,
        "RUNNING": 1,
        "FAILED": 0,
    }


@given(st.text())
def test_any_name_of_a_bridge_comes_back_as_it_was(name: str) -> None:
    registry = Registry()
    registry.counter(metrics.MESSAGES_SENT, bridge=name).add(7)
    assert value(registry, "core_bridge_messages_sent_total", bridge=name) == 7


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (True, "1"),
        (2**53 + 1, "9007199254740993"),
        (0.5, "0.5"),
        (1e21, "1e+21"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_numbers_are_written_as_prometheus_writes_them(number: float, text: str) -> None:
    registry = Registry()
    registry.read(metrics.JOURNAL_BYTES, lambda: number)
    assert f"\ncore_bridge_journal_bytes {text}\n".encode() in registry.text()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({}, "has the labels address; found none"),
        ({"bridge": "b"}, "has the labels address; found bridge"),
        ({"address": "a", "bridge": "b"}, "has the labels address; found address, bridge"),
    ],
)
def test_a_label_that_the_metric_has_not_is_an_error_at_once(labels: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Registry().counter(metrics.MESSAGES_STORED, **labels)
    with pytest.raises(ValueError, match=message):
        Registry().read(metrics.ID_CACHE_ENTRIES, lambda: 0, **labels)


def test_a_gauge_cannot_be_counted_and_a_series_has_one_value() -> None:
    registry = Registry()
    with pytest.raises(ValueError, match="core_bridge_connected is a gauge"):
        registry.counter(metrics.CONNECTED, bridge="b")
    sample: Any = Sample(metrics.CONNECTED, 1, {"bridge": "b"})
    registry.collect(lambda: [sample, sample])
    with pytest.raises(ValueError, match=r"two values for one series: core_bridge_connected\{bridge=.b.\}"):
        registry.text()


def test_the_order_of_labels_does_not_make_another_counter() -> None:
    registry = Registry()
    registry.counter(metrics.DUPLICATES_REJECTED, kind="replay", address="a").add(1)
    registry.counter(metrics.DUPLICATES_REJECTED, address="a", kind="replay").add(1)
    assert value(registry, "core_bridge_duplicates_rejected_total", kind="replay", address="a") == 2
