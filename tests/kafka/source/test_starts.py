"""Where a Kafka source begins: gaps, logs that were cut back, re-created topics, `start-position`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from aiokafka.structs import TopicPartition as Tp
from structlog.testing import capture_logs

from bridge.errors import SourceGap, SourceUnavailable
from bridge.kafka.records.identity import lane_of
from bridge.kafka.source.progress import Kind, Mark, Progress
from bridge.relay.divergence import Diverged
from bridge.relay.ports import StreamState
from bridge.relay.stays import Remembered
from bridge.runtime.clock import SystemClock
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.source.rig import (
    STORE,
    Rig,
    bodies,
    by_partition,
    covered,
    expire,
    numbered,
    open_all,
    open_new,
    produce,
    produce_in_transaction,
    read_messages,
    read_until,
    read_upto,
    rigged,
    settle,
)


@pytest.fixture
async def rig(cluster_a: Reachable, unique: Callable[[str], str]) -> AsyncIterator[Rig]:
    async with rigged(cluster_a, unique("bridge")) as made:
        yield made


@pytest.fixture
def topic(cluster_a: Reachable, unique: Callable[[str], str]) -> str:
    name = unique("orders")
    cluster_a.create_topic(name)
    return name


def recreate(cluster: Reachable, topic: str, partitions: int = 1) -> None:
    cluster.delete_topic(topic)
    cluster.create_topic(topic, partitions)


# -- gaps ------------------------------------------------------------------------------------------------


async def test_expired_positions_stop_the_bridge_and_say_how_many_are_gone(rig: Rig, topic: str) -> None:
    produce(rig.cluster, topic, numbered(20))
    expire(rig.cluster, topic, 15)
    source = rig.source(topic)
    (stream,) = await source.streams()
    with pytest.raises(SourceGap) as raised:
        await source.open({stream.identity: StreamState(4)}, STORE)
    assert (raised.value.limit, raised.value.found) == (15, 4)
    for part in (
        f"topic {topic} partition 0",
        "11 positions are gone",
        "gap-policy",
        "core-bridge positions",
    ):
        assert part in raised.value.detail


async def test_a_gap_that_may_be_passed_is_covered_counted_and_logged(rig: Rig, topic: str) -> None:
    produce(rig.cluster, topic, numbered(20))
    expire(rig.cluster, topic, 15)
    with capture_logs() as logs:
        (stream,) = await rig.source(topic).streams()
        source = await rig.start(
            topic, resume={stream.identity: StreamState(4, checksum=7)}, gap_policy="continue"
        )
    first, *_ = batches = await read_messages(source, 5)
    assert (first.from_, first.upto, first.block, first.checksum) == (4, 15, None, 0)
    assert bodies(batches, stream.identity) == numbered(20)[15:]
    assert source.gaps.positions == 11
    assert [(log["first"], log["end"]) for log in logs if log["event"] == "source-gap"] == [(4, 15)]


async def test_what_expired_before_the_bridge_came_is_no_gap(rig: Rig, topic: str) -> None:
    produce(rig.cluster, topic, numbered(20))
    expire(rig.cluster, topic, 15)
    source = await rig.start(topic)
    first, *_ = batches = await read_messages(source, 5)
    assert (first.from_, first.upto) == (15, 15)
    assert len(batches) > 1
    assert source.gaps.positions == 0


async def test_a_commit_marker_at_the_end_of_an_expired_log_is_no_gap(rig: Rig, topic: str) -> None:
    """Its coverage was handed out although no message came with it."""
    produce_in_transaction(rig.cluster, topic, numbered(3))  # 0 1 2, marker 3
    source = await rig.start(topic)
    (stream,) = await source.streams()
    batches = await read_upto(source, stream.identity, 4)
    expire(rig.cluster, topic, -1)
    await open_all(source, {stream.identity: covered(batches, stream.identity)})
    with pytest.raises(SourceGap):  # the marker alone would be one
        await open_all(source, {stream.identity: StreamState(3)})


async def test_a_log_that_expires_under_the_reader_is_a_gap_at_the_next_opening(rig: Rig, topic: str) -> None:
    produce(rig.cluster, topic, numbered(10))
    (stream,) = await rig.source(topic).streams()
    source = await rig.start(topic, resume={stream.identity: StreamState(3)}, gap_policy="continue")
    source._reading._consumer.pause(*source._lane._by_partition)  # it falls behind
    source._reading._seek()
    source._reading._consumer.pause(*source._lane._by_partition)
    expire(rig.cluster, topic, 8)
    source._reading._consumer.resume(*source._lane._by_partition)
    with pytest.raises(SourceUnavailable, match="no longer has"):
        await read_messages(source, 1)
    await open_all(source, {stream.identity: StreamState(3)})
    assert bodies(await read_messages(source, 2), stream.identity) == numbered(10)[8:]


# -- logs that are not what they were ----------------------------------------------------------------------


async def test_a_position_beyond_the_end_names_both_numbers(rig: Rig, topic: str) -> None:
    produce(rig.cluster, topic, numbered(5))
    source = rig.source(topic)
    (stream,) = await source.streams()
    with pytest.raises(SourceGap) as raised:
        await source.open({stream.identity: StreamState(9)}, STORE)
    assert (raised.value.limit, raised.value.found) == (5, 9)


@pytest.mark.parametrize("transactional", [False, True])
async def test_another_message_below_next_is_a_divergence(rig: Rig, topic: str, transactional: bool) -> None:
    """A cluster that was restored from a backup. With transactions a marker lies in between."""
    send = produce_in_transaction if transactional else produce
    send(rig.cluster, topic, numbered(5))
    source = await rig.start(topic)
    (stream,) = await source.streams()
    state = covered(await read_messages(source, 5), stream.identity)
    assert state.checksum
    await open_all(source, {stream.identity: state})
    other = StreamState(state.next, checksum=state.checksum ^ 1)
    with pytest.raises(Diverged) as raised:
        await open_all(source, {stream.identity: other})
    for part in (f"topic {topic} partition 0", f"{state.checksum:08x}", f"{state.checksum ^ 1:08x}"):
        assert part in raised.value.detail


async def test_the_checksum_survives_a_renamed_bridge(rig: Rig, topic: str) -> None:
    produce(rig.cluster, topic, numbered(5))
    source = await rig.start(topic)
    (stream,) = await source.streams()
    state = covered(await read_messages(source, 5), stream.identity)
    renamed = rig.source(topic, bridge="another")
    await open_all(renamed, {stream.identity: state})


async def test_a_message_that_compaction_took_away_is_no_divergence(
    rig: Rig, unique: Callable[[str], str]
) -> None:
    """Of a compacted topic only the message at next - 1 itself is compared."""
    name = unique("table")
    rig.cluster.create_topic(name, config={"cleanup.policy": "compact"})
    produce_in_transaction(rig.cluster, name, numbered(3), key=b"k")
    source = await rig.start(name)
    (stream,) = await source.streams()
    state = covered(await read_upto(source, stream.identity, 4), stream.identity)
    await open_all(source, {stream.identity: StreamState(state.next, checksum=state.checksum ^ 1)})


async def test_a_run_that_has_not_come_yet_is_a_divergence(rig: Rig, topic: str) -> None:
    produce(rig.cluster, topic, numbered(5))
    source = rig.source(topic)
    (stream,) = await source.streams()
    with pytest.raises(Diverged) as raised:
        await source.open({stream.identity: StreamState(3, run="7")}, STORE)
    assert (raised.value.limit, raised.value.found) == (0, 7)


async def test_nothing_is_opened_when_one_stream_does_not_pass(
    rig: Rig, unique: Callable[[str], str]
) -> None:
    name = unique("orders")
    rig.cluster.create_topic(name, 2)
    source = rig.source(name)
    streams = [stream.identity for stream in await source.streams()]
    with pytest.raises(SourceGap):
        await source.open({streams[0]: StreamState(None), streams[1]: StreamState(9)}, STORE)
    assert source._lane.cursors == {}


# -- re-created topics -------------------------------------------------------------------------------------


async def test_a_topic_recreated_under_the_bridge_begins_again_and_nothing_is_taken_for_the_old(
    rig: Rig, topic: str
) -> None:
    """What is fetched by name right after the re-creation looks like the old topic's next records."""
    source = await rig.start(topic)
    (old,) = await source.streams()
    await source.read()
    reading = asyncio.create_task(read_messages(source, 3))
    recreate(rig.cluster, topic)
    produce(rig.cluster, topic, numbered(3, "new"))
    async with asyncio.timeout(30):  # the contract's time
        batches = await reading
    (new,) = await source.streams()
    assert new.identity != old.identity
    assert not [batch for batch in batches if batch.stream == old.identity and batch.count]
    assert bodies(batches, new.identity) == numbered(3, "new")


