"""Files and directories that only the node's own user may read, whatever its umask: they hold messages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
_GROUP_MAY_READ: Final = 0o040


def make_directory(path: Path) -> None:
    """Make the directory where it is missing; an existing one keeps its mode. Raises: OSError."""
    path.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)


def opener(path: str, flags: int) -> int:
    """An opener for `open`: a file that it makes belongs to the user alone."""
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


def mode_in(directory: Path) -> int:
    """The mode of files that others collect: readable to the group where an operator lets it read the
    directory.
    """
    return FILE_MODE | (directory.stat().st_mode & _GROUP_MAY_READ)
