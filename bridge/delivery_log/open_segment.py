"""The open file of the delivery log, and the repair of one that a crash left."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from bridge.delivery_log import lines as line_format
from bridge.runtime.fault_injection import crash_point
from bridge.runtime.private_files import mode_in

#: Bytes that are read at a time in search of the last newline.
_PART: Final = 64 * 1024


class OpenSegment:
    """The open file. `end` is the end of its last durable line; bytes behind it do not count.

    It is written at its end, wherever that is: another program may cut it (``copytruncate`` of logrotate).
    """

    def __init__(self, path: Path, number: int, opened_ms: int) -> None:
        self.path = path
        self.number = number
        self.opened_ms = opened_ms
        self.end = 0
        #: Bytes that another program has cut off since `take_cut_off` was called last.
        self._cut_off = 0
        #: Whether another program has ever cut it: lines of this number are elsewhere.
        self.was_cut = False
        #: Whether bytes of a write that failed may lie behind `end`.
        self._torn = False
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.open(path, flags, mode_in(path.parent))

    def append(self, data: bytes) -> None:
        """Write and sync; on an error the file is cut back at once, or else before the next write."""
        self.cut()
        self._torn = True
        try:
            self._write(data)
            crash_point("delivery-log.before-fsync")
            os.fsync(self._file)
        except OSError:
            with suppress(OSError):
                self.cut()
            raise
        crash_point("delivery-log.after-fsync")
        self.end += len(data)
        self._torn = False

    def cut(self) -> None:
        """Cut off the bytes that a failed write left behind `end`; where another program has cut the file,
        `end` moves back.
        """
        size = os.fstat(self._file).st_size
        if size < self.end:
            self._cut_off += self.end - size
            self.was_cut = True
            self.end = self._whole_lines(size)
        if size > self.end and (self._torn or self.was_cut):
            os.ftruncate(self._file, self.end)
            os.fsync(self._file)
        self._torn = False

    def take_cut_off(self) -> int:
        """The bytes that another program has cut off since the last call."""
        found, self._cut_off = self._cut_off, 0
        return found

    def is_there(self) -> bool:
        """Whether its name still leads to it: not after it was deleted or moved away."""
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._file), self.path.stat())
        return False

    def release(self) -> None:
        """Close the file descriptor."""
        os.close(self._file)

    def _whole_lines(self, size: int) -> int:
        """The end of the last line that ends within the file's first `size` bytes."""
        while size > 0:
            start = max(size - _PART, 0)
            found = os.pread(self._file, size - start, start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            size = start
        return 0

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:  # a full disk takes a part before it refuses
            rest = rest[os.write(self._file, rest) :]


def cut_torn_end(path: Path) -> int:
    """Cut off everything behind the last good line of a file that a crash left; returns its size then.

    Only the last write can be torn, and its lines are still in the outbox, in the journal topic, or behind a
    group's commit. After a loss of power its pages may have reached the disk in any order: everything from
    the first bad line on is cut off. A line is good that is a whole JSON object and begins as this node's
    lines do.
    """
    end = 0
    with path.open("r+b") as file:
        for text in file:
            if not line_format.is_whole(text):
                break
            end += len(text)
        file.truncate(end)
        os.fsync(file.fileno())
    return end
