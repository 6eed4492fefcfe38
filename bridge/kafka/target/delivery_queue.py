"""Deliveries that wait for a lane's transactions, and how much of them the next one takes."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from bridge.kafka.records.record_batches import RECORD_BATCH_BYTES
from bridge.kafka.target.plan import Delivery, OpenStream
from bridge.messages.batch import Batch
from bridge.relay.ports import Receipt

#: A transaction takes what has come, up to so much, or one batch that has more. One of 4 record batches takes
#: a sixth less processor time a message than one of each. Messages are bounded because readers wait for the
#: commit, and because most IDs are to fit the line that the journal topic carries; batches, however small.
TRANSACTION_BYTES: Final = 4 * RECORD_BATCH_BYTES
TRANSACTION_MESSAGES: Final = 4_096
TRANSACTION_BATCHES: Final = 1_000


class DeliveryQueue:
    """All that was delivered and has no answer yet. The sender's window bounds it."""

    def __init__(self) -> None:
        self._queue: deque[Delivery] = deque()
        #: Those in the queue, and those in the transaction that runs.
        self._waiting: set[Delivery] = set()
        self._arrived = asyncio.Event()

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for an answer."""
        return not self._waiting

    def put(self, batch: Batch, opened: OpenStream) -> asyncio.Future[Receipt]:
        """At the end; the future is for its answer."""
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        delivery = Delivery(batch, opened, future)
        self._queue.append(delivery)
        self._waiting.add(delivery)
        future.add_done_callback(lambda _: self._waiting.discard(delivery))
        self._arrived.set()
        return future

    def take(self, most_bytes: int = TRANSACTION_BYTES) -> list[Delivery]:
        """What the next transaction takes: at least one batch where somebody waits for one."""
        taken: list[Delivery] = []
        size = count = 0
        while self._queue and len(taken) < TRANSACTION_BATCHES:
            if self._queue[0].future.done():  # nobody waits for it any more
                self._queue.popleft()
                continue
            batch = self._queue[0].batch
            size, count = size + batch.size, count + batch.count
            if taken and (size > most_bytes or count > TRANSACTION_MESSAGES):
                break
            taken.append(self._queue.popleft())
        return taken

    async def wait_for_more(self) -> None:
        """Wait for another batch, or for `wake`."""
        self._arrived.clear()
        await self._arrived.wait()

    def wake(self) -> None:
        """End `wait_for_more`."""
        self._arrived.set()

    def fail(self, error: Exception) -> None:
        """Everybody who waits is told this, and the queue is empty."""
        self._queue.clear()
        for delivery in self._waiting:
            if not delivery.future.done():
                delivery.future.set_exception(error)
