"""Nodes and Kafka: both ways round, copies of one file, workers, and the delivery log."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

from tests.acceptance.kafka.conftest import Named
from tests.acceptance.kafka.records import (
    ID_HEADER,
    Record,
    partitions_of,
    plain,
    read,
    send,
    values,
    with_id,
)
from tests.harness.commands import command
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, start_together
from tests.kafka.bridges import await_progress, bridge_table, connector_tables, kafka_bridge
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.conftest import Clusters


def from_node(cluster: Reachable, bridge: str, queue_name: str, **options: object) -> str:
    """TOML of a bridge from a node's journal to a cluster."""
    return connector_tables({"us": cluster}) + bridge_table(
        bridge, queue_name=queue_name, static_connectors=["us"], **options
    )


def into_node(cluster: Reachable, bridge: str, queue_name: str, **options: object) -> str:
    """TOML of a bridge from a cluster into the node's own journal."""
    return connector_tables({"eu": cluster}) + bridge_table(
        bridge, queue_name=queue_name, source_connector="eu", static_connectors=["journal"], **options
    )


def browsed(node: Node, address: str, count: int) -> list[dict[str, object]]:
    """The messages, once there are so many."""
    eventually(lambda: len(node.api.browse(address)) >= count, f"{count} messages at {node.name}")
    messages = node.api.browse(address)
    assert len(messages) == count
    return messages


def test_from_a_node_over_kafka_to_a_node_with_the_command_line(
    clusters: Clusters, named: Named, make_node: MakeNode, tmp_path: Path
) -> None:
    """`core-bridge send` here, `core-bridge receive` there: byte for byte, in order, IDs kept and visible."""
    topic = named("orders")
    edge = make_node(from_node(clusters.a, named("out"), topic), "edge")
    hub = make_node(into_node(clusters.a, named("in"), topic), "hub")
    start_together(edge, hub)
    lines = [b'{"id": "own-%d", "text": "\xc3\xa9\\u0000 %d"}' % (number, number) for number in range(500)]
    lines += [b"\xff\xfe not text"]
    sent = tmp_path / "lines"
    sent.write_bytes(b"\n".join(lines) + b"\n")
    ended = command("send", "--url", edge.url, "--address", topic, str(sent))
    assert (ended.code, ended.out) == (0, "stored 501 duplicates 0\n")
    one = b'{"id": "by field"}'
    for answer in ("stored 1 duplicates 0\n", "stored 0 duplicates 1\n"):
        ended = command(
            "send", "--url", edge.url, "--address", topic, "--duplicate-id-from", "id", "-", data=one + b"\n"
        )
        assert (ended.code, ended.out) == (0, answer)
    at_kafka = read(clusters.a, topic, 502)
    assert values(at_kafka) == [*lines, one]
    arrived = browsed(hub, topic, 502)
    assert [message["duplicate-id"] for message in arrived] == [
        (record.ids[0] or b"").decode() for record in at_kafka
    ]
    assert arrived[-1]["duplicate-id"] == "by field"
    ended = command(
        "receive",
        "--url",
        hub.url,
        "--address",
        topic,
        "--queue",
        "q",
        "--create",
        "--count",
        "502",
        "--format",
        "json",
    )
    assert ended.code == 0
    bodies = [json.loads(line).get("body") for line in ended.out.splitlines()]
    assert bodies[:500] == [line.decode() for line in lines[:500]]
    assert bodies[501] == one.decode()


