"""Follows a node's own delivery log from file to file, and remembers how far it has been copied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from bridge.delivery_log.segments import LogFile, SegmentWriter
from bridge.runtime.private_files import opener

#: Bytes read at once; one line may be longer.
READ_BYTES: Final = 256 * 1024


class LogPosition(msgspec.Struct, frozen=True):
    """A position in the log: everything before it has been copied."""

    #: The number in the file's name; 0: nothing was copied yet.
    number: int = 0
    #: The offset in the file, in bytes.
    offset: int = 0
    #: The file's name without its ending, where a part of it was copied: the number leads to another file
    #: where the log was cleared together with the file that remembers its numbers.
    name: str = ""


class Tail:
    """The lines of one node, in order. All calls block on the disk: make them from threads that may wait.

    Lines that wait are in the files: memory holds one reading of them. A line is read once it is durable.
    Files that were deleted before they were read are passed over, and reported.
    """

    def __init__(self, segments: SegmentWriter, passed_over: Callable[[str], None]) -> None:
        """`passed_over` is called, in the thread that reads, with the files that are gone and were not
        copied.
        """
        self._segments = segments
        self._passed_over = passed_over
        self._memory = segments.directory / f".{segments.label}.copied"
        self._is_loaded = False
        self._copied = LogPosition()
        self._read = LogPosition()

    def read(self) -> list[bytes]:
        """The next lines, without newlines; the same again until `advance`. Empty: there are none now.

        Raises:
            OSError: try again later.
        """
        if not self._is_loaded:
            self._copied, self._is_loaded = self._remembered(), True
        while (file := self._next()) is not None:
            try:
                lines = _lines(file.path, self._copied.offset, file.end)
            except FileNotFoundError:
                if self._segments.following(file.number) == file:  # otherwise it was completed meanwhile
                    self._skip_to(file.number + 1)
                continue
            if lines:
                end = self._copied.offset + sum(map(len, lines)) + len(lines)
                self._read = LogPosition(file.number, end, file.name)
                return lines
            if file.is_open:
                break
            # Kept, because once the file is deleted it cannot be known that all of it was copied.
            self._keep(LogPosition(file.number + 1))
        return []

    def advance(self) -> None:
        """Record that the lines read last have been copied. Raises: OSError: they will be read again after a
        restart.
        """
        self._keep(self._read)

    def _next(self) -> LogFile | None:
        """The file in which the next lines are, if there are any; the position is in it then."""
        position = self._copied
        file = self._segments.following(position.number)
        if self._is_of_another_log(position, file):
            self._passed_over(
                f"file {position.number}, up to which lines were copied, is of a log that was cleared: what"
                " was not copied of that log is gone, and the one that is there is copied from its beginning"
            )
            self._copied = LogPosition()
            file = self._segments.following(0)
        if file is not None and file.number > self._copied.number:
            self._skip_to(file.number)
        return file

    def _is_of_another_log(self, position: LogPosition, file: LogFile | None) -> bool:
        newest = self._segments.newest
        if position.number > newest + 1 or (position.number > newest and position.offset):
            return True
        if file is None or file.number != position.number or not position.offset:
            return False
        return position.offset > file.end or position.name not in ("", file.name)

    def _skip_to(self, number: int) -> None:
        """Go on with this file, and report the files that are gone since the position; before the first there
        are none.
        """
        position, self._copied = self._copied, LogPosition(number)
        rest = f"; of file {position.number} all before byte {position.offset} was" if position.offset else ""
        if 0 < position.number == number - 1:
            self._passed_over(f"file {position.number} was deleted before it was copied{rest}")
        elif position.number:
            files = f"{position.number} to {number - 1}"
            self._passed_over(f"files {files} were deleted before they were copied{rest}")

    def _keep(self, position: LogPosition) -> None:
        self._copied = position
        partial = self._memory.with_suffix(".new")
        with open(partial, "wb", opener=opener) as file:
            file.write(msgspec.json.encode(position))
        partial.rename(self._memory)

    def _remembered(self) -> LogPosition:
        try:
            return msgspec.json.decode(self._memory.read_bytes(), type=LogPosition)
        except (FileNotFoundError, msgspec.DecodeError):
            return LogPosition()  # from the first file on: lines may be copied twice


def _lines(path: Path, start: int, end: int) -> list[bytes]:
    """Whole lines of a file from `start` on, some `READ_BYTES` of them and one at least, up to `end`."""
    if start >= end:
        return []
    with path.open("rb") as file:
        file.seek(start)
        data = file.read(min(READ_BYTES, end - start))
        if not data.endswith(b"\n"):
            data += file.readline()
    return data[: end - start].splitlines()