async def test_a_topic_recreated_while_the_bridge_is_stopped_begins_at_its_beginning(
    rig: Rig, topic: str
) -> None:
    produce(rig.cluster, topic, numbered(5))
    source = await rig.start(topic)
    (old,) = await source.streams()
    await settle(source, await read_messages(source, 5))
    await source.close()
    assert await rig.source(topic).remembered() == {old.identity: Remembered(5, STORE)}
    recreate(rig.cluster, topic)
    produce(rig.cluster, topic, numbered(8, "new"))
    # A commit of the old topic that comes late must not be believed either.
    progress = Progress(rig.connection, rig.group, SystemClock())
    late = Mark(5, Kind.SETTLED, old.identity.split(":")[2], STORE)
    await progress.commit({Tp(topic, 0): late})
    await progress.close()
    again = await rig.start(topic)
    assert await again.remembered() == {}
    (new,) = await again.streams()
    assert bodies(await read_messages(again, 8), new.identity) == numbered(8, "new")


async def test_what_is_settled_late_is_not_committed_for_a_recreated_topic(rig: Rig, topic: str) -> None:
    produce(rig.cluster, topic, numbered(5))
    source = await rig.start(topic)
    batches = await read_messages(source, 5)
    recreate(rig.cluster, topic)
    produce(rig.cluster, topic, numbered(1, "new"))
    await read_messages(source, 1)
    await settle(source, batches)
    await source.close()
    progress = Progress(rig.connection, rig.group, SystemClock())
    assert await progress.marks() == {}
    await progress.close()