def test_everything_of_a_message_crosses_from_http_to_a_record(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """Key, headers and their repetition, timestamp, ID, tombstone; a stamped ID is in the header."""
    topic = named("orders")
    node = make_node(from_node(clusters.b, named("out"), topic)).start()
    stamp = 1_700_000_000_000
    node.api.commit(
        {"address": topic, "body": "text", "key": "k", "headers": {"h": ["1", "2"], "x": {"base64": "/w=="}},
         "duplicate-id": "own", "timestamp": stamp},
        {"address": topic, "body-base64": "AP8=", "duplicate-id": {"base64": "/v8="}},
        {"address": topic, "body": None, "key": "gone"},
    )  # fmt: skip
    text, data, tombstone = read(clusters.b, topic, 3)
    assert (text.value, text.key, text.timestamp, text.ids) == (b"text", b"k", stamp, [b"own"])
    assert text.own_headers == (("h", b"1"), ("h", b"2"), ("x", b"\xff"))
    assert (data.value, data.ids) == (b"\0\xff", [b"\xfe\xff"])
    assert (tombstone.value, tombstone.key) == (None, b"gone")
    assert len(tombstone.ids[0] or b"") == 36


def test_everything_of_a_record_crosses_into_a_node(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    topic = named("orders")
    clusters.a.create_topic(topic)
    stamp = 1_700_000_000_000
    send(
        clusters.a,
        topic,
        [
            Record(b"text", b"k", (("h", b"1"), ("n", b""), ("h", b"2"), (ID_HEADER, b"own")), 0, stamp),
            Record(None, b"gone"),
            Record(b"\0\xff"),
        ],
    )
    node = make_node(into_node(clusters.a, named("in"), topic)).start()
    text, tombstone, data = browsed(node, topic, 3)
    assert (text["body"], text["key"], text["timestamp"], text["duplicate-id"]) == ("text", "k", stamp, "own")
    headers = text["headers"]
    assert isinstance(headers, dict)
    assert headers["h"] == ["1", "2"]
    assert headers["n"] == ""
    assert (tombstone["body"], tombstone["key"]) == (None, "gone")
    assert data["body-base64"] == "AP8="
    assert len(str(data["duplicate-id"])) == 36


def test_a_nodes_messages_go_by_key_and_topics_are_made(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """A key's messages are in one partition, in order; a list of addresses goes by "us.{address}"."""
    first, second = named("one"), named("two")
    clusters.b.create_topic(f"us.{first}", partitions=4)
    node = make_node(
        connector_tables({"us": clusters.b})
        + bridge_table(
            named("out"),
            queue_name=[first, second],
            static_connectors=["us"],
            forwarding_address="us.{address}",
        )
    ).start()
    for number in range(12):
        node.api.send(first, b"%d" % number, Message_Key=f"k{number % 3}")
    node.api.send(second, b"x")
    found = read(clusters.b, f"us.{first}", 12)
    for key in (b"k0", b"k1", b"k2"):
        own = [record for record in found if record.key == key]
        assert len({record.partition for record in own}) == 1
        assert values(own) == sorted(values(own), key=lambda value: int(value or b""))
    assert values(read(clusters.b, f"us.{second}", 1)) == [b"x"]
    assert partitions_of(clusters.b, f"us.{second}") == 1


def test_a_killed_node_sends_nothing_twice_to_kafka(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """journal -> Kafka through SIGKILL and a stop: once, in order; the queue is empty at the end."""
    topic, bridge = named("orders"), named("out")
    node = make_node(from_node(clusters.b, bridge, topic, producer_window_size="4KiB")).start()
    sent = 0
    for _ in range(3):
        for _ in range(5):
            node.api.commit(*({"address": topic, "body": str(sent + place)} for place in range(100)))
            sent += 100
        node.kill()
        node.start()
    assert values(read(clusters.b, topic, sent)) == [b"%d" % number for number in range(sent)]
    eventually(lambda: node.lag(topic) == 0, "all is confirmed")
    assert node.stop() == 0
    read(clusters.b, topic, sent)


def test_three_nodes_with_one_file_relay_what_each_has(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """Three sidecars: one bridge name, one journal topic, three relays; none fences another."""
    topic, bridge = named("orders"), named("out")
    clusters.b.create_topic(topic)
    rest = from_node(clusters.b, bridge, topic)
    nodes = [make_node(rest, f"node-{number}") for number in range(3)]
    start_together(*nodes)
    for _ in range(3):
        for node in nodes:
            node.api.send(topic, node.name.encode())
    found = values(read(clusters.b, topic, 9))
    assert sorted(map(str, found)) == sorted(str(node.name.encode()) for node in nodes for _ in range(3))
    assert [node.bridge_state(bridge) for node in nodes] == ["RUNNING"] * 3
    nodes[0].kill()
    nodes[0].start()
    nodes[0].api.send(topic, b"again")
    read(clusters.b, topic, 10)


def test_each_node_with_one_file_gets_a_copy_of_its_own(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """Kafka -> journal: the group carries the node's UUID."""
    topic = named("orders")
    clusters.a.create_topic(topic, partitions=2)
    send(clusters.a, topic, [*plain("0"), *plain("1", partition=1)])
    rest = into_node(clusters.a, named("in"), topic)
    nodes = [make_node(rest, f"node-{number}") for number in range(2)]
    start_together(*nodes)
    for node in nodes:
        assert {message["body"] for message in browsed(node, topic, 2)} == {"0", "1"}


def test_two_nodes_with_one_file_share_lanes_and_take_over(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """Kafka -> Kafka, `concurrency = 4`: after a clean stop of one the other has all within 3 s."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic, partitions=8)
    rest = kafka_bridge(clusters._asdict(), bridge, queue_name=topic, concurrency=4)
    nodes = [make_node(rest, f"node-{number}") for number in range(2)]
    start_together(*nodes)
    everywhere = [record for number in range(8) for record in plain(str(number), partition=number)]
    send(clusters.a, topic, everywhere)
    read(clusters.b, topic, 8)
    assert nodes[0].stop() == 0
    send(clusters.a, topic, everywhere)
    found = read(clusters.b, topic, 16, within_s=3 + 2)
    assert values(found) == [b"%d" % (place // 2) for place in range(16)]
    assert nodes[1].stop() == 0


def test_two_workers_relay_everything_once(clusters: Clusters, named: Named, make_node: MakeNode) -> None:
    """B28. `workers = 2`: one log, one metrics view, commands reach all lanes, SIGTERM drains all."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic, partitions=4)
    node = make_node(
        kafka_bridge(clusters._asdict(), bridge, queue_name=topic, concurrency=4), node="workers = 2"
    ).start()
    node.await_state(bridge, "RUNNING")
    first = [Record(b"%d" % number, partition=number % 4) for number in range(100)]
    send(clusters.a, topic, [*first, with_id(b"a", b"own"), with_id(b"no", b"own")])
    read(clusters.b, topic, 101)
    await_progress(clusters.a, bridge, topic)
    label = f'{{bridge="{bridge}"}}'
    eventually(
        lambda: node.metrics()[f"core_bridge_messages_acknowledged_total{label}"] == 102, "all are counted"
    )
    assert node.status(bridge)["state"] == "RUNNING"
    where = ("--operations", f"http://127.0.0.1:{node.operations_port}")
    assert command("pause", bridge, *where).code == 0
    node.await_state(bridge, "PAUSED")
    send(clusters.a, topic, plain("later", partition=3))
    assert len(read(clusters.b, topic)) == 101
    assert command("resume", bridge, *where).code == 0
    read(clusters.b, topic, 102)
    node.await_state(bridge, "RUNNING")
    assert node.stop() == 0


def test_the_delivery_log_has_a_line_a_batch_of_a_kafka_bridge(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """Contract, Delivery log: lines chain, and name producers' IDs with their positions."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    send(clusters.a, topic, [*plain("0"), with_id(b"1", b"own"), with_id(b"2", b"own"), *plain("3")])
    node = make_node(kafka_bridge(clusters._asdict(), bridge, queue_name=topic)).start()
    await_progress(clusters.a, bridge, topic)
    read(clusters.b, topic, 3)
    assert node.stop() == 0
    lines = [line for line in node.delivery_lines() if line["bridge"] == bridge and "verdict" not in line]
    assert lines, "no line at all"
    received = [line for line in lines if line["side"] == "received"]
    assert (received[0]["from"], received[-1]["upto"]) == (0, 4)
    assert all(one["upto"] == other["from"] for one, other in pairwise(received))
    assert all(line["stream"].startswith("kafka:") and line["address"] == topic for line in lines)
    assert [1, "own"] in [entry for line in received for entry in line["ids"]]
