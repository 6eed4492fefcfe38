"""A Kafka source in trouble: records it cannot decode, consumers that stop, readings that are given up."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiokafka.structs import TopicPartition as Tp
from structlog.testing import capture_logs

from bridge.errors import SourceUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.source import lane_reader, stall_detection
from bridge.kafka.source import progress as progress_module
from bridge.kafka.source.progress import Kind, Mark, Progress
from bridge.relay.lag import PartitionStatus
from bridge.relay.ports import StreamState
from bridge.relay.stays import Remembered
from bridge.runtime.clock import SystemClock
from tests.kafka.cluster.reachable import CALL_TIMEOUT_S, Reachable
from tests.kafka.source.rig import (
    STORE,
    Logged,
    Rig,
    bodies,
    by_partition,
    covered,
    expire,
    numbered,
    open_all,
    open_transaction,
    produce,
    produce_in_transaction,
    read_messages,
    rigged,
    settle,
)
from tests.kafka.traffic.poison import send_poison


@pytest.fixture
async def rig(cluster_a: Reachable, unique: Callable[[str], str]) -> AsyncIterator[Rig]:
    async with rigged(cluster_a, unique("bridge")) as made:
        yield made


@pytest.fixture
def topic(cluster_a: Reachable, unique: Callable[[str], str]) -> str:
    name = unique("orders")
    cluster_a.create_topic(name, 2)
    return name


# -- records that cannot be decoded ------------------------------------------------------------------------


async def test_a_header_that_is_not_text_parks_its_partition_and_no_other(rig: Rig, topic: str) -> None:
    """Trap 6. What comes before it is read; nothing of the other partition is lost on the way."""
    produce(rig.cluster, topic, numbered(3, "before"))
    await send_poison(rig.cluster.bootstrap, topic)
    produce(rig.cluster, topic, numbered(2, "behind"))
    produce(rig.cluster, topic, numbered(500, "other"), partition=1)
    source = await rig.start(topic)
    source._reading._log = logged = Logged()
    streams = by_partition(await source.streams())
    bad, good = streams[topic, 0].identity, streams[topic, 1].identity
    batches = await read_messages(source, 503)
    reading = asyncio.create_task(read_messages(source, 5))
    parked = await logged.next("partition-parked")
    produce(rig.cluster, topic, numbered(5, "more"), partition=1)
    batches += await reading
    assert bodies(batches, bad) == numbered(3, "before")
    assert bodies(batches, good) == numbered(500, "other") + numbered(5, "more")
    assert (parked["topic"], parked["partition"], parked["offset"]) == (topic, 0, 3)
    ((place, shown),) = source.parked.items()
    assert place == (topic, 0)
    assert shown == f"{topic}/0 stands still at offset 3: {parked['reason']}"
    assert logged.events.empty()


async def test_a_parked_partition_is_tried_again_at_the_next_opening(rig: Rig, topic: str) -> None:
    await send_poison(rig.cluster.bootstrap, topic)
    produce(rig.cluster, topic, numbered(2, "behind"))
    source = await rig.start(topic, gap_policy="continue")
    source._reading._log = logged = Logged()
    bad = by_partition(await source.streams())[topic, 0].identity
    reading = asyncio.create_task(read_messages(source, 1))
    await logged.next("partition-parked")
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    expire(rig.cluster, topic, 1)
    await open_all(source, {bad: StreamState(0)})
    assert bodies(await read_messages(source, 2), bad) == numbered(2, "behind")
    assert source.parked == {}


# -- consumers that stop -----------------------------------------------------------------------------------


async def test_a_consumer_that_brings_nothing_any_more_is_replaced(
    rig: Rig, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trap 10."""
    monkeypatch.setattr(stall_detection, "STUCK_AFTER_MS", 300)
    monkeypatch.setattr(lane_reader, "METADATA_INTERVAL_MS", 200)
    produce(rig.cluster, topic, numbered(2))
    source = await rig.start(topic)
    identity = by_partition(await source.streams())[topic, 0].identity
    batches = await read_messages(source, 2)
    stuck = source._reading._consumer
    stuck._fetcher._fetch_task.cancel()  # what is seen after a broker's restart
    await asyncio.gather(stuck._fetcher._fetch_task, *stuck._fetcher._pending_tasks, return_exceptions=True)
    produce(rig.cluster, topic, numbered(3, "later"))
    with capture_logs() as logs:
        batches += await read_messages(source, 3)
    assert bodies(batches, identity) == numbered(2) + numbered(3, "later")
    assert source._reading._consumer is not stuck
    assert [log["partitions"] for log in logs if log["event"] == "consumer-replaced"] == [{f"{topic}/0": 2}]


