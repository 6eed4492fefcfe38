"""What a message is once it stands on a Kafka target: the same bytes, an ID, a hop, and a partition."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest
from structlog.testing import LogCapture

from bridge.errors import TargetUnavailable
from bridge.kafka.records.partitioner import partition_for_key
from bridge.messages import hops
from bridge.messages.block import FreshBlock
from bridge.messages.message import Message
from bridge.relay.ports import Stream
from dedup.ids import ID_HEADER, Stamp
from dedup.verdict import Verdict
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.target.rig import (
    NOW,
    Rig,
    arrived,
    batch,
    configure,
    deliver,
    journal_stream,
    kafka_stream,
    numbered,
    opened,
    rig,
    values,
)

Unique = Callable[[str], str]


@pytest.fixture
async def bridge(cluster_a: Reachable, unique: Unique) -> AsyncIterator[Rig]:
    async with rig(cluster_a, unique("bridge")) as made:
        yield made


def stamp(stream: Stream, position: int) -> tuple[str, bytes]:
    return ID_HEADER, Stamp(stream.identity).text(position).encode()


async def test_everything_of_a_kafka_record_arrives_byte_for_byte(bridge: Rig, unique: Unique) -> None:
    topic = unique("bytes")
    stream = kafka_stream(topic)
    messages = [
        Message(b"\x00\xff", b"\xfe\x00", (("b", b"1"), ("a", None), ("b", b""), ("é", b"\xff")), NOW),
        Message(None, b"tombstone", (), NOW + 1),
        Message(None, None, (), NOW + 2),
        Message(b"", b"", (), NOW + 3),
        Message(b"x", None, (), 0),
        Message(b"y" * 70_000, b"k" * 3_000, (("h", b"z" * 9_000),), NOW - 10_000_000),
    ]
    target = bridge.target(stamp=False)
    await opened(target, stream)
    (receipt,) = await deliver(target, batch(stream, messages))
    assert receipt.verdict is Verdict.STORED
    found = await arrived(bridge.cluster, topic)
    assert [Message(one.value, one.key, one.headers, one.timestamp) for one in found] == messages


async def test_a_record_without_a_timestamp_takes_none_from_those_behind_it(
    bridge: Rig, unique: Unique
) -> None:
    """Trap 7: aiokafka's builder gives what begins a batch without a timestamp that of the next record."""
    topic = unique("untimed")
    stream = kafka_stream(topic)
    timestamps = [-1, -1, NOW, -1, NOW + 5, -1]
    target = bridge.target()
    await opened(target, stream)
    await deliver(target, batch(stream, [Message(b"x", None, (), one) for one in timestamps]))
    assert [record.timestamp for record in await arrived(bridge.cluster, topic)] == timestamps


async def test_a_journals_message_without_a_timestamp_gets_that_of_its_storing(
    bridge: Rig, unique: Unique
) -> None:
    topic = unique("stored")
    stream = journal_stream(topic)
    target = bridge.target()
    await opened(target, stream)
    one = batch(stream, [Message(b"x"), Message(b"y", None, (), NOW)])
    await deliver(target, replace(one, events=(NOW - 77, NOW)))
    assert [record.timestamp for record in await arrived(bridge.cluster, topic)] == [NOW - 77, NOW]


async def test_a_topic_that_sets_its_own_times_says_so(bridge: Rig, unique: Unique, log: LogCapture) -> None:
    topic = unique("append")
    bridge.cluster.create_topic(topic, config={"message.timestamp.type": "LogAppendTime"})
    stream = kafka_stream(topic)
    target = bridge.target()
    await opened(target, stream)
    assert any("LogAppendTime" in str(entry) for entry in log.entries), log.entries
    # Limits on timestamps do not count there.
    (receipt,) = await deliver(target, batch(stream, [Message(b"x", None, (), NOW * 2)]))
    assert receipt.verdict is Verdict.STORED
    (record,) = await arrived(bridge.cluster, topic)
    assert record.timestamp > NOW


