"""The loop guard with Kafka in the ring: what comes round becomes a dead letter, nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from bridge.messages import hops
from tests.acceptance.kafka.records import Record, plain, read, send, values
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node
from tests.kafka.bridges import await_progress, bridge_table, connector_tables
from tests.kafka.cluster.brokers import Cluster
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.conftest import Clusters

Unique = Callable[[str], str]

#: Between any two clusters, by where it runs: the same file for all of a chain.
ONE_FILE: Final = """
[connectors.left]
url = "kafka://${LEFT}"
[connectors.right]
url = "kafka://${RIGHT}"
"""


@pytest.fixture
def topic(clusters: Clusters, unique: Unique) -> str:
    name = unique("orders")
    for cluster in clusters:
        cluster.create_topic(name)
    return name


def passed(record: Record) -> int:
    """How many bridges it has come through."""
    (value,) = [value for name, value in record.headers if name == hops.HEADER]
    return len(value or b"") // hops.HOP_BYTES


def reason(record: Record) -> str:
    return (record.header("core-bridge-reason") or b"").decode()


def none_there(cluster: Reachable, topic: str) -> bool:
    return topic not in cluster.topics()


def test_two_bridges_between_two_clusters_make_dead_letters_of_what_comes_back(
    clusters: Clusters, topic: str, unique: Unique, make_node: MakeNode
) -> None:
    """A to B to A: the second copy at A is where it would set out again; its letter is at B."""
    there, back, dead = unique("there"), unique("back"), unique("dead")
    keys = {"queue_name": topic, "dead_letter_address": dead}
    node = make_node(
        "node-1",
        connector_tables(clusters._asdict())
        + bridge_table(there, source_connector="a", static_connectors=["b"], **keys)
        + bridge_table(back, source_connector="b", static_connectors=["a"], **keys),
    )
    send(clusters.a, topic, plain("one", "two"))
    node.start()
    letters = read(clusters.b, dead, 2)
    assert values(letters) == [b"one", b"two"]
    assert {reason(letter).split(":")[0] for letter in letters} == {"LOOP"}
    assert [passed(letter) for letter in letters] == [3, 3]
    assert {letter.header("core-bridge-bridge") for letter in letters} == {there.encode()}
    await_progress(clusters.a, there, topic)
    await_progress(clusters.b, back, topic)
    assert values(read(clusters.b, topic, 2)) == [b"one", b"two"]
    assert [passed(record) for record in read(clusters.a, topic, 4)[2:]] == [2, 2]
    assert none_there(clusters.a, dead)
    assert (node.bridge_state(there), node.bridge_state(back)) == ("RUNNING", "RUNNING")


def test_a_ring_of_nodes_and_clusters_goes_round_once(
    clusters: Clusters, topic: str, unique: Unique, make_node: MakeNode
) -> None:
    """Node, Kafka, node, Kafka, node: hops go from blocks into headers and back; the letter is at home."""
    connectors = connector_tables(clusters._asdict())
    out, into, on, home = (unique(name) for name in ("out", "into", "on", "home"))

    def leaving(name: str, cluster: str) -> str:
        return bridge_table(name, queue_name=topic, static_connectors=[cluster])

    def entering(name: str, cluster: str) -> str:
        return bridge_table(name, queue_name=topic, source_connector=cluster, static_connectors=["journal"])

    first = make_node("first", connectors + leaving(out, "a") + entering(home, "b"))
    second = make_node("second", connectors + entering(into, "a") + leaving(on, "b"))
    first.start()
    second.start()
    assert (
        first.api.commit({"address": topic, "body": "one"}, {"address": topic, "body": "two"}).status == 200
    )
    eventually(lambda: len(letters_at(first)) == 2, "two letters where they set out")
    assert {letter["reason"].split(":")[0] for letter in letters_at(first)} == {"LOOP"}
    assert {letter["bridge"] for letter in letters_at(first)} == {out}
    assert [message["body"] for message in first.api.browse("dead-letters")] == ["one", "two"]
    assert [passed(record) for record in read(clusters.a, topic, 2)] == [1, 1]
    assert [passed(record) for record in read(clusters.b, topic, 2)] == [3, 3]
    assert letters_at(second) == []
    eventually(lambda: first.lag(topic) == second.lag(topic) == 0, "nothing is left")


def letters_at(node: Node) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node.ops.get("/v1/dead-letters").json["dead-letters"]
    return found


def test_a_chain_of_clusters_with_one_file_is_no_loop(
    clusters: Clusters, topic: str, unique: Unique, make_node: MakeNode, make_cluster: Callable[..., Cluster]
) -> None:
    """The bridge has one name everywhere; the stores that it reads from differ."""
    last, onward, dead = make_cluster(), unique("onward"), unique("dead")
    settings = ONE_FILE + bridge_table(
        onward,
        queue_name=topic,
        source_connector="left",
        static_connectors=["right"],
        dead_letter_address=dead,
    )
    a_to_b = {"LEFT": clusters.a.bootstrap, "RIGHT": clusters.b.bootstrap}
    b_to_c = {"LEFT": clusters.b.bootstrap, "RIGHT": last.bootstrap}
    send(clusters.a, topic, plain("one", "two"))
    make_node("node-1", settings, variables=a_to_b).start()
    make_node("node-2", settings, variables=b_to_c).start()
    found = read(last, topic, 2)
    assert [(record.value, passed(record)) for record in found] == [(b"one", 2), (b"two", 2)]
    assert none_there(clusters.b, dead)
    assert none_there(last, dead)


def test_what_another_bridge_brings_back_on_purpose_arrives_once(
    clusters: Clusters, topic: str, unique: Unique, make_node: MakeNode
) -> None:
    there, back, dead = unique("there"), unique("back"), unique("dead")
    node = make_node(
        "node-1",
        connector_tables(clusters._asdict())
        + bridge_table(there, queue_name=topic, source_connector="a", static_connectors=["b"])
        + bridge_table(
            back,
            queue_name=topic,
            source_connector="b",
            static_connectors=["a"],
            forwarding_address="returned.{address}",
            dead_letter_address=dead,
        ),
    )
    send(clusters.a, topic, plain("one", "two"))
    node.start()
    found = read(clusters.a, f"returned.{topic}", 2)
    assert [(record.value, passed(record)) for record in found] == [(b"one", 2), (b"two", 2)]
    await_progress(clusters.a, there, topic)
    await_progress(clusters.b, back, topic)
    assert len(read(clusters.a, f"returned.{topic}", 2)) == 2
    assert len(read(clusters.a, topic, 2)) == 2
    assert none_there(clusters.a, dead)


def test_max_hops_ends_the_way_of_a_message_and_of_no_other(
    clusters: Clusters, topic: str, unique: Unique, make_node: MakeNode
) -> None:
    """Hops that are none are refused, too: nobody else's header may have that name."""
    back, dead = unique("back"), unique("dead")
    node = make_node(
        "node-1",
        connector_tables(clusters._asdict())
        + bridge_table(
            back,
            queue_name=topic,
            source_connector="a",
            static_connectors=["b"],
            max_hops=2,
            dead_letter_address=dead,
        ),
    )
    far = hops.hop("x", "s") + hops.hop("y", "s")
    send(
        clusters.a,
        topic,
        [
            Record(b"far", headers=((hops.HEADER, far),)),
            Record(b"near", headers=((hops.HEADER, far[:8]),)),
            Record(b"odd", headers=((hops.HEADER, b"odd"),)),
            Record(b"fresh"),
        ],
    )
    node.start()
    found = read(clusters.b, topic, 2)
    assert [(record.value, passed(record)) for record in found] == [(b"near", 2), (b"fresh", 1)]
    assert [(letter.value, reason(letter).split(":")[0]) for letter in read(clusters.b, dead, 2)] == [
        (b"far", "TOO_MANY_HOPS"), (b"odd", "INVALID_HOPS"),
    ]  # fmt: skip
