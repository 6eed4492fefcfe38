"""Two processes that both believe that a lane is theirs, for as long as there is anything to relay."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from tests.kafka.conftest import Clusters
from tests.kafka.one_lane import Lane, arrived, lane
from tests.kafka.source.rig import produce

Unique = Callable[[str], str]

MESSAGES = 3_000


async def test_owners_that_fence_each_other_all_the_time_double_and_lose_nothing(
    clusters: Clusters, unique: Unique
) -> None:
    topic, bridge = unique("contested"), unique("contested")
    clusters.a.create_topic(topic)
    async with lane(clusters.a, clusters.b, bridge) as first, lane(clusters.a, clusters.b, bridge) as second:
        await first.start(topic, batch_bytes=4_000)
        await second.start(topic, batch_bytes=4_000)
        chance = random.Random(7)
        sent = 0
        while sent < MESSAGES:
            count = min(chance.randrange(1, 200), MESSAGES - sent)
            values = [b"%d" % number for number in range(sent, sent + count)]
            await asyncio.to_thread(produce, clusters.a, topic, values)
            sent += count
            await asyncio.sleep(chance.random() * 0.3)
        wanted = [b"%d" % number for number in range(MESSAGES)]
        assert await arrived(clusters.b, topic, MESSAGES) == wanted
        fenced = [made.relay.counts.reconnects for made in (first, second)]
        assert min(fenced) > 0, f"nobody fenced anybody: {fenced}"
        await _quiet(first)
        assert await arrived(clusters.b, topic, MESSAGES) == wanted


async def _quiet(made: Lane) -> None:
    """The other goes on alone."""
    await made.stop()
    await asyncio.sleep(1)
