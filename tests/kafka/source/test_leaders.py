"""A Kafka source while leaders change: nothing is lost or doubled, and a log that was cut back is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import pytest
from confluent_kafka import ElectionType, TopicPartition

from bridge.errors import SourceGap, SourceUnavailable
from bridge.kafka.source.source import KafkaSource
from bridge.messages.batch import Batch
from bridge.relay.divergence import Diverged
from bridge.relay.ports import StreamState
from tests.kafka.cluster.brokers import Cluster
from tests.kafka.cluster.reachable import CALL_TIMEOUT_S
from tests.kafka.source.rig import (
    STORE,
    Rig,
    bodies,
    covered,
    numbered,
    open_all,
    produce,
    read_messages,
    rigged,
)

#: Two replicas, either of which may lead although it is behind: what an operator sets who prefers to go on.
CARELESS: Final = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
#: Longest that an election may take, seconds.
ELECTION_S: Final = 60.0


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(3, name="leaders", directory=tmp_path_factory.mktemp("leaders")) as cluster:
        yield cluster


@pytest.fixture
def cluster(three: Cluster) -> Cluster:
    """These tests' own, whose brokers a test may end: all are there again when the next one begins."""
    return three.restart()


@pytest.fixture
async def rig(cluster: Cluster, unique: Callable[[str], str]) -> AsyncIterator[Rig]:
    async with rigged(cluster, unique("bridge")) as made:
        yield made


def elect_preferred(cluster: Cluster, topic: str) -> None:
    admin = cluster.admin()
    admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(CALL_TIMEOUT_S)


async def reopened(source: KafkaSource, state: Callable[[str], StreamState]) -> None:
    """Open as often as a relay does until a leader is there."""
    async with asyncio.timeout(ELECTION_S):
        while True:
            try:
                streams = await source.streams()
                await source.open({s.identity: state(s.identity) for s in streams}, STORE)
                return
            except SourceUnavailable:
                await asyncio.sleep(0.5)


async def test_a_new_leader_ends_the_session_and_the_next_goes_on_exactly_there(
    rig: Rig, cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topic = unique("orders")
    cluster.create_topic(topic, replication_factor=3, config={"min.insync.replicas": "2"})
    produce(cluster, topic, numbered(20, "a"), options={"acks": "all"})
    source = await rig.start(topic)
    (stream,) = await source.streams()
    batches = await read_messages(source, 20)
    reading = asyncio.create_task(read_messages(source, 20))
    old = cluster.leader(topic)
    cluster.broker(old).kill()
    cluster.await_leaders(topic, among=[node for node in (1, 2, 3) if node != old])
    await asyncio.to_thread(produce, cluster, topic, numbered(20, "b"), options={"acks": "all"})
    with pytest.raises(SourceUnavailable):
        async with asyncio.timeout(ELECTION_S):
            await reading
    before = covered(batches, stream.identity)
    await reopened(source, lambda _: replace(before, run=stream.run))
    (now,) = await source.streams()
    assert (now.identity, int(now.run) > int(stream.run)) == (stream.identity, True)
    batches += await read_messages(source, 20)
    assert bodies(batches, stream.identity) == numbered(20, "a") + numbered(20, "b")


async def test_a_log_cut_back_by_an_unclean_election_is_noticed_before_and_after_it_has_grown_again(
    rig: Rig, cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topic = unique("orders")
    cluster.create_topic(topic, replicas=[[1, 2]], config=CARELESS)
    produce(cluster, topic, numbered(10), options={"acks": "all"})
    cluster.broker(2).stop()
    cluster.await_in_sync(topic, {1})
    await asyncio.to_thread(produce, cluster, topic, numbered(10, "lost"), options={"acks": "1"})
    source = await rig.start(topic)
    (stream,) = await source.streams()
    batches = await read_messages(source, 20)
    state = replace(covered(batches, stream.identity), run=stream.run)
    assert state.next == 20
    cluster.broker(1).kill()
    cluster.broker(2).start()
    await asyncio.to_thread(cluster.await_leaders, topic, among=[2])
    with pytest.raises(SourceGap) as gap:
        await reopened(source, lambda _: state)
    assert (gap.value.limit, gap.value.found) == (10, 20)
    await asyncio.to_thread(produce, cluster, topic, numbered(30, "other"), options={"acks": "1"})
    with pytest.raises(Diverged) as diverged:
        await reopened(source, lambda _: state)
    assert (diverged.value.limit, diverged.value.found) == (10, 20)
    assert "core-bridge positions" in diverged.value.detail


async def test_what_was_fetched_before_an_election_and_not_vouched_for_does_not_count(
    rig: Rig, cluster: Cluster, unique: Callable[[str], str]
) -> None:
    """The records were fetched from a leader that is no longer one when it is asked."""
    topic = unique("orders")
    cluster.create_topic(topic, replicas=[[1, 2]])
    cluster.broker(1).stop()
    cluster.await_leaders(topic, among=[2])
    await asyncio.to_thread(cluster.broker(1).start)
    cluster.await_in_sync(topic, {1, 2})
    produce(cluster, topic, numbered(5), options={"acks": "all"})
    source = await rig.start(topic)
    await source.read()
    ask = source._partitions.replaced

    async def after_an_election(opened: Any) -> set[str]:
        await asyncio.to_thread(elect_preferred, cluster, topic)
        await asyncio.to_thread(cluster.await_leaders, topic, among=[1])
        return await ask(opened)

    source._partitions.replaced = after_an_election  # type: ignore[method-assign]
    read: list[Batch] = []
    with pytest.raises(SourceUnavailable, match="leader changed"):
        read += await source.read()
    assert read == []
    source._partitions.replaced = ask  # type: ignore[method-assign]
    (stream,) = await source.streams()
    await reopened(source, lambda _: StreamState(0))
    assert bodies(await read_messages(source, 5), stream.identity) == numbered(5)
    await open_all(source, {stream.identity: StreamState(5)})


async def test_a_partition_without_a_leader_holds_up_no_other_and_is_opened_when_it_has_one(
    rig: Rig, cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topic = unique("orders")
    cluster.create_topic(topic, replicas=[[1], [2]])
    for partition in (0, 1):
        produce(cluster, topic, numbered(5, f"p{partition}-"), partition=partition)
    here, away = [stream.identity for stream in await rig.source(topic).streams()]
    cluster.broker(2).stop()
    source = await rig.start(topic)
    batches = await read_messages(source, 5)
    assert bodies(batches, here) == numbered(5, "p0-")
    await asyncio.to_thread(cluster.broker(2).start)
    batches = await read_messages(source, 5)
    assert bodies(batches, away) == numbered(5, "p1-")
    cluster.broker(2).stop()
    source._lane._watch_at_ms = 0  # it is time to ask the leaders where the logs end
    await reopened(source, lambda _: StreamState(5))
    assert set(source._lane.cursors) == {here}
    await asyncio.to_thread(cluster.broker(2).start)
    with pytest.raises(SourceUnavailable, match="there again"):  # above it counts as open
        await read_messages(source, 1)
