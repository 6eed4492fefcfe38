"""What the target had confirmed and has no more is said whenever streams are opened; the bridge goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from bridge.kafka.target.target import KafkaTarget
from bridge.relay.ports import Stream
from dedup.verdict import Verdict
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.target.rig import Rig, batch, deliver, kafka_stream, numbered, opened, rig, values

Unique = Callable[[str], str]


@pytest.fixture
async def bridge(cluster_a: Reachable, unique: Unique) -> AsyncIterator[Rig]:
    async with rig(cluster_a, unique("bridge")) as made:
        yield made


async def logged_losses(target: KafkaTarget, *streams: Stream) -> Sequence[Any]:
    """What an opening says of losses."""
    with capture_logs() as logs:
        await opened(target, *streams)
    return [
        {key: value for key, value in event.items() if key not in ("event", "bridge")}
        for event in logs
        if event["event"] == "target-truncated"
    ]


async def remade(bridge: Rig, topic: str) -> None:
    await asyncio.to_thread(bridge.cluster.delete_topic, topic)
    await asyncio.to_thread(bridge.cluster.create_topic, topic)


async def test_a_topic_made_again_is_told_with_its_end_once_an_opening_until_it_is_written(
    bridge: Rig, unique: Unique
) -> None:
    stream, other = kafka_stream(unique("orders")), kafka_stream(unique("other"))
    target = bridge.target()
    assert await logged_losses(target, stream, other) == []
    await deliver(target, batch(stream, numbered(0, 4)), batch(other, numbered(0, 0)))
    assert await logged_losses(target, stream, other) == []
    await target.close()
    await remade(bridge, stream.target_address)
    loss = {
        "log_level": "error",
        "stream": stream.identity,
        "topic": stream.target_address,
        "partition": 0,
        "end": 0,
        "expected": 5,
        "recreated": True,
    }
    target = bridge.target()
    assert await logged_losses(target, stream, other) == [loss]
    assert await logged_losses(target, other) == []
    assert await logged_losses(target, stream) == [loss]
    # The bridge goes on behind what it had written, and then all is as it should be.
    (receipt,) = await deliver(target, batch(stream, numbered(5, 6), from_=5))
    assert receipt.verdict is Verdict.STORED
    assert await values(bridge.cluster, stream.target_address) == [b"m5", b"m6"]
    assert await logged_losses(target, stream) == []


async def test_a_topic_made_again_that_has_grown_further_is_told_by_its_id(
    bridge: Rig, unique: Unique
) -> None:
    """Its end says nothing any more: another stream has filled it."""
    stream = kafka_stream(unique("orders"))
    target = bridge.target()
    await opened(target, stream)
    await deliver(target, batch(stream, numbered(0, 1)))
    await target.close()
    await remade(bridge, stream.target_address)
    another = kafka_stream(unique("fills"), target_address=stream.target_address)
    async with rig(bridge.cluster, unique("bridge")) as beside:
        filling = beside.target()
        await opened(filling, another)
        await deliver(filling, batch(another, numbered(0, 99)))
    (loss,) = await logged_losses(bridge.target(), stream)
    assert (loss["expected"], loss["recreated"]) == (2, True)
    assert loss["end"] >= 100


async def test_a_deleted_topic_that_the_bridge_makes_again_itself_is_told(
    bridge: Rig, unique: Unique
) -> None:
    stream = kafka_stream(unique("orders"))
    target = bridge.target()
    await opened(target, stream)
    await deliver(target, batch(stream, numbered(0, 1)))
    await target.close()
    await asyncio.to_thread(bridge.cluster.delete_topic, stream.target_address)
    (loss,) = await logged_losses(bridge.target(), stream)
    assert (loss["end"], loss["expected"], loss["recreated"]) == (0, 2, True)
