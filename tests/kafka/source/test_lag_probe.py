"""What waits at a cluster for a bridge, asked beside its lanes: whatever its target does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from bridge.errors import SourceUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.records.decoding import BatchOptions
from bridge.kafka.source.lag_probe import KafkaLagProbe
from bridge.kafka.source.options import SourceOptions, StartPosition, TopicSelection
from bridge.runtime.clock import SystemClock
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.source.rig import Rig, produce, read_messages, rigged, settle

Unique = Callable[[str], str]
BATCHES = BatchOptions(stamp=True, batch_bytes=1 << 20, large_bytes=1 << 17, max_id_bytes=1024)


@pytest.fixture
async def rig(cluster_a: Reachable, unique: Unique) -> AsyncIterator[Rig]:
    async with rigged(cluster_a, unique("bridge")) as made:
        yield made


def probe(rig: Rig, topic: str, start_position: StartPosition = "earliest", lanes: int = 1) -> KafkaLagProbe:
    options = SourceOptions(
        bridge=rig.bridge,
        group=rig.group,
        topics=TopicSelection(selects=lambda name: name == topic, forward=str),
        batches=BATCHES,
        start_position=start_position,
        gap_policy="stop",
    )
    return KafkaLagProbe(rig.connection, lanes, options, SystemClock())


async def lag(asks: KafkaLagProbe) -> dict[int, int]:
    """What waits, by lane."""
    return {lane: sum(row.lag for row in rows) for lane, rows in (await asks.measure()).items()}


async def test_what_waits_is_known_before_the_first_start_and_behind_what_was_confirmed(
    rig: Rig, unique: Unique
) -> None:
    topic = unique("orders")
    rig.cluster.create_topic(topic, 2)
    produce(rig.cluster, topic, [b"a"] * 3, partition=0)
    produce(rig.cluster, topic, [b"b"] * 2, partition=1)
    asks, latest, lanes = probe(rig, topic), probe(rig, topic, "latest"), probe(rig, topic, lanes=2)
    try:
        assert await lag(asks) == {0: 5}
        assert await lag(latest) == {0: 0}, "it will begin at the end"
        source = await rig.start(topic)
        await settle(source, await read_messages(source, 5))
        await source.close()
        assert await lag(asks) == {0: 0}
        produce(rig.cluster, topic, [b"c"] * 4, partition=1)
        assert await lag(asks) == {0: 4}
        assert await lag(latest) == {0: 4}
        assert sorted((await lag(lanes)).values()) == [0, 4]
    finally:
        for one in (asks, latest, lanes):
            await one.close()


async def test_a_cluster_that_cannot_be_reached_has_no_lag(rig: Rig, unique: Unique) -> None:
    asks = probe(rig, unique("orders"))
    asks._partitions._connection = asks._partitions._client._connection = KafkaConnection("x", "127.0.0.1:1")
    with pytest.raises(SourceUnavailable):
        await asks.measure()
    await asks.close()
