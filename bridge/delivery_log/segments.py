"""The files of the delivery log: appended, synced, completed by rename, deleted by age and size."""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Final
from urllib.parse import quote

from bridge.delivery_log.ageing import AgeClock
from bridge.delivery_log.last_number import LastNumber, sync_directory
from bridge.delivery_log.open_segment import OpenSegment, cut_torn_end
from bridge.errors import DeliveryLogFailed
from bridge.runtime import logs
from bridge.runtime.clock import Clock, SystemClock
from bridge.runtime.fault_injection import crash_point
from bridge.runtime.file_lock import FileLock, LockHeld
from bridge.runtime.private_files import make_directory

#: Ending of a complete file, and of the one that is being written.
CLOSED: Final = ".jsonl"
OPEN: Final = ".jsonl.open"
#: The value of a limit that is turned off.
UNLIMITED: Final = -1
#: Most files that one `tick` deletes because they are old: a clock may be wrong.
AGED_PER_TICK: Final = 10


@dataclass(frozen=True, slots=True)
class SegmentLimits:
    """The limits by which files are completed and deleted; `UNLIMITED` turns a limit off."""

    #: An open file is completed when it is this old, ms.
    roll_interval_ms: int = UNLIMITED
    #: A file is completed before a write that would make it larger than this, bytes.
    roll_size: int = UNLIMITED
    #: Complete files are deleted this long after their last write, ms.
    retention_time_ms: int = UNLIMITED
    #: The oldest complete files are deleted while all together are larger than this, bytes.
    retention_size: int = UNLIMITED


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of the log, up to its last line that is on disk."""

    number: int
    path: Path
    #: The end of its last durable line, bytes.
    end: int
    #: Time of the last write, by the clock of then, ms since the epoch; 0: it is being written.
    written_ms: int = 0

    @property
    def is_open(self) -> bool:
        """Whether it is being written."""
        return self.path.name.endswith(OPEN)

    @property
    def name(self) -> str:
        """Its name without the ending, which changes when it is completed."""
        return self.path.name.removesuffix(OPEN).removesuffix(CLOSED)


class SegmentWriter:
    """Appends lines to files ``<node>-<yyyymmddThhmmss UTC>-<6 digits>.jsonl``, one open at a time.

    All calls block on the disk: make them from threads that may wait. They take turns, because a caller that
    is cancelled does not stop the thread it waits for. Numbers ascend by one and are never used again for
    other lines, whatever is deleted: readers rely on them for the order of the log.
    """

    def __init__(
        self,
        directory: Path,
        node: str,
        limits: SegmentLimits,
        *,
        last_number: Path,
        clock: Clock | None = None,
    ) -> None:
        """Touches nothing yet.

        Args:
            directory: made if it is missing; may be shared with nodes of other names.
            node: this node's name; characters that a file name cannot hold are percent-encoded.
            limits: when files are completed and deleted.
            last_number: the file that remembers the newest file's number; outside `directory`, so that it is
                still there when that has been cleared.
            clock: the machine's, unless a test passes its own.
        """
        self._directory = directory
        self._node = quote(node, safe="")
        self._limits = limits
        self._last_number = LastNumber(last_number)
        self._clock = clock or SystemClock()
        self._lock = FileLock(directory / f".{self._node}.lock")
        self._turn = threading.Lock()
        self._number = 0
        #: Complete files, by number.
        self._closed: list[LogFile] = []
        self._segment: OpenSegment | None = None
        self._ages = AgeClock(0, 0, None)
        self._log = logs.get()

    @property
    def directory(self) -> Path:
        """The directory of the files."""
        return self._directory

    @property
    def label(self) -> str:
        """The prefix of their names."""
        return self._node

    @property
    def newest(self) -> int:
        """Number of the newest file that was begun; 0: there was none."""
        return self._number

    def following(self, number: int) -> LogFile | None:
        """The first file with this number or a greater one; None: none that has a line.

        It may have been deleted by hand since it was written.
        """
        with self._turn:
            index = bisect_left(self._closed, number, key=attrgetter("number"))
            if index < len(self._closed):
                return self._closed[index]
            segment = self._segment
            if segment is None or segment.number < number or segment.end == 0:
                return None
            return LogFile(segment.number, segment.path, segment.end)

    def open(self) -> None:
        """Take over the existing files: complete one that a crash left open, and apply retention.

        Raises:
            DeliveryLogFailed: another process writes this node's log there, or the directory cannot be made,
                read or written.
        """
        try:
            with self._turn:
                self._own()
        except LockHeld as held:
            raise DeliveryLogFailed(
                f"the delivery log of the node {self._node} in {self._directory} is being written by another"
                f" process (pid {held.owner}): give one of the two another node.name, or another"
                " delivery-log.directory",
                key="delivery-log.directory",
                found=str(self._directory),
            ) from held
        except OSError as error:
            raise DeliveryLogFailed(
                f"the directory of the delivery log, {self._directory} (delivery-log.directory), cannot be"
                f" used: {error.strerror or error}",
                key="delivery-log.directory",
                found=str(self._directory),
            ) from error

    def write(self, lines: Sequence[bytes]) -> None:
        """Append `lines` (without newlines); on return they are on disk, in a file that is there.

        Raises:
            OSError: none of the lines counts as written. Bytes of them that reached the file are cut off
                before anything else is written, so the same call can simply be made again.
        """
        if not lines:
            return
        data = b"\n".join((*lines, b""))
        with self._turn:
            crash_point("delivery-log.before-write")
            if self._segment is not None and self._is_full(self._segment, len(data)):
                self._roll()
            if self._segment is not None:
                self._segment.append(data)
                self._log_cut(self._segment)
                if self._segment.is_there():
                    return
                self._drop()
            self._segment = self._begin()
            self._segment.append(data)

    def tick(self) -> None:
        """Complete the open file if its time has come, and apply retention; call every second or so.

        Raises:
            OSError: try again later; nothing is lost.
        """
        with self._turn:
            self._own()
            if self._segment is not None and self._is_old(self._segment):
                self._roll()
            self._retire()

    def close(self) -> None:
        """Complete the open file, so that a clean stop leaves none, and release the lock for another process.

        `write` may be called again.

        Raises:
            OSError: the file stays as after a crash, and the lock is released: the next `open`, here or in
                another process, completes it.
        """
        with self._turn:
            try:
                if self._segment is not None:
                    self._roll()
            finally:
                segment, self._segment = self._segment, None
                if segment is not None:
                    segment.release()
                self._lock.release()

    def _own(self) -> None:
        """Become the only process that writes these files: at first, and when the lock's file was removed.

        Raises:
            LockHeld, OSError
        """
        if self._lock.is_held():
            return
        if self._segment is not None:
            self._roll()
        make_directory(self._directory)
        self._lock.take()
        try:
            self._take_over()
        except BaseException:
            self._lock.release()  # the files are not known: read the directory again before any write
            raise

    def _take_over(self) -> None:
        pattern = re.compile(re.escape(self._node) + r"-\d{8}T\d{6}-(\d{6,})\.jsonl(\.open)?")
        found = sorted(
            (int(match[1]), path)
            for path in self._directory.iterdir()
            if (match := pattern.fullmatch(path.name)) is not None
        )
        self._number = max([self._last_number.read(), *(number for number, _ in found)])
        self._closed.clear()
        # From the newest on: a file without a line gives its number back, and so may the one before it.
        for number, path in reversed(found):
            if path.name.endswith(OPEN):
                self._complete(number, path, cut_torn_end(path))
            else:
                self._remember(number, path)
        self._closed.reverse()
        sync_directory(self._directory)
        with suppress(OSError):  # the next file that is begun needs it
            self._last_number.write(self._number)
        wall_ms = self._clock.wall_ms()
        known_ms = [file.written_ms for file in self._closed if file.written_ms <= wall_ms]
        self._ages = AgeClock(wall_ms, self._clock.monotonic_ms(), max(known_ms, default=None))
        self._retire()

    def _is_full(self, segment: OpenSegment, more: int) -> bool:
        roll_size = self._limits.roll_size
        too_large = roll_size != UNLIMITED and 0 < segment.end > roll_size - more
        return too_large or self._is_old(segment)

    def _is_old(self, segment: OpenSegment) -> bool:
        age_ms = self._clock.monotonic_ms() - segment.opened_ms
        return self._limits.roll_interval_ms != UNLIMITED and age_ms >= self._limits.roll_interval_ms

    def _begin(self) -> OpenSegment:
        self._own()
        moment = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
        number = self._number + 1
        path = self._directory / f"{self._node}-{moment:%Y%m%dT%H%M%S}-{number:06}{OPEN}"
        segment = OpenSegment(path, number, self._clock.monotonic_ms())
        try:
            sync_directory(self._directory)
            self._last_number.write(number)
        except OSError:
            segment.release()
            path.unlink(missing_ok=True)
            raise
        self._number = number
        return segment

    def _roll(self) -> None:
        segment = self._segment
        assert segment is not None
        segment.cut()
        self._log_cut(segment)
        if not segment.is_there():
            self._drop()
            return
        self._complete(segment.number, segment.path, segment.end, keep=segment.was_cut)
        self._segment = None
        segment.release()
        sync_directory(self._directory)

    def _drop(self) -> None:
        """Release an open file that was deleted or moved away by hand, with its lines, and log it."""
        segment = self._segment
        assert segment is not None
        self._segment = None
        segment.release()
        self._log.warning("delivery-log-removed", file=str(segment.path), bytes=segment.end)

    def _log_cut(self, segment: OpenSegment) -> None:
        """Log that another program has cut the open file, with the lines that were in that part."""
        cut_off = segment.take_cut_off()
        if cut_off:
            self._log.warning("delivery-log-cut", file=str(segment.path), bytes=cut_off)

    def _complete(self, number: int, path: Path, size: int, *, keep: bool = False) -> None:
        """Give an open file its final name. An empty one is deleted, and its number is used again, unless it
        is to be kept.
        """
        if size or keep:
            complete = path.with_name(path.name.removesuffix(OPEN) + CLOSED)
            crash_point("delivery-log.before-rename")
            path.rename(complete)
            crash_point("delivery-log.after-rename")
            self._remember(number, complete)
            return
        if number == self._number:
            with suppress(OSError):  # on a full disk the number is lost, and nothing else
                self._last_number.write(number - 1)
                self._number = number - 1
        path.unlink()

    def _remember(self, number: int, path: Path) -> None:
        state = path.stat()
        self._closed.append(LogFile(number, path, state.st_size, state.st_mtime_ns // 1_000_000))

    def _retire(self) -> None:
        """Delete complete files from the oldest on, as far as the limits ask; never the newest."""
        limits, wall_ms = self._limits, self._clock.wall_ms()
        oldest_ms = self._ages.now_ms(wall_ms, self._clock.monotonic_ms()) - limits.retention_time_ms
        total = sum(file.end for file in self._closed)
        aged = 0
        while len(self._closed) > 1:
            first = self._closed[0]
            if limits.retention_size == UNLIMITED or total <= limits.retention_size:
                too_old = limits.retention_time_ms != UNLIMITED and self._first_ms(wall_ms) < oldest_ms
                if not too_old or aged == AGED_PER_TICK:
                    return
                aged += 1
            first.path.unlink(missing_ok=True)
            del self._closed[0]
            total -= first.end

    def _first_ms(self, wall_ms: int) -> int:
        """The time at which the oldest file was written; where the clock was ahead then, that of the next
        one.
        """
        return next((file.written_ms for file in self._closed if file.written_ms <= wall_ms), wall_ms)
