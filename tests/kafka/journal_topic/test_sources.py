"""One bridge name is one source: the journal topic says which, and workers of another share no lane."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bridge.demo.ports import free_ports
from bridge.errors import SourceUnavailable, TargetRefused, TargetUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.journal_topic.generations import set_lanes
from bridge.kafka.journal_topic.origin import Origin, cluster_origin, journal_origin
from bridge.kafka.lanes.groups import JournalTopicOwnership
from bridge.relay.lifecycle import State
from tests.kafka.assembled import acknowledged, reached, started
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.conftest import Clusters
from tests.kafka.journal_topic.rig import WITHIN_S, Bridge, Names, bridge

LOOK_AGAIN_S = 0.05


def origin(name: str) -> Origin:
    """Of a source cluster of this name."""
    return cluster_origin(KafkaConnection("here", "nowhere:1", identity=name))


def ownership(it: Bridge, name: str) -> JournalTopicOwnership:
    """Of a worker, as it is assembled."""
    return JournalTopicOwnership(
        it.connection,
        group=f"core-bridge.{it.name}",
        topic=it.journal_topic,
        lanes=it.lanes,
        prepare=it.journal(origin=origin(name)).prepare,
    )


# -- who the source is ---------------------------------------------------------------------------------


async def test_a_source_cluster_is_its_id_or_the_identity_of_the_settings(clusters: Clusters) -> None:
    ids = [await cluster_origin(KafkaConnection("here", one.bootstrap))() for one in clusters]
    assert len(set(ids)) == 2
    assert [await asyncio.to_thread(cluster_id, one) for one in clusters] == ids
    assert await origin("eu")() == "kafka:eu"


async def test_a_source_that_is_away_is_waited_for_and_nothing_is_made(
    cluster_a: Reachable, unique: Names
) -> None:
    (port,) = free_ports(1)
    async with bridge(cluster_a, unique("b")) as it:
        away = cluster_origin(KafkaConnection("eu", f"127.0.0.1:{port}"))
        with pytest.raises(SourceUnavailable, match="connector eu"):
            await it.journal(origin=away).prepare()
        assert it.journal_topic not in cluster_a.topics()


# -- what is recorded and refused ----------------------------------------------------------------------


async def test_another_source_under_the_same_name_is_refused_with_both(
    cluster_a: Reachable, unique: Names
) -> None:
    async with bridge(cluster_a, unique("b")) as it:
        first = it.journal(origin=origin("eu"))
        owner = await it.take(journal=first)
        await owner.cover(0, 10)
        with pytest.raises(
            TargetRefused, match=f"kafka:eu.*kafka:ap.*previous-name = '{it.name}'"
        ) as refused:
            await it.journal(origin=origin("ap")).prepare()
        assert (refused.value.limit, refused.value.found) == ("kafka:eu", "kafka:ap")
        await owner.cover(0, 11)  # not fenced by the other
        assert (await it.take(origin=origin("eu"))).next(0) == 11


async def test_of_two_sources_that_start_together_for_the_first_time_one_is_refused(
    cluster_a: Reachable, unique: Names
) -> None:
    async with bridge(cluster_a, unique("b")) as it:
        journals = [it.journal(origin=origin(name)) for name in ("eu", "ap")]
        found = await asyncio.gather(*map(decided, (each.prepare for each in journals)))
        assert sorted(found) == ["prepared", "refused"]


async def test_a_source_that_becomes_another_behind_its_address_is_refused_at_the_next_taking(
    cluster_a: Reachable, unique: Names
) -> None:
    names = iter(["kafka:eu", "kafka:ap"])

    async def changing() -> str:
        return next(names)

    async with bridge(cluster_a, unique("b")) as it:
        journal = it.journal(origin=changing)
        await journal.prepare()
        with pytest.raises(TargetRefused, match=r"kafka:eu.*kafka:ap"):
            await journal.prepare()


async def test_what_an_older_version_wrote_names_its_source_from_the_next_taking_on(
    cluster_a: Reachable, unique: Names
) -> None:
    async with bridge(cluster_a, unique("b"), lanes=2) as it:
        old = await it.take(lane=1)
        await old.cover(0, 10)
        taker = await it.take(lane=1, origin=origin("eu"))
        assert (taker.generation, taker.next(0)) == (1, 10)
        with pytest.raises(TargetRefused, match=r"kafka:eu.*kafka:ap"):
            await it.journal(origin=origin("ap")).prepare()


async def test_other_lanes_keep_the_source(cluster_a: Reachable, unique: Names) -> None:
    async with bridge(cluster_a, unique("b")) as it:
        await it.journal(origin=origin("eu")).prepare()
        await set_lanes(it.connection, bridge=it.name, topic=it.journal_topic, lanes=2)
        with pytest.raises(TargetRefused, match=r"kafka:eu.*kafka:ap"):
            await it.journal(lanes=2, origin=origin("ap")).prepare()
        assert await it.journal(lanes=2, origin=origin("eu")).prepare() == 2


async def test_journals_share_a_topic_and_a_kafka_source_does_not_join_them(
    cluster_a: Reachable, unique: Names
) -> None:
    async with bridge(cluster_a, unique("b"), owner="node-1") as it:
        for node in ("node-1", "node-2", "node-3"):
            await it.take(owner=node, origin=journal_origin)
        with pytest.raises(TargetRefused, match=r"source journal; this one's source is kafka:eu"):
            await it.journal(owner="", origin=origin("eu")).prepare()
    async with bridge(cluster_a, unique("b")) as it:
        await it.journal(origin=origin("eu")).prepare()
        with pytest.raises(TargetRefused, match=r"source kafka:eu; this one's source is journal"):
            await it.journal(owner="node-1", origin=journal_origin).prepare()


async def test_previous_name_takes_the_place_of_another_source_and_stops_it(
    cluster_a: Reachable, unique: Names
) -> None:
    async with (
        bridge(cluster_a, unique("old")) as old,
        bridge(cluster_a, unique("new"), previous_topic=old.journal_topic) as new,
    ):
        owner = await old.take(origin=origin("eu"))
        await owner.cover(0, 10, [b"known"])
        taker = await new.take(origin=origin("ap"))
        assert taker.remembered.change().known("x", [b"known"]) == [0]
        with pytest.raises(TargetRefused, match=f"moved.*{new.journal_topic}"):
            await old.journal(origin=origin("eu")).prepare()
        with pytest.raises(TargetRefused, match=r"kafka:ap.*kafka:eu"):
            await new.journal(origin=origin("eu")).prepare()


# -- lanes and whole bridges ---------------------------------------------------------------------------


async def test_a_worker_of_another_source_joins_no_group(cluster_a: Reachable, unique: Names) -> None:
    """Each would have half of its lanes relayed by nobody, and show RUNNING."""
    async with bridge(cluster_a, unique("b"), lanes=4) as it:
        mine, other = ownership(it, "eu"), ownership(it, "ap")
        try:
            await mine.open()
            with pytest.raises(TargetRefused, match=r"kafka:eu.*kafka:ap"):
                await other.open()
            await mine.confirmed(0)
            assert sorted(mine.owned) == [0, 1, 2, 3]
            assert not other.owned
        finally:
            await asyncio.gather(mine.close(), other.close())


async def test_two_settings_files_with_one_name_and_two_sources(clusters: Clusters, tmp_path: Path) -> None:
    """The second is FAILED and says why; the first goes on with all its lanes."""
    name = f"b{uuid.uuid4().hex[:8]}"
    topic = f"{name}.orders"
    for cluster in clusters:
        await asyncio.to_thread(cluster.create_topic, topic, 8)
    async with started(tmp_path / "a.toml", name, clusters.a, clusters.b) as first:
        await reached(first, State.RUNNING)
        async with started(tmp_path / "b.toml", name, clusters.b, clusters.b) as second:
            await reached(second, State.FAILED)
            assert await cluster_origin(KafkaConnection("here", clusters.a.bootstrap))() in second.reason
            assert await cluster_origin(KafkaConnection("here", clusters.b.bootstrap))() in second.reason
        await asyncio.to_thread(produce, clusters.a, topic)
        assert await acknowledged(first, 8) == 8
        assert first.state is State.RUNNING


async def decided(prepare: Callable[[], Awaitable[object]]) -> str:
    """As a relay does it: again, where somebody else was just deciding."""
    while True:
        try:
            await prepare()
        except TargetRefused:
            return "refused"
        except TargetUnavailable:
            await asyncio.sleep(LOOK_AGAIN_S)
        else:
            return "prepared"


def cluster_id(cluster: Reachable) -> str:
    return f"kafka:{cluster.admin().list_topics(timeout=WITHIN_S).cluster_id}"


def produce(cluster: Reachable, topic: str) -> None:
    """One message in each partition, so in both lanes."""
    producer = cluster.producer()
    for partition in range(8):
        producer.produce(topic, b"kept", partition=partition)
    assert producer.flush(WITHIN_S) == 0