async def test_an_idle_consumer_is_left_alone(rig: Rig, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall_detection, "STUCK_AFTER_MS", 100)
    monkeypatch.setattr(lane_reader, "METADATA_INTERVAL_MS", 100)
    produce_in_transaction(rig.cluster, topic, numbered(2))
    source = await rig.start(topic)
    await read_messages(source, 2)
    first = source._reading._consumer
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            await read_messages(source, 1)
    assert source._reading._consumer is first


# -- readings that are given up ----------------------------------------------------------------------------


async def test_a_reading_given_up_while_leaders_are_asked_loses_nothing(rig: Rig, topic: str) -> None:
    produce(rig.cluster, topic, numbered(50))
    source = await rig.start(topic)
    identity = by_partition(await source.streams())[topic, 0].identity
    await source.read()
    ask, asked = source._partitions.replaced, asyncio.Event()

    async def slow(opened: Any) -> set[str]:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    source._partitions.replaced = slow  # type: ignore[method-assign]
    reading = asyncio.create_task(source.read())
    await asyncio.wait_for(asked.wait(), 10)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    source._partitions.replaced = ask  # type: ignore[method-assign]
    assert bodies(await read_messages(source, 50), identity) == numbered(50)


async def test_what_was_read_and_is_not_settled_is_read_again_after_an_opening(rig: Rig, topic: str) -> None:
    produce(rig.cluster, topic, numbered(50, size=1_000))
    source = await rig.start(topic, batch_bytes=10_000)
    identity = by_partition(await source.streams())[topic, 0].identity
    batches = await read_messages(source, 15)
    await open_all(source, {identity: covered(batches[:3], identity)})
    again = await read_messages(source, 50 - sum(b.count for b in batches[:3] if b.stream == identity))
    assert bodies([b for b in batches[:3] if b.stream == identity] + again, identity) == numbered(
        50, size=1_000
    )


# -- progress ----------------------------------------------------------------------------------------------


async def test_progress_is_committed_soon_and_at_most_once_a_second(
    rig: Rig, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(rig.cluster, topic, numbered(40, size=1_000))
    source = await rig.start(topic, batch_bytes=5_000)
    identity = by_partition(await source.streams())[topic, 0].identity
    commits: list[dict[Any, Mark]] = []
    commit, first = source._progress.commit, asyncio.Event()

    async def counted(marks: Any) -> None:
        await commit(marks)
        commits.append(dict(marks))
        first.set()

    monkeypatch.setattr(source._progress, "commit", counted)
    batches = [b for b in await read_messages(source, 40) if b.stream == identity]
    await settle(source, batches[:1])
    await asyncio.wait_for(first.wait(), 10)
    for batch in batches[1:]:
        await settle(source, [batch])
        await asyncio.sleep(0)
    assert await rig.source(topic).remembered() == {identity: Remembered(batches[0].upto, STORE)}
    await source.close()
    assert len(commits) == 2
    assert await rig.source(topic).remembered() == {identity: Remembered(40, STORE)}


async def test_the_last_settlement_is_committed_without_another_one(
    rig: Rig, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "COMMIT_INTERVAL_MS", 100)
    produce(rig.cluster, topic, numbered(4, size=1_000))
    source = await rig.start(topic, batch_bytes=2_000)
    identity = by_partition(await source.streams())[topic, 0].identity
    committed = asyncio.Queue[Any]()
    commit = source._progress.commit

    async def counted(marks: Any) -> None:
        await commit(marks)
        committed.put_nowait(marks)

    monkeypatch.setattr(source._progress, "commit", counted)
    batches = [b for b in await read_messages(source, 4) if b.stream == identity]
    await settle(source, batches[:-1])
    await asyncio.wait_for(committed.get(), 10)
    await settle(source, batches[-1:])
    await asyncio.wait_for(committed.get(), 10)
    assert await rig.source(topic).remembered() == {identity: Remembered(4, STORE)}


async def test_progress_that_cannot_be_committed_stops_nothing_and_is_said_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress_module, "COMMIT_INTERVAL_MS", 10)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # taken, and nobody listens
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        progress = Progress(KafkaConnection("away", address), "group", SystemClock())
        tries = asyncio.Queue[None]()
        commit = progress.commit

        async def counted(marks: Any) -> None:
            tries.put_nowait(None)
            await commit(marks)

        monkeypatch.setattr(progress, "commit", counted)
        with capture_logs() as logs:
            progress.settle(Tp("orders", 0), Mark(5, Kind.SETTLED))
            for _ in range(3):
                await asyncio.wait_for(tries.get(), 10)
            await progress.close()
        assert [log["event"] for log in logs].count("progress-not-committed") == 1


