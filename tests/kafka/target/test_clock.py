"""A machine whose clock is wrong must not refuse for good what the broker takes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from bridge.errors import TargetUnavailable
from bridge.kafka.target import lane
from bridge.kafka.target import target as target_module
from bridge.kafka.target.target import KafkaTarget
from bridge.messages.batch import Batch
from bridge.messages.message import Message
from bridge.relay.ports import Receipt, Stream
from bridge.runtime.clock import SystemClock
from dedup.verdict import Verdict
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.target.rig import batch, deliver, kafka_stream, numbered, opened, rig, values

Unique = Callable[[str], str]


HOUR_MS = 3_600_000


class _Skewed(SystemClock):
    """So far from everybody else's, as a machine that has just come up and not found its time server."""

    def __init__(self, ahead_ms: int) -> None:
        self._ahead_ms = ahead_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self._ahead_ms


async def test_a_slow_clock_refuses_nothing_that_the_broker_takes(
    cluster_a: Reachable, unique: Unique
) -> None:
    stream = kafka_stream(unique("clock"))
    async with rig(cluster_a, unique("clock")) as made:
        target = made.target(clock=_Skewed(-2 * HOUR_MS))
        await opened(target, stream)
        (receipt,) = await deliver(target, batch(stream, numbered(0, 9)))
        assert receipt.verdict is Verdict.STORED, receipt.reason


async def test_a_slow_clock_costs_a_few_record_batches_and_keeps_the_order(
    cluster_a: Reachable, unique: Unique
) -> None:
    stream = kafka_stream(unique("clock"))
    async with rig(cluster_a, unique("clock")) as made:
        target = made.target(clock=_Skewed(-2 * HOUR_MS))
        await opened(target, stream)
        (receipt,) = await deliver(target, batch(stream, numbered(0, 4_999)))
        assert receipt.verdict is Verdict.STORED
        assert await values(cluster_a, stream.target_address) == [b"m%d" % n for n in range(5_000)]


@pytest.mark.parametrize("ahead_ms", [-2 * HOUR_MS, 0, 2 * HOUR_MS])
async def test_what_the_broker_refuses_is_a_dead_letter_whatever_this_clock_says(
    cluster_a: Reachable, unique: Unique, ahead_ms: int
) -> None:
    """Also the letter's time is for the broker: by a fast clock it seemed fine, and it stopped the bridge."""
    stream, dead = kafka_stream(unique("clock")), unique("dead")
    async with rig(cluster_a, unique("clock"), options={"dead_letter_address": dead}) as made:
        target = made.target(clock=_Skewed(ahead_ms))
        bad = Message(b"bad", None, (), SystemClock().wall_ms() + 2 * HOUR_MS + 60_000)
        messages = batch(stream, [*numbered(0, 0), bad, *numbered(2, 2)])
        await opened(target, stream)
        receipt = await _refused(target, messages, stream)
        assert receipt.position == 1
        assert receipt.reason.startswith("INVALID_TIMESTAMP: ")
        await target.store_letter(messages, receipt, stream.address)
        await opened(target, stream)
        rest = batch(stream, [*numbered(0, 0), *numbered(2, 2)], runs=((0, 0), (2, 2)), refused=(1,))
        with contextlib.suppress(TargetUnavailable):  # the letter is looked for
            await deliver(target, rest)
        await opened(target, stream)
        (receipt,) = await deliver(target, rest)
        assert receipt.verdict in (Verdict.STORED, Verdict.DUPLICATE)
        assert await values(cluster_a, stream.target_address) == [b"m0", b"m2"]
        assert await values(cluster_a, dead) == [b"bad"]


async def _refused(target: KafkaTarget, messages: Batch, stream: Stream) -> Receipt:
    """The receipt of the refusal, once the one record has been found."""
    for _ in range(5):
        try:
            (receipt,) = await deliver(target, messages)
        except TargetUnavailable:
            await opened(target, stream)
            continue
        assert receipt.verdict is Verdict.REFUSED
        return receipt
    raise AssertionError("not found in five attempts")


async def test_the_lane_is_held_while_what_the_broker_refused_is_left_out(
    cluster_a: Reachable, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its producer is replaced; whoever watches the cluster must not ask the old one, which never answers."""
    monkeypatch.setattr(target_module, "WATCH_INTERVAL_MS", 1)
    monkeypatch.setattr(lane, "REACHABLE_TIMEOUT_MS", 1_500)
    stream = kafka_stream(unique("clock"))
    async with rig(cluster_a, unique("clock")) as made:
        target = made.target()
        await opened(target, stream)
        bad = Message(b"bad", None, (), SystemClock().wall_ms() + 2 * HOUR_MS)
        for position in range(3):
            (receipt,) = await deliver(target, batch(stream, [bad], from_=position))
            assert (receipt.verdict, receipt.position) == (Verdict.REFUSED, position)
            await opened(target, stream)
            (receipt,) = await deliver(target, batch(stream, [], from_=position, upto=position + 1))
        losing = asyncio.create_task(target.lost())
        done, _ = await asyncio.wait((losing,), timeout=3)
        losing.cancel()
        assert not done
