"""Values that extensions keep in the journal, by name: rows of `meta`."""

from __future__ import annotations

import sqlite3
from typing import Final

#: Begins the names of their rows.
NOTE: Final = "note:"


def read_note(connection: sqlite3.Connection, name: str) -> str | None:
    """The value of this name; None: there is none."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (NOTE + name,)).fetchone()
    return None if row is None else str(row[0])
