"""``start-position = "latest"`` counts at a bridge's first start ever, and the target knows when that was."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bridge.kafka.journal_topic.generations import set_lanes
from bridge.kafka.records.identity import lane_of
from bridge.relay.lifecycle import State
from bridge.relay.ports import Stream, StreamState
from tests.kafka.assembled import acknowledged, reached, recorded, started
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.conftest import Clusters
from tests.kafka.journal_topic.rig import Names, bridge, stream
from tests.kafka.source.rig import STORE, Rig, bodies, expire, numbered, produce, read_messages, rigged
from tests.kafka.target.rig import Rig as Targets

# -- what the target knows -----------------------------------------------------------------------------


async def test_a_lane_that_remembers_nothing_knows_of_the_others(cluster_a: Reachable, unique: Names) -> None:
    async with bridge(cluster_a, unique("b"), lanes=2) as it:
        first, second = await it.take(lane=0), await it.take(lane=1)
        assert not await second.journal.has_run()
        await first.cover(0, 1)
        assert await second.journal.has_run()
        await set_lanes(it.connection, bridge=it.name, topic=it.journal_topic, lanes=3)
        third = await it.take(lane=2, lanes=3)
        assert await third.journal.has_run()


async def test_a_new_name_has_run_under_the_former_one(cluster_a: Reachable, unique: Names) -> None:
    async with bridge(cluster_a, unique("old")) as old:
        await (await old.take()).cover(0, 1)
        async with bridge(cluster_a, unique("new"), lanes=2, previous_topic=old.journal_topic) as new:
            for lane in range(2):
                assert await (await new.take(lane)).journal.has_run()


async def test_nodes_that_share_a_topic_do_not_start_each_other(cluster_a: Reachable, unique: Names) -> None:
    async with bridge(cluster_a, unique("b"), owner="node-1") as it:
        await (await it.take()).cover(0, 1)
        assert await (await it.take()).journal.has_run()
        assert not await (await it.take(owner="node-2")).journal.has_run()


async def test_the_target_says_so_of_a_stream_that_it_has_never_seen(
    cluster_a: Reachable, unique: Names
) -> None:
    address = unique("orders")
    new = Stream(stream(7), address, address)
    async with bridge(cluster_a, unique("b"), lanes=2) as it:
        targets = Targets(cluster_a, it.name, lanes=2)
        try:
            before = (await targets.target(lane=1).open([new])).streams[new.identity]
            await (await it.take(lane=0)).cover(0, 1)
            after = (await targets.target(lane=1).open([new])).streams[new.identity]
        finally:
            await targets.close()
    assert (before.next, before.has_run) == (None, False)
    assert (after.next, after.has_run) == (None, True)


# -- what the source makes of it -----------------------------------------------------------------------


@pytest.fixture
async def rig(cluster_a: Reachable, unique: Callable[[str], str]) -> AsyncIterator[Rig]:
    async with rigged(cluster_a, unique("bridge")) as made:
        yield made


async def test_latest_does_not_count_for_a_bridge_that_has_run(rig: Rig, unique: Names) -> None:
    """Its progress group is empty: it has a new name, or ran too long ago, or its topics were deleted."""
    topic = unique("orders")
    rig.cluster.create_topic(topic)
    produce(rig.cluster, topic, numbered(3))
    source = rig.source(topic, start_position="latest")
    (found,) = await source.streams()
    await source.open({found.identity: StreamState(None, has_run=True)}, STORE)
    assert bodies(await read_messages(source, 3), found.identity) == numbered(3)


@pytest.mark.parametrize(("has_run", "values"), [(True, [b"old", b"new"]), (False, [b"new"])])
async def test_a_lane_without_streams_leaves_the_decision_to_the_others(
    rig: Rig, unique: Names, has_run: bool, values: list[bytes]
) -> None:
    """The target tells it nothing: what it marked would hold for their streams too."""
    topic = unique("orders")
    rig.cluster.create_topic(topic)
    produce(rig.cluster, topic, [b"old"])
    mine = lane_of(topic, 0, 2)
    empty, full = (rig.source(topic, lane=n, lanes=2, start_position="latest") for n in (1 - mine, mine))
    assert not await empty.streams()
    await empty.open({}, STORE)
    (found,) = await full.streams()
    await full.open({found.identity: StreamState(None, has_run=has_run)}, STORE)
    produce(rig.cluster, topic, [b"new"])
    assert bodies(await read_messages(full, len(values)), found.identity) == values


async def test_topics_made_again_while_the_bridge_was_down_are_no_first_start(
    clusters: Clusters, tmp_path: Path
) -> None:
    """Kafka forgets the group's offsets with the topic; what is in the new one is not skipped."""
    name = f"b{uuid.uuid4().hex[:8]}"
    topic, latest = f"{name}.orders", 'start-position = "latest"'
    await asyncio.to_thread(clusters.a.create_topic, topic)
    await asyncio.to_thread(produce, clusters.a, topic, [b"old"])
    async with started(tmp_path / "s.toml", name, clusters.a, clusters.b, latest) as first:
        await reached(first, State.RUNNING)
        await asyncio.to_thread(produce, clusters.a, topic, [b"new"])
        assert await acknowledged(first, 1) == 1
    await asyncio.to_thread(clusters.a.delete_topic, topic)
    await asyncio.to_thread(clusters.a.create_topic, topic)
    await asyncio.to_thread(produce, clusters.a, topic, [b"again"])
    async with started(tmp_path / "s.toml", name, clusters.a, clusters.b, latest) as second:
        assert await acknowledged(second, 1) == 1


