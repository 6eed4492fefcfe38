"""Bridges with a transformer from Kafka to Kafka and into a node's journal, in one process and in several."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.acceptance.kafka.conftest import Named
from tests.acceptance.kafka.records import Record, plain, read, send, with_id
from tests.acceptance.kafka.test_nodes import browsed, into_node
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, whole_lines
from tests.kafka.bridges import await_progress, bridge_table, connector_tables, kafka_bridge
from tests.kafka.conftest import Clusters

WORKERS, PARTITIONS, EACH = 2, 4, 30
#: First words of bodies in turn, as `ByBody` takes them.
_WORDS = ("m", "drop", "raise")
#: A killed worker's lanes are free after this.
GROUP = {"session-timeout-ms": 1_500, "heartbeat-interval-ms": 300}


def test_records_are_changed_dropped_and_dead_lettered_in_order_through_kills(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """B6, B14, B15, B16: also what comes with an earlier bridge's stamp or a producer's ID keeps it."""
    bridge, topic, letters = named("a-to-b"), named("orders"), named("letters")
    clusters.a.create_topic(topic)
    node = make_node(
        kafka_bridge(
            clusters._asdict(), bridge, queue_name=topic,
            transformer="tests.harness.transformers:ByBody", max_delivery_attempts=2,
            dead_letter_address=letters,
        )
    ).start()  # fmt: skip
    send(
        clusters.a,
        topic,
        [with_id(b"m0", b"mine"), *plain("drop 1", "raise 2", "twice 3"), Record(b"m4", b"k")],
    )
    assert [one.value for one in read(clusters.b, topic, 2)][:2] == [b"made m0", b"made m4"]
    (letter,) = read(clusters.b, letters, 2)[:1]
    assert letter.value == b"raise 2"
    assert (letter.header("core-bridge-reason") or b"").startswith(b"TRANSFORMER_FAILED: ")
    assert node.status(bridge)["dropped"] == 1
    node.kill()
    bodies = [f"{_WORDS[number % 3]} {number}" for number in range(60)]
    send(clusters.a, topic, plain(*bodies[:40]))
    node.crash("kafka.before-commit")
    node.crash("kafka.after-commit")
    send(clusters.a, topic, plain(*bodies[40:]))
    node.start()
    await_progress(clusters.a, bridge, topic)
    found = read(clusters.b, topic, 22)
    assert [one.value for one in found][2:] == [b"made m %d" % number for number in range(0, 60, 3)]
    assert found[0].ids == [b"mine"]
    assert (found[1].key, len({one.ids[-1] for one in found})) == (b"k", 22)
    assert len(read(clusters.b, letters, 22)) == 22
    assert node.stop() == 0


def logging_to(log: Path) -> str:
    """TOML behind the table of a bridge whose transformer is `ByBody`: it writes its calls there."""
    return f'[bridges.transformer-properties]\nlog = "{log}"\n'


def send_some(clusters: Clusters, topic: str, turn: int) -> None:
    """To each partition messages in turn that are changed, dropped and refused."""
    for partition in range(PARTITIONS):
        bodies = [f"{_WORDS[number % 3]} {turn}-{number}" for number in range(EACH)]
        send(clusters.a, topic, plain(*bodies, partition=partition))


def calls(log: Path) -> list[tuple[str, int, str]]:
    """Of each call of the transformer the body's first word, the process, and which transformer of it."""
    lines = whole_lines(log) if log.exists() else []
    return [(word, int(pid), made) for word, pid, made in map(str.split, lines)]


def await_lanes(node: Node) -> None:
    """Return when the workers share the lanes."""

    def shared() -> bool:
        found = {event["worker"]: event["owned"] for event in node.events("lanes")}
        owned = sorted(lane for lanes in found.values() for lane in lanes)
        return owned == list(range(PARTITIONS)) and sum(map(bool, found.values())) == WORKERS

    eventually(shared, "the workers share the lanes", 60)


