"""Copies the journal's outbox to the delivery log's files: copied, synced, then forgotten (design, 7)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Final

from bridge.delivery_log import LogThread
from bridge.errors import BridgeError
from bridge.journal.journal import Journal
from bridge.runtime import logs
from bridge.runtime.repeated_task import RepeatedTask

#: Most lines copied with one fsync.
LINES: Final = 5000
#: Most bytes of them: a line is as long as the lists of its batch.
LINES_BYTES: Final = 4 * 1024 * 1024
#: Longest wait of lines that are copied together, and the interval at which files are checked, in seconds.
GATHER_S: Final = 0.2
TICK_S: Final = 1.0
#: Longest that a stop waits for the files, in seconds: a volume may hang. Lines that wait stay in the
#: journal.
STOP_S: Final = 3.0
#: Errors of the files and of the journal that pass by themselves: lines wait in the outbox meanwhile.
PASSING: Final = (OSError, BridgeError)


class OutboxCopier:
    """Copies in one task. A crash between fsync and forgetting repeats lines: equal lines are one event."""

    def __init__(self, journal: Journal, files: LogThread) -> None:
        self._journal = journal
        self._files = files
        self._copied = 0
        self._stop = asyncio.Event()
        self._copying = RepeatedTask("outbox", self._turn, until=self._stop.is_set)
        self._log = logs.get()
        #: Whether the last attempt to write failed.
        self.failing = False

    async def start(self) -> None:
        """Complete the file that a crash left open, then copy for as long as the node runs."""
        await self._files.open()
        self._copying.begin()

    async def stop(self) -> None:
        """Copy the lines that are there, and complete the open file; within `STOP_S`."""
        self._stop.set()
        try:
            async with asyncio.timeout(STOP_S):
                await self._copying.ended()
                with contextlib.suppress(*PASSING):
                    while await self._copy():
                        pass
                    await self._files.close()
        except TimeoutError:
            await self._copying.end()
            self._log.warning(
                "delivery-log-waits",
                reason=f"its files did not answer for {STOP_S:g} s: the next start writes the rest",
            )

    async def _turn(self) -> None:
        written = self._journal.notices.lines()
        try:
            more = await self._copy()
            await self._files.tick()
            self.failing = False
        except PASSING as error:
            if not self.failing:
                self._log.warning("delivery-log-waits", reason=str(error))
            self.failing, more = True, False
        if not more:
            await self._wait(written, TICK_S)
            await self._wait(self._stop.wait(), GATHER_S)

    async def _wait(self, what: Awaitable[object], seconds: float) -> None:
        """Wait until `what` is done, the node stops, or the time is up."""
        waiting = [asyncio.ensure_future(what), asyncio.create_task(self._stop.wait())]
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        waiting[1].cancel()
        if isinstance(waiting[0], asyncio.Task):
            waiting[0].cancel()

    async def _copy(self) -> bool:
        """Copy once; True where there may be more."""
        rows = await self._journal.lines(self._copied, LINES, LINES_BYTES)
        if not rows:
            return False
        await self._files.write([line for _, line in rows])
        self._copied = rows[-1][0]
        await self._journal.forget_lines(self._copied)
        return len(rows) == LINES or sum(len(line) for _, line in rows) >= LINES_BYTES
