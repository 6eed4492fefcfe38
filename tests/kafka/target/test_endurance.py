"""What could stop a Kafka target for good, or make it wait for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bridge.errors import Fenced, TargetUnavailable
from bridge.kafka.client import producers
from bridge.kafka.records import partitioner
from bridge.kafka.target import lane as target_lane
from bridge.kafka.target import transaction
from bridge.kafka.target.lane import TargetLane
from bridge.kafka.target.options import RelayHooks
from bridge.messages import hops
from bridge.relay.lifecycle import Command, State
from dedup.verdict import Verdict
from tests.harness.eventually import until
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.conftest import Clusters
from tests.kafka.one_lane import WITHIN_S, arrived, lane
from tests.kafka.source.rig import produce
from tests.kafka.target.rig import batch, deliver, kafka_stream, numbered, opened, rig, values

Unique = Callable[[str], str]


async def test_without_an_id_cache_nothing_is_a_duplicate(cluster_a: Reachable, unique: Unique) -> None:
    """`id-cache-size = 0` turns the check off, also within one batch."""
    stream = kafka_stream(unique("off"))
    async with rig(cluster_a, unique("off"), id_cache_size=0) as made:
        target = made.target()
        await opened(target, stream)
        (receipt,) = await deliver(target, batch(stream, numbered(0, 1), ids=[(0, b"A"), (1, b"A")]))
        assert (receipt.verdict, receipt.duplicates) == (Verdict.STORED, 0)
        assert await values(cluster_a, stream.target_address) == [b"m0", b"m1"]


async def test_an_opening_during_which_the_lane_is_lost_does_not_succeed(
    cluster_a: Reachable, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for an answer of a client that was closed: for ever. One that was answered was as bad: what
    was delivered then waited for a task that was gone.
    """
    stream = kafka_stream(unique("lost"))
    async with rig(cluster_a, unique("lost")) as made:
        target = made.target()
        await opened(target, stream)
        refresh = TargetLane.refresh

        async def losing(self: TargetLane) -> None:
            target._fail(TargetUnavailable("the watch has seen the cluster go"))
            await asyncio.sleep(0)
            await refresh(self)  # of a client that is closed by now: it never answers

        monkeypatch.setattr(target_lane, "REACHABLE_TIMEOUT_MS", 500)
        monkeypatch.setattr(TargetLane, "refresh", losing)
        with pytest.raises(TargetUnavailable):
            await opened(target, stream)
        monkeypatch.setattr(TargetLane, "refresh", refresh)
        await opened(target, stream)
        (receipt,) = await deliver(target, batch(stream, numbered(0, 9)))
        assert receipt.verdict is Verdict.STORED


async def test_a_dead_letter_topic_deleted_under_the_bridge_is_made_again(
    clusters: Clusters, unique: Unique
) -> None:
    topic, letters = unique("keyless"), unique("letters")
    clusters.a.create_topic(topic)
    clusters.b.create_topic(topic, config={"cleanup.policy": "compact"})
    async with lane(clusters.a, clusters.b, unique("letters")) as made:
        await made.start(topic, target={"dead_letter_address": letters})
        produce(clusters.a, topic, [b"one"])
        assert await arrived(clusters.b, letters, 1) == [b"one"]
        clusters.b.delete_topic(letters)
        produce(clusters.a, topic, [b"two"])
        assert await arrived(clusters.b, letters, 1) == [b"two"]


