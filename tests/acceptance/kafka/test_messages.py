"""What a record is made of, from Kafka to Kafka: byte for byte, in place and in order."""

from __future__ import annotations

import time
import uuid

import pytest

from tests.acceptance.kafka.conftest import Named
from tests.acceptance.kafka.records import HOPS_HEADER, Record, plain, read, send, values, with_id
from tests.harness.node import MakeNode
from tests.kafka.bridges import await_progress, bridge_table, connector_tables, kafka_bridge
from tests.kafka.conftest import Clusters

MIB = 1024 * 1024


def hour_ago_ms() -> int:
    return int(time.time() * 1000) - 3_600_000


def test_ten_records_arrive_in_order_and_are_counted(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """B1, B2, B3, B31."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    send(clusters.a, topic, plain(*map(str, range(10))))
    node = make_node(kafka_bridge(clusters._asdict(), bridge, queue_name=topic)).start()
    assert values(read(clusters.b, topic, 10)) == [b"%d" % number for number in range(10)]
    await_progress(clusters.a, bridge, topic)
    samples = node.metrics()
    label = f'{{bridge="{bridge}"}}'
    assert samples[f"core_bridge_messages_sent_total{label}"] == 10
    assert samples[f"core_bridge_messages_acknowledged_total{label}"] == 10
    assert samples[f"core_bridge_in_flight_messages{label}"] == 0
    assert samples[f"core_bridge_lag_messages{label}"] == 0
    assert node.stop() == 0
    read(clusters.b, topic, 10)


def test_every_part_of_a_record_is_kept_byte_for_byte(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """B8, B29: tombstones, null keys, headers repeated, null, empty and in order, timestamps, partitions."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic, partitions=3)
    early = hour_ago_ms()
    sent = [
        Record(
            b"text",
            b"key",
            (("a", b"1"), ("b", None), ("a", b"2"), ("", b"x"), ("Gr\u00f6\u00dfe", b"")),
            0,
            early,
        ),
        Record(None, b"tombstone", (), 0, early + 5),
        Record(None, None, (), 0, early + 3),
        Record(None, None, (("only", b"header"),), 0, early + 3),
        Record(b"", b"", (("h", b"\0\xff\xfe"),), 0, early + 1),
        Record(
            b"\0\xff\xfe\r\n", b"\xff\0", (("content-type", b"x"), ("core-bridge-reason", b"mine")), 1, early
        ),
        Record(
            b"<&>\"'" * 80, b"k" * 400, tuple((f"h{n}", b"%d" % n) for n in range(50)), 2, early - 1_000_000
        ),
    ]
    send(clusters.a, topic, sent)
    make_node(kafka_bridge(clusters._asdict(), bridge, queue_name=topic)).start()
    found = read(clusters.b, topic, len(sent))
    plainly = [Record(one.value, one.key, one.own_headers, one.partition, one.timestamp) for one in found]
    assert plainly == sent
    assert all(len(one.ids) == 1 for one in found)
    assert read(clusters.a, topic, len(sent))[0].ids == [], "the source's records stay as they are"


def test_a_stamped_id_is_the_same_after_every_way_and_a_producers_is_kept(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """B10: two bridges of other names stamp the same ID of the same record, before and after a restart."""
    first, second, topic = named("first"), named("second"), named("orders")
    clusters.a.create_topic(topic)
    rest = connector_tables(clusters._asdict())
    for bridge in (first, second):
        rest += bridge_table(
            bridge, queue_name=topic, source_connector="a", static_connectors=["b"],
            forwarding_address=bridge + ".{address}",
        )  # fmt: skip
    send(clusters.a, topic, [*plain("0", "1"), with_id(b"2", b"\0own\xff")])
    node = make_node(rest).start()
    read(clusters.b, f"{first}.{topic}", 3)
    assert node.stop() == 0
    send(clusters.a, topic, plain("3"))
    node.start()
    ids = [[one.ids for one in read(clusters.b, f"{bridge}.{topic}", 4)] for bridge in (first, second)]
    assert ids[0] == ids[1]
    assert ids[0][2] == [b"\0own\xff"]
    stamped = [uuid.UUID(found[0].decode()) for found in (ids[0][0], ids[0][1], ids[0][3]) if found[0]]
    assert [one.version for one in stamped] == [8, 8, 8]
    assert len(set(stamped)) == 3


def test_without_duplicate_detection_nothing_is_stamped(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """`use-duplicate-detection = false`: known IDs pass too, and readers need no setting."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    send(clusters.a, topic, [*plain("0"), with_id(b"1", b"a"), with_id(b"2", b"a")])
    node = make_node(
        kafka_bridge(clusters._asdict(), bridge, queue_name=topic, use_duplicate_detection=False)
    ).start()
    found = read(clusters.b, topic, 3)
    assert values(found) == [b"0", b"1", b"2"]
    assert [one.ids for one in found] == [[], [b"a"], [b"a"]]
    started = node.event("bridge-started")
    assert (started["guarantee"], "readers" in started) == ("at-least-once", False)


@pytest.mark.parametrize("options", [{}, {"compression-type": "zstd"}], ids=["plain", "zstd"])
def test_ten_mebibytes_cross_where_kafka_allows_it(
    clusters: Clusters, named: Named, make_node: MakeNode, options: dict[str, str]
) -> None:
    """B5, B17, B18: between small ones, in order."""
    bridge, topic = named("a-to-b"), named("orders")
    room = {"max.message.bytes": str(20 * MIB)}
    for cluster in clusters:
        cluster.create_topic(topic, config=room)
    body = bytes(range(256)) * (10 * MIB // 256)
    send(
        clusters.a,
        topic,
        [*plain("before"), Record(body, b"k"), *plain("between"), Record(body), *plain("after")],
    )
    settings = connector_tables(clusters._asdict(), {"b": options} if options else None) + bridge_table(
        bridge, queue_name=topic, source_connector="a", static_connectors=["b"]
    )
    make_node(settings).start()
    found = read(clusters.b, topic, 5)
    assert values(found) == [b"before", body, b"between", body, b"after"]


def test_one_id_on_ten_large_records_is_one_record(
    clusters: Clusters, named: Named, make_node: MakeNode
) -> None:
    """D50."""
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    body = bytes(range(256)) * 1200
    send(clusters.a, topic, [*(with_id(body, b"large") for _ in range(10)), *plain("end")])
    make_node(kafka_bridge(clusters._asdict(), bridge, queue_name=topic)).start()
    assert values(read(clusters.b, topic, 2)) == [body, b"end"]


def test_aborted_records_never_cross(clusters: Clusters, named: Named, make_node: MakeNode) -> None:
    bridge, topic = named("a-to-b"), named("orders")
    clusters.a.create_topic(topic)
    send(clusters.a, topic, plain("0", "1"), transaction=named("tx"))
    send(clusters.a, topic, plain("no", "no"), transaction=named("tx"), abort=True)
    send(clusters.a, topic, plain("2", "3"), transaction=named("tx"))
    make_node(kafka_bridge(clusters._asdict(), bridge, queue_name=topic)).start()
    assert values(read(clusters.b, topic, 4)) == [b"0", b"1", b"2", b"3"]
    await_progress(clusters.a, bridge, topic)
    read(clusters.b, topic, 4)


def test_a_chain_of_clusters_keeps_ids(clusters: Clusters, named: Named, make_node: MakeNode) -> None:
    """A to B to A under another name to B under a third: one settings file; hops are told apart."""
    topic = named("orders")
    clusters.a.create_topic(topic)
    rest = connector_tables(clusters._asdict())
    ways = [("a", "b", topic, "b1."), ("b", "a", "b1." + topic, "a2."), ("a", "b", "a2.b1." + topic, "b3.")]
    for number, (source, target, queue, prefix) in enumerate(ways):
        rest += bridge_table(
            named(f"hop-{number}"), queue_name=queue, source_connector=source, static_connectors=[target],
            forwarding_address=prefix + "{address}",
        )  # fmt: skip
    send(clusters.a, topic, [*plain("0"), with_id(b"1", b"own"), *plain("2")])
    make_node(rest).start()
    at_b = read(clusters.b, "b1." + topic, 3)
    at_end = read(clusters.b, "b3.a2.b1." + topic, 3)
    assert values(at_end) == [b"0", b"1", b"2"]
    assert [one.ids for one in at_end] == [one.ids for one in at_b]
    assert at_end[1].ids == [b"own"]
    assert [len(one.header(HOPS_HEADER) or b"") for one in (at_b[0], at_end[0])] == [8, 24]
