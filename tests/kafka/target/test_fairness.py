"""A stream whose target cannot take it now must not starve the others of its lane."""

from __future__ import annotations

from collections.abc import Callable

from bridge.messages import hops
from tests.kafka.conftest import Clusters
from tests.kafka.one_lane import arrived, lane
from tests.kafka.source.rig import produce

Unique = Callable[[str], str]


async def test_a_topic_missing_at_the_target_does_not_starve_the_others(
    clusters: Clusters, unique: Unique
) -> None:
    good, missing = unique("good"), unique("a-missing")
    for topic in (good, missing):
        clusters.a.create_topic(topic)
        produce(clusters.a, topic, [b"m%d" % n for n in range(100)])
    clusters.b.create_topic(good)
    async with lane(clusters.a, clusters.b, unique("starving")) as made:
        await made.start(good, missing, target={"create_topics": False})
        assert len(await arrived(clusters.b, good, 100, within_s=10)) == 100


async def test_a_missing_dead_letter_topic_does_not_starve_the_others(
    clusters: Clusters, unique: Unique
) -> None:
    good, looping = unique("good"), unique("a-looping")
    for topic, headers in ((good, []), (looping, [(hops.HEADER, b"somebody" * 9)])):
        clusters.a.create_topic(topic)
        clusters.b.create_topic(topic)
        produce(clusters.a, topic, [b"m%d" % n for n in range(100)], headers=headers)
    target = {"create_topics": False, "dead_letter_address": unique("nowhere")}
    async with lane(clusters.a, clusters.b, unique("starving")) as made:
        await made.start(good, looping, target=target)
        assert len(await arrived(clusters.b, good, 100, within_s=10)) == 100