async def test_a_stamp_is_added_only_where_the_message_has_no_id(bridge: Rig, unique: Unique) -> None:
    """D4: a producer's ID is carried byte for byte, in its place."""
    topic = unique("ids")
    stream = kafka_stream(topic)
    own = ((ID_HEADER, b"\xff own"), ("a", b"1"))
    messages = [Message(b"0", None, (("a", b"1"),), NOW), Message(b"1", None, own, NOW)]
    target = bridge.target()
    await opened(target, stream)
    await deliver(target, batch(stream, messages, from_=40, ids=[(1, b"\xff own")]))
    first, second = await arrived(bridge.cluster, topic)
    assert first.headers == (("a", b"1"), stamp(stream, 40))
    assert second.headers == own


async def test_an_id_given_beside_a_nodes_message_becomes_a_header(bridge: Rig, unique: Unique) -> None:
    topic = unique("beside")
    stream = journal_stream(topic)
    target = bridge.target(stamp=False)
    await opened(target, stream)
    one = batch(stream, numbered(0, 1), ids=[(1, b"order-1")], stamped=False)
    await deliver(target, one)
    first, second = await arrived(bridge.cluster, topic)
    assert first.headers == ()
    assert second.headers == ((ID_HEADER, b"order-1"),)


async def test_origins_of_several_streams_keep_their_ids(bridge: Rig, unique: Unique) -> None:
    """Rule 2: the ID names where a message was first stored, not where it comes from now."""
    topic = unique("origins")
    stream, entry = journal_stream(topic), journal_stream("entry")
    target = bridge.target()
    await opened(target, stream)
    block = FreshBlock(numbered(0, 2), (), ((entry.identity, 700, 701), (stream.identity, 9, 9)))
    await deliver(target, replace(batch(stream, numbered(0, 2)), block=block))
    ids = [dict(record.headers)[ID_HEADER] for record in await arrived(bridge.cluster, topic)]
    assert ids == [stamp(entry, 700)[1], stamp(entry, 701)[1], stamp(stream, 9)[1]]


# -- partitions --------------------------------------------------------------------------------------------


async def test_kafkas_messages_stay_in_the_partition_of_their_number(bridge: Rig, unique: Unique) -> None:
    topic = unique("kept")
    streams = [kafka_stream(topic, number, partitions=3) for number in range(3)]
    target = bridge.target()
    await opened(target, *streams)
    batches = [batch(stream, numbered(n * 10, n * 10 + 4, key=b"same")) for n, stream in enumerate(streams)]
    await deliver(target, *batches)
    found = await arrived(bridge.cluster, topic)
    assert [(record.partition, record.value) for record in found] == [
        (n, b"m%d" % number) for n in range(3) for number in range(n * 10, n * 10 + 5)
    ]


async def test_by_key_messages_go_where_javas_client_sends_them(bridge: Rig, unique: Unique) -> None:
    topic = unique("keys")
    bridge.cluster.create_topic(topic, 5)
    stream = kafka_stream(topic, 3, partitions=4)
    keys = [b"a", None, b"bb", b"", b"ccc", None, b"a", b"bb", b"another-key"]
    target = bridge.target(preserve_partitions=False)
    await opened(target, stream)
    await deliver(target, batch(stream, [Message(b"%d" % n, key, (), NOW) for n, key in enumerate(keys)]))
    found = await arrived(bridge.cluster, topic)
    assert {record.value: record.partition for record in found} == {
        b"%d" % n: 3 if key is None else partition_for_key(key, 5) for n, key in enumerate(keys)
    }
    for partition in range(5):
        order = [int(record.value or b"") for record in found if record.partition == partition]
        assert order == sorted(order)


async def test_a_journals_messages_without_keys_stay_together(bridge: Rig, unique: Unique) -> None:
    topic = unique("together")
    bridge.cluster.create_topic(topic, 7)
    stream = journal_stream(topic)
    target = bridge.target()
    await opened(target, stream)
    await deliver(target, batch(stream, numbered(0, 9)))
    found = await arrived(bridge.cluster, topic)
    assert len({record.partition for record in found}) == 1
    assert [record.value for record in found] == [b"m%d" % n for n in range(10)]


