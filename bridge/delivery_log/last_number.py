"""The number of a log's newest file, in a small file of its own that outlives the log's directory."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from bridge.runtime.private_files import opener


class LastNumber:
    """A number on disk, replaced as a whole: after a crash it is the old one or the new one."""

    def __init__(self, path: Path) -> None:
        """Touches nothing. The directory of `path` must be there."""
        self._path = path
        self._known: int | None = None

    def read(self) -> int:
        """The number; 0 where none was written, or the file holds no number. Raises: OSError."""
        self._known = 0
        with suppress(FileNotFoundError, ValueError):
            self._known = int(self._path.read_bytes())
        return self._known

    def write(self, number: int) -> None:
        """Replace the number; on return it is on disk. Raises: OSError: the old one or the new one is."""
        if number == self._known:
            return
        self._known = None
        partial = self._path.with_name(f"{self._path.name}.new")
        with open(partial, "wb", opener=opener) as file:
            file.write(b"%d\n" % number)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(self._path)
        sync_directory(self._path.parent)
        self._known = number


def sync_directory(directory: Path) -> None:
    """Make names in a directory durable: a file's own fsync does not."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
