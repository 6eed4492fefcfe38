"""How much one transaction takes of what waits, and who is told when nothing is stored any more."""

from __future__ import annotations

import asyncio

import pytest

from bridge.errors import TargetUnavailable
from bridge.kafka.target import delivery_queue
from bridge.kafka.target.delivery_queue import DeliveryQueue
from bridge.kafka.target.plan import OpenStream
from bridge.messages.batch import Batch
from bridge.messages.block import FreshBlock
from bridge.messages.message import Message
from bridge.relay.ports import Stream

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
        pytest.param(delivery_queue.TRANSACTION_MESSAGES // 2, b"", 2, id="messages"),
        pytest.param(delivery_queue.TRANSACTION_MESSAGES // 2 + 1, b"", 1, id="no-message-in-excess"),
        pytest.param(1, b"x" * (delivery_queue.TRANSACTION_BYTES // 3), 3, id="bytes"),
        pytest.param(1, b"x" * (delivery_queue.TRANSACTION_BYTES + 1), 1, id="one-too-large"),
        pytest.param(0, b"", delivery_queue.TRANSACTION_BATCHES, id="batches"),
    ],
)
async def test_a_transaction_takes_what_has_come_until_it_has_enough(
    messages: int, body: bytes, most: int
) -> None:
    queue = DeliveryQueue()
    for number in range(most + 1):
        queue.put(batch(number, messages, body), OPENED)
    assert [len(queue.take()) for _ in range(3)] == [most, 1, 0]


async def test_what_nobody_waits_for_any_more_is_not_stored() -> None:
    queue = DeliveryQueue()
    futures = [queue.put(batch(number), OPENED) for number in range(3)]
    futures[1].cancel()
    assert [delivery.batch.from_ for delivery in queue.take()] == [0, 2]


async def test_who_waits_in_the_queue_or_for_the_running_transaction_is_told() -> None:
    queue = DeliveryQueue()
    running = queue.put(batch(0), OPENED)
    queue.take()
    waiting = queue.put(batch(1), OPENED)
    queue.fail(TargetUnavailable("gone"))
    assert queue.take() == []
    assert [str(future.exception()) for future in (running, waiting)] == ["gone", "gone"]


async def test_more_is_another_batch_or_a_word() -> None:
    queue = DeliveryQueue()
    for wake in (lambda: queue.put(batch(0), OPENED), queue.wake):
        waiting = asyncio.create_task(queue.wait_for_more())
        await asyncio.sleep(0)
        assert not waiting.done()
        wake()
        await waiting
