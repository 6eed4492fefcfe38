"""The journal topic on real brokers: topics that can hold one and cannot, taking lanes, duplicate IDs."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from aiokafka.errors import KafkaError
from confluent_kafka.admin._config import ConfigResource

from bridge.errors import TargetRefused, TargetUnavailable
from bridge.kafka.journal_topic.generations import set_lanes
from tests.harness.eventually import until
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.journal_topic.rig import WITHIN_S, Names, bridge, covered, stream
from tests.kafka.target.rig import configure
from tests.kafka.traffic.checker import read

# -- the topic -----------------------------------------------------------------------------------------


async def test_the_topic_is_made_compacted_with_a_partition_a_lane(
    cluster_a: Reachable, unique: Names
) -> None:
    async with bridge(cluster_a, unique("b"), lanes=3) as it:
        assert await it.journal().prepare() == 1
        assert await it.journal().prepare() == 1  # as the second worker finds it
    found = cluster_a.admin().list_topics(it.journal_topic).topics[it.journal_topic]
    assert len(found.partitions) == 3
    config = topic_config(cluster_a, it.journal_topic)
    assert config["cleanup.policy"] == "compact"
    assert int(config["segment.bytes"]) == 16 * 1024 * 1024


async def test_workers_that_start_together_for_the_first_time_agree(
    cluster_a: Reachable, unique: Names
) -> None:
    """All want to write the first generation. The last fences the others, which take its word: no error."""
    async with bridge(cluster_a, unique("b"), lanes=2) as it:
        journals = [it.journal() for _ in range(4)]
        async with asyncio.timeout(WITHIN_S):
            found = await asyncio.gather(*(journal.prepare() for journal in journals))
        assert found == [1, 1, 1, 1]


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
async def test_a_topic_that_the_broker_made_is_refused(
    cluster_a: Reachable, unique: Names, policy: str
) -> None:
    """The trap of the auto-created journal topic: with these policies it would forget a quiet stream."""
    async with bridge(cluster_a, unique("b")) as it:
        cluster_a.create_topic(it.journal_topic, config={"cleanup.policy": policy})
        with pytest.raises(TargetRefused, match=r"cleanup\.policy=.*delete it") as refused:
            await it.journal().prepare()
        assert (refused.value.limit, refused.value.found) == ("compact", policy)


async def test_the_policy_is_looked_at_whenever_a_lane_is_taken(cluster_a: Reachable, unique: Names) -> None:
    async with bridge(cluster_a, unique("b")) as it:
        journal = it.journal()
        await journal.prepare()
        await asyncio.to_thread(configure, cluster_a, it.journal_topic, cleanup_policy="delete")
        with pytest.raises(TargetRefused, match=r"cleanup\.policy=delete"):
            await journal.prepare()


async def test_more_replicas_than_brokers_are_refused_by_the_settings_key(
    cluster_a: Reachable, unique: Names
) -> None:
    async with bridge(cluster_a, unique("b"), replication_factor=9) as it:
        with pytest.raises(TargetRefused, match=r"Create topic .*journal-replication-factor 9"):
            await it.journal().prepare()
        assert it.journal_topic not in cluster_a.topics()


async def test_asking_makes_no_topic(cluster_a: Reachable, unique: Names) -> None:
    async with bridge(cluster_a, unique("b")) as it:
        with pytest.raises(TargetRefused, match="has never run"):
            await set_lanes(it.connection, bridge=it.name, topic=it.journal_topic, lanes=2)
        assert it.journal_topic not in cluster_a.topics()


async def test_a_topic_with_fewer_partitions_than_lanes_is_refused(
    cluster_a: Reachable, unique: Names
) -> None:
    async with bridge(cluster_a, unique("b"), lanes=3) as it:
        cluster_a.create_topic(it.journal_topic, 2, config={"cleanup.policy": "compact"})
        with pytest.raises(TargetRefused, match="has 2 partitions and the bridge 3 lanes"):
            await it.journal().prepare()


async def test_another_bridges_topic_is_refused(cluster_a: Reachable, unique: Names) -> None:
    async with bridge(cluster_a, unique("b")) as it:
        await it.journal().prepare()
        with pytest.raises(TargetRefused, match=f"belongs to bridge {it.name}"):
            await it.journal(bridge="another").prepare()


async def test_another_concurrency_is_refused_with_the_command(cluster_a: Reachable, unique: Names) -> None:
    async with bridge(cluster_a, unique("b"), lanes=2) as it:
        await it.journal().prepare()
        with pytest.raises(TargetRefused, match=f"core-bridge lanes {it.name} --set 4") as refused:
            await it.journal(lanes=4).prepare()
        assert (refused.value.key, refused.value.limit, refused.value.found) == ("concurrency", 2, 4)


async def test_a_topic_deleted_under_the_bridge_is_not_made_again_by_it(
    cluster_a: Reachable, unique: Names
) -> None:
    """Another process makes it, and knows nothing: what the source remembers makes the pump refuse then."""
    async with bridge(cluster_a, unique("b")) as it:
        owner = await it.take()
        await owner.cover(0, 10)
        await asyncio.to_thread(cluster_a.delete_topic, it.journal_topic)
        with pytest.raises(TargetRefused, match="was deleted under the running bridge: "):
            await owner.journal.prepare()
        assert (await it.take()).next(0) is None


# -- taking a lane -------------------------------------------------------------------------------------


async def test_a_taker_finds_what_was_committed_and_nothing_else(cluster_a: Reachable, unique: Names) -> None:
    async with bridge(cluster_a, unique("b")) as it:
        first = await it.take()
        assert first.next(0) is None
        await first.cover(0, 10, [b"a", b"b"])
        await first.cover(1, 5, [b"c"], address="y")
        aborted = first.remembered.change()
        aborted.cover(stream(0), covered(99))
        aborted.add_ids("x", [b"aborted"])
        await first.write(aborted)
        await first.producer.abort_transaction()
        left_open = first.remembered.change()
        left_open.cover(stream(0), covered(100))
        await first.write(left_open)

        second = await it.take()
        assert second.remembered.streams == {stream(0): covered(10), stream(1): covered(5)}
        assert second.remembered.change().known("x", [b"a", b"aborted", b"b", b"c"]) == [0, 2]
        assert second.remembered.id_entries("y") == (1, 1_000)
        with pytest.raises(KafkaError):
            await first.producer.commit_transaction()
        assert (await it.take()).next(0) == 10


async def test_reading_goes_to_the_uncommitted_high_watermark(cluster_a: Reachable, unique: Names) -> None:
    """Another node's open transaction on the shared partition hides what this one has committed after it."""
    async with bridge(cluster_a, unique("b"), owner="node-1", stalled_after_ms=500) as it:
        owner = await it.take()
        other = await it.take(owner="node-2")
        change = other.remembered.change()
        change.cover("journal:2:orders:0", covered(3))
        await other.write(change)
        await owner.cover(0, 10)
        with pytest.raises(TargetUnavailable, match="open transaction"):
            await it.take()
        await other.producer.commit_transaction()
        assert (await it.take()).next(0) == 10