async def test_the_journal_record_names_the_last_offset_of_each_partition(
    bridge: Rig, unique: Unique
) -> None:
    topic = unique("offsets")
    bridge.cluster.create_topic(topic, 3)
    first, second = journal_stream(topic), kafka_stream(topic, 1, partitions=1)
    target = bridge.target(preserve_partitions=False)
    await opened(target, first, second)
    keyed = [Message(b"%d" % n, b"key-%d" % n, (), NOW) for n in range(30)]
    await deliver(target, batch(first, keyed[:20]), batch(second, keyed[20:]))
    found = await arrived(bridge.cluster, topic)
    again = bridge.target(preserve_partitions=False)
    await opened(again, first, second)
    assert again._lane is not None
    for stream, mine in ((first, range(20)), (second, range(20, 30))):
        last = {}
        for record in found:
            if int(record.value or b"") in mine:
                last[topic, record.partition] = record.offset
        remembered = again._lane.state.stream(stream.identity)
        assert remembered is not None
        assert {(name, partition): offset for name, partition, offset in remembered.offsets} == last


# -- producers' IDs ----------------------------------------------------------------------------------------


async def test_a_known_id_is_left_out_counted_and_its_position_covered(bridge: Rig, unique: Unique) -> None:
    """D5, D6, B12: known from before, from the same transaction, and from the same batch."""
    topic = unique("known")
    stream, other = kafka_stream(topic), journal_stream("elsewhere", topic)
    target = bridge.target()
    await opened(target, stream, other)
    await deliver(target, batch(stream, numbered(0, 1), ids=[(0, b"A")]))
    receipts = await deliver(
        target,
        batch(stream, numbered(2, 5), from_=2, ids=[(0, b"B"), (1, b"A"), (3, b"B")]),
        batch(other, numbered(10, 11), ids=[(0, b"B"), (1, b"C")]),
    )
    assert [(one.verdict, one.next, one.duplicates) for one in receipts] == [
        (Verdict.STORED, 6, 2),
        (Verdict.STORED, 2, 1),
    ]
    assert await values(bridge.cluster, topic) == [b"m0", b"m1", b"m2", b"m4", b"m11"]


async def test_ids_are_remembered_by_the_next_process_and_only_if_their_message_was_stored(
    bridge: Rig, unique: Unique
) -> None:
    """D14, D44"""
    topic = unique("remembered")
    stream = kafka_stream(topic)
    target = bridge.target()
    await opened(target, stream)
    await deliver(target, batch(stream, numbered(0, 0), ids=[(0, b"A")]))
    future = Message(b"late", None, (), NOW * 2)
    (refused,) = await deliver(
        target, batch(stream, [*numbered(1, 1), future], from_=1, ids=[(0, b"B"), (1, b"C")])
    )
    assert refused.verdict is Verdict.REFUSED
    again = bridge.target()
    assert (await opened(again, stream)).next == 1
    (receipt,) = await deliver(again, batch(stream, numbered(1, 2), from_=1, ids=[(0, b"A"), (1, b"B")]))
    assert (receipt.verdict, receipt.duplicates) == (Verdict.STORED, 1)
    assert await values(bridge.cluster, topic) == [b"m0", b"m2"]


async def test_unchecked_ids_pass_as_often_as_they_come(bridge: Rig, unique: Unique) -> None:
    topic = unique("unchecked")
    stream = journal_stream(topic)
    target = bridge.target(check_producer_ids=False)
    await opened(target, stream)
    for n in range(2):
        (receipt,) = await deliver(target, batch(stream, numbered(n, n), from_=n, ids=[(0, b"A")]))
        assert receipt.duplicates == 0
    assert await values(bridge.cluster, topic) == [b"m0", b"m1"]


# -- hops --------------------------------------------------------------------------------------------------


