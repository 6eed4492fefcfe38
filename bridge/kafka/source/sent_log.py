"""The sent side of a Kafka source's delivery log: each line is on disk before the group's commit says so.

A line is added when a batch is confirmed, and written together with others. A crash loses lines between the
group's commit and the target's next: `bridge.kafka.source.stream_cursor` reads those positions again, as
`recovered`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from bridge.delivery_log import MISSING, Line, LineWriter, WriteLines
from bridge.errors import SourceUnavailable
from bridge.messages.batch import Batch
from bridge.messages.positions import Runs
from bridge.relay.ports import Receipt, Stream

#: Bytes of lines that may wait for the disk; beyond it confirmations wait, and with them the window.
MOST_WAITING_BYTES: Final = 4 * 1024 * 1024
#: Longest that closing waits for the disk: lines not written are recovered at the next opening.
CLOSE_TIMEOUT_MS: Final = 2_000


class SentLog:
    """Lines that wait for the disk, in order; one write at a time."""

    def __init__(self, write: WriteLines, writer: LineWriter) -> None:
        """`writer` has no store: each line gets its target's."""
        self._write = write
        self._writer = writer
        #: Line (empty: none), and the function to call once it is on disk.
        self._waiting: deque[tuple[str, Callable[[], None]]] = deque()
        self._waiting_bytes = 0
        self._working: asyncio.Task[None] | None = None
        #: Set, and replaced, when a write has ended.
        self._changed = asyncio.Event()
        #: The error of the last write; empty: there was none.
        self._trouble = ""
        self._log = structlog.get_logger().bind(bridge=writer.bridge)

    def add(
        self,
        batch: Batch,
        receipt: Receipt,
        stream: Stream,
        store: str,
        written: Callable[[], None],
        *,
        recovered: bool,
    ) -> None:
        """Add the line of a batch that the target covers, by its receipt; coverage of nothing makes no line.

        `written` is called once this line, and all before it, is on disk.
        """
        line = ""
        if batch.upto > batch.from_:
            writer = msgspec.structs.replace(self._writer, store=store)
            line = sent_line(batch, receipt, stream, writer, recovered=recovered)
        self._waiting.append((line, written))
        self._waiting_bytes += len(line)
        self._begin()

    async def missing(self, stream: Stream, runs: Runs, store: str) -> None:
        """Write a line for each run of positions that `store` had confirmed and does not have any more.

        Raises: as `room`.
        """
        writer = msgspec.structs.replace(self._writer, store=store)
        for first, last in runs:
            line = missing_line(stream, first, last + 1, writer)
            self._waiting.append((line, _nothing))
            self._waiting_bytes += len(line)
        await self.flush()

    async def room(self) -> None:
        """Wait while too many bytes wait.

        Raises:
            SourceUnavailable: the delivery log cannot be written. Waiting lines stay, and `flush` tries
                again.
        """
        while not self._trouble and self._waiting_bytes > MOST_WAITING_BYTES:
            await self._change()
        if self._trouble:
            raise SourceUnavailable(f"the delivery log cannot be written: {self._trouble}")

    async def flush(self) -> None:
        """Wait until all lines are on disk, after a failure too. Raises: as `room`."""
        self._trouble = ""
        self._begin()
        while self._waiting and not self._trouble:
            await self._change()
        await self.room()

    async def close(self) -> None:
        """Write the waiting lines, if that is quick, and drop the rest."""
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_MS / 1000):
                await self.flush()
        except (SourceUnavailable, TimeoutError) as error:
            reason = str(error) or "no answer while closing"
            self._log.warning("delivery-log-waits", lines=len(self._waiting), reason=reason)
        finally:
            working, self._working = self._working, None
            if working is not None:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
            self._waiting.clear()
            self._waiting_bytes = 0
            self._trouble = ""

    def _begin(self) -> None:
        if self._working is None and self._waiting and not self._trouble:
            self._working = asyncio.create_task(self._work(), name="sent-log")

    async def _work(self) -> None:
        try:
            while self._waiting:
                taken = list(self._waiting)
                await self._write([line for line, _ in taken if line])
                for line, written in taken:
                    self._waiting.popleft()
                    self._waiting_bytes -= len(line)
                    written()
                self._notify()
        except Exception as error:  # noqa: BLE001 - the next or a waiting call raises it
            self._trouble = str(error) or type(error).__name__
        finally:
            self._working = None
            self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _change(self) -> None:
        await self._changed.wait()


def sent_line(batch: Batch, receipt: Receipt, stream: Stream, writer: LineWriter, *, recovered: bool) -> str:
    """The delivery-log line of a batch that the target covers, by its receipt."""
    line = Line.of_batch(
        "sent", writer, stream.address, batch, committed=receipt.committed, duplicates=receipt.duplicates
    )
    line.recovered, line.clock_offset = recovered, receipt.clock_offset_ms
    return line.encode().decode()


def missing_line(stream: Stream, first: int, upto: int, writer: LineWriter) -> str:
    """The line about positions that a target had confirmed and does not have any more."""
    batch = Batch(stream.identity, first, upto)
    line = Line.of_batch("sent", writer, stream.address, batch, committed=0, duplicates=0)
    line.verdict = MISSING
    return line.encode().decode()


def _nothing() -> None:
    """The line belongs to no settlement."""