async def test_reading_waits_for_a_transaction_that_ends_in_time(cluster_a: Reachable, unique: Names) -> None:
    async with bridge(cluster_a, unique("b"), owner="node-1") as it:
        owner = await it.take()
        other = await it.take(owner="node-2")
        change = other.remembered.change()
        change.cover("journal:2:orders:0", covered(3))
        await other.write(change)
        await owner.cover(0, 10)
        taker = await it.begin()
        reading = asyncio.create_task(taker.read())
        await other.producer.abort_transaction()
        await reading
        assert taker.next(0) == 10


async def test_nodes_that_share_a_partition_do_not_see_each_other(
    cluster_a: Reachable, unique: Names
) -> None:
    async with bridge(cluster_a, unique("b"), owner="node-1") as it:
        first = await it.take()
        second = await it.take(owner="node-2")
        await first.cover(0, 10, [b"a"])
        await second.cover(0, 20, [b"b"])
        await first.cover(0, 11)  # not fenced by the other
        assert (await it.take()).remembered.streams == {stream(0): covered(11)}
        taker = await it.take(owner="node-2")
        assert taker.remembered.streams == {stream(0): covered(20)}
        assert taker.remembered.change().known("x", [b"a", b"b"]) == [1]


async def test_what_others_write_into_the_topic_is_ignored(cluster_a: Reachable, unique: Names) -> None:
    async with bridge(cluster_a, unique("b")) as it:
        owner = await it.take()
        await owner.cover(0, 10)
        await owner.producer.begin_transaction()
        for key in (b"notes", b"stream", b"node-9/stream:" + stream(0).encode(), b"\xff\x00"):
            await (await owner.producer.send(it.journal_topic, b"whatever", key, partition=0))
        await owner.producer.commit_transaction()
        assert (await it.take()).remembered.streams == {stream(0): covered(10)}