def test_each_lane_of_each_worker_has_its_own_and_a_killed_worker_loses_and_doubles_nothing(
    clusters: Clusters, named: Named, make_node: MakeNode, tmp_path: Path
) -> None:
    """B6, B15, B16: with `concurrency` and two worker processes."""
    bridge, topic, letters, log = named("a-to-b"), named("orders"), named("letters"), tmp_path / "calls"
    clusters.a.create_topic(topic, PARTITIONS)
    node = make_node(
        connector_tables(clusters._asdict(), {"b": GROUP})
        + bridge_table(
            bridge, source_connector="a", static_connectors=["b"], queue_name=topic, concurrency=PARTITIONS,
            transformer="tests.harness.transformers:ByBody", max_delivery_attempts=2,
            dead_letter_address=letters,
        )
        + logging_to(log),
        node=f"workers = {WORKERS}",
    ).start()  # fmt: skip
    await_lanes(node)
    send_some(clusters, topic, 0)
    await_progress(clusters.a, bridge, topic)
    assert len({made for _, pid, made in calls(log)}) == PARTITIONS
    assert {pid for _, pid, _ in calls(log)} == {event["pid"] for event in node.events("worker-started")}
    of_all = PARTITIONS * EACH // 3
    eventually(lambda: node.status(bridge)["dropped"] == of_all, "it is counted over all processes")
    before = len(calls(log))
    send_some(clusters, topic, 1)
    eventually(lambda: len(calls(log)) > before, "it is called again")
    os.kill(calls(log)[-1][1], signal.SIGKILL)
    await_progress(clusters.a, bridge, topic)
    found = read(clusters.b, topic, 2 * of_all)
    expected = [b"made m %d-%d" % (turn, number) for turn in (0, 1) for number in range(0, EACH, 3)]
    for partition in range(PARTITIONS):
        assert [one.value for one in found if one.partition == partition] == expected
    assert len({one.ids[-1] for one in found}) == len(found)
    refused = [b"raise %d-%d" % (turn, number) for turn in (0, 1) for number in range(2, EACH, 3)]
    found_letters = [one.value or b"" for one in read(clusters.b, letters, 2 * of_all)]
    assert sorted(found_letters) == sorted(refused * PARTITIONS)
    assert node.stop() == 0


def test_records_are_changed_dropped_and_dead_lettered_on_their_way_into_a_journal(
    clusters: Clusters, named: Named, make_node: MakeNode, tmp_path: Path
) -> None:
    """B6, B14, B15, B16: the letters are at the target, which is this node's journal; it is killed twice."""
    bridge, topic, log = named("in"), named("orders"), tmp_path / "calls"
    clusters.a.create_topic(topic)
    node = make_node(
        into_node(
            clusters.a, bridge, topic, transformer="tests.harness.transformers:ByBody",
            max_delivery_attempts=2,
        )
        + logging_to(log)
    ).start()  # fmt: skip
    send(clusters.a, topic, [with_id(b"m0", b"mine"), *plain("drop 1", "raise 2", "twice 3")])
    assert [one["body"] for one in browsed(node, topic, 1)] == ["made m0"]
    (letter,) = browsed(node, "dead-letters", 2)[:1]
    headers = letter["headers"]
    assert isinstance(headers, dict)
    assert (letter["body"], headers["core-bridge-bridge"]) == ("raise 2", bridge)
    assert headers["core-bridge-reason"].startswith("TRANSFORMER_FAILED: ")
    eventually(lambda: node.status(bridge)["dropped"] == 1, "it is counted")
    for turn in range(2):
        before = len(calls(log))
        send(clusters.a, topic, plain(*(f"{_WORDS[number % 3]} {turn}-{number}" for number in range(300))))
        eventually(lambda before=before: len(calls(log)) > before, "it is called")  # type: ignore[misc]
        node.kill()
        node.start()
    node_id = node.ops.get("/v1/status").json["node-id"]
    await_progress(clusters.a, bridge, topic, group=f"core-bridge.{bridge}.{node_id}.progress")
    arrived = [f"made m {turn}-{number}" for turn in range(2) for number in range(0, 300, 3)]
    assert [one["body"] for one in browsed(node, topic, 201)] == ["made m0", *arrived]
    refused = [f"raise {turn}-{number}" for turn in range(2) for number in range(2, 300, 3)]
    assert [one["body"] for one in browsed(node, "dead-letters", 202)] == ["raise 2", "twice 3", *refused]
    assert node.stop() == 0
