"""What a Kafka source reads: every committed record once, byte for byte, at its position."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from bridge.kafka.source import lane_reader
from bridge.relay.ports import Receipt, StreamState
from dedup.verdict import Verdict
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.source.rig import (
    WITHIN_S,
    Rig,
    bodies,
    numbered,
    open_transaction,
    placed,
    produce,
    produce_in_transaction,
    read_messages,
    read_upto,
    rigged,
)


@pytest.fixture
async def rig(cluster_a: Reachable, unique: Callable[[str], str]) -> AsyncIterator[Rig]:
    async with rigged(cluster_a, unique("bridge")) as made:
        yield made


@pytest.fixture
def topic(cluster_a: Reachable, unique: Callable[[str], str]) -> str:
    name = unique("orders")
    cluster_a.create_topic(name, config={"retention.ms": "-1"})  # some records here are old
    return name


async def test_a_record_becomes_a_message_byte_for_byte(rig: Rig, topic: str) -> None:
    headers = [("b", b"2"), ("a", None), ("b", b""), ("ü", b"\xff\x00")]
    produce(rig.cluster, topic, [b"body"], key=b"k\x00", headers=headers, timestamp=1_700_000_000_123)
    produce(rig.cluster, topic, [None], key=b"k")
    produce(rig.cluster, topic, [None], timestamp=5)
    source = await rig.start(topic)
    batches = await read_messages(source, 3)
    (stream,) = await source.streams()
    (first, message), (_, tombstone), (last, nothing) = placed(batches, stream.identity)
    assert [batch.block.hops for batch in batches if batch.block is not None and batch.block.hops] == []
    assert source.store == f"kafka:{stream.identity.split(':')[1]}"
    assert (first, last) == (0, 2)
    assert message.headers == tuple(headers)
    assert (message.body, message.key, message.timestamp) == (b"body", b"k\x00", 1_700_000_000_123)
    assert (tombstone.body, tombstone.key, tombstone.headers) == (None, b"k", ())
    assert (nothing.body, nothing.key, nothing.timestamp) == (None, None, 5)


async def test_a_stream_never_seen_begins_with_an_empty_coverage_of_its_start(rig: Rig, topic: str) -> None:
    produce(rig.cluster, topic, numbered(5))
    source = await rig.start(topic)
    (first, *_) = await source.read()
    assert (first.from_, first.upto, first.block) == (0, 0, None)
    (stream,) = await source.streams()
    assert bodies([first, *await read_messages(source, 5)], stream.identity) == numbered(5)


async def test_coverage_goes_past_markers_and_aborted_records_also_at_the_end(rig: Rig, topic: str) -> None:
    produce_in_transaction(rig.cluster, topic, numbered(3, "a"))  # 0 1 2, marker 3
    produce_in_transaction(rig.cluster, topic, numbered(4, "x"), abort=True)  # 4 to 7, marker 8
    produce(rig.cluster, topic, [b"plain"])  # 9
    produce_in_transaction(rig.cluster, topic, numbered(2, "y"), abort=True)  # 10 11, marker 12
    source = await rig.start(topic)
    (stream,) = await source.streams()
    batches = await read_upto(source, stream.identity, 13)
    assert [(p, m.body) for p, m in placed(batches, stream.identity)] == [
        (0, b"a0"), (1, b"a1"), (2, b"a2"), (9, b"plain"),
    ]  # fmt: skip
    assert batches[-1].upto == 13
    checksum = next(batch.checksum for batch in batches if batch.count)
    produce_in_transaction(rig.cluster, topic, numbered(1, "z"), abort=True)
    (alone,) = await read_upto(source, stream.identity, 15)
    assert (alone.from_, alone.upto, alone.block) == (13, 15, None)
    assert checksum
    assert alone.checksum == batches[-1].checksum  # of the last message below: it can still be compared


async def test_an_open_transaction_holds_back_what_is_behind_it(rig: Rig, topic: str) -> None:
    produce(rig.cluster, topic, [b"before"])
    producer = open_transaction(rig.cluster, f"{topic}-foreign")
    producer.produce(topic, b"open", partition=0)
    producer.flush()
    produce(rig.cluster, topic, [b"behind"])
    source = await rig.start(topic)
    (stream,) = await source.streams()
    batches = await read_messages(source, 1)
    assert bodies(batches, stream.identity) == [b"before"]
    producer.commit_transaction()
    assert bodies(await read_messages(source, 2), stream.identity) == [b"open", b"behind"]


async def test_it_resumes_exactly_at_next_also_inside_a_record_batch(rig: Rig, topic: str) -> None:
    produce(rig.cluster, topic, numbered(100))
    (stream,) = await rig.source(topic).streams()
    for start in (1, 37, 99):
        source = await rig.start(topic, resume={stream.identity: StreamState(start)})
        batches = await read_messages(source, 100 - start)
        assert batches[0].from_ == start
        assert bodies(batches, stream.identity) == numbered(100)[start:]


async def test_a_lane_reads_its_own_partitions_and_all_lanes_together_read_each_once(
    rig: Rig, unique: Callable[[str], str]
) -> None:
    name = unique("orders")
    rig.cluster.create_topic(name, 12)
    seen: list[str] = []
    for lane in range(3):
        streams = await rig.source(name, lane=lane, lanes=3).streams()
        assert {(s.partitions, s.target_address, s.run) for s in streams} <= {(12, f"to.{name}", "0")}
        seen += [stream.identity for stream in streams]
    assert len(seen) == len(set(seen)) == 12


async def test_batches_are_cut_at_their_size_and_large_messages_travel_alone(rig: Rig, topic: str) -> None:
    values = numbered(50, size=1_000)
    values[20:20] = [b"L" * 9_000, b"L" * 30_000]
    produce(rig.cluster, topic, values)
    source = await rig.start(topic, batch_bytes=10_000, large_bytes=8_000)
    (stream,) = await source.streams()
    batches = await read_messages(source, 52)
    assert bodies(batches, stream.identity) == values
    for batch in batches:
        if batch.count > 1:
            assert batch.size <= 10_000
            assert batch.block is not None
            assert all(len(message.body or b"") < 8_000 for message in batch.block.messages())


async def test_a_record_larger_than_a_fetch_comes_too_beside_other_partitions(
    rig: Rig, unique: Callable[[str], str]
) -> None:
    name = unique("orders")
    rig.cluster.create_topic(name, 3)
    for partition in range(3):
        produce(rig.cluster, name, [b"L" * 700_000, b"s"], partition=partition)
    source = await rig.start(name, batch_bytes=64 * 1024)
    batches = await read_messages(source, 6)
    for stream in await source.streams():
        assert bodies(batches, stream.identity) == [b"L" * 700_000, b"s"]


async def test_a_partition_with_a_backlog_does_not_keep_others_waiting(
    rig: Rig, unique: Callable[[str], str]
) -> None:
    name = unique("orders")
    rig.cluster.create_topic(name, 4)
    produce(rig.cluster, name, numbered(4_000, size=1_000), options={"batch.size": 16_000})
    for partition in (1, 2, 3):
        produce(rig.cluster, name, numbered(1), partition=partition)
    source = await rig.start(name, batch_bytes=64 * 1024)
    streams = [stream.identity for stream in await source.streams()]
    batches = await read_messages(source, 400)
    assert {batch.stream for batch in batches if batch.count} == set(streams)


async def test_no_partition_waits_for_more_than_a_fetch_of_the_others(
    rig: Rig, unique: Callable[[str], str]
) -> None:
    """Or else, while a bridge catches up, their IDs push those out that its next records repeat."""
    name = unique("orders")
    rig.cluster.create_topic(name, 4)
    for partition in range(4):
        values = numbered(1_000, size=1_000)
        produce(rig.cluster, name, values, partition=partition, options={"batch.size": 16_000})
    source = await rig.start(name, batch_bytes=64 * 1024)
    waited = dict.fromkeys((stream.identity for stream in await source.streams()), 0)
    longest, left, full = 0, 4_000, False
    while left:
        if left <= 3_000 and not full:  # fetches begin small, and have their size by now
            waited, full = dict.fromkeys(waited, 0), True
        for batch in await asyncio.wait_for(source.read(), WITHIN_S):
            if batch.count:
                longest = max(longest, waited[batch.stream]) if full else 0
                waited = {stream: count + batch.count for stream, count in waited.items()}
                waited[batch.stream] = 0
                left -= batch.count
    assert 64 <= longest <= 3 * 66  # a fetch of one partition has some 64 messages here


async def test_the_partition_whose_next_record_is_oldest_is_handed_out_first(
    rig: Rig, unique: Callable[[str], str]
) -> None:
    """So a worker that dies after each transaction gets on with all of them (see `LaneReading.read`)."""
    name = unique("orders")
    rig.cluster.create_topic(name, 4, config={"retention.ms": "-1"})
    ages_ms = {0: 2_000, 1: 4_000, 2: 1_000, 3: 3_000}
    for partition, age_ms in ages_ms.items():
        produce(rig.cluster, name, numbered(2), partition=partition, timestamp=1_700_000_000_000 - age_ms)
    streams = [stream.identity for stream in await rig.source(name).streams()]
    source = await rig.start(name, resume=dict.fromkeys(streams, StreamState(0)))
    batches = await asyncio.wait_for(source.read(), WITHIN_S)
    assert [int(batch.stream.rpartition(":")[2]) for batch in batches] == [1, 3, 0, 2]


async def test_many_partitions_are_read_in_order_each(rig: Rig, unique: Callable[[str], str]) -> None:
    name = unique("orders")
    rig.cluster.create_topic(name, 8)
    for partition in range(8):
        produce(rig.cluster, name, numbered(300, f"p{partition}-"), partition=partition)
    source = await rig.start(name, batch_bytes=8 * 1024)
    batches = await read_messages(source, 2_400)
    for stream in await source.streams():
        number = stream.identity.rpartition(":")[2]
        assert bodies(batches, stream.identity) == numbered(300, f"p{number}-")


async def test_what_comes_while_the_target_works_is_read_at_once(
    rig: Rig, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_reader, "LINGER_MS", 60_000)
    produce(rig.cluster, topic, numbered(1))
    source = await rig.start(topic, lingers=True)
    *_, first = await read_messages(source, 1)
    reading = asyncio.create_task(source.read())
    for number in range(5):
        await asyncio.to_thread(produce, rig.cluster, topic, [b"more-%d" % number])
    assert not reading.done()
    await source.settled(first, Receipt(first.stream, Verdict.STORED, first.upto))
    async with asyncio.timeout(WITHIN_S):
        (batch,) = await reading
    assert bodies([batch], first.stream) == [b"more-%d" % number for number in range(5)]


async def test_a_target_that_holds_a_batch_does_not_stop_reading(
    rig: Rig, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_reader, "LINGER_MS", 1)
    source = await rig.start(topic, lingers=True)
    for number in range(3):
        produce(rig.cluster, topic, [b"%d" % number])
        batches = await read_messages(source, 1)
        assert bodies(batches, batches[-1].stream) == [b"%d" % number]


async def test_a_stream_that_backs_off_is_not_waited_for(
    rig: Rig, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_reader, "LINGER_MS", 60_000)
    name = unique("orders")
    rig.cluster.create_topic(name, 2)
    produce(rig.cluster, name, [b"held"])
    source = await rig.start(name, lingers=True)
    *_, read = await read_messages(source, 1)
    source.back_off([read.stream])
    produce(rig.cluster, name, [b"other"], partition=1)
    *_, other = await read_messages(source, 1)
    assert bodies([other], other.stream) == [b"other"]


async def test_a_consumer_that_was_made_for_a_question_reads_on(rig: Rig, topic: str) -> None:
    """Whoever replaces a consumer may be cancelled before he has told the new one where it is."""
    produce(rig.cluster, topic, numbered(1))
    source = await rig.start(topic)
    *_, first = await read_messages(source, 1)
    await source._reading._stop()
    await source.bounds()
    produce(rig.cluster, topic, [b"more"])
    assert bodies(await read_messages(source, 1), first.stream) == [b"more"]
