"""Which topics a bridge reads, where from, and what it makes at the target."""

from __future__ import annotations

import time
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.acceptance.kafka.conftest import Named
from tests.acceptance.kafka.records import Record, partitions_of, plain, read, send, values
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode
from tests.kafka.bridges import await_progress, bridge_table, connector_tables, kafka_bridge
from tests.kafka.cluster.reachable import CALL_TIMEOUT_S, Reachable
from tests.kafka.conftest import Clusters

#: Hashes of keys, from Kafka's own test of `Utils.murmur2`; Java's client sends each to
#: (hash & 0x7fffffff) % partitions.
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
}
#: How soon a topic that somebody made, or that now matches, must be seen (contract: one made anew).
TOPIC_WITHIN_S = 30.0


def test_a_list_of_topics_and_an_exclude(clusters: Clusters, named: Named, make_node: MakeNode) -> None:
    """Names in a list, each to its own name at the target; '!name' is left out."""
    bridge, first, second, third = named("a-to-b"), named("one"), named("two"), named("three")
    for topic in (first, second, third):
        clusters.a.create_topic(topic)
        send(clusters.a, topic, plain(topic))
    make_node(
        kafka_bridge(clusters._asdict(), bridge, queue_name=[first, second, third, f"!{third}"])
    ).start()
    assert values(read(clusters.b, first, 1)) == [first.encode()]
    assert values(read(clusters.b, second, 1)) == [second.encode()]
    assert third not in clusters.b.topics()


