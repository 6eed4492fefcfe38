"""Kafka to one of two nodes, with kills of all: the bridge fails over, its lanes go from edge to edge.

Afterwards every record has arrived at one of the hubs, at each in the order of its partition and once, and at
both only within the ranges that an edge has logged as in doubt.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Final

from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, start_together
from tests.harness.stores import check_stores
from tests.kafka.bridges import await_progress, bridge_table, connector_tables
from tests.kafka.cluster.reachable import CALL_TIMEOUT_S, Reachable
from tests.kafka.conftest import Clusters
from tests.kafka.exactly_once.rig import GROUP, Form, started

PARTITIONS: Final = 3
#: Most that arrives between two kills.
MOST_BETWEEN: Final = 100
#: Most that a page of a hub has.
PAGE: Final = 1000

#: By partition, offsets in the order in which they arrived.
Arrived = Mapping[int, list[int]]


class Numbered:
    """Records whose values say where they are: no transactions, so that an offset is a number."""

    def __init__(self, cluster: Reachable, topic: str) -> None:
        self._producer = cluster.producer({"linger.ms": 1})
        self._topic = topic
        self.sent = 0

    @contextmanager
    def flowing(self, messages_per_s: float) -> Iterator[None]:
        """Send records meanwhile; at the end they are acknowledged."""
        ending = threading.Event()

        def send() -> None:
            while not ending.wait(1 / messages_per_s):
                partition, offset = self.sent % PARTITIONS, self.sent // PARTITIONS
                self._producer.produce(self._topic, b"%d/%d" % (partition, offset), partition=partition)
                self._producer.poll(0)
                self.sent += 1
            assert self._producer.flush(CALL_TIMEOUT_S) == 0

        with ThreadPoolExecutor(1) as other:
            sending = other.submit(send)
            try:
                yield
            finally:
                ending.set()
            sending.result()


def arrived_at(hub: Node, topic: str) -> Arrived:
    found: defaultdict[int, list[int]] = defaultdict(list)
    after = -1
    while page := hub.api.browse(topic, f"after={after}&max={PAGE}"):
        for message in page:
            partition, offset = message["body"].split("/")
            found[int(partition)].append(int(offset))
        after = page[-1]["position"]
    return found


def count_at(hub: Node, topic: str) -> int:
    """Messages that came there; those of a hub that is down do not count."""
    try:
        reply = hub.api.get(f"/v1/addresses/{topic}")
    except OSError:
        return 0
    return int(reply.json["messages"]) if reply.status == 200 else 0


def test_two_edges_share_a_bridge_to_two_hubs_while_any_of_them_is_killed(
    form: Form, clusters: Clusters, make_node: MakeNode, unique: Callable[[str], str], rng: random.Random
) -> None:
    """R22"""
    topic, bridge = unique("orders"), unique("to-hub")
    clusters.a.create_topic(topic, partitions=PARTITIONS)
    hubs = [make_node(name) for name in ("hub-a", "hub-b")]
    nodes = "".join(f'[connectors.{hub.name}]\nurl = "{hub.url}"\n' for hub in hubs)
    table = bridge_table(
        bridge,
        queue_name=topic,
        source_connector="a",
        static_connectors=["hub-a", "hub-b"],
        concurrency=PARTITIONS,
        failover="at-least-once",
        reconnect_attempts_same_node=1,
    )
    settings = nodes + connector_tables({"a": clusters.a}, {"a": GROUP}) + table
    edges = [make_node(f"edge-{number}", settings) for number in (1, 2)]
    start_together(*hubs, *edges)
    records = Numbered(clusters.a, topic)

    def more_than(count: int, hub: Node) -> bool:
        return count_at(hub, topic) > count

    with records.flowing(form.messages_per_s):
        for turn in range(2 * form.rounds):
            hub, other = hubs if turn % 2 == 0 else hubs[::-1]
            before = count_at(other, topic)
            hub.kill()
            if rng.random() < 0.5:
                edge = rng.choice(edges)
                edge.kill()
                started(edge)
            there = before + rng.randrange(MOST_BETWEEN)
            eventually(partial(more_than, there, other), f"{other.name} gets what comes")
            started(hub)
    await_progress(clusters.a, bridge, topic)
    per_partition = {one: -(-(records.sent - one) // PARTITIONS) for one in range(PARTITIONS)}
    in_doubt = [event for edge in edges for event in edge.events("failover-in-doubt")]
    arrived = [arrived_at(hub, topic) for hub in hubs]
    doubled = 0
    for partition, count in per_partition.items():
        events = [one for one in in_doubt if one["stream"].endswith(f":{partition}")]
        doubled += check_stores(range(count), [one.get(partition, []) for one in arrived], events)
    print(f"{records.sent} records, {len(in_doubt)} ranges in doubt, {doubled} doubled")
