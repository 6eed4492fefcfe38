"""Duplicate IDs at a Kafka target: how long they may be, and which are not checked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from bridge.kafka.journal_topic.id_blocks import BLOCK_IDS, MOST_ID_BYTES
from bridge.relay.ports import Stream
from dedup.verdict import Verdict
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.target.rig import Rig, batch, deliver, kafka_stream, numbered, opened, rig, values

Unique = Callable[[str], str]


@pytest.fixture
async def bridge(cluster_a: Reachable, unique: Unique) -> AsyncIterator[Rig]:
    async with rig(cluster_a, unique("bridge")) as made:
        yield made


async def test_a_block_of_the_longest_ids_is_stored_and_known_to_the_next_taker(
    bridge: Rig, unique: Unique
) -> None:
    """A full block is one record of the journal topic, which takes 1 MiB: the lane must not end by it."""
    stream, last = kafka_stream(unique("orders")), BLOCK_IDS - 1
    ids = [(n, b"%0*d" % (MOST_ID_BYTES, n)) for n in range(BLOCK_IDS)]
    target = bridge.target()
    await opened(target, stream)
    (receipt,) = await deliver(target, batch(stream, numbered(0, last), ids=ids))
    assert receipt.verdict is Verdict.STORED
    await target.close()
    target = bridge.target()
    await opened(target, stream)
    again = batch(stream, numbered(0, last), ids=ids, from_=BLOCK_IDS)
    (receipt,) = await deliver(target, again)
    assert (receipt.verdict, receipt.duplicates) == (Verdict.STORED, BLOCK_IDS)


async def test_longer_ids_are_refused_one_by_one_and_the_lane_goes_on(bridge: Rig, unique: Unique) -> None:
    """128 of 9,005 bytes made a record that the journal topic never took: at every start again."""
    stream = kafka_stream(unique("orders"))
    target = bridge.target()
    await opened(target, stream)
    ids = [(n, b"%0*d" % (9_005, n)) for n in range(BLOCK_IDS)]
    (receipt,) = await deliver(target, batch(stream, numbered(0, BLOCK_IDS - 1), ids=ids))
    assert (receipt.verdict, receipt.position) == (Verdict.REFUSED, 0)
    assert receipt.reason.startswith("INVALID_DUPLICATE_ID: ")
    assert "9005 bytes" in receipt.reason
    await opened(target, stream)
    (receipt,) = await deliver(target, batch(stream, numbered(1, 1), runs=((1, 1),), from_=0, refused=(0,)))
    assert receipt.verdict is Verdict.STORED


async def test_what_is_sent_again_on_purpose_is_stored_though_its_id_is_known(
    bridge: Rig, unique: Unique
) -> None:
    """Rule 4: a replayed dead letter is a stream of its own; positions alone tell its repetitions apart."""
    topic = unique("orders")
    sent = Stream(f"journal:incarnation-1:{topic}:0", topic, topic, "run-1")
    replay = Stream(f"journal:incarnation-1:$replay/{bridge.bridge}/{topic}:0", topic, topic, "run-1")
    target = bridge.target()
    await opened(target, sent, replay)
    await deliver(target, batch(sent, numbered(0, 0), ids=[(0, b"A")]))
    for verdict in (Verdict.STORED, Verdict.DUPLICATE):
        (receipt,) = await deliver(target, batch(replay, numbered(1, 1), ids=[(0, b"A")]))
        assert receipt.verdict is verdict
    (receipt,) = await deliver(target, batch(sent, numbered(2, 2), ids=[(0, b"A")], from_=1))
    assert receipt.duplicates == 1
    assert await values(bridge.cluster, topic) == [b"m0", b"m1"]
