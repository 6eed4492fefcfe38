"""Deliveries that wait for a lane's transactions, and the choice of those for the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from bridge.kafka.records.record_batches import RECORD_BATCH_BYTES
from bridge.kafka.target.parts import cut
from bridge.kafka.target.plan import Delivery, OpenStream
from bridge.messages.batch import Batch
from bridge.relay.ports import Receipt

#: Limits of a transaction: it takes the waiting batches up to these, or one larger message. One of 4 record
#: batches takes a sixth less processor time a message than one of each. Messages are limited because
#: consumers wait for the commit, and because most IDs should fit the line that the journal topic carries;
#: batches are limited, however small.
TRANSACTION_BYTES: Final = 4 * RECORD_BATCH_BYTES
TRANSACTION_MESSAGES: Final = 4_096
TRANSACTION_BATCHES: Final = 1_000


class DeliveryQueue:
    """All deliveries without an answer. The sender's window limits their number."""

    def __init__(self) -> None:
        self._queue: deque[Delivery] = deque()
        #: The deliveries in the queue, and those in the running transaction.
        self._waiting: set[Delivery] = set()
        self._arrived = asyncio.Event()

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for an answer."""
        return not self._waiting

    def put(self, batch: Batch, opened: OpenStream) -> asyncio.Future[Receipt]:
        """Append a batch; returns the future of its answer."""
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        delivery = Delivery(batch, opened, future)
        self._queue.append(delivery)
        self._waiting.add(delivery)
        future.add_done_callback(lambda _: self._waiting.discard(delivery))
        self._arrived.set()
        return future

    def take(self, most_bytes: int = TRANSACTION_BYTES) -> list[Delivery]:
        """The deliveries for the next transaction: at least one message where a caller waits for one.

        A batch larger than `most_bytes` is cut into parts, which are deliveries of their own from then on.
        """
        taken: list[Delivery] = []
        size = count = 0
        while self._queue and len(taken) < TRANSACTION_BATCHES:
            if self._queue[0].future.done():  # no caller waits for it any more
                self._queue.popleft()
                continue
            if not taken and self._queue[0].batch.size > most_bytes:
                self._cut_first(most_bytes)
            batch = self._queue[0].batch
            size, count = size + batch.size, count + batch.count
            if taken and (size > most_bytes or count > TRANSACTION_MESSAGES):
                break
            taken.append(self._queue.popleft())
        return taken

    def _cut_first(self, most_bytes: int) -> None:
        parts = cut(self._queue[0], most_bytes)
        if len(parts) > 1:
            self._queue.popleft()
            self._queue.extendleft(reversed(parts))

    async def wait_for_more(self) -> None:
        """Wait for another batch, or for `wake`."""
        self._arrived.clear()
        await self._arrived.wait()

    def wake(self) -> None:
        """End `wait_for_more`."""
        self._arrived.set()

    def fail(self, error: Exception) -> None:
        """Fail all waiting deliveries with `error`, and empty the queue."""
        self._queue.clear()
        for delivery in self._waiting:
            if not delivery.future.done():
                delivery.future.set_exception(error)
