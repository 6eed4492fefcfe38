"""How much one transaction takes of what is in line, and who is told when nothing is stored any more."""

from __future__ import annotations

import asyncio

import pytest

from bridge.batch import Batch
from bridge.block import FreshBlock
from bridge.errors import TargetUnavailable
from bridge.kafka import in_line
from bridge.kafka.in_line import InLine
from bridge.kafka.plan import OpenStream
from bridge.message import Message
from bridge.ports import Stream

STREAM = "kafka:cluster:topic:0"
OPENED = OpenStream(Stream(STREAM, "orders", "orders", "run"), epoch=1)


def batch(number: int, messages: int = 1, body: bytes = b"") -> Batch:
    """The batch with this number, of messages alike."""
    from_, upto = number * messages, (number + 1) * messages
    block = FreshBlock([Message(body)] * messages, ()) if messages else None
    return Batch(STREAM, from_, upto, ((from_, upto - 1),) if messages else (), block)


@pytest.mark.parametrize(
    ("messages", "body", "most"),
    [
        pytest.param(in_line.TRANSACTION_MESSAGES // 2, b"", 2, id="messages"),
        pytest.param(1, b"x" * (in_line.TRANSACTION_BYTES // 3 + 1), 3, id="bytes"),
        pytest.param(1, b"x" * (in_line.TRANSACTION_BYTES + 1), 1, id="one-too-large"),
        pytest.param(0, b"", in_line.TRANSACTION_BATCHES, id="batches"),
    ],
)
async def test_a_transaction_takes_what_has_come_until_it_has_enough(
    messages: int, body: bytes, most: int
) -> None:
    line = InLine()
    for number in range(most + 1):
        line.put(batch(number, messages, body), OPENED)
    assert [len(line.take()) for _ in range(3)] == [most, 1, 0]


async def test_what_nobody_waits_for_any_more_is_not_stored() -> None:
    line = InLine()
    futures = [line.put(batch(number), OPENED) for number in range(3)]
    futures[1].cancel()
    assert [delivery.batch.from_ for delivery in line.take()] == [0, 2]


async def test_who_waits_in_line_or_for_the_running_transaction_is_told() -> None:
    line = InLine()
    running = line.put(batch(0), OPENED)
    line.take()
    waiting = line.put(batch(1), OPENED)
    line.fail(TargetUnavailable("gone"))
    assert line.take() == []
    assert [str(future.exception()) for future in (running, waiting)] == ["gone", "gone"]


async def test_more_is_another_batch_or_a_word() -> None:
    line = InLine()
    for wake in (lambda: line.put(batch(0), OPENED), line.look):
        waiting = asyncio.create_task(line.more())
        await asyncio.sleep(0)
        assert not waiting.done()
        wake()
        await waiting
