"""Nodes at one end, with kills of both: Kafka to node, node to Kafka, Kafka into the journal."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, start_together
from tests.kafka.bridges import bridge_table, connector_tables
from tests.kafka.conftest import Clusters
from tests.kafka.exactly_once.rig import GROUP, Arrivals, Form, Way, started
from tests.kafka.traffic.checker import read

MakeWay = Callable[..., Way]
Unique = Callable[[str], str]

PARTITIONS: Final = 3
#: Most that arrives between two kills.
MOST_BETWEEN: Final = 100


def out_of_the_journal(way: Way) -> str:
    """TOML of a bridge from a node's journal to the way's target."""
    return bridge_table(f"{way.bridge}-out", queue_name=way.topic, static_connectors=["b"])


def test_from_kafka_through_a_node_to_kafka_while_any_of_them_is_killed(
    form: Form, make_way: MakeWay, make_node: MakeNode, rng: random.Random
) -> None:
    """Three edges with one file share the lanes from Kafka to the hub; the hub's journal goes on to Kafka."""
    way = make_way(PARTITIONS, hops=2, preserve_partitions=False)
    hub = make_node("hub", way.connectors() + out_of_the_journal(way))
    link = f'[connectors.hub]\nurl = "{hub.url}"\n'
    settings = way.settings(link, concurrency=PARTITIONS, static_connectors=["hub"])
    edges = [make_node(f"edge-{number}", settings) for number in (1, 2, 3)]
    start_together(hub, *edges)
    with way.feed.flowing(form.messages_per_s):
        for _ in range(2 * form.rounds):
            way.await_more(1 + rng.randrange(MOST_BETWEEN))
            dead = rng.choice([hub, hub, *edges])
            dead.kill()
            started(dead)
    way.finish(*edges, hub)


@pytest.mark.kafka_long  # in short: acceptance/kafka/test_nodes.py
def test_from_kafka_into_the_journal_and_on_to_kafka_while_the_node_is_killed(
    form: Form, make_way: MakeWay, make_node: MakeNode, rng: random.Random
) -> None:
    way = make_way(PARTITIONS, hops=2, preserve_partitions=False)
    node = make_node("node-1", way.settings(out_of_the_journal(way), static_connectors=["journal"]))
    started(node)
    with way.feed.flowing(form.messages_per_s):
        for _ in range(form.rounds):
            way.await_more(1 + rng.randrange(MOST_BETWEEN))
            node.kill()
            started(node)
    way.finish(node)


@pytest.mark.kafka_long  # in short: acceptance/kafka/test_nodes.py
def test_three_sidecars_with_one_file_relay_into_one_topic_while_they_are_killed(
    form: Form, clusters: Clusters, make_node: MakeNode, unique: Unique, rng: random.Random
) -> None:
    """Each application talks to its own sidecar; what was answered is in the topic once, in its order."""
    topic = unique("orders")
    clusters.b.create_topic(topic)
    connectors = connector_tables({"b": clusters.b}, {"b": GROUP})
    settings = connectors + bridge_table(unique("sidecar"), queue_name=topic, static_connectors=["b"])
    sidecars = [make_node(f"sidecar-{number}", settings) for number in (1, 2, 3)]
    start_together(*sidecars)
    count = form.part(3) // 20
    arrivals = Arrivals(clusters.b, topic, 1)

    def application(sidecar: Node) -> None:
        for number in range(count):
            body = json.dumps([sidecar.name, number])
            identity = f"{sidecar.name}/{number}"
            # An unanswered request is sent again: its ID makes that safe.
            eventually(
                lambda body=body, identity=identity: (  # type: ignore[misc]
                    sidecar.api.send(topic, body.encode(), Duplicate_Id=identity).status == 200
                ),
                f"{sidecar.name} answers",
            )

    with ThreadPoolExecutor(len(sidecars)) as others:
        running = [others.submit(application, sidecar) for sidecar in sidecars]
        for _ in range(form.rounds):
            arrivals.await_count(min(3 * count, arrivals.count + 1 + rng.randrange(count)))
            dead = rng.choice(sidecars)
            dead.kill()
            started(dead)
        for application_ended in running:
            application_ended.result()
    arrivals.await_count(3 * count)
    for sidecar in sidecars:
        assert sidecar.stop() == 0
    arrivals.close()
    arrived: dict[str, list[int]] = defaultdict(list)
    for one in read(clusters.b, topic):
        name, number = json.loads(one.value or b"")
        arrived[name].append(number)
    assert arrived == {sidecar.name: list(range(count)) for sidecar in sidecars}
