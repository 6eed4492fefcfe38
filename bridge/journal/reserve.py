"""Disk space kept aside, so that readers can still lease and acknowledge when the disk is full.

Leases, acknowledgements and trimming need room in the write-ahead log, and the log needs room in the
file before it can begin anew. On a full disk the reserve is given up for them. New messages go on once
it can be had again: that is how the journal knows that there is room.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from bridge.journal.options import RESERVE_BYTES

FILE_NAME: Final = "journal.reserve"
#: At most this share of what is free is kept aside, so that small disks are not all reserve.
_SHARE: Final = 16
#: Less than this is of no use.
_LEAST_BYTES: Final = 1024 * 1024


class Reserve:
    """A file of allocated, unused blocks beside the journal."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self._is_held = False
        #: What it is worth to have; 0 where the disk is too small, or its file system cannot allocate.
        self.size = 0
        self.release()
        with contextlib.suppress(OSError):
            self.size = min(RESERVE_BYTES, _free_bytes(directory) // _SHARE)
        if not self.hold():
            self.size = 0

    def hold(self) -> bool:
        """Take it, or as much of it as leaves the same again free; False where there is no room."""
        size = self.size
        while not self._is_held and size >= _LEAST_BYTES:
            self._is_held = self._allocate(size)
            size //= 2
        return self._is_held

    def release(self) -> None:
        """Give it up."""
        self._is_held = False
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _allocate(self, size: int) -> bool:
        try:
            if _free_bytes(self._path.parent) < 2 * size:
                return False
            descriptor = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, size)
            finally:
                os.close(descriptor)
        except (OSError, AttributeError):  # no room, or a system without the call
            self.release()
            return False
        return True


def _free_bytes(directory: Path) -> int:
    state = os.statvfs(directory)
    return state.f_bavail * state.f_frsize
