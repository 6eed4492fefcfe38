"""A copy of a journal that is open, as a snapshot of its disk would be."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from bridge.journal.sqlite.database import FILE_NAME


def copy_journal(directory: Path, copy: Path) -> None:
    """Copy the journal in `directory`, whoever has it open, into the new directory `copy`."""
    copy.mkdir()
    with (
        contextlib.closing(sqlite3.connect(directory / FILE_NAME)) as source,
        contextlib.closing(sqlite3.connect(copy / FILE_NAME)) as target,
    ):
        source.backup(target)
