"""Brokers that are killed, change their leaders, and lose the end of a log."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import pytest

from tests.harness.node import MakeNode
from tests.kafka.cluster.brokers import Cluster
from tests.kafka.conftest import QUICK_SESSIONS
from tests.kafka.exactly_once.at_source import stamps_at
from tests.kafka.exactly_once.rig import APART_MS, Feed, Form, Way, failed, started
from tests.kafka.traffic.checker import check

MakeCluster = Callable[..., Cluster]
MakeWay = Callable[..., Way]

PARTITIONS: Final = 3
#: Most that arrives between two breaks.
MOST_BETWEEN: Final = 100
#: Two replicas, either of which may lead although it is behind: what an operator sets who prefers to go on.
CARELESS: Final = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}


def test_brokers_of_both_ends_are_killed_and_come_back(
    form: Form, make_cluster: MakeCluster, make_way: MakeWay, make_node: MakeNode, rng: random.Random
) -> None:
    ends = {
        "source": make_cluster(name="source", properties=QUICK_SESSIONS),
        "target": make_cluster(name="target", properties=QUICK_SESSIONS),
    }
    way = make_way(PARTITIONS, **ends)
    node = started(make_node("node-1", way.settings(concurrency=2)))
    with way.feed.flowing(form.messages_per_s):
        for _ in range(max(1, form.rounds // 4)):
            for cluster in ends.values():
                way.await_more(1 + rng.randrange(MOST_BETWEEN))
                cluster.broker(1).kill()
                cluster.restart()
    way.finish(node)


def test_leaders_of_source_and_target_change(
    form: Form, make_cluster: MakeCluster, make_way: MakeWay, make_node: MakeNode, rng: random.Random
) -> None:
    """One cluster of three is both ends, so that every dead broker led something of each."""
    cluster = make_cluster(3, properties=QUICK_SESSIONS)
    two = {"min.insync.replicas": "2"}
    way = make_way(
        PARTITIONS,
        source=cluster,
        target=cluster,
        target_topic="copy",
        source_config=two,
        target_config=two,
        replication_factor=3,
    )
    node = started(make_node("node-1", way.settings(concurrency=2)))
    with way.feed.flowing(form.messages_per_s):
        for _ in range(max(1, form.rounds // 4)):
            way.await_more(1 + rng.randrange(MOST_BETWEEN))
            dead = cluster.leader(way.topic, rng.randrange(PARTITIONS))
            cluster.broker(dead).kill()
            left = [broker.id for broker in cluster.brokers if broker.id != dead]
            for topic in (way.topic, way.target_topic):
                cluster.await_leaders(topic, PARTITIONS, among=left)
            way.await_more(1)
            cluster.restart()
            for partition in range(PARTITIONS):
                cluster.await_in_sync(way.topic, {1, 2, 3}, partition)
    way.finish(node)


@pytest.mark.kafka_long  # in short: source/test_leaders.py
def test_the_end_of_the_source_log_is_lost_and_others_take_its_place(
    form: Form, make_cluster: MakeCluster, make_way: MakeWay, make_node: MakeNode, rng: random.Random
) -> None:
    """The bridge has relayed what an unclean election takes away: it stops with the numbers, both while the
    log is shorter and when it has grown beyond with other records."""
    cluster = make_cluster(3, properties=QUICK_SESSIONS)
    traffic = form.traffic(rng.randrange(2**31), 1, transaction=0)
    way = make_way(source=cluster, traffic=traffic, replicas=[[1, 2]], source_config=CARELESS)
    node = started(make_node("node-1", way.settings()))
    kept = form.messages // 2
    way.feed.send(kept)
    way.await_all()
    cluster.broker(2).stop()
    cluster.await_in_sync(way.topic, {1})
    way.feed.send()
    way.await_all()
    stamps = stamps_at(cluster, way.topic, traffic)

    cluster.broker(1).kill()
    cluster.broker(2).start()
    cluster.await_leaders(way.topic, among=[2])
    reason = failed(node, way.bridge)
    assert f"next is {traffic.count} and the log ends at {kept}" in reason, reason
    assert "core-bridge positions" in reason

    others = form.traffic(rng.randrange(2**31), 1, transaction=0, started_ms=traffic.started_ms + APART_MS)
    Feed(cluster, way.topic, others).send()
    assert node.stop() == 0
    node.spawn()
    reason = failed(node, way.bridge)
    assert f"covers up to {traffic.count}" in reason, reason
    assert f"now ends at {kept}" in reason
    assert node.stop() == 0
    report = check(way.target, way.topic, traffic, stamps=stamps, hops=1)
    assert report.ok, report
