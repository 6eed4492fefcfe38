"""Alerts of docs/operations.md on bridges with Kafka ends fire while the fault is there, and not before."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from bridge.demo.ports import free_ports
from bridge.relay.filtering import DOUBTED_AFTER
from tests.acceptance.kafka.conftest import Named
from tests.acceptance.kafka.records import Record, plain, read, send
from tests.acceptance.kafka.test_trouble import open_transaction
from tests.harness.alerts import HALF_A_SECOND, alerts, fires, firing, scraped
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, start_together
from tests.kafka.bridges import PATIENCE_S, bridge_table, connector_tables, kafka_bridge
from tests.kafka.cluster.brokers import Cluster
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.conftest import Clusters

KIB = 1024


def await_running(node: Node, *bridges: str) -> None:
    for bridge in bridges:
        node.await_state(bridge, "RUNNING", PATIENCE_S)


def confirmed(node: Node, bridge: str, count: int) -> None:
    """So many, and nothing waits; what a worker says is up to half a second old."""

    def look() -> bool:
        status = node.status(bridge)
        return (status["acknowledged"], status["lag"]) == (count, 0)

    eventually(look, f"{count} are confirmed", PATIENCE_S)


def test_each_kind_of_end_that_is_down(
    clusters: Clusters, own_cluster: Cluster, named: Named, make_node: MakeNode
) -> None:
    """Targets and sources, clusters and nodes: each bridge has its alert, and the one that is well has none.

    What waits at a source that can be asked is known, and grows older.
    """
    topic, other = named("orders"), named("bills")
    for cluster in (clusters.a, own_cluster):
        cluster.create_topic(topic)
    hub = make_node("", "hub")
    rest = connector_tables({"a": clusters.a, "b": clusters.b, "own": own_cluster})
    rest += f'[connectors.hub]\nurl = "{hub.url}"\n'
    ends = {
        "journal to kafka": (other, None, "own"),
        "kafka to kafka, its target": (topic, "a", "own"),
        "kafka to kafka, its source": (topic, "own", "b"),
        "kafka to a node, its target": (topic, "a", "hub"),
        "kafka to a node, its source": (topic, "own", "journal"),
        "kafka to kafka, well": (topic, "a", "b"),
    }
    bridges = {kind: named(f"bridge-{number}") for number, kind in enumerate(ends)}
    for kind, (queue, source, target) in ends.items():
        of_source = {} if source is None else {"source_connector": source}
        rest += bridge_table(
            bridges[kind], queue_name=queue, static_connectors=[target],
            forwarding_address="{address}." + bridges[kind], **of_source,
        )  # fmt: skip
    node = make_node(rest)
    start_together(hub, node)
    await_running(node, *bridges.values())
    *down, well = bridges.values()
    send(clusters.a, topic, plain("0"))
    for kind, bridge in bridges.items():
        if ends[kind][1] == "a":
            confirmed(node, bridge, 1)
    with ExitStack() as stack:
        for bridge in down:
            stack.enter_context(fires("BridgeNotConnected", node, bridge=bridge, within_s=PATIENCE_S))
        for kind in ("journal to kafka", "kafka to kafka, its target", "kafka to a node, its target"):
            name = bridges[kind]
            stack.enter_context(
                fires("BridgeBehind", node, bridge=name, instead=HALF_A_SECOND, within_s=PATIENCE_S)
            )
        own_cluster.broker(1).kill()
        hub.kill()
        send(clusters.a, topic, plain("1"))
        assert node.api.send(other, b"1").status == 200
    found = firing(alerts()["BridgeNotConnected"], scraped(node))
    assert {dict(series)["bridge"] for series in found} == {*down}
    confirmed(node, well, 2)


def test_a_source_that_was_never_there(clusters: Clusters, named: Named, make_node: MakeNode) -> None:
    """Its lag is not known, so no alert on a lag can fire. The bridge is added to a node that is well."""
    bridge = named("bridge")
    node = make_node("").start()
    with fires("BridgeNotConnected", node, bridge=bridge):
        ends: dict[str, Reachable | str] = {"a": f"127.0.0.1:{free_ports(1)[0]}", "b": clusters.b}
        node.rest = kafka_bridge(ends, bridge, queue_name=named("orders"))
        node.write()
        assert node.ops.call("POST", "/v1/reload").status == 200
    assert f'core_bridge_lag_messages{{bridge="{bridge}"}}' not in node.metrics()


def test_a_node_that_stands_by_has_no_alert(clusters: Clusters, named: Named, make_node: MakeNode) -> None:
    """One lane, and two nodes with one file."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    rest = kafka_bridge(clusters._asdict(), bridge, queue_name=topic)
    nodes = [make_node(rest, f"node-{number}") for number in range(2)]
    start_together(*nodes)
    for node in nodes:
        await_running(node, bridge)
    reasons = eventually(
        lambda: {str(node.status(bridge)["reason"]) for node in nodes} & {"standby: no lane is mine"},
        "one of them stands by",
        PATIENCE_S,
    )
    assert reasons
    for node in nodes:
        assert not firing(alerts()["BridgeNotConnected"], scraped(node))


