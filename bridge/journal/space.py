"""The journal file's space: checkpoints of the write-ahead log, and shrinking in short steps."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path
from typing import Final

from bridge.clock import Clock
from bridge.crash_points import crash_point
from bridge.journal.database import Trouble, classify
from bridge.journal.options import CHECKPOINT_BYTES, SLACK_BYTES

#: How often the free list is looked at.
_LOOK_MS: Final = 5_000
#: Between two steps of shrinking: others' commits come in between.
_PAUSE_MS: Final = 20
#: What a step may take, in seconds: it grows and shrinks towards half of this.
_STEP_S: Final = 0.02
#: Pages that one step moves or cuts off.
_LEAST_PAGES: Final = 16
_MOST_PAGES: Final = 1024


class Space:
    """Owned by the writer's thread, which calls it between commits."""

    def __init__(self, connection: sqlite3.Connection, path: Path, clock: Clock, reserve_bytes: int) -> None:
        """`reserve_bytes`: what is kept aside on the disk so that the log can be copied; 0: nothing."""
        self._connection = connection
        self._checkpoint_bytes = min(CHECKPOINT_BYTES, reserve_bytes * 2 // 3 or CHECKPOINT_BYTES)
        #: The last checkpoint found no room, and why.
        self.stuck: sqlite3.Error | None = None
        self._path = path
        self._clock = clock
        self._unchecked_bytes = 0
        self._look_at_ms = clock.monotonic_ms() + _LOOK_MS
        self._wrote_since_look = True
        self._shrinking = False
        self._step_pages = 128
        self._page_bytes = int(connection.execute("PRAGMA page_size").fetchone()[0])

    @property
    def idle_seconds(self) -> float | None:
        """How long the writer may wait for units; None: as long as it takes."""
        if not self._shrinking and not self._wrote_since_look:
            return None
        return max(self._look_at_ms - self._clock.monotonic_ms(), 0) / 1000

    @property
    def free_bytes(self) -> int:
        """Room inside the file."""
        return int(self._connection.execute("PRAGMA freelist_count").fetchone()[0]) * self._page_bytes

    def wrote(self, size: int) -> None:
        """About how many bytes a commit added to the log."""
        self._unchecked_bytes += size
        self._wrote_since_look = True

    def keep_up(self) -> None:
        """Checkpoint when the log is long; shrink when the file is much larger than its data."""
        if self._unchecked_bytes >= self._checkpoint_bytes:
            self.checkpoint()
        if self._clock.monotonic_ms() < self._look_at_ms:
            return
        try:
            self._shrink()
        except (sqlite3.Error, OSError):
            self._shrinking = False  # no room or no luck: the file is whole, look again later
        pause = _PAUSE_MS if self._shrinking else _LOOK_MS
        self._look_at_ms = self._clock.monotonic_ms() + pause

    def checkpoint(self) -> bool:
        """Copy the log into the file as far as readers allow, waiting for nobody; whether it went.

        Once all of it has been copied, and no reader looks at it, the next commit begins it anew.
        """
        crash_point("journal.before-checkpoint")
        self._unchecked_bytes = 0
        try:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error as error:  # the log keeps what it has; tried again after as many bytes
            self.stuck = error if classify(error) is Trouble.FULL else None
            return False
        self.stuck = None
        crash_point("journal.after-checkpoint")
        return True

    def _shrink(self) -> None:
        """One step, where there is something to do.

        Beginning above the slack and ending at half of it keeps the file within an eighth of its live data
        or `SLACK_BYTES`, and keeps shrinking and growing from chasing each other.
        """
        (free,) = self._connection.execute("PRAGMA freelist_count").fetchone()
        (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
        slack = max(SLACK_BYTES // self._page_bytes, (pages - free) // 8)
        if free > (slack // 2 if self._shrinking else slack):
            self._shrinking = True
            self._step()
            return
        # What was cut off leaves the file with a checkpoint that no reader is in the way of.
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
        self._unchecked_bytes += self._step_pages * self._page_bytes
        if seconds > _STEP_S / 2:
            self._step_pages = max(self._step_pages // 2, _LEAST_PAGES)
        elif seconds < _STEP_S / 8:
            self._step_pages = min(self._step_pages * 2, _MOST_PAGES)

    def close(self) -> None:
        """Copy the whole log into the file, so that the next opening finds none."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._connection.close()