async def test_hops_that_travel_beside_messages_become_their_header(bridge: Rig, unique: Unique) -> None:
    topic = unique("hops")
    stream = journal_stream(topic)
    first, second = hops.hop("mine", "store"), hops.hop("other", "store")
    one = batch(stream, [Message(b"0", None, (("a", b"1"),), NOW), *numbered(1, 2)])
    assert one.block is not None
    target = bridge.target(stamp=False)
    await opened(target, stream)
    await deliver(target, replace(one, block=one.block.hopped(((1, first), (1, second + first), (1, b"")))))
    assert [record.headers for record in await arrived(bridge.cluster, topic)] == [
        (("a", b"1"), (hops.HEADER, first)),
        ((hops.HEADER, second + first),),
        (),
    ]


# -- the delivery log --------------------------------------------------------------------------------------


async def test_the_journal_record_carries_the_line_of_all_that_the_transaction_covered(
    bridge: Rig, unique: Unique
) -> None:
    topic = unique("lines")
    stream = kafka_stream(topic)
    lines: list[str] = []

    async def write(written: list[str]) -> None:
        lines.extend(written)

    target = bridge.target(arguments={"write_lines": write}, node="edge", node_id="uuid-1", target_name="us")
    await opened(target, stream)
    await deliver(
        target,
        batch(stream, numbered(0, 1), from_=5, runs=((6, 6), (8, 8)), upto=10, refused=(7,)),
        batch(stream, numbered(2, 4), from_=10, ids=[(1, b"A"), (2, b"A")]),
    )
    await target.close()
    line, rejected = [json.loads(text) for text in lines]
    assert (line["side"], line["bridge"], line["lane"], line["node"], line["node-id"]) == (
        "received", bridge.bridge, 0, "edge", "uuid-1",
    )  # fmt: skip
    assert (line["stream"], line["address"], line["target"]) == (stream.identity, topic, "us")
    assert (line["from"], line["upto"], line["runs"]) == (5, 13, [[6, 6], [8, 8], [10, 12]])
    assert (line["refused"], line["count"], line["duplicates"]) == ([7], 5, 1)
    assert line["ids"] == [[11, "A"]]
    assert (rejected["verdict"], rejected["runs"], rejected["ids"]) == ("duplicate", [], [[None, "A"]])
    # Whoever takes the lane writes the last line before it runs: it may not have been on disk.
    again = bridge.target(arguments={"write_lines": write})
    await opened(again, stream)
    await deliver(again, batch(stream, numbered(0, 0), from_=13))
    assert lines[2].split("\n") == lines[:2]


async def test_a_line_that_cannot_be_written_holds_back_the_next_transaction(
    bridge: Rig, unique: Unique
) -> None:
    topic = unique("held-line")
    stream = kafka_stream(topic)

    async def write(written: list[str]) -> None:
        raise OSError("no room for the line")

    target = bridge.target(arguments={"write_lines": write})
    await opened(target, stream)
    (receipt,) = await deliver(target, batch(stream, numbered(0, 0)))
    assert receipt.verdict is Verdict.STORED
    with pytest.raises(TargetUnavailable, match="no room"):
        await deliver(target, batch(stream, numbered(1, 1), from_=1))
    assert await values(bridge.cluster, topic) == [b"m0"]


async def test_limits_are_those_of_the_topic_at_the_last_opening(bridge: Rig, unique: Unique) -> None:
    topic = unique("limits")
    bridge.cluster.create_topic(topic, config={"max.message.bytes": "2000"})
    stream = kafka_stream(topic)
    target = bridge.target()
    await opened(target, stream)
    large = batch(stream, [Message(b"x" * 3_000, None, (), NOW)])
    (receipt,) = await deliver(target, large)
    assert receipt.verdict is Verdict.REFUSED
    configure(bridge.cluster, topic, max_message_bytes="4000")
    await opened(target, stream)
    (receipt,) = await deliver(target, large)
    assert receipt.verdict is Verdict.STORED