@pytest.mark.parametrize("workers", ["", "workers = 2"])
def test_a_lane_that_failed(clusters: Clusters, named: Named, make_node: MakeNode, workers: str) -> None:
    """A record that its target does not take, without a dead-letter address; what waits behind it ages."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    clusters.b.create_topic(topic, config={"max.message.bytes": str(20 * KIB)})
    rest = kafka_bridge(clusters._asdict(), bridge, queue_name=topic, dead_letter_address="")
    node = make_node(rest, node=workers).start()
    send(clusters.a, topic, plain("0"))
    confirmed(node, bridge, 1)
    with (
        fires("BridgeFailed", node, bridge=bridge),
        fires("NodeNotReady", node),
        fires("BridgeBehind", node, bridge=bridge, instead=HALF_A_SECOND),
    ):
        send(clusters.a, topic, [Record(b"x" * 40 * KIB), *plain("2")])


def test_a_partition_that_stands_still(clusters: Clusters, named: Named, make_node: MakeNode) -> None:
    """The target's topic is a person's, and has too few partitions for what was added at the source."""
    bridge, topic = named("a-to-b"), named("orders")
    for cluster in clusters:
        cluster.create_topic(topic)
    node = make_node(kafka_bridge(clusters._asdict(), bridge, queue_name=topic)).start()
    send(clusters.a, topic, plain("0"))
    confirmed(node, bridge, 1)
    with (
        fires("PartitionParked", node, bridge=bridge, within_s=PATIENCE_S),
        fires("BridgeBehind", node, bridge=bridge, instead=HALF_A_SECOND, within_s=PATIENCE_S),
    ):
        clusters.a.add_partitions(topic, 2)
        send(clusters.a, topic, plain("1", partition=1))


def test_an_open_transaction_of_another_producer(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    node = make_node(kafka_bridge(clusters._asdict(), bridge, queue_name=topic)).start()
    send(clusters.a, topic, plain("0"))
    confirmed(node, bridge, 1)
    with fires("BridgeStalled", node, bridge=bridge, later_s=301):
        held = open_transaction(clusters, topic, named("tx"))
        send(clusters.a, topic, plain("2"))
    held.commit_transaction(30)
    read(clusters.b, topic, 3)


def test_dead_letters(clusters: Clusters, named: Named, make_node: MakeNode) -> None:
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    clusters.b.create_topic(topic, config={"max.message.bytes": str(20 * KIB)})
    rest = kafka_bridge(clusters._asdict(), bridge, queue_name=topic, dead_letter_address=named("letters"))
    node = make_node(rest).start()
    send(clusters.a, topic, plain("0"))
    confirmed(node, bridge, 1)
    with fires("DeadLetters", node, bridge=bridge):
        send(clusters.a, topic, [Record(b"x" * 40 * KIB)])


def test_a_filter_that_never_matches(clusters: Clusters, named: Named, make_node: MakeNode) -> None:
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    node = make_node(kafka_bridge(clusters._asdict(), bridge, queue_name=topic, filter="amout > 10")).start()
    await_running(node, bridge)
    with fires("FilterTakesNothing", node, bridge=bridge):
        send(clusters.a, topic, [Record(b"x", headers=(("amount", b"12"),))] * DOUBTED_AFTER)
