"""The harness that fault tests use: a node with a Kafka bridge as a process, killed, paused and crashed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.harness.eventually import eventually
from tests.harness.node import MakeNode
from tests.kafka.bridges import await_progress, kafka_bridge
from tests.kafka.conftest import Clusters
from tests.kafka.traffic.checker import check, stamps_of
from tests.kafka.traffic.traffic import Traffic, produce

Unique = Callable[[str], str]


@pytest.fixture
def topic(clusters: Clusters, unique: Unique) -> Iterator[str]:
    name = unique("orders")
    clusters.a.create_topic(name, partitions=3)
    yield name
    clusters.a.delete_topic(name)


@pytest.mark.kafka_long  # in short: exactly_once/test_kills.py
def test_a_bridge_relays_everything_through_kills_pauses_and_crash_points(
    clusters: Clusters, topic: str, unique: Unique, make_node: MakeNode
) -> None:
    bridge = unique("a-to-b")
    traffic = Traffic(1, 3_000, partitions=3, transaction=100, repeats=0.05)
    records = traffic.records()
    node = make_node("node-1", kafka_bridge(clusters._asdict(), bridge, queue_name=topic))

    node.start()
    produce(clusters.a, topic, [next(records) for _ in range(1_000)])
    eventually(lambda: node.status(bridge)["acknowledged"], "something is relayed")
    node.pause()
    produce(clusters.a, topic, [next(records) for _ in range(1_000)])
    node.resume()
    node.kill()
    node.crash("kafka.before-commit")
    node.start()
    produce(clusters.a, topic, records)
    await_progress(clusters.a, bridge, topic)
    assert node.status(bridge)["state"] == "RUNNING"
    assert node.stop() == 0

    report = check(clusters.b, topic, traffic, stamps=stamps_of(clusters.a, topic, traffic), hops=1)
    assert report.ok, report


def test_a_crash_point_that_is_not_reached_is_said(
    clusters: Clusters, topic: str, unique: Unique, make_node: MakeNode
) -> None:
    node = make_node("node-1", kafka_bridge(clusters._asdict(), unique("a-to-b"), queue_name=topic))
    with pytest.raises(AssertionError, match=r"node-1 did not reach kafka.after-commit 99 times in 3 s"):
        node.crash("kafka.after-commit", 99, within_s=3)
    node.await_ready()
    assert node.stop() == 0
