"""A Kafka target when something fails: what is in doubt is decided by the next taker of the lane."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka.structs import TopicPartition

from bridge.errors import Fenced, OutOfSequence, TargetUnavailable
from bridge.kafka.target import target as target_module
from bridge.kafka.target import transaction
from bridge.kafka.target.options import RelayHooks
from bridge.kafka.target.target import KafkaTarget
from bridge.relay.ports import Stream
from bridge.runtime import fault_injection
from dedup.verdict import Verdict
from tests.kafka.cluster.brokers import Cluster
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.target.rig import (
    Rig,
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
POINTS = [name for name in fault_injection.NAMES if name.startswith("kafka.")]
#: Longest that a driver may take, seconds.
DRIVER_TIMEOUT_S = 60.0


@pytest.fixture
async def bridge(cluster_a: Reachable, unique: Unique) -> AsyncIterator[Rig]:
    async with rig(cluster_a, unique("bridge")) as made:
        yield made


def at_point(monkeypatch: pytest.MonkeyPatch, name: str, do: Callable[[], Any]) -> None:
    """Do something the first time that a transaction reaches a crash point."""
    left = [do]

    def reached(point: str) -> None:
        if point == name and left:
            left.pop()()

    monkeypatch.setattr(transaction, "crash_point", reached)


async def resumed(target: KafkaTarget, stream: Stream, upto: int) -> None:
    """Go on at the target's next, as a relay does."""
    next_position = (await opened(target, stream)).next or 0
    if next_position < upto:
        (receipt,) = await deliver(
            target, batch(stream, numbered(next_position, upto - 1), from_=next_position)
        )
        assert receipt.verdict is Verdict.STORED


