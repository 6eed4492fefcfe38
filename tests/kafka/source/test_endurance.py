"""What a Kafka source could forget, or be held up by."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from bridge.errors import SourceRefused
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.metadata import Topic
from bridge.kafka.lanes.groups import JournalTopicOwnership, SourceOwnership
from bridge.kafka.records.identity import LaneIndex
from bridge.kafka.source import lane_reader, stall_detection
from bridge.kafka.source.options import TopicSelection
from bridge.kafka.source.partitions import NO_TOPIC_ID, Partitions
from bridge.kafka.source.progress import Kind
from bridge.relay.lifecycle import State
from tests.harness.eventually import until
from tests.kafka.assembled import acknowledged
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.conftest import Clusters
from tests.kafka.one_lane import WITHIN_S, arrived, lane
from tests.kafka.source.rig import produce

Unique = Callable[[str], str]


async def test_a_deleted_source_topic_holds_up_no_other_and_is_no_stuck_consumer(
    clusters: Clusters, unique: Unique, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its end was asked for again and again, five seconds each time, and the consumer replaced for it."""
    monkeypatch.setattr(stall_detection, "STUCK_AFTER_MS", 500)
    monkeypatch.setattr(lane_reader, "METADATA_INTERVAL_MS", 300)
    gone, stays = unique("gone"), unique("stays")
    for topic in (gone, stays):
        clusters.a.create_topic(topic)
        produce(clusters.a, topic, [b"first"])
    async with lane(clusters.a, clusters.b, unique("gone")) as made:
        with capture_logs() as logs:
            relay = await made.start(gone, stays)
            await arrived(clusters.b, gone, 1)
            clusters.a.delete_topic(gone)
            longest_s = 0.0
            for number in range(20):
                produce(clusters.a, stays, [b"%d" % number])
                began = time.monotonic()
                await acknowledged(relay, number + 3)
                longest_s = max(longest_s, time.monotonic() - began)
                await asyncio.sleep(0.1)
        assert longest_s < 3, longest_s
        assert not [log for log in logs if log["event"] == "consumer-replaced"]
        assert [log["reason"] for log in logs if log["event"] == "stream-ended"]
        # Once it is let go the client does not complain of it ten times a second.
        caplog.clear()
        await asyncio.sleep(1)
        assert not [line for line in caplog.messages if gone in line]
        clusters.a.create_topic(gone)
        produce(clusters.a, gone, [b"again"])
        assert await arrived(clusters.b, gone, 2) == [b"first", b"again"]


async def test_a_deleted_topic_keeps_no_other_from_being_committed(
    clusters: Clusters, unique: Unique
) -> None:
    gone, stays = unique("gone"), unique("stays")
    for topic in (gone, stays):
        clusters.a.create_topic(topic)
        produce(clusters.a, topic, [b"first"])
    async with lane(clusters.a, clusters.b, unique("commits")) as made:
        with capture_logs() as logs:
            await made.start(gone, stays)
            await until(lambda: made.relay.counts.acknowledged >= 2, "both are acknowledged", WITHIN_S)
            progress = made.source._progress
            await until(lambda: not progress._waiting, "progress is committed", WITHIN_S)
            clusters.a.delete_topic(gone)
            progress.renew()
            await until(lambda: not progress._waiting, "progress is committed", WITHIN_S)
        assert not [log for log in logs if log["event"] == "progress-not-committed"]


@pytest.mark.kafka_long  # waits for more than a minute of a broker's own clock
async def test_the_witness_of_a_quiet_bridge_does_not_expire_while_it_runs(
    make_cluster: Callable[..., Any], unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers forget offsets that nobody renews (7 days by default). Then a journal topic that is gone was
    not noticed, and everything was sent again."""
    monkeypatch.setattr(lane_reader, "KEEP_INTERVAL_MS", 10_000)
    properties = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
    cluster = make_cluster(properties=properties)
    topic = unique("quiet")
    cluster.create_topic(topic)
    produce(cluster, topic, [b"one"])
    async with lane(cluster, cluster, unique("quiet")) as made:
        forward: dict[str, Any] = {"forward": lambda name: f"{name}.out"}
        await made.start(topic, **forward)
        assert await arrived(cluster, f"{topic}.out", 1) == [b"one"]
        await asyncio.sleep(75)  # a broker's own clock: nothing can be awaited
        (mark,) = (await made.source._progress.marks()).values()
        assert (mark.offset, mark.kind) == (1, Kind.SETTLED)
        await made.stop()
        cluster.delete_topic(made.targets.journal_topic)
        relay = await made.start(topic, **forward)
        await until(lambda: relay.state is State.FAILED, "the relay has failed", WITHIN_S)
        assert "knows nothing" in relay.reason


async def test_two_bridges_with_one_group_id_do_not_share_their_lanes(
    cluster_a: Reachable, unique: Unique
) -> None:
    """Each would have half of its lanes relayed by nobody, and show RUNNING."""
    connection = KafkaConnection("there", cluster_a.bootstrap)
    target, source = unique("shared"), unique("shared")
    first = JournalTopicOwnership(connection, group=target, topic="core-bridge.a.journal", lanes=2)
    second = JournalTopicOwnership(connection, group=target, topic="core-bridge.b.journal", lanes=2)
    third = SourceOwnership(connection, group=source, lanes=2, bridge="a")
    fourth = SourceOwnership(connection, group=source, lanes=2, bridge="b")
    try:
        for mine, other in ((first, second), (third, fourth)):
            await mine.open()
            with pytest.raises(Exception, match="another bridge with this group-id"):
                await other.open()
            assert mine.owned == {0, 1}
    finally:
        for each in (first, second, third, fourth):
            await each.close()


async def test_a_cluster_without_topic_ids_is_refused(
    cluster_a: Reachable, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of its topics would be one stream, and all but one of them be passed over."""
    topic = unique("old")
    cluster_a.create_topic(topic)
    made = Topic.__init__
    monkeypatch.setattr(
        Topic, "__init__", lambda self, name, _id, *rest: made(self, name, NO_TOPIC_ID, *rest)
    )
    connection = KafkaConnection("here", cluster_a.bootstrap)
    topics = TopicSelection(selects=lambda name: name == topic, forward=lambda name: name)
    partitions = Partitions(connection, topics, LaneIndex(0, 1))
    try:
        with pytest.raises(SourceRefused, match="no topic id"):
            await partitions.find()
    finally:
        await partitions.close()
