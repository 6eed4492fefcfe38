"""Disk space kept aside, so that messages can be read from a full disk until it has room.

Leases, acknowledgements, settlements and trimming need room in the write-ahead log, and the log needs room in
the file before it can begin anew. The journal's own messages never take that room (`writer.disk_full`). Where
other programs have taken everything else, the reserve is given up for it; messages are stored again once all
of it can be allocated again.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Final, NamedTuple, Self

from bridge.journal.values.options import (
    CHECKPOINT_BYTES,
    LOG_BYTES,
    RESERVE_BYTES,
    RESERVE_LEAST_BYTES,
    RESERVE_SHARE,
)

FILE_NAME: Final = "journal.reserve"
#: A file that is written and removed again, to learn why the journal's cannot be.
_PROBE_NAME: Final = "journal.probe"
_PROBE_BYTES: Final = 256 * 1024
#: There is no room: the disk is full, a quota is used up, a file may not be so large.
_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Shares(NamedTuple):
    """The parts of its disk that the journal keeps for itself, in bytes, by the size of the disk."""

    #: For the growth of the file when the log is copied.
    reserve: int
    #: For the write-ahead log.
    log: int
    #: Bytes of messages after which the log is copied.
    checkpoint: int

    @classmethod
    def of(cls, disk_bytes: int) -> Self:
        """The shares on a disk of this size."""
        reserve = min(RESERVE_BYTES, max(disk_bytes // RESERVE_SHARE, RESERVE_LEAST_BYTES))
        return cls(reserve, reserve * LOG_BYTES // RESERVE_BYTES, reserve * CHECKPOINT_BYTES // RESERVE_BYTES)


class Reserve:
    """A file of allocated, unused blocks beside the journal: there as a whole, or not at all."""

    def __init__(self, directory: Path) -> None:
        """Takes over the file that a killed process has left; allocates nothing."""
        self._path = directory / FILE_NAME
        self.shares = Shares.of(disk_bytes(directory))
        self.is_allocated = False
        with contextlib.suppress(OSError):
            self.is_allocated = self._path.stat().st_blocks * 512 >= self.shares.reserve

    def ensure(self) -> bool:
        """Whether the reserve is allocated now; it is allocated where there is room."""
        if not self.is_allocated and free_bytes(self._path.parent) >= self.shares.reserve:
            self.is_allocated = allocate(self._path, self.shares.reserve)
            if not self.is_allocated:
                self.release()
        return self.is_allocated

    def release(self) -> bool:
        """Give the reserve up; answers whether there was one."""
        was_allocated, self.is_allocated = self.is_allocated, False
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        return was_allocated


def allocate(path: Path, size: int) -> bool:
    """Make the file at `path` at least `size` bytes long, all of them allocated; False where there is no
    room.

    A file system that cannot allocate counts as having allocated: it can reserve no space.
    """
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)
    except OSError as error:
        return error.errno not in _NO_ROOM
    except AttributeError:  # a system without the call
        return True
    return True


def write_error(directory: Path, at: int) -> OSError | None:
    """The error of writing a file in `directory`, from the byte `at` on; None: it can be written.

    SQLite's codes do not tell a quota or a limit on file sizes from a broken disk.
    """
    path = directory / _PROBE_NAME
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(descriptor, bytes(_PROBE_BYTES), at)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
            path.unlink()
    except OSError as error:
        return error
    return None


def has_no_room(directory: Path, at: int) -> bool:
    """Whether `directory` takes no file of `at` bytes and a few more."""
    error = write_error(directory, at)
    return error is not None and error.errno in _NO_ROOM


def free_bytes(directory: Path) -> int:
    """Bytes that a file in `directory` could take."""
    state = os.statvfs(directory)
    return state.f_bavail * state.f_frsize


def disk_bytes(directory: Path) -> int:
    """The size of the disk that `directory` is on."""
    state = os.statvfs(directory)
    return state.f_blocks * state.f_frsize