def test_a_regex_with_an_exclude_and_a_forwarding_address(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    r"""'/orders\..*/' less one, to "us.{address}"; later ones are found; it means whole names.

    Of two topics made at the target one was compacted at the source, and so stays.
    """
    bridge, mark = named("a-to-b"), named("orders")
    wanted, left_out, longer, later = (f"{mark}.eu", f"{mark}.test", f"x{mark}.eu", f"{mark}.later")
    for topic in (wanted, left_out, longer):
        clusters.a.create_topic(topic)
        send(clusters.a, topic, plain(topic))
    pattern = f"/{mark}\\..*/"
    make_node(
        kafka_bridge(
            clusters._asdict(),
            bridge,
            queue_name=[pattern, f"!{left_out}"],
            forwarding_address="us.{address}",
        )
    ).start()
    assert values(read(clusters.b, f"us.{wanted}", 1)) == [wanted.encode()]
    clusters.a.create_topic(later, partitions=2, config={"cleanup.policy": "compact"})
    send(clusters.a, later, [Record(b"0", b"key", (), 1)])
    assert values(read(clusters.b, f"us.{later}", 1, within_s=TOPIC_WITHIN_S)) == [b"0"]
    mine = {topic for topic in clusters.b.topics() if mark in topic}
    assert mine == {f"us.{wanted}", f"us.{later}"}
    policies = [cleanup_policy(clusters.b, topic) for topic in (f"us.{wanted}", f"us.{later}")]
    assert policies == ["delete", "compact"]


def test_a_regex_never_means_what_the_bridge_itself_makes(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """Back into the same cluster: not its forwarding addresses, no `core-bridge.*`, no `__*`."""
    bridge, mark = named("round"), named("orders")
    clusters.a.create_topic(mark)
    send(clusters.a, mark, plain("0", "1"))
    node = make_node(
        connector_tables({"a": clusters.a})
        + bridge_table(
            bridge, queue_name=f"/.*{mark.partition('-')[2]}.*/", source_connector="a",
            static_connectors=["a"], forwarding_address="copy.{address}",
        )
    ).start()  # fmt: skip
    read(clusters.a, f"copy.{mark}", 2)
    await_progress(clusters.a, bridge, mark)
    send(clusters.a, mark, plain("2"))
    read(clusters.a, f"copy.{mark}", 3)
    mine = {topic for topic in clusters.a.topics() if mark in topic}
    assert mine == {mark, f"copy.{mark}"}
    assert node.bridge_state(bridge) == "RUNNING"


def test_latest_counts_for_partitions_of_the_first_start_only(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """`start-position = "latest"`, a partition added later, and a restart that must not skip anything."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    send(clusters.a, topic, plain("old"))
    node = make_node(
        kafka_bridge(
            clusters._asdict(), bridge, queue_name=topic, start_position="latest", add_partitions=True
        )
    ).start()
    node.event("bridge-connected")
    await_progress(clusters.a, bridge, topic)
    send(clusters.a, topic, plain("1"))
    assert values(read(clusters.b, topic, 1)) == [b"1"]
    assert node.stop() == 0
    send(clusters.a, topic, plain("2"))
    clusters.a.add_partitions(topic, 2)
    send(clusters.a, topic, plain("new", partition=1))
    node.start()
    assert values(read_grown(clusters.b, topic, 3)) == [b"1", b"2", b"new"]


def read_grown(cluster: Reachable, topic: str, count: int) -> list[Record]:
    """Read once the topic has two partitions."""
    eventually(lambda: partitions_of(cluster, topic) == 2, "the partition is added", TOPIC_WITHIN_S)
    return read(cluster, topic, count)


def test_a_partition_added_while_it_runs_is_read_from_its_beginning(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """`add-partitions = true`."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    send(clusters.a, topic, plain("0"))
    make_node(kafka_bridge(clusters._asdict(), bridge, queue_name=topic, add_partitions=True)).start()
    read(clusters.b, topic, 1)
    clusters.a.add_partitions(topic, 2)
    send(clusters.a, topic, plain("1", "2", partition=1))
    assert values(read_grown(clusters.b, topic, 3)) == [b"0", b"1", b"2"]


def test_fewer_partitions_at_the_target_park_one_with_the_setting(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """In a topic that the bridge has not made, by default: the others go on; mended, it does, too."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic, partitions=2)
    clusters.b.create_topic(topic, partitions=1)
    send(clusters.a, topic, [*plain("0"), *plain("1", partition=1)])
    node = make_node(kafka_bridge(clusters._asdict(), bridge, queue_name=topic)).start()
    assert values(read(clusters.b, topic, 1)) == [b"0"]
    reason = node.event("bridge-waits", bridge=bridge)["reason"]
    assert topic in reason
    assert "add-partitions" in reason
    assert node.bridge_state(bridge) == "RUNNING"
    assert node.ops.get("/ready").status == 200
    clusters.b.add_partitions(topic, 2)
    assert values(read_grown(clusters.b, topic, 2)) == [b"0", b"1"]


def test_without_create_topics_the_bridge_waits_for_the_topic(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """Never dead-lettered, never FAILED, and on its way by itself soon after the topic is made. B20."""
    bridge, topic, letters = named("a-to-b"), named("orders"), named("letters")
    clusters.a.create_topic(topic)
    send(clusters.a, topic, plain("0", "1"))
    node = make_node(
        kafka_bridge(
            clusters._asdict(), bridge, queue_name=topic, create_topics=False, dead_letter_address=letters
        )
    ).start()
    said = eventually(
        lambda: [
            *node.events("bridge-waits", bridge=bridge),
            *node.events("bridge-disconnected", bridge=bridge),
        ],
        "it says that it waits",
    )[0]
    assert topic in said["reason"]
    assert "create-topics" in said["reason"]
    assert said["retry-in-ms"] >= 0
    assert node.bridge_state(bridge) != "FAILED"
    assert topic not in clusters.b.topics()
    clusters.b.create_topic(topic)
    made = time.monotonic()
    assert values(read(clusters.b, topic, 2)) == [b"0", b"1"]
    assert time.monotonic() - made < 5
    node.await_state(bridge, "RUNNING")
    assert letters not in clusters.b.topics()


def test_topics_are_made_like_the_sources_with_the_replicas_of_the_settings(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """As many partitions; more replicas than brokers: refused, naming resource, operation and setting."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic, partitions=3)
    send(clusters.a, topic, plain("0", partition=2))
    rest = connector_tables(clusters._asdict())
    ends = {"queue_name": topic, "source_connector": "a", "static_connectors": ["b"]}
    rest += bridge_table(bridge, topic_replication_factor=1, journal_replication_factor=1, **ends)
    rest += bridge_table(
        named("greedy"), topic_replication_factor=3, forwarding_address="greedy.{address}", **ends
    )
    rest += bridge_table(
        named("careful"), journal_replication_factor=3, forwarding_address="careful.{address}", **ends
    )
    node = make_node(rest).start_listening()
    assert [record.partition for record in read(clusters.b, topic, 1)] == [2]
    assert partitions_of(clusters.b, topic) == 3
    reason = node.await_failed(named("greedy"))
    assert f"greedy.{topic}" in reason
    assert "topic-replication-factor" in reason
    reason = node.await_failed(named("careful"))
    assert f"core-bridge.{named('careful')}.journal" in reason
    assert "journal-replication-factor" in reason


@pytest.mark.parametrize("preserve", [True, False])
def test_partitions_are_the_sources_or_by_key_as_java_has_it(
    clusters: Clusters, named: Named, make_node: MakeNode, preserve: bool
) -> None:
    """`preserve-partitions`; null keys by source partition mod target partitions."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic, partitions=6)
    clusters.b.create_topic(topic, partitions=6 if preserve else 4)
    sent = [Record(b"%d" % number, key, (), number) for number, key in enumerate(MURMUR2)]
    sent += [Record(b"n%d" % number, None, (), 5) for number in range(3)]
    send(clusters.a, topic, sent)
    make_node(
        kafka_bridge(clusters._asdict(), bridge, queue_name=topic, preserve_partitions=preserve)
    ).start()
    found = {record.value: record.partition for record in read(clusters.b, topic, len(sent))}
    if preserve:
        assert found == {record.value: record.partition for record in sent}
    else:
        keyed = {b"%d" % place: (hashed & 0x7FFFFFFF) % 4 for place, hashed in enumerate(MURMUR2.values())}
        assert found == keyed | {b"n%d" % number: 5 % 4 for number in range(3)}


def test_the_journal_topic_and_the_groups_have_the_names_of_the_settings(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """`journal-topic`, `group-id`; and the defaults. Both compacted, neither auto-created."""
    plain_bridge, own_bridge, topic = named("plain"), named("own"), named("orders")
    journal, group = named("memory"), named("readers")
    clusters.a.create_topic(topic)
    send(clusters.a, topic, plain("0"))
    rest = connector_tables(clusters._asdict())
    ends = {"queue_name": topic, "source_connector": "a", "static_connectors": ["b"]}
    rest += bridge_table(plain_bridge, forwarding_address="p.{address}", **ends)
    rest += bridge_table(
        own_bridge, forwarding_address="o.{address}", journal_topic=journal, group_id=group, **ends
    )
    make_node(rest).start()
    for prefix in "po":
        read(clusters.b, f"{prefix}.{topic}", 1)
    await_progress(clusters.a, plain_bridge, topic)
    await_progress(clusters.a, own_bridge, topic, group=f"{group}.progress")
    for name in (f"core-bridge.{plain_bridge}.journal", journal):
        assert partitions_of(clusters.b, name) == 1
        assert cleanup_policy(clusters.b, name) == "compact"
    assert f"core-bridge.{own_bridge}.journal" not in clusters.b.topics()
    assert {f"core-bridge.{plain_bridge}", group} <= groups_of(clusters.b)
    assert {f"core-bridge.{plain_bridge}.progress", f"{group}.progress"} <= groups_of(clusters.a)


def cleanup_policy(cluster: Reachable, topic: str) -> str:
    untyped: Any = confluent_kafka.admin
    resource = untyped.ConfigResource("topic", topic)
    admin = cluster.admin()
    found = admin.describe_configs([resource])[resource].result(CALL_TIMEOUT_S)
    return str(found["cleanup.policy"].value)


def groups_of(cluster: Reachable) -> set[str]:
    admin = cluster.admin()
    return {one.group_id for one in admin.list_consumer_groups().result(CALL_TIMEOUT_S).valid}


def test_a_re_created_topic_is_noticed(clusters: Clusters, named: Named, make_node: MakeNode) -> None:
    """Contract: within 30 s; its records are new ones, from the first on."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    send(clusters.a, topic, plain("0", "1"))
    node = make_node(kafka_bridge(clusters._asdict(), bridge, queue_name=topic)).start()
    first = read(clusters.b, topic, 2)
    await_progress(clusters.a, bridge, topic)
    clusters.a.delete_topic(topic)
    clusters.a.create_topic(topic)
    send(clusters.a, topic, plain("2", "3", "4"))
    found = read(clusters.b, topic, 5, within_s=TOPIC_WITHIN_S)
    assert values(found) == [b"0", b"1", b"2", b"3", b"4"]
    assert len({record.ids[0] for record in found}) == 5
    assert [record.ids for record in found[:2]] == [record.ids for record in first]
    node.await_state(bridge, "RUNNING")
