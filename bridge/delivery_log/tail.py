"""Follows a node's own delivery log from file to file, and remembers how far it has been copied."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from bridge.delivery_log.segments import SegmentWriter

#: Bytes read at once; one line may be longer.
READ_BYTES: Final = 256 * 1024


class Place(msgspec.Struct, frozen=True):
    """Everything before this has been copied."""

    #: The file's, in its name.
    number: int = 0
    #: In the file, in bytes.
    offset: int = 0


class Tail:
    """The lines of one node, in order. All calls block on the disk: make them from threads that may wait.

    What waits is in the files: memory holds one reading of them. A line is read once it is durable. A file
    that is deleted before it was read is passed over.
    """

    def __init__(self, segments: SegmentWriter) -> None:
        self._segments = segments
        self._memory = segments.directory / f".{segments.label}.copied"
        self._name = re.compile(re.escape(segments.label) + r"-\d{8}T\d{6}-(\d{6,})\.jsonl(\.open)?")
        self._copied: Place | None = None
        self._read = Place()

    def read(self) -> list[bytes]:
        """The next lines, without newlines; the same again until `advance`. Empty: there are none now.

        Raises:
            OSError: try again later.
        """
        if self._copied is None:
            self._copied = self._remembered()
        place = self._copied
        being_written = self._segments.durable
        files = self._files()
        for number in sorted(number for number in files if number >= place.number):
            if number > place.number:
                place = Place(number)
            path = files[number]
            if being_written is not None and number == being_written[0]:
                end = being_written[1]
            elif path.suffix == ".open":
                break  # begun since, or renamed by now: the next call knows
            else:
                end = path.stat().st_size
            lines = _lines(path, place.offset, end)
            if lines:
                self._read = Place(number, place.offset + sum(map(len, lines)) + len(lines))
                return lines
        return []

    def advance(self) -> None:
        """What was read last has been copied. Raises: OSError: it will be read again after a restart."""
        self._copied = self._read
        partial = self._memory.with_suffix(".new")
        partial.write_bytes(msgspec.json.encode(self._read))
        partial.rename(self._memory)

    def _remembered(self) -> Place:
        try:
            return msgspec.json.decode(self._memory.read_bytes(), type=Place)
        except (FileNotFoundError, msgspec.DecodeError):
            return Place()  # from the first file there is: lines may be copied twice

    def _files(self) -> dict[int, Path]:
        found = {}
        for path in self._segments.directory.iterdir():
            if (match := self._name.fullmatch(path.name)) is not None:
                found[int(match[1])] = path
        return found


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