# -- what comes after the first start --------------------------------------------------------------------


@pytest.mark.parametrize("to", ["kafka", "journal"])
async def test_a_first_start_that_found_nothing_was_one(clusters: Clusters, tmp_path: Path, to: str) -> None:
    """There was no partition of which the group could have kept anything: the target has the record."""
    name, target = f"b{uuid.uuid4().hex[:8]}", clusters.b if to == "kafka" else None
    topic, latest = f"{name}.orders", 'start-position = "latest"'
    async with started(tmp_path / "s.toml", name, clusters.a, target, latest) as first:
        await reached(first, State.RUNNING)
        await recorded(first)
        assert first.counts.trouble == f"lane 0: there is no topic {topic} (queue-name)"
    await asyncio.to_thread(clusters.a.create_topic, topic, 3)  # in both lanes
    for partition in range(3):
        await asyncio.to_thread(produce, clusters.a, topic, numbered(100), partition=partition)
    async with started(tmp_path / "s.toml", name, clusters.a, target, latest) as second:
        assert await acknowledged(second, 300) == 300


async def test_what_expired_of_a_partition_added_while_the_bridge_was_stopped_is_a_gap(
    clusters: Clusters, tmp_path: Path
) -> None:
    name = f"b{uuid.uuid4().hex[:8]}"
    topic, toml = f"{name}.orders", tmp_path / "s.toml"
    await asyncio.to_thread(clusters.a.create_topic, topic)
    await asyncio.to_thread(produce, clusters.a, topic, numbered(5))
    async with started(toml, name, clusters.a, clusters.b) as first:
        assert await acknowledged(first, 5) == 5
    await asyncio.to_thread(clusters.a.add_partitions, topic, 2)
    await asyncio.to_thread(produce, clusters.a, topic, numbered(100), partition=1)
    await asyncio.to_thread(expire, clusters.a, topic, 60, 1)
    more = "preserve-partitions = false"
    async with started(toml, name, clusters.a, clusters.b, more) as second:
        await reached(second, State.FAILED)
        assert "60 positions are gone" in second.reason
        assert second.counts.acknowledged == 0
    with capture_logs() as logs:
        async with started(
            toml, name, clusters.a, clusters.b, f'{more}\n        gap-policy = "continue"'
        ) as third:
            assert await acknowledged(third, 40) == 40
    gaps = [(log["first"], log["end"], log["positions"]) for log in logs if log["event"] == "source-gap"]
    assert gaps == [(0, 60, 60)]
