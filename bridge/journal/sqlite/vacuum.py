"""The journal file's space: checkpoints of the write-ahead log, and shrinking in short steps."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from bridge.journal.sqlite.database import Trouble, classify
from bridge.journal.sqlite.log_file import LogFile
from bridge.journal.sqlite.reserve import Shares
from bridge.journal.values.options import RETRY_MS, SLACK_BYTES
from bridge.runtime.clock import Clock
from bridge.runtime.fault_injection import crash_point

#: How often the free list is read; where it is damaged, how often again.
_LOOK_MS: Final = 5_000
_LOOK_AT_DAMAGE_MS: Final = 600_000
#: Pause between two steps of shrinking: commits come in between.
_PAUSE_MS: Final = 20
#: Longest time of a step, in seconds: a step's pages grow and shrink towards half of this.
_STEP_S: Final = 0.02
#: Pages that one step moves or cuts off, at least.
_LEAST_PAGES: Final = 16


def _is_busy(error: Exception) -> bool:
    """Whether another process has the file locked, as a `sqlite3` shell may for a moment."""
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class Space:
    """Owned by the writer's thread, which calls it between commits."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        clock: Clock,
        shares: Shares,
        let_readers_end: Callable[[], bool],
        damaged: Callable[[str], None],
    ) -> None:
        """Args:
        shares: the parts of the disk kept for the log and for copying it.
        let_readers_end: waits, for a limited time, for the read transactions under way; answers whether they
            ended.
        damaged: called with a damaged place that was found.
        """
        self.damaged = damaged
        self._connection = connection
        self._shares = shares
        self._let_readers_end = let_readers_end
        #: The last checkpoint found no room, and why.
        self.stuck: sqlite3.Error | None = None
        #: The disk lacks room: the file gives back all pages that it does not need.
        self.pressed = False
        self._path = path
        self._clock = clock
        self._look_at_ms = clock.monotonic_ms() + _LOOK_MS
        self._wrote_since_look = True
        self._shrinking = False
        self._page_bytes = int(connection.execute("PRAGMA page_size").fetchone()[0])
        connection.execute(f"PRAGMA journal_size_limit = {shares.log}")  # truncated to it where it was longer
        self._log = LogFile(path, self._page_bytes)
        #: Bytes of the log in use, at most; and the bytes from which on it is copied.
        self._log_bytes = self._log.used()
        self._checkpoint_at = shares.log * 4 // 5
        #: Bytes of messages in the log that were not copied: the file grows by this at most when they are.
        self._message_bytes = max(self._pages("page_count") * self._page_bytes - path.stat().st_size, 0)
        #: A step of shrinking writes each page, the page before it and a map; a fifth of the log holds a
        #: step.
        self._most_pages = max(_LEAST_PAGES, shares.log // 5 // (3 * self._page_bytes))
        self._step_pages = min(128, self._most_pages)

    @property
    def idle_seconds(self) -> float | None:
        """Seconds for which the writer may wait for commands; None: without limit."""
        if not self._shrinking and not self._wrote_since_look:
            return None
        return max(self._look_at_ms - self._clock.monotonic_ms(), 0) / 1000

    def ensure_log(self) -> bool:
        """Whether the log's share of the disk is allocated; it is allocated where there is room."""
        return self._log.ensure(self._shares.log)

    def room(self, free: int) -> int:
        """The most bytes of messages that `free` bytes of the disk let be stored and copied; may be negative.

        They go into the log, which uses its allocated bytes before it grows, and into free pages of the file
        before that grows. The growth of the file for what is in the log now is deducted already.
        """
        log = self._log.size
        free -= max(self._shares.log - log, 0)
        in_log = max(max(log, self._shares.log) - self._log_bytes, 0)
        live_pages = self._pages("page_count") - self._pages("freelist_count")
        in_file = self._path.stat().st_size - live_pages * self._page_bytes
        least, most = sorted((in_log, in_file))
        return min(least + free, (least + most + free) // 2)

    def _pages(self, which: Literal["page_count", "freelist_count"]) -> int:
        return int(self._connection.execute(f"PRAGMA {which}").fetchone()[0])

    def wrote(self, log_bytes: int, message_bytes: int) -> None:
        """Add the bytes that a commit added to the log at most, and how many of them are messages."""
        self._log_bytes += log_bytes
        self._message_bytes += message_bytes
        self._wrote_since_look = True

    def keep_up(self) -> None:
        """Checkpoint when the log is long; shrink when the file is much larger than its data."""
        if self._message_bytes >= self._shares.checkpoint or self._is_log_long():
            self.checkpoint()
        if self._clock.monotonic_ms() < self._look_at_ms:
            return
        try:
            self._shrink()
        except (sqlite3.Error, OSError) as error:
            self._shrinking = False
            trouble = classify(error, self._path)
            if trouble is Trouble.DAMAGED:
                self.damaged(str(error))
                self._look_at_ms = self._clock.monotonic_ms() + _LOOK_AT_DAMAGE_MS
                return
            if trouble is not Trouble.FULL and not _is_busy(error):
                raise
        pause = _PAUSE_MS if self._shrinking else RETRY_MS if self.pressed else _LOOK_MS
        self._look_at_ms = self._clock.monotonic_ms() + pause

    def _is_log_long(self) -> bool:
        if self._log_bytes < self._checkpoint_at:
            return False
        self._log_bytes = self._log.used()  # the counted bytes are an upper bound
        return self._log_bytes >= self._checkpoint_at * 3 // 4

    def checkpoint(self) -> bool:
        """Copy the log into the file, as far as readers of other processes allow; answers whether there was
        room.

        Raises:
            sqlite3.Error: it failed for another reason than room.

        Once all of it has been copied, and no reader uses it, the next commit begins it anew. So the readers
        of this process are waited for, for as long as one read transaction takes; those of other processes
        never are.
        """
        crash_point("journal.before-checkpoint")
        try:
            copied = self._copy() or (self._let_readers_end() and self._copy())
        except sqlite3.Error as error:  # the log keeps what it has; tried again after as many bytes
            is_full = classify(error, self._path) is Trouble.FULL
            if not is_full and not _is_busy(error):
                raise
            self.stuck = error if is_full else None
            self._message_bytes = 0
            self._checkpoint_at = self._log_bytes + self._shares.log // 5
            return False
        self.stuck = None
        self._message_bytes = 0
        if copied and self._let_readers_end():
            self._log_bytes = 0
            self._checkpoint_at = self._shares.log * 4 // 5
        else:
            self._log_bytes = self._log.used()
            self._checkpoint_at = max(self._log_bytes, self._shares.log * 3 // 5) + self._shares.log // 5
        crash_point("journal.after-checkpoint")
        return True

    def _copy(self) -> bool:
        """Copy the log; answers whether all of it has been copied."""
        _, frames, copied = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return bool(copied >= frames)

    def _shrink(self) -> None:
        """Shrink the file by one step, where it is larger than its data by the slack.

        Beginning above the slack and ending at half of it keeps the file within an eighth of its live data or
        `SLACK_BYTES`, and keeps the file from shrinking and growing by turns.
        """
        free, pages = self._pages("freelist_count"), self._pages("page_count")
        slack = 0 if self.pressed else max(SLACK_BYTES // self._page_bytes, (pages - free) // 8)
        if free > (slack // 2 if self._shrinking else slack):
            self._shrinking = True
            self._step()
            return
        # The pages that were cut off leave the file with a checkpoint that no reader prevents.
        is_longer = self._path.stat().st_size > pages * self._page_bytes
        if is_longer:
            self.checkpoint()
        self._shrinking, self._wrote_since_look = False, is_longer

    def _step(self) -> None:
        crash_point("journal.before-trim")
        started = time.perf_counter()
        # It frees one page a step and returns no row, so that `execute` would stop after the first.
        self._connection.executescript(f"PRAGMA incremental_vacuum({self._step_pages})")
        seconds = time.perf_counter() - started
        self._log_bytes += 3 * self._step_pages * self._page_bytes
        if seconds > _STEP_S / 2:
            self._step_pages = max(self._step_pages // 2, _LEAST_PAGES)
        elif seconds < _STEP_S / 8:
            self._step_pages = min(self._step_pages * 2, self._most_pages)

    def close(self) -> None:
        """Copy the whole log into the file, so that the next opening finds none."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._connection.close()
