"""A bridge over more topics than one request names: it starts, takes those that come, and starts again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bridge.kafka.client import pieces, topic_admin
from bridge.kafka.source import progress
from tests.kafka.conftest import Clusters
from tests.kafka.one_lane import arrived, lane
from tests.kafka.source.rig import numbered, produce

Unique = Callable[[str], str]
#: Each of them took a metadata round of 100 ms, of which all together had 15 s.
TOPICS, MORE = 160, 20


async def test_a_bridge_over_many_topics_starts_gains_more_and_starts_again(
    clusters: Clusters, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.kafka.source.lane_reader.METADATA_INTERVAL_MS", 500)
    for module in ("client.metadata", "client.topic_admin"):
        monkeypatch.setattr(f"bridge.kafka.{module}.TOPICS_AT_ONCE", 50)
    for module in ("client.metadata", "source.partitions", "source.consumer", "target.lane"):
        monkeypatch.setattr(f"bridge.kafka.{module}.PARTITIONS_AT_ONCE", 70)
    monkeypatch.setattr(topic_admin, "NEW_TOPICS_AT_ONCE", 40)
    monkeypatch.setattr(progress, "MARKS_AT_ONCE", 60)
    assert pieces.TOPICS_AT_ONCE > TOPICS, "what is set here is what is tested"
    run = unique("many")
    topics = [f"{run}.{number}" for number in range(TOPICS + MORE)]
    clusters.a.create_topics(topics[:TOPICS])
    produce(clusters.a, topics[0], numbered(2))
    produce(clusters.a, topics[TOPICS - 1], numbered(2))
    selects: dict[str, Any] = {"selects": lambda topic: topic.startswith(f"{run}.")}
    async with lane(clusters.a, clusters.b, unique("many")) as made:
        await made.start(**selects)
        for topic in (topics[0], topics[TOPICS - 1]):
            assert await arrived(clusters.b, topic, 2) == numbered(2)
        clusters.a.create_topics(topics[TOPICS:])
        produce(clusters.a, topics[-1], numbered(3))
        assert await arrived(clusters.b, topics[-1], 3) == numbered(3)
        assert len(made.source.partition_status) == TOPICS + MORE
        await made.stop()
        produce(clusters.a, topics[1], numbered(1))
        await made.start(**selects)
        assert await arrived(clusters.b, topics[1], 1) == numbered(1)
