"""Dead letters at a Kafka target: in the transaction that covers their positions: once, never without."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable

import pytest

from bridge.errors import TargetRefused
from bridge.kafka.target.target import KafkaTarget
from bridge.messages.message import Message
from bridge.relay.dead_letters import REDUCED_HEADER, DeadLetterFailed
from bridge.relay.ports import Receipt, Stream
from bridge.runtime.clock import SystemClock
from dedup.ids import ID_HEADER, Stamp
from dedup.verdict import Verdict
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.target.rig import (
    NOW,
    Rig,
    arrived,
    batch,
    deliver,
    kafka_stream,
    numbered,
    opened,
    rig,
    values,
)

HOUR_MS = 3_600_000
Unique = Callable[[str], str]


@pytest.fixture
async def bridge(cluster_a: Reachable, unique: Unique) -> AsyncIterator[Rig]:
    async with rig(cluster_a, unique("bridge"), options={"dead_letter_address": unique("dead")}) as made:
        yield made


def dead(bridge: Rig) -> str:
    return str(bridge.options["dead_letter_address"])


async def refuse(target: KafkaTarget, stream: Stream, bad: Message, ids: list[tuple[int, bytes]]) -> Receipt:
    """Three messages, the one in the middle refused and stored as a dead letter; the stream is open again."""
    await opened(target, stream)
    messages = batch(stream, [*numbered(0, 0), bad, *numbered(2, 2)], ids=ids)
    (receipt,) = await deliver(target, messages)
    assert (receipt.verdict, receipt.position) == (Verdict.REFUSED, 1)
    await target.store_letter(messages, receipt, stream.address)
    await opened(target, stream)
    return receipt


async def cover(target: KafkaTarget, stream: Stream) -> None:
    """What a pump sends then: the rest, with the refused position covered and empty."""
    rest = batch(stream, [*numbered(0, 0), *numbered(2, 2)], runs=((0, 0), (2, 2)), refused=(1,))
    (receipt,) = await deliver(target, rest)
    assert receipt.verdict is Verdict.STORED


async def test_a_letter_says_why_and_from_where_and_is_the_message_besides(
    bridge: Rig, unique: Unique
) -> None:
    """D51"""
    stream = kafka_stream(unique("orders"))
    target = bridge.target()
    bad = Message(b"body", b"key", (("a", b"1"), (ID_HEADER, b"mine")), SystemClock().wall_ms() + 2 * HOUR_MS)
    receipt = await refuse(target, stream, bad, [(1, b"mine")])
    assert await values(bridge.cluster, dead(bridge)) == []
    await cover(target, stream)
    (letter,) = await arrived(bridge.cluster, dead(bridge))
    assert (letter.value, letter.key) == (b"body", b"key")
    assert letter.headers == (
        ("a", b"1"),
        (ID_HEADER, b"mine"),
        ("core-bridge-reason", receipt.reason.encode()),
        ("core-bridge-bridge", bridge.bridge.encode()),
        ("core-bridge-address", stream.address.encode()),
        ("core-bridge-stream", stream.identity.encode()),
        ("core-bridge-position", b"1"),
    )
    assert await values(bridge.cluster, stream.target_address) == [b"m0", b"m2"]


async def test_a_letter_has_the_id_that_the_message_would_have_had(bridge: Rig, unique: Unique) -> None:
    stream = kafka_stream(unique("orders"))
    target = bridge.target()
    await refuse(target, stream, Message(b"x", None, (), SystemClock().wall_ms() + 2 * HOUR_MS), [])
    await cover(target, stream)
    (letter,) = await arrived(bridge.cluster, dead(bridge))
    assert dict(letter.headers)[ID_HEADER] == Stamp(stream.identity).text(1).encode()


async def test_a_dead_letter_is_stored_once_although_the_process_died_before_it_was_covered(
    bridge: Rig, unique: Unique
) -> None:
    stream = kafka_stream(unique("orders"))
    bad = Message(b"x", None, (), SystemClock().wall_ms() + 2 * HOUR_MS)
    dying = bridge.target()
    await refuse(dying, stream, bad, [])
    # It dies; the next one begins where nothing is covered, and stores the same dead letter again.
    await dying.close()
    target = bridge.target()
    await refuse(target, stream, bad, [])
    await cover(target, stream)
    assert await values(bridge.cluster, dead(bridge)) == [b"x"]
    # Nor does a replay of what is covered bring another.
    (receipt,) = await deliver(target, batch(stream, numbered(2, 2), runs=((2, 2),), from_=0, refused=(1,)))
    assert receipt.verdict is Verdict.DUPLICATE
    assert await values(bridge.cluster, dead(bridge)) == [b"x"]


async def test_a_letter_outlives_a_lost_connection(bridge: Rig, unique: Unique) -> None:
    """The relay closes its target and opens it again; it still knows the dead letters' positions."""
    stream = kafka_stream(unique("orders"))
    target = bridge.target()
    await refuse(target, stream, Message(b"x", None, (), SystemClock().wall_ms() + 2 * HOUR_MS), [])
    await target.close()
    await opened(target, stream)
    await cover(target, stream)
    assert await values(bridge.cluster, dead(bridge)) == [b"x"]