async def test_lag_counts_what_is_behind_and_names_the_oldest(rig: Rig, topic: str) -> None:
    when = 1_790_000_000_000
    produce(rig.cluster, topic, numbered(10), timestamp=when)
    source = await rig.start(topic)
    nothing: tuple[int, int | None] = (0, None)
    unread: tuple[int, int | None] = (10, None)
    assert source.lag == unread, "before anything is read"
    (row,) = [one for one in source.partition_status if one.partition == 0]
    assert row == PartitionStatus(topic, 0, position=0, end=10)
    identity = by_partition(await source.streams())[topic, 0].identity
    batches = await read_messages(source, 10)
    assert source.lag == (10, when)
    await settle(source, [batch for batch in batches if batch.stream == identity])
    assert source.lag == nothing


async def test_the_lag_of_a_source_that_is_closed_is_not_known(rig: Rig, topic: str) -> None:
    when = 1_790_000_000_000
    produce(rig.cluster, topic, numbered(10), timestamp=when)
    source = await rig.start(topic)
    await read_messages(source, 10)
    await source.close()
    assert source.lag is None
    at_first = by_partition(await source.streams())[topic, 0].identity
    await open_all(source, {at_first: StreamState(10)})
    nothing: tuple[int, int | None] = (0, None)
    assert source.lag == nothing


async def test_what_waits_behind_an_open_transaction_is_lag_and_its_producer_is_named(
    rig: Rig, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a read_committed reader's own end there is nothing to see: it has read up to it."""
    monkeypatch.setattr("bridge.kafka.source.lane_reader.METADATA_INTERVAL_MS", 50)
    produce(rig.cluster, topic, numbered(3))
    source = await rig.start(topic, open_transaction_warn_after_ms=100)
    identity = by_partition(await source.streams())[topic, 0].identity
    await settle(source, await read_messages(source, 3))
    foreign = open_transaction(rig.cluster, f"{topic}-foreign")
    foreign.produce(topic, b"open", partition=0)
    assert foreign.flush(CALL_TIMEOUT_S) == 0
    produce(rig.cluster, topic, numbered(5000))
    logged = source._lane._log = Logged()
    reading = asyncio.create_task(read_messages(source, 5001))
    event = await logged.next("open-transaction")
    assert (event["topic"], event["partition"], event["last_stable_offset"]) == (topic, 0, 3)
    ((producer, epoch),) = event["producers"]
    assert source.lag is not None
    behind, since = source.lag
    assert behind == 5001
    assert since is not None
    (text,) = source.waits
    assert f"{topic}/0 can be read up to offset 3 of 5004" in text
    assert f"producer id {producer} (epoch {epoch})" in text
    foreign.commit_transaction(CALL_TIMEOUT_S)
    assert len(bodies(await reading, identity)) == 5001
    going_on = asyncio.create_task(source.read())  # as a relay does: a source looks while it is read
    ended = await logged.next("open-transaction-ended")
    assert ended["last_stable_offset"] == 3
    assert not source.waits
    produce(rig.cluster, topic, numbered(1))
    assert len(bodies(await going_on, identity)) == 1


async def test_lag_counts_up_to_the_high_watermark_while_the_target_is_away(rig: Rig, topic: str) -> None:
    source = await rig.start(topic)
    foreign = open_transaction(rig.cluster, f"{topic}-foreign")
    foreign.produce(topic, b"open", partition=0)
    assert foreign.flush(CALL_TIMEOUT_S) == 0
    produce(rig.cluster, topic, numbered(10))
    await source.streams()  # as a relay does at every attempt to connect
    assert source.lag is not None
    assert source.lag[0] == 11
    foreign.abort_transaction(CALL_TIMEOUT_S)


async def test_a_topic_that_is_not_there_is_said_and_may_come(
    rig: Rig, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.kafka.source.lane_reader.METADATA_INTERVAL_MS", 50)
    name = unique("orders")
    for names_only in (True, False):
        with capture_logs() as logs:
            source = await rig.start(name, names=[name], names_only=names_only)
            await open_all(source)
        assert source.waits == [f"there is no topic {name} (queue-name)"]
        assert [log["topic"] for log in logs if log["event"] == "topic-missing"] == [name]
    source = rig.opened[-1]
    rig.cluster.create_topic(name)
    produce(rig.cluster, name, numbered(2))
    with capture_logs() as logs:
        await read_messages(source, 2)
    assert not source.waits
    assert [log["topic"] for log in logs if log["event"] == "topic-found"] == [name]


async def test_a_cluster_that_is_away_is_unavailable_and_not_an_error_of_the_client() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        rig = Rig(None, "bridge")  # type: ignore[arg-type]
        source = rig.source("orders", connection=KafkaConnection("away", address))
        for call in (source.streams, source.remembered, source.bounds):
            with pytest.raises(SourceUnavailable, match="away"):
                await call()
        await source.close()