async def test_more_dead_letters_than_a_transaction_has_time_for_one_by_one(
    clusters: Clusters, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in a record batch of its own they took one request each, ran out of time, and began again."""
    monkeypatch.setattr(transaction, "SEND_TIMEOUT_MS", 2_000)
    topic, letters = unique("looping"), unique("letters")
    clusters.a.create_topic(topic)
    passed = [(hops.HEADER, b"somebody" * 9)]
    produce(clusters.a, topic, [b"m%d" % number for number in range(4_000)], headers=passed)
    async with lane(clusters.a, clusters.b, unique("looping")) as made:
        relay = await made.start(topic, target={"dead_letter_address": letters})
        found = await arrived(clusters.b, letters, 4_000)
        assert found == [b"m%d" % number for number in range(4_000)], relay.counts
        assert relay.counts.reconnects == 0


async def test_of_dead_letters_that_travel_together_only_the_one_refused_is_reduced(
    clusters: Clusters, unique: Unique
) -> None:
    """Where only the broker knows how large a record batch is: sizes are compressed ones."""
    topic, letters = unique("looping"), unique("letters")
    clusters.a.create_topic(topic)
    clusters.b.create_topic(letters, config={"max.message.bytes": "2000"})
    bodies = [b"small", bytes(range(256)) * 11, b"fits too"]
    produce(clusters.a, topic, bodies, headers=[(hops.HEADER, b"somebody" * 9)])
    connection = {"producer_options": {"compression_type": "gzip"}}
    async with lane(clusters.a, clusters.b, unique("looping"), connection=connection) as made:
        relay = await made.start(topic, target={"dead_letter_address": letters})
        found = await arrived(clusters.b, letters, 3)
        assert (found[0], found[2]) == (b"small", b"fits too"), relay.counts
        assert relay.state is State.RUNNING


async def test_a_target_topic_recreated_under_the_bridge_goes_on(clusters: Clusters, unique: Unique) -> None:
    topic = unique("again")
    clusters.a.create_topic(topic)
    async with lane(clusters.a, clusters.b, unique("again")) as made:
        await made.start(topic)
        produce(clusters.a, topic, [b"one"])
        assert await arrived(clusters.b, topic, 1) == [b"one"]
        clusters.b.delete_topic(topic)
        clusters.b.create_topic(topic)
        produce(clusters.a, topic, [b"two"])
        assert await arrived(clusters.b, topic, 1) == [b"two"]


async def test_storms_of_commands_leave_nothing_behind_and_lose_nothing(
    clusters: Clusters, unique: Unique
) -> None:
    topic = unique("storm")
    clusters.a.create_topic(topic)
    before = len(asyncio.all_tasks())
    async with lane(clusters.a, clusters.b, unique("storm")) as made:
        relay = await made.start(topic)
        for number in range(12):
            produce(clusters.a, topic, [b"%d" % number])
            command = Command.PAUSE if number % 2 else Command.STOP
            commanded = asyncio.create_task(relay.command(command))
            await asyncio.sleep(0.05 * (number % 4))
            await commanded
            await relay.command(Command.START)
        found = await arrived(clusters.b, topic, 12)
        assert found == [b"%d" % number for number in range(12)]
    assert len(asyncio.all_tasks()) == before


def test_long_keys_are_not_kept_in_memory() -> None:
    """65,536 of them, of whatever length, were: gigabytes."""
    before = partitioner._remembered.cache_info().misses
    assert (
        partitioner.partition_for_key(b"k" * 10_000, 7)
        == (partitioner.murmur2(b"k" * 10_000) & 2**31 - 1) % 7
    )
    assert partitioner._remembered.cache_info().misses == before


async def test_who_is_fenced_while_taking_a_lane_asks_before_the_next_attempt(
    cluster_a: Reachable, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took the lane from its owner again and again, without asking whose it was."""
    stream = kafka_stream(unique("taken"))
    asked: list[bool] = []

    async def confirmed() -> None:
        asked.append(True)

    async with rig(cluster_a, unique("taken")) as made:
        target = made.target(arguments={"hooks": RelayHooks(confirmed=confirmed)})
        take = TargetLane.take

        async def fenced(*_args: object, **_options: object) -> TargetLane:
            raise Fenced("by the owner")

        monkeypatch.setattr(TargetLane, "take", fenced)
        with pytest.raises(Fenced):
            await opened(target, stream)
        assert not asked
        monkeypatch.setattr(TargetLane, "take", take)
        await opened(target, stream)
        assert asked


async def test_who_is_fenced_before_its_first_record_learns_that_it_is(
    cluster_a: Reachable, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client finds out in its background and then says that there is no transaction: so the zombie took
    the lane from its owner without asking whose it is."""
    stream = kafka_stream(unique("early"))
    async with rig(cluster_a, unique("early")) as made:
        zombie, owner = made.target(), made.target()
        await opened(zombie, stream)
        await opened(owner, stream)
        send_all = transaction.send_all

        async def late(producer: Any, *args: Any) -> Any:
            await until(lambda: producers.fault(producer) is not None, "the producer is fenced", WITHIN_S)
            return await send_all(producer, *args)

        monkeypatch.setattr(transaction, "send_all", late)
        with pytest.raises(Fenced):
            await deliver(zombie, batch(stream, numbered(0, 0)))