async def test_a_record_of_a_newer_version_is_refused(cluster_a: Reachable, unique: Names) -> None:
    async with bridge(cluster_a, unique("b")) as it:
        owner = await it.take()
        await owner.producer.begin_transaction()
        key = b"stream:" + stream(0).encode()
        await (await owner.producer.send(it.journal_topic, b'{"v":2,"next":5}', key, partition=0))
        await owner.producer.commit_transaction()
        with pytest.raises(TargetRefused, match="newer core bridge"):
            await it.take()


# -- duplicate IDs -------------------------------------------------------------------------------------


async def test_ids_survive_rounds_of_the_ring_and_another_size(cluster_a: Reachable, unique: Names) -> None:
    """D14, D18, D20."""
    ids = [b"id-%d" % number for number in range(1_000)]
    async with bridge(cluster_a, unique("b"), id_cache_size=300) as it:
        owner = await it.take()
        for start in range(0, 1_000, 100):
            await owner.cover(0, start + 100, ids[start : start + 100])
        assert list((await it.take()).remembered.caches["x"]) == ids[700:]
        smaller = await it.take(id_cache_size=100)
        assert list(smaller.remembered.caches["x"]) == ids[900:]
        assert smaller.remembered.unwritten
        await smaller.commit(smaller.remembered.change())
        assert list((await it.take()).remembered.caches["x"]) == ids[900:]


async def test_ids_are_deleted_when_they_are_no_longer_kept(cluster_a: Reachable, unique: Names) -> None:
    """D17, D23."""
    async with bridge(cluster_a, unique("b")) as it:
        for changed in ({"persist_ids": False}, {"id_cache_size": 0}):
            owner = await it.take()
            assert owner.remembered.id_entries("x")[0] == 0
            await owner.cover(0, 1, [b"a"])
            second = await it.take(**changed)
            assert second.remembered.change().known("x", [b"a"]) == []
            await second.commit(second.remembered.change())
            third = await it.take()
            assert third.remembered.change().known("x", [b"a"]) == []


async def test_ids_kept_in_memory_alone_outlive_a_new_taking(cluster_a: Reachable, unique: Names) -> None:
    """D16, and a retaking after a failed transaction is no restart."""
    async with bridge(cluster_a, unique("b"), persist_ids=False) as it:
        owner = await it.take()
        await owner.cover(0, 1, [b"a"])
        again = await it.take(journal=owner.journal)
        assert again.remembered.change().known("x", [b"a"]) == [0]
        restarted = await it.take()
        assert restarted.remembered.change().known("x", [b"a"]) == []


# -- compaction ----------------------------------------------------------------------------------------


async def test_a_compacted_topic_says_the_same(cluster_a: Reachable, unique: Names) -> None:
    async with bridge(cluster_a, unique("b"), id_cache_size=200) as it:
        await it.journal().prepare()
        await asyncio.to_thread(
            configure, cluster_a, it.journal_topic, segment_ms="200", min_cleanable_dirty_ratio="0.001"
        )
        owner = await it.take()
        ids = [b"id-%d" % number for number in range(600)]
        for step in range(60):
            await owner.cover(step % 3, step + 1, ids[step * 10 : step * 10 + 10])
        written = itertools.count(61)

        async def is_compacted() -> bool:
            await owner.cover(0, next(written))  # rolls the segment that is written
            return len(list(await asyncio.to_thread(read, cluster_a, it.journal_topic))) <= 60

        await until(is_compacted, "the topic is compacted", WITHIN_S, every_s=0.2)
        taker = await it.take()
        assert taker.remembered.streams == owner.remembered.streams
        assert list(taker.remembered.caches["x"]) == ids[400:]


def topic_config(cluster: Reachable, topic: str) -> dict[str, str]:
    resource = ConfigResource("topic", topic)
    admin = cluster.admin()
    found = admin.describe_configs([resource])[resource].result(WITHIN_S)
    return {name: entry.value for name, entry in found.items()}