async def test_a_letter_that_does_not_fit_holds_coordinates_and_reason(bridge: Rig, unique: Unique) -> None:
    stream = kafka_stream(unique("orders"))
    for topic in (stream.target_address, dead(bridge)):
        bridge.cluster.create_topic(topic, config={"max.message.bytes": "2000"})
    target = bridge.target()
    receipt = await refuse(target, stream, Message(b"x" * 3_000, b"k" * 200, (("h", b"1"),), NOW), [])
    await cover(target, stream)
    (letter,) = await arrived(bridge.cluster, dead(bridge))
    assert json.loads(letter.value or b"") == {
        "bridge": bridge.bridge,
        "stream": stream.identity,
        "position": 1,
        "reason": receipt.reason,
        "size": 3_000,
    }
    assert dict(letter.headers)[REDUCED_HEADER] == b"1"
    assert dict(letter.headers)["core-bridge-position"] == b"1"


async def test_a_letter_that_only_the_broker_knows_not_to_fit_is_reduced_at_the_next_attempt(
    bridge: Rig, unique: Unique
) -> None:
    stream = kafka_stream(unique("orders"))
    bridge.cluster.create_topic(dead(bridge), config={"max.message.bytes": "2000"})
    bridge.connection = {"producer_options": {"compression_type": "gzip"}}
    target = bridge.target()
    body = os.urandom(3_000)
    await refuse(target, stream, Message(body, None, (), SystemClock().wall_ms() + 2 * HOUR_MS), [])
    await cover(target, stream)
    (letter,) = await arrived(bridge.cluster, dead(bridge))
    assert json.loads(letter.value or b"")["size"] == 3_000
    assert await values(bridge.cluster, stream.target_address) == [b"m0", b"m2"]


async def test_a_letter_that_fits_nowhere_stops_the_bridge_with_the_setting(
    bridge: Rig, unique: Unique
) -> None:
    stream = kafka_stream(unique("orders"))
    bridge.cluster.create_topic(dead(bridge), config={"max.message.bytes": "200"})
    target = bridge.target()
    await refuse(target, stream, Message(b"x", None, (), SystemClock().wall_ms() + 2 * HOUR_MS), [])
    with pytest.raises(TargetRefused) as refused:
        await cover(target, stream)
    assert refused.value.key == "dead-letter-address"
    assert "max.message.bytes" in str(refused.value)
    assert await values(bridge.cluster, stream.target_address) == []


async def test_a_compacted_dead_letter_topic_keeps_letters_without_keys_apart(
    bridge: Rig, unique: Unique
) -> None:
    stream = kafka_stream(unique("orders"))
    bridge.cluster.create_topic(dead(bridge), config={"cleanup.policy": "compact"})
    target = bridge.target()
    await refuse(target, stream, Message(b"x", None, (), SystemClock().wall_ms() + 2 * HOUR_MS), [])
    await cover(target, stream)
    (letter,) = await arrived(bridge.cluster, dead(bridge))
    assert letter.key == f"{stream.identity}/1".encode()


async def test_without_a_topic_for_letters_the_message_stays_where_it_is(bridge: Rig, unique: Unique) -> None:
    stream = kafka_stream(unique("orders"))
    bridge.cluster.create_topic(stream.target_address)
    target = bridge.target(create_topics=False)
    with pytest.raises(DeadLetterFailed) as failed:
        await refuse(target, stream, Message(b"x", None, (), SystemClock().wall_ms() + 2 * HOUR_MS), [])
    assert not failed.value.for_good
    assert dead(bridge) in str(failed.value)


async def test_a_dead_letter_topic_that_vanishes_holds_up_its_stream_until_it_is_there_again(
    bridge: Rig, unique: Unique
) -> None:
    stream, other = kafka_stream(unique("orders")), kafka_stream(unique("other"))
    for topic in (stream.target_address, other.target_address, dead(bridge)):
        await asyncio.to_thread(bridge.cluster.create_topic, topic)
    target = bridge.target(create_topics=False)
    await opened(target, other)
    await refuse(target, stream, Message(b"x", None, (), SystemClock().wall_ms() + 2 * HOUR_MS), [])
    await asyncio.to_thread(bridge.cluster.delete_topic, dead(bridge))
    await opened(target, stream)
    rest = batch(stream, [*numbered(0, 0), *numbered(2, 2)], runs=((0, 0), (2, 2)), refused=(1,))
    waits, stored = await deliver(target, rest, batch(other, numbered(0, 0)))
    assert (waits.verdict, stored.verdict) == (Verdict.NOT_NOW, Verdict.STORED)
    assert dead(bridge) in waits.reason
    await asyncio.to_thread(bridge.cluster.create_topic, dead(bridge))
    await opened(target, stream)
    await cover(target, stream)
    assert await values(bridge.cluster, dead(bridge)) == [b"x"]
    assert await values(bridge.cluster, stream.target_address) == [b"m0", b"m2"]


async def test_a_letter_of_the_dead_letter_address_itself_is_not_written(bridge: Rig, unique: Unique) -> None:
    """It would come back to the bridge that reads it."""
    stream = kafka_stream(dead(bridge), target_address=unique("elsewhere"))
    target = bridge.target()
    with pytest.raises(DeadLetterFailed) as failed:
        await refuse(target, stream, Message(b"x", None, (), SystemClock().wall_ms() + 2 * HOUR_MS), [])
    assert failed.value.for_good


async def test_letters_and_messages_of_one_transaction_are_there_together_or_not_at_all(
    bridge: Rig, unique: Unique
) -> None:
    stream = kafka_stream(unique("orders"))
    target = bridge.target()
    await refuse(target, stream, Message(b"x", None, (), SystemClock().wall_ms() + 2 * HOUR_MS), [])
    # Another takes the lane: what this one sends now never counts.
    thief = bridge.target()
    await opened(thief, stream)
    await asyncio.gather(cover(target, stream), return_exceptions=True)
    assert await values(bridge.cluster, dead(bridge)) == []
    assert await values(bridge.cluster, stream.target_address) == []
