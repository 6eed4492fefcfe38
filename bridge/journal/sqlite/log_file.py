"""The write-ahead log as a file: how many bytes of it are in use, and how many are allocated.

SQLite tells how long its log is at a checkpoint only, and not at all to Python. The file says so as well
(https://sqlite.org/walformat.html): the log begins anew in place, under new salts, and a frame is part of it
as long as it has the header's.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from bridge.journal.sqlite.reserve import allocate, free_bytes

_HEADER_BYTES: Final = 32
#: Offset of the salts in the header and in a frame's header, and their length together.
_SALTS: Final = 16
_FRAME_SALTS: Final = 8
_SALTS_BYTES: Final = 8
FRAME_HEADER_BYTES: Final = 24


class LogFile:
    """The log's file beside the journal's; SQLite makes it with the first commit. Owned by the writer's
    thread.

    Locks are kept on the journal's other files, so that this one can be opened and closed beside SQLite.
    """

    def __init__(self, journal: Path, page_bytes: int) -> None:
        """`journal` is the journal's file."""
        self._path = journal.with_name(f"{journal.name}-wal")
        self._frame_bytes = FRAME_HEADER_BYTES + page_bytes

    @property
    def size(self) -> int:
        """Bytes of the file; 0 where there is none."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def used(self) -> int:
        """Bytes of the log in use since it last began anew."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return self._used(descriptor)
            finally:
                os.close(descriptor)
        return 0

    def _used(self, descriptor: int) -> int:
        salts = os.pread(descriptor, _SALTS_BYTES, _SALTS)
        if not any(salts):
            return 0
        low, high = 0, max(os.fstat(descriptor).st_size - _HEADER_BYTES, 0) // self._frame_bytes
        while low < high:  # frames below `low` are the log's, those from `high` on are not
            middle = (low + high) // 2
            place = _HEADER_BYTES + middle * self._frame_bytes + _FRAME_SALTS
            if os.pread(descriptor, _SALTS_BYTES, place) == salts:
                low = middle + 1
            else:
                high = middle
        return _HEADER_BYTES + low * self._frame_bytes if low else 0

    def ensure(self, size: int) -> bool:
        """Whether `size` bytes are allocated, or can be: they are where there is room, once SQLite has filled
        the file by a commit, which must not wait for that.
        """
        found = self.size
        if not found:
            return free_bytes(self._path.parent) >= size
        return found >= size or allocate(self._path, size)
