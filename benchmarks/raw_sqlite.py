"""The raw limit: the same blocks appended to SQLite by one thread that does nothing else."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

#: As the journal sets them.
PRAGMAS = (
    "PRAGMA page_size = 16384",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA wal_autocheckpoint = 1000",
)


def appends_per_second(directory: Path, *, messages: int, block_messages: int, message_bytes: int) -> float:
    """Messages a second, a commit a block."""
    path = directory / "raw.sqlite"
    block = os.urandom(block_messages * message_bytes)
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for pragma in PRAGMAS:
            connection.execute(pragma)
        connection.execute("CREATE TABLE blocks (first INTEGER PRIMARY KEY, count INTEGER, body BLOB)")
        began = time.perf_counter()
        for first in range(0, messages, block_messages):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO blocks VALUES (?, ?, ?)", (first, block_messages, block))
            connection.execute("COMMIT")
        return messages / (time.perf_counter() - began)
    finally:
        connection.close()
        for leftover in directory.glob("raw.sqlite*"):
            leftover.unlink()
