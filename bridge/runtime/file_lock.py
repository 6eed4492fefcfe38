"""A lock that one process has at a time, as long as it lives: flock(2) on a file that names its owner."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path


class LockHeld(BlockingIOError):
    """Another process has the lock."""

    def __init__(self, path: Path, owner: str) -> None:
        super().__init__(f"{path} is locked by another process (pid {owner})")
        #: The owner's pid; ``unknown`` where the file does not say.
        self.owner = owner


class FileLock:
    """A lock that the kernel releases when the process ends, however it ends; the file stays and locks
    nothing.

    The descriptor is closed on exec, so that no child keeps the lock of a parent that was killed.
    """

    def __init__(self, path: Path) -> None:
        """Touches nothing. The directory of `path` must be there when the lock is taken."""
        self._path = path
        self._descriptor: int | None = None

    def take(self) -> None:
        """Take it, and write this process's pid into the file, for other processes that find it held.

        Raises:
            LockHeld: another process has it.
            OSError: the file cannot be made or locked.
        """
        self.release()
        while self._descriptor is None:
            descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                self._lock(descriptor)
                if self._is_there(descriptor):  # otherwise it was removed meanwhile, and locks nothing
                    self._descriptor = descriptor
            finally:
                if self._descriptor is None:
                    os.close(descriptor)
        with contextlib.suppress(OSError):  # on a full disk the lock holds without naming its owner
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, str(os.getpid()).encode(), 0)

    def is_held(self) -> bool:
        """Whether it is held, and by the file that other processes would lock: not one that has been
        removed.
        """
        return self._descriptor is not None and self._is_there(self._descriptor)

    def release(self) -> None:
        """Release the lock, so that another process can take it."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            raise LockHeld(self._path, owner or "unknown") from error

    def _is_there(self, descriptor: int) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(descriptor), self._path.stat())
        return False
