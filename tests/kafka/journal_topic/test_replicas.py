"""The journal topic in a cluster of three brokers: how it is made, and what is looked at at every taking."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import DescribeConfigsRequest

from bridge.errors import TargetRefused
from tests.harness.eventually import until
from tests.kafka.cluster.brokers import Cluster
from tests.kafka.cluster.reachable import ASK_AGAIN_S, CALL_TIMEOUT_S
from tests.kafka.journal_topic.rig import Names, bridge
from tests.kafka.journal_topic.test_journal_topic import topic_config
from tests.kafka.target.rig import configure

#: Kafka's number for resources that are topics.
TOPIC = 2
COMPACT = {"cleanup.policy": "compact"}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory: Path = tmp_path_factory.mktemp("kafka-three")
    with Cluster(3, name="three", directory=directory) as cluster:
        yield cluster


def replicas(cluster: Cluster, topic: str) -> list[int]:
    found = cluster.admin().list_topics(topic, timeout=30).topics[topic]
    return [len(partition.replicas) for partition in found.partitions.values()]


async def in_sync_for_all(cluster: Cluster, topic: str, least: str) -> None:
    """Set min.insync.replicas, and return when every broker has heard of it.

    The controller answers first: until then what is read depends on which broker is asked.
    """
    await asyncio.to_thread(configure, cluster, topic, min_insync_replicas=least)
    request = DescribeConfigsRequest([(TOPIC, topic, ["min.insync.replicas"])])
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)

    async def is_known() -> bool:
        return [await said(admin, request, broker.id) for broker in cluster.brokers] == [
            least for _ in cluster.brokers
        ]

    await admin.start()
    try:
        await until(is_known, f"every broker has min.insync.replicas={least}", CALL_TIMEOUT_S, ASK_AGAIN_S)
    finally:
        await admin.close()


async def said(admin: AIOKafkaAdminClient, request: DescribeConfigsRequest, broker: int) -> str:
    answer = await admin._send_request(request, broker)
    ((*_, ((_, value, *_),)),) = answer.resources
    return str(value)


async def test_it_is_made_with_three_replicas_of_which_two_must_be_in_sync(
    three: Cluster, unique: Names
) -> None:
    async with bridge(three, unique("b"), lanes=2, replication_factor=-1) as it:
        await it.take()
        assert replicas(three, it.journal_topic) == [3, 3]
        assert topic_config(three, it.journal_topic)["min.insync.replicas"] == "2"


async def test_one_replica_in_sync_of_three_is_refused_at_every_taking(three: Cluster, unique: Names) -> None:
    async with bridge(three, unique("b"), replication_factor=-1) as it:
        journal = it.journal()
        await journal.prepare()
        await in_sync_for_all(three, it.journal_topic, "1")
        with pytest.raises(TargetRefused, match=r"3 replicas and min\.insync\.replicas=1") as refused:
            await journal.prepare()
        assert (refused.value.limit, refused.value.found) == (2, 1)
        await in_sync_for_all(three, it.journal_topic, "2")
        assert await journal.prepare() == 1


@pytest.mark.parametrize(
    ("asked", "made", "warned"), [(-1, 1, True), (3, 2, True), (2, 2, False), (1, 2, False)]
)
async def test_fewer_replicas_than_it_would_be_made_with_are_warned_of_once(
    three: Cluster, unique: Names, asked: int, made: int, warned: bool
) -> None:
    """The cluster may have grown since: that is no reason to stop."""
    said: set[str] = set()
    async with bridge(three, unique("b"), replication_factor=asked) as it:
        three.create_topic(it.journal_topic, replication_factor=made, config=COMPACT)
        with structlog.testing.capture_logs() as logs:
            for _ in range(2):
                assert await it.journal(warned=said).prepare() == 1
    found = [entry for entry in logs if entry["event"] == "journal-topic"]
    assert len(found) == warned
    if warned:
        assert found[0]["topic"] == it.journal_topic
        assert f"it has {made} replicas" in found[0]["reason"]
        assert found[0]["log_level"] == "warning"


async def test_brokers_that_are_away_are_not_asked_for(three: Cluster, unique: Names) -> None:
    """With two of three up two replicas are all that a topic could get; nothing is warned of or refused."""
    three.broker(3).stop()
    try:
        async with bridge(three, unique("b"), replication_factor=-1) as it:
            with structlog.testing.capture_logs() as logs:
                await it.take()
            assert replicas(three, it.journal_topic) == [2]
            assert not [entry for entry in logs if entry["event"] == "journal-topic"]
    finally:
        three.broker(3).restart()
