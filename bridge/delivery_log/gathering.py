"""Writes the lines of many callers together: those that come while a write runs go into the next, with one
fsync.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from bridge.delivery_log.log_thread import LogThread

#: Makes delivery-log lines durable; returns when they are. Raises: OSError.
WriteLines = Callable[[Sequence[str]], Awaitable[None]]


class GatheringWriter:
    """`write` is a `WriteLines` over a node's segments, for lines that no outbox keeps: those of Kafka lanes.

    The lines that wait are bounded by their writers: a lane has one write under way at each of its sides, and
    goes on when it has returned.
    """

    def __init__(self, files: LogThread) -> None:
        self._files = files
        self._waiting: list[tuple[Sequence[str], asyncio.Future[None]]] = []
        self._working: asyncio.Task[None] | None = None

    async def write(self, lines: Sequence[str]) -> None:
        """Append the lines; they are on disk when it returns, also those of a caller that was cancelled.

        Raises:
            OSError: none of them counts as written; the same call can be made again.
        """
        if not lines:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((lines, done))
        if self._working is None:
            self._working = asyncio.create_task(self._work(), name="delivery-log")
        await done

    async def _work(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                data = [line.encode() for lines, _ in waiting for line in lines]
                error: Exception | None = None
                try:
                    await self._files.write(data)
                except Exception as failed:  # noqa: BLE001 - whatever it is, the callers that wait raise it
                    error = failed
                for _, done in waiting:
                    if done.done():
                        continue
                    if error is None:
                        done.set_result(None)
                    else:
                        done.set_exception(error)
        finally:
            self._working = None
