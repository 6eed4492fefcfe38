"""A bridge with a filter between clusters, killed while it relays: what the filter takes, once, in order."""

from __future__ import annotations

import contextlib
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

import pytest

from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node
from tests.kafka.bridges import await_progress, kafka_bridge
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.conftest import Clusters
from tests.kafka.exactly_once.rig import GROUP, STALLED_S, Arrivals, started
from tests.kafka.traffic.checker import read

Unique = Callable[[str], str]
#: An animal, and the number of its record in its partition.
Animal = tuple[bytes, int]

PARTITIONS: Final = 3
#: Records of one sending; two of three are monkeys.
PART: Final = 900


class Zoo:
    """Animals that are sent to the partitions of a topic."""

    def __init__(self, cluster: Reachable, topic: str, rng: random.Random) -> None:
        self.cluster, self.topic, self.rng = cluster, topic, rng
        self.sent: dict[int, list[Animal]] = defaultdict(list)

    def send(self, count: int = PART) -> None:
        """Returns when all are acknowledged."""
        producer = self.cluster.producer({"linger.ms": 20})
        for _ in range(count):
            partition = self.rng.randrange(PARTITIONS)
            of_partition = self.sent[partition]
            animal = (self.rng.choice([b"goat", b"monkey", b"ape"]), len(of_partition))
            of_partition.append(animal)
            body = b"%s %d" % animal
            producer.produce(self.topic, body, partition=partition, headers=[("animal", animal[0])])
        assert producer.flush(30) == 0

    def goats(self) -> dict[int, list[bytes]]:
        return {
            partition: [b"%s %d" % animal for animal in animals if animal[0] == b"goat"]
            for partition, animals in self.sent.items()
        }

    def places(self) -> set[tuple[int, int]]:
        """Partition and offset of each goat: a record's number is its offset."""
        return {
            (partition, number)
            for partition, animals in self.sent.items()
            for animal, number in animals
            if animal == b"goat"
        }

    @property
    def others(self) -> int:
        return sum(animal[0] != b"goat" for animals in self.sent.values() for animal in animals)


def arrived(cluster: Reachable, topic: str) -> dict[int, Sequence[bytes | None]]:
    found: dict[int, list[bytes | None]] = defaultdict(list)
    for one in read(cluster, topic):
        found[one.partition].append(one.value)
    return dict(found)


def logged(node: Node, side: str) -> set[tuple[int, int]]:
    """Partition and offset of every message that the delivery log names."""
    return {
        (int(line["stream"].rpartition(":")[2]), position)
        for line in node.delivery_lines()
        if line["side"] == side
        for first, last in line["runs"]
        for position in range(first, last + 1)
    }


def filtered(node: Node, bridge: str) -> int:
    count: int = node.status(bridge)["filtered"]
    return count


@pytest.mark.parametrize(("workers", "kills"), [pytest.param(1, 3, marks=pytest.mark.kafka_long), (2, 2)])
def test_killed_while_it_filters(
    clusters: Clusters, unique: Unique, make_node: MakeNode, rng: random.Random, workers: int, kills: int
) -> None:
    """B4 between clusters: the positions of the rest are covered and counted, and nothing waits for them."""
    topic, bridge = unique("zoo"), unique("goats")
    clusters.a.create_topic(topic, PARTITIONS)
    settings = kafka_bridge(
        clusters._asdict(), bridge, queue_name=topic, concurrency=PARTITIONS, filter="animal = 'goat'"
    )
    settings = settings.replace(
        "[[bridges]]",
        "[connectors.b.kafka]\n"
        + "".join(f"{key} = {value}\n" for key, value in GROUP.items())
        + "[[bridges]]",
    )
    node = make_node("node-1", settings, node=f"workers = {workers}")
    zoo = Zoo(clusters.a, topic, rng)
    node.spawn()
    zoo.send()
    eventually(lambda: topic in clusters.b.topics(), "the topic is made", STALLED_S)
    clusters.b.await_leaders(topic, PARTITIONS)
    with contextlib.closing(Arrivals(clusters.b, topic, PARTITIONS)) as arrivals:
        for _ in range(kills):
            arrivals.await_count(arrivals.count + 1)
            node.kill()
            arrivals.look(0.5)  # the next one that is awaited comes from the next process
            node.spawn()
            zoo.send()
    node.await_ready()
    await_progress(clusters.a, bridge, topic)
    counted = filtered(node, bridge)
    zoo.send()
    await_progress(clusters.a, bridge, topic)
    assert arrived(clusters.b, topic) == zoo.goats()
    assert counted < filtered(node, bridge) <= zoo.others
    assert node.stop() == 0
    # Of what was sent before a kill, lines are written anew: they name the goats alone, too.
    for side in ("sent", "received"):
        assert logged(node, side) == zoo.places()


def test_every_message_that_is_passed_over_counts_once(
    clusters: Clusters, unique: Unique, make_node: MakeNode, rng: random.Random
) -> None:
    """Also where nothing else comes: coverage without messages is committed within 10 s, and the lag goes."""
    topic, bridge = unique("zoo"), unique("goats")
    clusters.a.create_topic(topic, PARTITIONS)
    zoo = Zoo(clusters.a, topic, rng)
    zoo.send()
    settings = kafka_bridge(
        clusters._asdict(), bridge, queue_name=topic, filter=f"animal = 'goat' AND AMQAddress = '{topic}'"
    )
    node = started(make_node("node-1", settings))
    await_progress(clusters.a, bridge, topic)
    assert arrived(clusters.b, topic) == zoo.goats()
    eventually(lambda: node.status(bridge)["lag"] == 0, "nothing waits")
    assert filtered(node, bridge) == zoo.others
    assert node.stop() == 0
