"""Lines of a file or of stdin, byte for byte, in batches, and in bounded memory however long the input is.

A newline ends a line and is dropped; a carriage return before it is kept, as every other byte is. The last
line needs no newline.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from bridge.errors import BridgeError

#: Bytes read from the input at a time, and how many such chunks may wait to be sent.
CHUNK_BYTES: Final = 256 * 1024
CHUNKS_AHEAD: Final = 4
#: Longest line: the largest message that a node takes by default.
MAX_LINE_BYTES: Final = 16 * 1024 * 1024
#: A batch is sent before it is full when the input has been silent this long, in seconds.
IDLE_S: Final = 0.2


class LineTooLong(BridgeError):
    """A line is longer than any message may be."""

    code = "LINE_TOO_LONG"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the input."""

    #: Its number in the input, from 1, empty lines counted.
    number: int
    #: The line without its newline.
    body: bytes


@dataclass(slots=True)
class LineSplitter:
    """Splits chunks of bytes into lines. Pure."""

    keep_empty: bool = False
    max_bytes: int = MAX_LINE_BYTES
    _number: int = 0
    _rest: bytearray = field(default_factory=bytearray)

    def feed(self, chunk: bytes) -> list[Line]:
        """The lines that `chunk` completes.

        Raises:
            LineTooLong: the line that began has no end within `max_bytes`.
        """
        *ended, rest = chunk.split(b"\n")
        lines: list[Line] = []
        for part in ended:
            self._take(part)
            self._end(lines)
        self._take(rest)
        return lines

    def end(self) -> list[Line]:
        """The last line, if it had no newline."""
        lines: list[Line] = []
        if self._rest:
            self._end(lines)
        return lines

    def _take(self, part: bytes) -> None:
        self._rest += part
        if len(self._rest) > self.max_bytes:
            found = f"found {len(self._rest)} or more"
            raise LineTooLong(f"line {self._number + 1} is longer than {self.max_bytes} bytes; {found}")

    def _end(self, lines: list[Line]) -> None:
        self._number += 1
        if self._rest or self.keep_empty:
            lines.append(Line(self._number, bytes(self._rest)))
        self._rest.clear()


async def batches(
    descriptor: int,
    splitter: LineSplitter,
    *,
    most: int,
    most_bytes: int,
    idle_s: float = IDLE_S,
) -> AsyncIterator[list[Line]]:
    """Lines in batches of at most `most` lines and, beyond the first line, `most_bytes` bytes.

    A batch that is not full is sent when the input has been silent for `idle_s` seconds, so that lines from
    ``tail -f`` do not wait for the next 499. Reads ahead while a batch is being sent.
    """
    chunks = _ChunkReader(descriptor)
    batch: list[Line] = []
    size = 0
    ended = False
    while not ended:
        try:
            async with asyncio.timeout(idle_s if batch else None):
                chunk = await chunks.next()
        except TimeoutError:
            yield batch
            batch, size = [], 0
            continue
        ended = not chunk
        for line in splitter.end() if ended else splitter.feed(chunk):
            if batch and (len(batch) >= most or size + len(line.body) > most_bytes):
                yield batch
                batch, size = [], 0
            batch.append(line)
            size += len(line.body)
        if len(batch) >= most:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class _ChunkReader:
    """Reads `descriptor` in a thread, because event loops cannot wait for plain files."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        self._room = threading.Semaphore(CHUNKS_AHEAD)
        # A daemon, because a read of a terminal cannot be ended: Ctrl-C must not wait for the next line.
        threading.Thread(target=self._read, name="input", daemon=True).start()

    async def next(self) -> bytes:
        """The next bytes; none at the end. Raises: OSError."""
        chunk = await self._chunks.get()
        self._room.release()
        if isinstance(chunk, OSError):
            raise chunk
        return chunk

    def _read(self) -> None:
        chunk: bytes | OSError = b"?"
        while chunk and not isinstance(chunk, OSError):
            self._room.acquire()
            try:
                chunk = os.read(self._descriptor, CHUNK_BYTES)
            except OSError as error:
                chunk = error
            try:
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
            except RuntimeError:  # the loop is closed: the rest is not wanted
                return