# -- dying -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "times"),
    [
        # Each point once; the other time of each is left to the long run.
        pytest.param(point, times, marks=() if (index + times // 2) % 2 else pytest.mark.kafka_long)
        for index, point in enumerate(POINTS)
        for times in (2, 4)
    ],
)
async def test_whatever_a_process_dies_in_is_there_once_or_comes_again(
    bridge: Rig, unique: Unique, point: str, times: int
) -> None:
    stream = kafka_stream(unique("crash"))
    driver = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.kafka.target.driver",
        bridge.cluster.bootstrap,
        bridge.bridge,
        stream.address,
        env={**os.environ, "CORE_BRIDGE_CRASH_AT": f"{point}:{times}"},
        cwd=Path(__file__).parents[3],
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(DRIVER_TIMEOUT_S):
        said, _ = await driver.communicate()
    assert driver.returncode == -signal.SIGKILL
    # Besides, it logs.
    confirmed = max((int(word) for word in said.split() if word.isdigit()), default=0)
    target = bridge.target()
    state = await opened(target, stream)
    # What had a receipt is there, and at most one batch more.
    assert (state.next or 0) - confirmed in (0, 10)
    assert len(await values(bridge.cluster, stream.target_address)) == (state.next or 0)
    await resumed(target, stream, 60)
    assert await values(bridge.cluster, stream.target_address) == [b"m%d" % n for n in range(60)]


# -- fenced ------------------------------------------------------------------------------------------------


async def test_a_zombie_cannot_commit_after_its_lane_was_taken(bridge: Rig, unique: Unique) -> None:
    stream = kafka_stream(unique("zombie"))
    zombie, taker = bridge.target(), bridge.target()
    await opened(zombie, stream)
    await deliver(zombie, batch(stream, numbered(0, 4)))
    assert (await opened(taker, stream)).next == 5
    await deliver(taker, batch(stream, numbered(5, 9), from_=5))
    with pytest.raises(Fenced):
        await deliver(zombie, batch(stream, numbered(5, 7), from_=5))
    with pytest.raises(Fenced):
        await zombie.lost()
    assert await values(bridge.cluster, stream.target_address) == [b"m%d" % n for n in range(10)]


async def test_a_zombie_in_the_middle_of_a_transaction_loses_all_of_it(
    bridge: Rig, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = kafka_stream(unique("stolen"))
    zombie, taker = bridge.target(), bridge.target()
    await opened(zombie, stream)
    stolen = asyncio.Event()
    committing = zombie._lane._producer.commit_transaction  # type: ignore[union-attr]

    async def late() -> None:
        await opened(taker, stream)
        stolen.set()
        await committing()

    monkeypatch.setattr(zombie._lane._producer, "commit_transaction", late)  # type: ignore[union-attr]
    with pytest.raises(Fenced):
        await deliver(zombie, batch(stream, numbered(0, 4)))
    assert stolen.is_set()
    assert await values(bridge.cluster, stream.target_address) == []
    (receipt,) = await deliver(taker, batch(stream, numbered(0, 4)))
    assert receipt.verdict is Verdict.STORED


async def test_a_fenced_lane_is_taken_again_only_when_the_group_has_confirmed_it(
    bridge: Rig, unique: Unique
) -> None:
    stream = kafka_stream(unique("confirmed"))
    asked: list[str] = []

    async def confirmed() -> None:
        asked.append("asked")
        if len(asked) == 1:
            raise TargetUnavailable("the lane is not ours any more")

    zombie, taker = bridge.target(arguments={"hooks": RelayHooks(confirmed=confirmed)}), bridge.target()
    await opened(zombie, stream)
    await opened(taker, stream)
    with pytest.raises(Fenced):
        await deliver(zombie, batch(stream, numbered(0, 0)))
    await zombie.close()
    with pytest.raises(TargetUnavailable, match="not ours"):
        await opened(zombie, stream)
    # The taker has not been fenced by that attempt.
    (receipt,) = await deliver(taker, batch(stream, numbered(0, 0)))
    assert receipt.verdict is Verdict.STORED
    assert (await opened(zombie, stream)).next == 1
    assert len(asked) == 2


# -- the producer ------------------------------------------------------------------------------------------


async def test_a_new_producer_goes_on_before_sequence_numbers_run_out(bridge: Rig, unique: Unique) -> None:
    """Trap 4: they turn negative behind 2^31. Lowered here: they begin just below it."""
    stream = kafka_stream(unique("sequence"))
    target = bridge.target(most_records=4)
    await opened(target, stream)
    lane = target._lane
    assert lane is not None
    first = lane._producer
    first._txn_manager._sequence_numbers[TopicPartition(stream.target_address, 0)] = 2**31 - 7
    for n in range(0, 12, 3):
        (receipt,) = await deliver(target, batch(stream, numbered(n, n + 2), from_=n))
        assert receipt.verdict is Verdict.STORED
    assert lane._producer is not first
    assert await values(bridge.cluster, stream.target_address) == [b"m%d" % n for n in range(12)]


async def test_a_delivery_that_nobody_waits_for_any_more_leaves_the_lane_whole(
    bridge: Rig, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = kafka_stream(unique("cancelled"))
    target = bridge.target()
    await opened(target, stream)
    calls = [asyncio.create_task(deliver(target, batch(stream, numbered(0, 4))))]
    at_point(monkeypatch, "kafka.after-begin", calls[0].cancel)
    await asyncio.wait(calls)
    assert calls[0].cancelled()
    await resumed(target, stream, 10)
    assert await values(bridge.cluster, stream.target_address) == [b"m%d" % n for n in range(10)]


async def test_a_batch_out_of_sequence_fails_alone(bridge: Rig, unique: Unique) -> None:
    stream, other = kafka_stream(unique("gap")), journal_stream(unique("other"))
    target = bridge.target()
    await opened(target, stream, other)
    await deliver(target, batch(stream, numbered(0, 0)))
    results = await asyncio.gather(
        deliver(target, batch(stream, numbered(5, 5), from_=5)),
        deliver(target, batch(other, numbered(0, 0))),
        return_exceptions=True,
    )
    assert isinstance(results[0], OutOfSequence)
    assert not isinstance(results[1], BaseException)


async def test_closing_leaves_no_task_and_no_connection(
    bridge: Rig, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = kafka_stream(unique("closed"))
    before = asyncio.all_tasks()
    target = bridge.target()
    await opened(target, stream)
    begun = asyncio.Event()
    at_point(monkeypatch, "kafka.after-begin", begun.set)
    call = asyncio.create_task(deliver(target, batch(stream, numbered(0, 4))))
    await begun.wait()
    await target.close()
    # It was running, and was let end.
    (receipt,) = await call
    assert receipt.verdict is Verdict.STORED
    assert asyncio.all_tasks() == before
    with pytest.raises(TargetUnavailable):
        await target.lost()


# -- brokers -----------------------------------------------------------------------------------------------


async def test_a_cluster_that_goes_is_noticed_while_nothing_is_sent_and_found_again(
    own_cluster: Cluster, unique: Unique
) -> None:
    async with rig(own_cluster, unique("bridge")) as made:
        stream = kafka_stream(unique("gone"))
        target = made.target()
        await opened(target, stream)
        await deliver(target, batch(stream, numbered(0, 4)))
        losing = asyncio.create_task(target.lost())
        await asyncio.to_thread(own_cluster.broker(1).kill)
        async with asyncio.timeout(4):
            with pytest.raises(TargetUnavailable):
                await losing
        with pytest.raises(TargetUnavailable):
            await opened(target, stream)
        await asyncio.to_thread(own_cluster.broker(1).restart)
        await resumed(target, stream, 10)
        assert await values(own_cluster, stream.target_address) == [b"m%d" % n for n in range(10)]


@pytest.mark.parametrize("point", ["kafka.after-begin", "kafka.after-journal", "kafka.before-commit"])
async def test_a_broker_that_stands_still_is_given_up_and_what_it_did_is_learnt_later(
    own_cluster: Cluster, unique: Unique, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Trap 3: a commit that timed out may still take effect."""
    monkeypatch.setattr(transaction, "END_TRANSACTION_TIMEOUT_MS", 700)
    monkeypatch.setattr(transaction, "SEND_TIMEOUT_MS", 700)
    async with rig(own_cluster, unique("bridge")) as made:
        stream = kafka_stream(unique("paused"))
        target = made.target()
        await resumed(target, stream, 5)
        at_point(monkeypatch, point, own_cluster.broker(1).pause)
        try:
            async with asyncio.timeout(5):
                with pytest.raises(TargetUnavailable):
                    await target.deliver([batch(stream, numbered(5, 9), from_=5)])
                await target.close()
        finally:
            own_cluster.broker(1).resume()
        await asyncio.to_thread(own_cluster.await_brokers, 1)
        await resumed(target, stream, 15)
        assert await values(own_cluster, stream.target_address) == [b"m%d" % n for n in range(15)]


async def test_a_broker_killed_in_the_middle_of_traffic_costs_nothing_and_doubles_nothing(
    own_cluster: Cluster, unique: Unique
) -> None:
    total, size = 3_000, 50
    async with rig(own_cluster, unique("bridge")) as made:
        stream = kafka_stream(unique("killed"))
        target = made.target()
        killed: asyncio.Task[None] | None = None
        position = (await opened(target, stream)).next or 0
        while position < total:
            try:
                upto = min(total, position + size)
                await target.deliver([batch(stream, numbered(position, upto - 1), from_=position)])
                position = upto
            except TargetUnavailable:
                await target.close()
                position = await _reopened(target, stream)
            if position > total // 3 and killed is None:
                killed = asyncio.create_task(asyncio.to_thread(_killed_and_started, own_cluster))
        assert killed is not None
        await killed
        assert await values(own_cluster, stream.target_address) == [b"m%d" % n for n in range(total)]


def _killed_and_started(cluster: Cluster) -> None:
    cluster.broker(1).kill()
    cluster.broker(1).start()


async def _reopened(target: KafkaTarget, stream: Stream) -> int:
    async with asyncio.timeout(60):
        while True:
            try:
                return (await opened(target, stream)).next or 0
            except TargetUnavailable:
                await asyncio.sleep(target_module.WATCH_INTERVAL_MS / 5_000)
