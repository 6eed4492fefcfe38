"""Opens the journal's SQLite file: lock, pragmas, schema; says what its errors mean."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from enum import Enum
from importlib.resources import files
from pathlib import Path
from typing import Final

from bridge.errors import JournalFailed
from bridge.journal.values.stored_block import PAGE_BYTES
from bridge.runtime.file_lock import FileLock, LockHeld
from bridge.runtime.private_files import make_directory, opener

#: Increased by one with every change of schema.sql; `_MIGRATIONS` leads from each version to the next.
SCHEMA_VERSION: Final = 8
_MIGRATIONS: Final[dict[int, str]] = {
    1: "ALTER TABLE positions ADD COLUMN moved_to TEXT NOT NULL DEFAULT ''",
    2: "ALTER TABLE blocks ADD COLUMN hops BLOB",
    3: "ALTER TABLE blocks ADD COLUMN buried INTEGER NOT NULL DEFAULT 1;"
    "ALTER TABLE positions ADD COLUMN principal TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE positions ADD COLUMN node TEXT NOT NULL DEFAULT ''",
    4: "ALTER TABLE addresses ADD COLUMN auto_created INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE blocks ADD COLUMN routes BLOB;"
    "CREATE INDEX blocks_with_routes ON blocks (address_id, first) WHERE routes IS NOT NULL;"
    "ALTER TABLE queues ADD COLUMN filter TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE queues ADD COLUMN messages INTEGER;"
    "ALTER TABLE queues ADD COLUMN auto_created INTEGER NOT NULL DEFAULT 0",
    5: "ALTER TABLE blocks ADD COLUMN body_id INTEGER;"
    "CREATE INDEX blocks_by_body ON blocks (body_id) WHERE body_id IS NOT NULL;"
    "CREATE TABLE bodies (body_id INTEGER PRIMARY KEY, body BLOB NOT NULL)",
    6: "ALTER TABLE blocks ADD COLUMN large_id INTEGER;"
    "CREATE INDEX blocks_by_large ON blocks (large_id) WHERE large_id IS NOT NULL;"
    "CREATE TABLE chunks (chunk_id INTEGER PRIMARY KEY, bytes BLOB NOT NULL);"
    "CREATE TABLE loose_bodies (large_id INTEGER PRIMARY KEY)",
    7: "ALTER TABLE settled ADD COLUMN stays TEXT NOT NULL DEFAULT ''",
}

#: Memory a connection may use for pages.
PAGE_CACHE_KIB: Final = 4096

FILE_NAME: Final = "journal.sqlite"
LOCK_NAME: Final = "journal.lock"


class Trouble(Enum):
    """The consequence of an SQLite error for the work that it interrupted."""

    #: No room: nothing was stored; the work goes on when there is room.
    FULL = "full"
    #: Damaged file, lost device, missing permission: the operator has to act.
    BROKEN = "broken"


#: The disk has no room. SQLite says "write error" where a quota or a limit on file sizes is in the way. Both
#: leave a log without a valid last frame, so that the transaction is not there, whenever they come.
_NO_ROOM: Final = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE}
#: So do these, but after the last frame has been written: at COMMIT they leave it open.
_NO_ROOM_BEFORE_COMMIT: Final = {
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_SHMMAP,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_TRUNCATE,
}


def classify(error: BaseException | None, *, at_commit: bool = False) -> Trouble:
    """Whether nothing was stored and `error` passes by itself once there is room."""
    code = getattr(error, "sqlite_errorcode", None)
    no_room = _NO_ROOM if at_commit else _NO_ROOM | _NO_ROOM_BEFORE_COMMIT
    return Trouble.FULL if code in no_room else Trouble.BROKEN


class CannotGrow(JournalFailed):
    """The journal cannot be opened: its disk has no room for the writes of an opening."""


class DirectoryLock:
    """Keeps a second process out of a data directory for as long as this one lives."""

    def __init__(self, directory: Path) -> None:
        """Raises: JournalFailed if another process holds it, or the directory cannot be written."""
        self._lock = FileLock(directory / LOCK_NAME)
        try:
            make_directory(directory)
            self._lock.take()
        except LockHeld as held:
            raise JournalFailed(
                f"the data directory {directory} is in use by another process (pid {held.owner})",
                key="node.data-directory",
                found=str(directory),
            ) from held
        except OSError as error:
            raise JournalFailed(
                f"cannot write in the data directory {directory}: {_why_not(directory, error)}",
                key="node.data-directory",
                found=str(directory),
            ) from error

    def release(self) -> None:
        """Let another process in."""
        self._lock.release()


def _why_not(directory: Path, error: OSError) -> str:
    """The reason why a directory can be neither made nor written."""
    if directory.is_symlink() and not directory.exists():
        return f"it is a link to {directory.readlink()}, which is not there; mount its volume, or make it"
    if directory.exists() and not directory.is_dir():
        return "it is a file; move it away, or name another directory"
    return error.strerror or str(error)


def connect_writer(path: Path, *, create: bool) -> sqlite3.Connection:
    """The one connection that writes; with `create` makes the file and its tables where there are none.

    Raises:
        JournalFailed: the file is damaged, no journal, of a later version, or cannot be written.
    """
    if path.exists() and not os.access(path, os.W_OK):
        # Checked before SQLite makes files beside it, which have the same rights and outlive the mistake.
        raise _failure(path, _NO_RIGHT)
    if create:
        with contextlib.suppress(OSError):  # SQLite reports the cause
            os.close(opener(str(path), os.O_RDWR | os.O_CREAT))  # the files beside it take its mode
    try:
        connection = _connect(path, "rwc" if create else "rw")
        try:
            is_new = _check_is_journal(connection, path)
            if is_new:
                connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            _set_up(connection, path)
            if is_new:
                _make_tables(connection)
            _migrate(connection, path)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise open_failure(path, error) from error
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    """A connection that cannot write; used by one thread at a time."""
    connection = _connect(path, "rw")  # a reader of a write-ahead log writes its marks beside it
    connection.execute("PRAGMA query_only = ON")
    connection.execute(f"PRAGMA cache_size = -{PAGE_CACHE_KIB}")
    return connection


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    address = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)


def _set_up(connection: sqlite3.Connection, path: Path) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise JournalFailed(
            f"the journal {path} must be on a local disk, where SQLite can keep a write-ahead log",
            key="node.data-directory",
            limit="wal",
            found=mode,
        )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA cache_size = -{PAGE_CACHE_KIB}")
    # On by default in Debian's build: it writes zeros over every page of a trimmed block, 50 times the work.
    connection.execute("PRAGMA secure_delete = OFF")


_NO_RIGHT: Final = "cannot be written; give this user the right to write the file and its directory"


def open_failure(path: Path, error: sqlite3.Error) -> JournalFailed:
    """The error for the operator when `path` cannot be opened."""
    code = getattr(error, "sqlite_errorcode", None)
    primary = code & 0xFF if code is not None else None
    if primary in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return damage(path, error)
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return _failure(path, f"{_NO_RIGHT} ({error})")
    if classify(error) is Trouble.FULL:
        what = f"the journal {path} cannot grow; make room on its disk ({error})"
        return CannotGrow(what, key="node.data-directory", found=str(path))
    return _failure(path, f"cannot be opened ({error})")


def damage(path: Path, error: Exception) -> JournalFailed:
    """The error for the operator when `path` holds data that no journal has."""
    advice = "restore it from a backup, or move it and the files beside it away to start empty"
    return _failure(path, f"is damaged ({error}); it was left as it is: {advice}")


def _failure(path: Path, what: str) -> JournalFailed:
    return JournalFailed(f"the journal {path} {what}", key="node.data-directory", found=str(path))


def _check_is_journal(connection: sqlite3.Connection, path: Path) -> bool:
    """Check that the file is a journal; True where it has no tables yet.

    Raises:
        JournalFailed: it is another program's file, which is not touched.
    """
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if tables and not {"meta", "sequence", "blocks"} <= tables:
        raise _failure(path, "is not a journal, but another program's; it was left as it is: move it away")
    return not tables


def _make_tables(connection: sqlite3.Connection) -> None:
    schema = files("bridge.journal.sqlite").joinpath("schema.sql").read_text(encoding="utf-8")
    connection.executescript(
        f"BEGIN IMMEDIATE; {schema}\n"
        f"INSERT INTO meta VALUES ('schema', '{SCHEMA_VERSION}');"
        "INSERT INTO sequence VALUES (1, 0); COMMIT;"
    )


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    row = connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    version = int(row[0]) if row is not None else 0
    if version > SCHEMA_VERSION:
        raise JournalFailed(
            f"the journal {path} was written by a later version: schema {version};"
            f" this one knows {SCHEMA_VERSION}",
            key="node.data-directory",
            limit=SCHEMA_VERSION,
            found=version,
        )
    for step in range(version, SCHEMA_VERSION):
        connection.executescript(
            f"BEGIN IMMEDIATE; {_MIGRATIONS[step]};"
            f" UPDATE meta SET value = '{step + 1}' WHERE key = 'schema'; COMMIT;"
        )
