"""A Kafka target of a bridge at least once: no transaction, and doubled is only what was in doubt."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from bridge.errors import Fenced, TargetUnavailable
from bridge.kafka.target import without_transaction
from bridge.messages.message import Message
from dedup.verdict import Verdict
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.target.rig import (
    NOW,
    Rig,
    arrived,
    batch,
    deliver,
    journal_stream,
    kafka_stream,
    numbered,
    opened,
    rig,
    values,
)

Unique = Callable[[str], str]
#: Longest that a driver may take, seconds.
DRIVER_TIMEOUT_S = 60.0


@pytest.fixture
async def bridge(cluster_a: Reachable, unique: Unique) -> AsyncIterator[Rig]:
    async with rig(
        cluster_a,
        unique("bridge"),
        options={"transactions": False, "stamp": False, "check_producer_ids": False},
    ) as made:
        yield made


def bodies(*ranges: tuple[int, int]) -> list[bytes]:
    """The bodies of ``m<first>`` to ``m<last>``, of one range after the other."""
    return [b"m%d" % n for first, last in ranges for n in range(first, last + 1)]


async def test_what_is_delivered_is_there_without_an_id_and_its_positions_are_remembered(
    bridge: Rig, unique: Unique
) -> None:
    one, two = kafka_stream(unique("one")), journal_stream(unique("two"))
    target = bridge.target()
    await opened(target, one, two)
    for n in (0, 5):
        receipts = await deliver(
            target, batch(one, numbered(n, n + 4), from_=n), batch(two, numbered(n, n + 4), from_=n)
        )
        assert [receipt.verdict for receipt in receipts] == [Verdict.STORED] * 2
    (receipt,) = await deliver(target, batch(one, numbered(5, 9), from_=5))
    assert receipt.verdict is Verdict.DUPLICATE
    taker = bridge.target()
    for stream in (one, two):
        assert (await opened(taker, stream)).next == 10
        found = await arrived(bridge.cluster, stream.target_address)
        assert [(record.value, record.headers) for record in found] == [(body, ()) for body in bodies((0, 9))]
        # No marker of a transaction among them: each offset is a message's.
        assert [record.offset for record in found] == list(range(10))


@pytest.mark.parametrize(("point", "doubled"), [("kafka.after-send", 10), ("kafka.after-journal", 0)])
async def test_what_a_process_dies_in_may_be_there_twice_and_nothing_else_is(
    bridge: Rig, unique: Unique, point: str, doubled: int
) -> None:
    """B25: in doubt is the batch whose position was not written yet."""
    stream = kafka_stream(unique("crash"))
    driver = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.kafka.target.driver",
        bridge.cluster.bootstrap,
        bridge.bridge,
        stream.address,
        "without",
        env={**os.environ, "CORE_BRIDGE_CRASH_AT": f"{point}:3"},  # the first is the taking of the lane
        cwd=Path(__file__).parents[3],
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(DRIVER_TIMEOUT_S):
        await driver.communicate()
    assert driver.returncode == -signal.SIGKILL
    target = bridge.target()
    assert (await opened(target, stream)).next == 20 - doubled
    await deliver(target, batch(stream, numbered(20 - doubled, 29), from_=20 - doubled))
    expected = bodies((0, 19), (20 - doubled, 29))
    assert [record.value for record in await arrived(bridge.cluster, stream.target_address)] == expected


async def test_what_was_acknowledged_before_a_failure_is_not_sent_again(
    bridge: Rig, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B25: as long as the process lives. The position was not written, and it knows what is stored."""
    stream = kafka_stream(unique("failed"))
    target = bridge.target()
    await opened(target, stream)
    left = ["kafka.after-send"]

    def failing(point: str) -> None:
        if point in left:
            left.remove(point)
            raise TimeoutError

    monkeypatch.setattr(without_transaction, "crash_point", failing)
    with pytest.raises(TargetUnavailable):
        await deliver(target, batch(stream, numbered(0, 9)))
    assert (await opened(target, stream)).next is None
    (receipt,) = await deliver(target, batch(stream, numbered(0, 14)))
    assert (receipt.verdict, receipt.duplicates) == (Verdict.STORED, 0)
    assert await values(bridge.cluster, stream.target_address) == bodies((0, 14))


async def test_a_zombie_neither_stores_nor_puts_positions_back_once_the_lane_has_written(
    bridge: Rig, unique: Unique
) -> None:
    stream = kafka_stream(unique("zombie"))
    zombie, taker = bridge.target(), bridge.target()
    await opened(zombie, stream)
    await deliver(zombie, batch(stream, numbered(0, 4)))
    await opened(taker, stream)
    await deliver(taker, batch(stream, numbered(5, 9), from_=5))
    with pytest.raises(Fenced):
        await deliver(zombie, batch(stream, numbered(5, 6), from_=5))
    assert (await opened(bridge.target(), stream)).next == 10
    assert await values(bridge.cluster, stream.target_address) == bodies((0, 9))


@pytest.mark.parametrize("stores_letters", [False, True])
async def test_a_refused_record_doubles_none_of_those_around_it(
    bridge: Rig, unique: Unique, stores_letters: bool
) -> None:
    """The broker takes the record batches before it, and those of the other partition."""
    topic, letters = unique("refused"), unique("letters")
    bridge.cluster.create_topic(topic, 2, config={"message.timestamp.after.max.ms": "3600000"})
    one, two = (kafka_stream(topic, number, partitions=2) for number in range(2))
    target = bridge.target(dead_letter_address=letters, stores_letters=stores_letters)
    await opened(target, one, two)
    messages = numbered(0, 9)
    messages[6] = Message(b"late", None, (), NOW * 2)
    first, second = batch(one, messages), batch(two, numbered(20, 29))
    (receipt, other) = await deliver(target, first, second)
    assert other.verdict is Verdict.STORED
    if stores_letters:
        assert (receipt.verdict, receipt.dead_lettered) == (Verdict.STORED, (6,))
    else:
        assert (receipt.verdict, receipt.position) == (Verdict.REFUSED, 6)
        await opened(target, one)
        (receipt,) = await deliver(target, batch(one, numbered(0, 5)))
        assert receipt.verdict is Verdict.STORED
        rest = [*numbered(7, 9)]
        (receipt,) = await deliver(target, batch(one, rest, from_=6, runs=((7, 9),), refused=(6,)))
        assert receipt.verdict is Verdict.STORED
    found = await arrived(bridge.cluster, topic)
    assert [record.value for record in found if record.partition == 0] == bodies((0, 5), (7, 9))
    assert [record.value for record in found if record.partition == 1] == bodies((20, 29))
    assert await values(bridge.cluster, letters) == ([b"late"] if stores_letters else [])


async def test_a_bridge_may_change_between_exactly_once_and_at_least_once(
    bridge: Rig, unique: Unique
) -> None:
    stream = kafka_stream(unique("changed"))
    for n, transactions in enumerate((True, False, True, False)):
        target = bridge.target(transactions=transactions)
        assert ((await opened(target, stream)).next or 0) == n * 5
        await deliver(target, batch(stream, numbered(n * 5, n * 5 + 4), from_=n * 5))
    assert await values(bridge.cluster, stream.target_address) == bodies((0, 19))
