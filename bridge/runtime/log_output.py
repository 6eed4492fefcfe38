"""The output of log lines, written by a thread of its own: a reader that stands still holds no caller.

A log driver that hangs, a suspended ``| tee`` and a stuck journald leave a pipe full, and a write to it does
not return. Callers put their lines into a bounded buffer; a thread writes them. Lines beyond the buffer are
dropped and counted, and a line says how many once the reader goes on.
"""

from __future__ import annotations

import atexit
import codecs
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TextIO

#: Bytes of lines that wait for a slow reader, the piece that is being written included.
LOG_BUFFER_BYTES: Final = 1024 * 1024
#: Longest that the end of a process waits until the buffered lines are written.
LAST_LINES_WITHIN_S: Final = 1.0

#: Most bytes of one write: the buffer has room again after each.
_PIECE_BYTES: Final = 64 * 1024


#: The name of `_escaped` as Python's codecs take it.
_ESCAPES: Final = "core-bridge-escapes"


def _escaped(error: UnicodeError) -> tuple[str, int]:
    r"""What the stream's encoding lacks, as JSON escapes it: ``\u00e9``, so that a JSON line stays one."""
    assert isinstance(error, UnicodeEncodeError)
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4)), error.end


codecs.register_error(_ESCAPES, _escaped)


class LogOutput(Protocol):
    """Takes lines, and never holds or fails its caller."""

    def write(self, line: str) -> None:
        """Write one line, without its newline."""
        ...


def output_of(stream: TextIO | None, dropped_line: Callable[[int], str]) -> LogOutput:
    """The output to a stream; None: to stderr as it is now, by a thread.

    `dropped_line` makes the line that says how many lines were dropped.
    """
    try:
        descriptor = None if stream is not None else sys.stderr.fileno()
    except (OSError, ValueError):  # in memory, or closed
        descriptor = None
    if descriptor is None:
        return DirectOutput(sys.stderr if stream is None else stream)
    output = _OUTPUTS.get((os.getpid(), descriptor))
    if output is None:
        output = _OUTPUTS[os.getpid(), descriptor] = BufferedOutput(descriptor, sys.stderr.encoding)
        atexit.register(output.flush)
    output.dropped_line = dropped_line
    return output


def dropped_lines() -> int:
    """Lines that this process has dropped since it started."""
    return sum(output.dropped for output in _own())


def flush() -> None:
    """Wait until all buffered lines are written, `LAST_LINES_WITHIN_S` at most: before `os._exit`."""
    for output in _own():
        output.flush()


def _own() -> list[BufferedOutput]:
    return [output for (process, _), output in _OUTPUTS.items() if process == os.getpid()]


class DirectOutput:
    """Writes to a given stream. A stream that is closed or broken costs the line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def write(self, line: str) -> None:
        """Write one line."""
        with self._lock:
            try:
                self._stream.write(line + "\n")
                self._stream.flush()
            except (OSError, ValueError):  # ValueError: closed
                return


class BufferedOutput:
    """Writes to a file descriptor in a thread, from a buffer of `LOG_BUFFER_BYTES`."""

    def __init__(self, descriptor: int, encoding: str) -> None:
        self._descriptor = descriptor
        self._encoding = encoding
        #: Makes the line that says how many lines were dropped.
        self.dropped_line: Callable[[int], str] = "{} log lines dropped".format
        #: Lines that were dropped: the buffer was full, or the stream refused them.
        self.dropped = 0
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        #: Bytes in `_waiting` and of the piece that is being written.
        self._held_bytes = 0
        #: Lines that were dropped since a line last said so.
        self._unreported = 0
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        """Buffer one line, or drop it where the buffer is full."""
        data = self._encoded(line)
        with self._changed:
            if self._held_bytes + len(data) > LOG_BUFFER_BYTES:
                self._drop(1)
                return
            self._report_dropped()
            self._put(data)

    def flush(self) -> None:
        """Wait until the buffer is empty, `LAST_LINES_WITHIN_S` at most."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held_bytes, LAST_LINES_WITHIN_S)

    def _encoded(self, line: str) -> bytes:
        return (line + "\n").encode(self._encoding, _ESCAPES)

    def _put(self, data: bytes) -> None:
        self._waiting.append(data)
        self._held_bytes += len(data)
        self._changed.notify_all()

    def _drop(self, lines: int) -> None:
        self.dropped += lines
        self._unreported += lines

    def _report_dropped(self) -> None:
        """Let a line say how many were dropped; the buffer may grow by this one line."""
        if self._unreported:
            count, self._unreported = self._unreported, 0
            self._put(self._encoded(self.dropped_line(count)))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                lines = [self._waiting.popleft()]
                size = len(lines[0])
                while self._waiting and size + len(self._waiting[0]) <= _PIECE_BYTES:
                    size += len(self._waiting[0])
                    lines.append(self._waiting.popleft())
            written = self._write_whole(b"".join(lines))
            with self._changed:
                self._held_bytes -= size
                if not written:
                    self._drop(len(lines))
                elif not self._waiting:
                    self._report_dropped()
                self._changed.notify_all()

    def _write_whole(self, data: bytes) -> bool:
        """Write all of `data`; False: the stream is closed, broken or full."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # another process that shares the stream has made it non-blocking
                select.select((), (self._descriptor,), ())
            except OSError:
                return False
        return True


#: The outputs by process and file descriptor: a forked process has none of its parent's threads.
_OUTPUTS: Final[dict[tuple[int, int], BufferedOutput]] = {}
