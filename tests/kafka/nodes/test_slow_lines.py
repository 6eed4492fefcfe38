"""A node and a Kafka cluster with a slow line between them: all passes, once, in order, at the line's rate.

In short: target/test_slow_lines.py and source/test_slow_lines.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.harness.eventually import eventually
from tests.harness.node import MakeNode
from tests.kafka.bridges import bridge_table, connector_tables
from tests.kafka.cluster.far import Far
from tests.kafka.source.rig import produce
from tests.kafka.traffic.checker import read

Unique = Callable[[str], str]
pytestmark = pytest.mark.lines_long

#: Share of the line's rate that messages have, once the first transactions have shown it.
GOODPUT: Final = 0.8
#: Time in seconds for the start of a bridge, and for what the line is not known by.
START_S: Final = 40.0
#: (bytes a second, messages, bytes of each)
ROWS: Final = [
    pytest.param(2_000, 60, 1_000, id="16-kbit"),
    pytest.param(2_000, 2, 100_000, id="16-kbit-100-kB"),
    pytest.param(8_000, 50, 10_000, id="64-kbit"),
    pytest.param(20_000, 150, 10_000, id="160-kbit"),
    pytest.param(125_000, 400, 10_000, id="1000-kbit"),
]


def body(number: int, size: int) -> bytes:
    return (b"%d:" % number).ljust(size, b"x")


def number_of(found: bytes | str | None) -> int:
    text = found if isinstance(found, str) else (found or b"").decode()
    return int(text.partition(":")[0])


def within_s(rate: int, count: int, size: int) -> float:
    """Twice what the line needs at `GOODPUT`, where a message of its own needs more than one attempt."""
    return START_S + 2 * count * size / rate / GOODPUT


@pytest.mark.parametrize(("rate", "count", "size"), ROWS)
def test_a_node_sends_its_backlog_to_kafka(
    far: Far, unique: Unique, make_node: MakeNode, rate: int, count: int, size: int
) -> None:
    bridge, topic = unique("out"), unique("orders")
    with far.line(rate) as line:
        node = make_node(
            "node-1",
            connector_tables({"far": far.reached})
            + bridge_table(bridge, queue_name=topic, static_connectors=["far"]),
        ).start()
        far.cluster.create_topic(topic)
        eventually(lambda: node.bridge_state(bridge) == "RUNNING", "it runs", START_S)
        before, began_s = line.up.carried, time.monotonic()
        for number in range(count):
            node.api.send(topic, body(number, size))
        eventually(
            lambda: node.status(bridge)["acknowledged"] == count,
            "all is there",
            within_s(rate, count, size),
        )
        report("node to Kafka", rate, count * size, time.monotonic() - began_s, line.up.carried - before)
        status: dict[str, Any] = node.status(bridge)
        assert (status["state"], status["refused"]) == ("RUNNING", 0)
        assert node.stop() == 0
    assert [number_of(one.value) for one in read(far.cluster, topic)] == list(range(count))


@pytest.mark.parametrize(("rate", "count", "size"), ROWS)
def test_a_node_reads_what_kafka_has(
    far: Far, unique: Unique, make_node: MakeNode, rate: int, count: int, size: int
) -> None:
    bridge, topic = unique("in"), unique("orders")
    far.cluster.create_topic(topic)
    produce(far.cluster, topic, [body(number, size) for number in range(count)])
    with far.line(rate) as line:
        began_s = time.monotonic()
        node = make_node(
            "node-1",
            connector_tables({"far": far.reached})
            + bridge_table(bridge, source_connector="far", queue_name=topic, static_connectors=["journal"]),
        ).start()
        eventually(
            lambda: node.status(bridge)["acknowledged"] == count,
            "all is there",
            within_s(rate, count, size),
        )
        report("Kafka to node", rate, count * size, time.monotonic() - began_s, line.down.carried)
        assert [number_of(one) for one in node.api.bodies(topic)] == list(range(count))
        assert node.stop() == 0


def report(what: str, rate: int, size: int, took_s: float, carried: int) -> None:
    print(
        f"{what}, {rate} B/s: {size} bytes in {took_s:.1f} s, {size / took_s:.0f} B/s,"
        f" {carried / size:.2f} times on the line"
    )