async def test_new_topics_and_partitions_show_as_an_empty_reading(
    rig: Rig, topic: str, unique: Callable[[str], str]
) -> None:
    other = unique("orders")
    source = await rig.start(topic, other)
    produce(rig.cluster, topic, numbered(2))
    await read_messages(source, 2)
    rig.cluster.create_topic(other, 2)
    produce(rig.cluster, other, numbered(4, "o"), partition=1)
    rig.cluster.add_partitions(topic, 2)
    produce(rig.cluster, topic, numbered(3, "t"), partition=1)
    batches = await read_messages(source, 7)
    streams = by_partition(await source.streams())
    assert bodies(batches, streams[other, 1].identity) == numbered(4, "o")
    assert bodies(batches, streams[topic, 1].identity) == numbered(3, "t")
    assert streams[topic, 1].partitions == 2


async def test_streams_already_open_go_on_where_they_were_when_others_are_opened(
    rig: Rig, topic: str, unique: Callable[[str], str]
) -> None:
    other = unique("orders")
    produce(rig.cluster, topic, numbered(100, size=1_000))
    source = await rig.start(topic, other, batch_bytes=10_000)
    batches = await read_messages(source, 20)
    rig.cluster.create_topic(other)
    await open_new(source)
    batches += await read_until(source, lambda more: sum(b.count for b in batches + list(more)) >= 100)
    (stream, _) = await source.streams() if topic < other else reversed(await source.streams())
    assert bodies(batches, stream.identity) == numbered(100, size=1_000)


