"""A bridge from Kafka with two hubs: it goes on at the other one, stays there, and goes back when told."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.kafka.conftest import Named, Validate
from tests.acceptance.kafka.records import plain, send
from tests.harness.commands import Ended, command
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, start_together
from tests.kafka.bridges import await_progress, bridge_table, connector_tables
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.conftest import Clusters

PARTITIONS = 2


def from_kafka(cluster: Reachable, bridge: str, topic: str, *hubs: Node, failover: str) -> str:
    """TOML of a bridge of two lanes, which leaves a hub after a single try."""
    nodes = "".join(f'[connectors.{hub.name}]\nurl = "{hub.url}"\n' for hub in hubs)
    return nodes + connector_tables({"eu": cluster}) + bridge_table(
        bridge,
        queue_name=topic,
        source_connector="eu",
        static_connectors=[hub.name for hub in hubs],
        concurrency=PARTITIONS,
        failover=failover,
        reconnect_attempts_same_node=1,
    )  # fmt: skip


class Numbered:
    """Records of each partition, numbered."""

    def __init__(self, cluster: Reachable, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self.count = 0

    def send(self, count: int) -> list[str]:
        """So many more to each partition; the bodies, sorted."""
        values = [f"{n:04}" for n in range(self.count, self.count + count)]
        self.count += count
        for partition in range(PARTITIONS):
            send(
                self._cluster, self._topic, plain(*(f"{partition}-{n}" for n in values), partition=partition)
            )
        return [f"{partition}-{n}" for partition in range(PARTITIONS) for n in values]


def arrive(hub: Node, topic: str, *bodies: str) -> None:
    """Exactly these have arrived there; of each partition in order."""
    eventually(lambda: len(hub.api.bodies(topic)) >= len(bodies), f"{len(bodies)} messages at {hub.name}")
    found = hub.api.bodies(topic)
    assert sorted(found) == sorted(bodies)
    for partition in range(PARTITIONS):
        ordered = [body for body in found if body.startswith(f"{partition}-")]
        assert ordered == sorted(ordered)


def positions(edge: Node, bridge: str, *more: str) -> Ended:
    return command("positions", bridge, "--from", "group", "--dry-run", "--settings", str(edge.file), *more)


def test_two_hubs(clusters: Clusters, named: Named, make_node: MakeNode) -> None:
    """R22, R24"""
    topic, bridge = named("orders"), named("to-hub")
    clusters.a.create_topic(topic, partitions=PARTITIONS)
    records = Numbered(clusters.a, topic)
    first, second = make_node("", "hub-a"), make_node("", "hub-b")
    edge = make_node(from_kafka(clusters.a, bridge, topic, first, second, failover="refuse"), "edge")
    start_together(first, second)
    at_first = records.send(20)
    edge.start()
    arrive(first, topic, *at_first)
    await_progress(clusters.a, bridge, topic)

    first.kill()
    at_second = records.send(10)
    refused = "hub-b: another store than before"
    eventually(lambda: refused in edge.status(bridge)["reason"], "the second is refused")
    assert edge.status(bridge)["state"] == "CONNECTING", "the first may come back"
    assert edge.stop() == 0
    ended = positions(edge, bridge)
    assert ended.code == 1
    for part in ("known to lead there: hub-a: TARGET_UNAVAILABLE", "hub-b leads to ", "--connector NAME"):
        assert part in ended.err, ended
    ended = positions(edge, bridge, "--connector", "hub-b")
    assert (ended.code, ended.out.count(f"at hub-b: {topic} (kafka:")) == (0, PARTITIONS), ended
    assert ended.out.count("unknown to the target") == ended.out.count("goes on at 20") == PARTITIONS

    edge.rest = from_kafka(clusters.a, bridge, topic, first, second, failover="at-least-once")
    edge.start()
    arrive(second, topic, *at_second)
    status = edge.status(bridge)
    assert (status["connector"], status["guarantee"]) == ("hub-b", "at-least-once")
    doubts = edge.events("failover-in-doubt")
    assert [(one["upto"] - one["from"]) for one in doubts] == [10] * PARTITIONS, "all that the topic has left"
    await_progress(clusters.a, bridge, topic)

    first.start()
    assert edge.stop() == 0
    assert positions(edge, bridge).out.count("at hub-b: ") == PARTITIONS, "where the bridge was last"
    edge.start()
    at_second += records.send(10)
    arrive(second, topic, *at_second)
    where = ("--operations", f"http://127.0.0.1:{edge.operations_port}")
    assert command("failback", bridge, *where).code == 0
    eventually(lambda: edge.status(bridge)["connector"] == "hub-a", "it is back")
    at_first += records.send(10)
    arrive(first, topic, *at_first)
    arrive(second, topic, *at_second)
    assert len(edge.events("failover-in-doubt")) == PARTITIONS, "none that had been received"


def test_what_such_a_bridge_does_not_have_is_said_beforehand(
    clusters: Clusters, validate: Validate, tmp_path: Path
) -> None:
    nodes = (
        '[node]\nname = "edge"\n[connectors.one]\nurl = "ws://one:1"\n[connectors.two]\nurl = "ws://two:1"\n'
    )
    kafka = connector_tables({"eu": clusters.a, "us": clusters.b})

    def bridge(*connectors: str) -> str:
        targets = {"source_connector": "eu", "static_connectors": list(connectors)}
        return nodes + kafka + bridge_table("b", queue_name="orders", **targets)

    assert validate(bridge("one", "two")).code == 0
    audit = command(
        "audit", "b", "--output", str(tmp_path / "out"), "--settings", str(tmp_path / "settings.toml")
    )
    assert audit.code == 2
    assert "b has several static-connectors: what one of their stores lacks may be at another" in audit.err
    for targets, rule in (
        (("one", "journal"), "must be the only one, or a node: bridges fail over between nodes"),
        (("one", "us"), "must be a node, because it is a fail-over"),
        (("us", "one"), "must not be there: a Kafka target has no fail-overs"),
    ):
        ended = validate(bridge(*targets))
        assert ended.code == 2
        assert rule in ended.err, ended
