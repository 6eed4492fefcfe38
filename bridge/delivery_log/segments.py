"""The files of the delivery log: appended, synced, completed by rename, deleted by age and size."""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

from bridge.clock import Clock, SystemClock
from bridge.crash_points import crash_point
from bridge.delivery_log import lines as line_format

#: Ending of a file that is complete, and of the one that is being written.
CLOSED: Final = ".jsonl"
OPEN: Final = ".jsonl.open"
#: For the four limits of a writer: none.
UNLIMITED: Final = -1


@dataclass(frozen=True, slots=True)
class _Closed:
    """A complete file."""

    path: Path
    bytes: int
    #: Of the last write, ms since the epoch.
    written_ms: int


class SegmentWriter:
    """Appends lines to files ``<node>-<yyyymmddThhmmss UTC>-<6 digits>.jsonl``, one open at a time.

    All calls block on the disk: make them from threads that may wait. They take turns, because a caller
    that is cancelled does not stop the thread it waits for. Numbers ascend and are never used again, so
    the newest complete file is kept whatever its age.
    """

    def __init__(
        self,
        directory: Path,
        node: str,
        *,
        roll_interval_ms: int,
        roll_size: int,
        retention_time_ms: int,
        retention_size: int,
        clock: Clock | None = None,
    ) -> None:
        """Touches nothing yet. Sizes in bytes; `UNLIMITED` turns a limit off.

        Args:
            directory: made if it is missing; may be shared with nodes of other names.
            node: this node's name; what a file name cannot hold is percent-encoded.
            roll_interval_ms: an open file is completed when it is this old.
            roll_size: a file is completed before a write that would make it larger than this.
            retention_time_ms: complete files are deleted this long after their last write.
            retention_size: the oldest complete files are deleted while all together are larger.
            clock: the machine's, unless a test has its own.
        """
        self._directory = directory
        self._node = quote(node, safe="")
        self._roll_interval_ms = roll_interval_ms
        self._roll_size = roll_size
        self._retention_time_ms = retention_time_ms
        self._retention_size = retention_size
        self._clock = clock or SystemClock()
        self._turn = threading.Lock()
        self._number = 0
        self._closed: deque[_Closed] = deque()
        self._segment: _Segment | None = None

    @property
    def directory(self) -> Path:
        """Where the files are."""
        return self._directory

    @property
    def label(self) -> str:
        """What their names begin with."""
        return self._node

    @property
    def durable(self) -> tuple[int, int] | None:
        """Number of the open file, and where its last durable line ends; None: no file is open."""
        segment = self._segment
        return None if segment is None else (segment.number, segment.end)

    def open(self) -> None:
        """Take over what is there: complete a file that a crash left open, and apply retention.

        Raises:
            OSError: the directory cannot be made, read or written.
        """
        with self._turn:
            self._take_over()

    def write(self, lines: Sequence[bytes]) -> None:
        """Append `lines` (without newlines); on return they are on disk.

        Raises:
            OSError: none of the lines counts as written. What reached the file of them is cut off before
                anything else is written, so the same call can simply be made again.
        """
        if not lines:
            return
        data = b"\n".join((*lines, b""))
        with self._turn:
            crash_point("delivery-log.before-write")
            if self._segment is not None and self._is_full(self._segment, len(data)):
                self._roll()
            if self._segment is None:
                self._segment = self._begin()
            self._segment.append(data)

    def tick(self) -> None:
        """Complete the open file if its time has come, and apply retention; call every second or so.

        Raises:
            OSError: try again later; nothing is lost.
        """
        with self._turn:
            if self._segment is not None and self._is_old(self._segment):
                self._roll()
            self._retire()

    def close(self) -> None:
        """Complete the open file, so that a clean stop leaves none. `write` may be called again.

        Raises:
            OSError: the file stays open as after a crash; the next `open` completes it.
        """
        with self._turn:
            if self._segment is not None:
                self._roll()

    def _take_over(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        pattern = re.compile(re.escape(self._node) + r"-\d{8}T\d{6}-(\d{6,})\.jsonl(\.open)?")
        found = sorted(
            (int(match[1]), path)
            for path in self._directory.iterdir()
            if (match := pattern.fullmatch(path.name)) is not None
        )
        self._closed.clear()
        for number, path in found:
            self._number = max(self._number, number)
            is_open = path.name.endswith(OPEN)
            self._remember(_complete(path, _cut_torn_end(path)) if is_open else path)
        _sync_directory(self._directory)
        self._retire()

    def _is_full(self, segment: _Segment, more: int) -> bool:
        too_large = self._roll_size != UNLIMITED and 0 < segment.end > self._roll_size - more
        return too_large or self._is_old(segment)

    def _is_old(self, segment: _Segment) -> bool:
        age_ms = self._clock.monotonic_ms() - segment.opened_ms
        return self._roll_interval_ms != UNLIMITED and age_ms >= self._roll_interval_ms

    def _begin(self) -> _Segment:
        self._directory.mkdir(parents=True, exist_ok=True)
        moment = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
        path = self._directory / f"{self._node}-{moment:%Y%m%dT%H%M%S}-{self._number + 1:06}{OPEN}"
        segment = _Segment(path, self._number + 1, self._clock.monotonic_ms())
        self._number += 1
        try:
            _sync_directory(self._directory)
        except OSError:
            segment.release()
            path.unlink(missing_ok=True)
            raise
        return segment

    def _roll(self) -> None:
        segment = self._segment
        assert segment is not None
        segment.cut()
        try:
            complete = _complete(segment.path, segment.end)
        except FileNotFoundError:
            # Somebody took it away: said once, by raising; the next write begins a new file.
            self._segment = None
            segment.release()
            raise
        self._segment = None
        segment.release()
        self._remember(complete)
        _sync_directory(self._directory)

    def _remember(self, complete: Path | None) -> None:
        if complete is None:
            return
        state = complete.stat()
        self._closed.append(_Closed(complete, state.st_size, state.st_mtime_ns // 1_000_000))

    def _retire(self) -> None:
        """Delete complete files from the oldest on, as far as the limits ask; never the newest."""
        total = sum(closed.bytes for closed in self._closed)
        oldest_ms = self._clock.wall_ms() - self._retention_time_ms
        while len(self._closed) > 1:
            first = self._closed[0]
            too_old = self._retention_time_ms != UNLIMITED and first.written_ms < oldest_ms
            too_much = self._retention_size != UNLIMITED and total > self._retention_size
            if not (too_old or too_much):
                return
            first.path.unlink(missing_ok=True)
            self._closed.popleft()
            total -= first.bytes


class _Segment:
    """The open file. `end` is where its last durable line ends; nothing behind it counts."""

    def __init__(self, path: Path, number: int, opened_ms: int) -> None:
        self.path = path
        self.number = number
        self.opened_ms = opened_ms
        self.end = 0
        #: Whether bytes of a write that failed may lie behind `end`.
        self._torn = False
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)

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
        """Take away what a failed write left behind `end`."""
        if self._torn:
            os.ftruncate(self._file, self.end)
            os.fsync(self._file)
            self._torn = False

    def release(self) -> None:
        """Close the file descriptor."""
        os.close(self._file)

    def _write(self, data: bytes) -> None:
        rest, place = memoryview(data), self.end
        while rest:  # a full disk takes a part before it says no
            written = os.pwrite(self._file, rest, place)
            rest, place = rest[written:], place + written


def _complete(path: Path, size: int) -> Path | None:
    """Give an open file its final name; None and no file where it holds nothing."""
    if size == 0:
        path.unlink()
        return None
    complete = path.with_name(path.name.removesuffix(OPEN) + CLOSED)
    crash_point("delivery-log.before-rename")
    path.rename(complete)
    crash_point("delivery-log.after-rename")
    return complete


def _cut_torn_end(path: Path) -> int:
    """Cut a file that a crash left behind its last good line; returns its size then.

    Only the last write can be torn, and its lines are still in the outbox, in the journal topic, or behind a
    group's commit. After a loss of power its pages may have reached the disk in any order: everything from
    the first bad line on goes. A line is good that is a whole JSON object and begins as ours do.
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


def _sync_directory(directory: Path) -> None:
    """Make names in a directory durable: a file's own fsync does not."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