# -- start-position ----------------------------------------------------------------------------------------


async def test_latest_counts_once_for_all_lanes_and_later_partitions_begin_at_their_beginning(
    rig: Rig, unique: Callable[[str], str]
) -> None:
    name = unique("orders")
    first = lane_of(name, 0, 2)  # one that has streams: another could not tell that this is a first start
    rig.cluster.create_topic(name, 4)
    for partition in range(4):
        produce(rig.cluster, name, numbered(3, "old"), partition=partition)
    lanes = [
        rig.source(name, lane=lane, lanes=2, start_position="latest", bridge=rig.bridge)
        for lane in (first, 1 - first)
    ]
    await open_all(lanes[0])  # marks are made for the other lane's partitions too
    for partition in range(4):
        produce(rig.cluster, name, numbered(2, f"p{partition}-"), partition=partition)
    rig.cluster.add_partitions(name, 6)
    for partition in (4, 5):
        produce(rig.cluster, name, numbered(2, f"p{partition}-"), partition=partition)
    await open_new(lanes[0])
    await open_all(lanes[1])
    found: dict[int, list[bytes | None]] = {}
    for lane in lanes:
        streams = await lane.streams()
        for stream in streams:
            partition = int(stream.identity.rpartition(":")[2])
            batches = await read_upto(lane, stream.identity, 5 if partition < 4 else 2)
            found[partition] = found.get(partition, []) + bodies(batches, stream.identity)
            for other in streams:
                if other is not stream:
                    number = int(other.identity.rpartition(":")[2])
                    found[number] = found.get(number, []) + bodies(batches, other.identity)
            if all(len(found.get(int(s.identity.rpartition(":")[2]), [])) == 2 for s in streams):
                break
    assert found == {partition: numbered(2, f"p{partition}-") for partition in range(6)}


async def test_a_start_mark_holds_until_the_target_has_taken_it(rig: Rig, topic: str) -> None:
    produce(rig.cluster, topic, numbered(3, "old"))
    first = await rig.start(topic, start_position="latest")
    assert await first.remembered() == {}  # a mark is no word of the target
    produce(rig.cluster, topic, numbered(2, "new"))
    second = await rig.start(topic, start_position="latest")
    (stream,) = await second.streams()
    (start, *_) = batches = await read_messages(second, 2)
    assert (start.from_, start.upto) == (3, 3)
    assert bodies(batches, stream.identity) == numbered(2, "new")


async def test_latest_does_not_count_for_a_topic_that_comes_after_the_first_start(
    rig: Rig, unique: Callable[[str], str]
) -> None:
    name = unique("orders")
    source = await rig.start(name, start_position="latest")
    rig.cluster.create_topic(name)
    produce(rig.cluster, name, numbered(3))
    (stream,) = await source.streams()
    assert bodies(await read_messages(source, 3), stream.identity) == numbered(3)


# -- what a person decides ---------------------------------------------------------------------------------


async def test_bounds_and_begin_are_what_positions_needs(rig: Rig, topic: str) -> None:
    produce(rig.cluster, topic, numbered(20))
    expire(rig.cluster, topic, 15)
    source = rig.source(topic)
    (stream,) = await source.streams()
    bounds = (await source.bounds())[stream.identity]
    assert (bounds.first, bounds.end) == (15, 20)
    await source.begin(stream.identity, 17, "store-9")
    assert await rig.source(topic).remembered() == {stream.identity: Remembered(17, "store-9")}
    await source.begin(stream.identity, 16, "store-9")
    await open_all(source)
    assert bodies(await read_messages(source, 4), stream.identity) == numbered(20)[16:]
    with pytest.raises(SourceGap):
        await source.begin("kafka:x:y:0", 1, STORE)
