"""Whether the disk has room for messages: known by failing, and by getting the reserve back."""

from __future__ import annotations

from pathlib import Path

from bridge.clock import Clock
from bridge.errors import DiskFull
from bridge.journal.options import RESERVE_BYTES, RETRY_MS
from bridge.journal.reserve import Reserve
from bridge.journal.space import Space


class Room:
    """Owned by the writer's thread."""

    def __init__(self, path: Path, clock: Clock) -> None:
        """`path` is the journal's file."""
        self._path = path
        self._clock = clock
        self._reserve = Reserve(path.parent)
        self._look_at_ms = 0
        #: Why messages wait; None: they do not.
        self.full: DiskFull | None = None

    @property
    def reserve_bytes(self) -> int:
        """What is kept aside; 0 where the disk is too small for it."""
        return self._reserve.size

    @property
    def idle_seconds(self) -> float | None:
        """Until it is worth looking for room; None: there is some."""
        if self.full is None:
            return None
        return max(self._look_at_ms - self._clock.monotonic_ms(), 0) / 1000

    def ran_out(self, cause: Exception, space: Space) -> DiskFull:
        """There is none: the reserve is given up, so that what brings no messages can go on."""
        self.full = DiskFull(f"no room on the disk of the journal {self._path} ({cause})")
        self._look_at_ms = self._clock.monotonic_ms() + RETRY_MS
        self._reserve.release()
        space.checkpoint()
        return self.full

    def look(self, space: Space) -> None:
        """Let messages be tried again where the log goes into the file, and either has room to spare."""
        now_ms = self._clock.monotonic_ms()
        if self.full is None or now_ms < self._look_at_ms:
            return
        self._look_at_ms = now_ms + RETRY_MS
        if space.stuck is not None and not space.checkpoint():
            return
        if not self._reserve.size or self._reserve.hold() or space.free_bytes >= RESERVE_BYTES:
            self.full = None

    def close(self) -> None:
        """Leave no reserve behind."""
        self._reserve.release()
