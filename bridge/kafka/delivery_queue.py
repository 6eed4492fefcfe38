"""Batches in line for a lane's transactions, and how much of them the next one takes."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from bridge.batch import Batch
from bridge.kafka.piles import RECORD_BATCH_BYTES
from bridge.kafka.plan import Delivery, OpenStream
from bridge.ports import Receipt

#: A transaction takes what has come, and no more once it has so much. One of 4 record batches takes a sixth
#: less processor time a message than one of each. Messages are bounded because readers wait for the commit,
#: and because their IDs must fit the line that the journal topic carries; batches, however small they are.
TRANSACTION_BYTES: Final = 4 * RECORD_BATCH_BYTES
TRANSACTION_MESSAGES: Final = 4_096
TRANSACTION_BATCHES: Final = 1_000


class InLine:
    """All that was delivered and has no answer yet. The sender's window bounds it."""

    def __init__(self) -> None:
        self._queue: deque[Delivery] = deque()
        #: Those in line, and those in the transaction that runs.
        self._waiting: set[Delivery] = set()
        self._arrived = asyncio.Event()

    def put(self, batch: Batch, opened: OpenStream) -> asyncio.Future[Receipt]:
        """Last in line; the future is for its answer."""
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        delivery = Delivery(batch, opened, future)
        self._queue.append(delivery)
        self._waiting.add(delivery)
        future.add_done_callback(lambda _: self._waiting.discard(delivery))
        self._arrived.set()
        return future

    def take(self) -> list[Delivery]:
        """What the next transaction takes: at least one batch where somebody waits for one."""
        taken: list[Delivery] = []
        size = count = 0
        while (
            self._queue
            and size < TRANSACTION_BYTES
            and count < TRANSACTION_MESSAGES
            and len(taken) < TRANSACTION_BATCHES
        ):
            delivery = self._queue.popleft()
            if not delivery.future.done():  # nobody waits for it any more
                taken.append(delivery)
                size += delivery.batch.size
                count += delivery.batch.count
        return taken

    async def more(self) -> None:
        """Wait for another batch, or until told to `look`."""
        self._arrived.clear()
        await self._arrived.wait()

    def look(self) -> None:
        """Whoever waits for `more` looks up."""
        self._arrived.set()

    def fail(self, error: Exception) -> None:
        """Everybody who waits is told this; nothing is in line any more."""
        self._queue.clear()
        for delivery in self._waiting:
            if not delivery.future.done():
                delivery.future.set_exception(error)
