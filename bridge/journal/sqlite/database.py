"""Opens the journal's SQLite file: lock, pragmas, schema; says what its errors mean."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from enum import Enum
from importlib.resources import files
from pathlib import Path
from typing import Final

from bridge.errors import JournalDamaged, JournalFailed
from bridge.journal.sqlite.damage import DamagedRow, is_damage
from bridge.journal.sqlite.reserve import free_bytes, has_no_room, write_error
from bridge.journal.values.row_checksums import row_checksum
from bridge.journal.values.stored_block import PAGE_BYTES
from bridge.runtime.file_lock import FileLock, LockHeld
from bridge.runtime.private_files import make_directory, opener

#: Increased by one with every change of schema.sql; `MIGRATIONS` leads from each version to the next.
SCHEMA_VERSION: Final = 8
#: By version, the SQL that leads to the next one. Versions before the first release are not read.
MIGRATIONS: Final[dict[int, str]] = {}

#: Memory a connection may use for pages.
PAGE_CACHE_KIB: Final = 4096

#: The version of the SQLite library.
SQLITE_VERSION: Final = sqlite3.sqlite_version
FILE_NAME: Final = "journal.sqlite"
LOCK_NAME: Final = "journal.lock"


class Trouble(Enum):
    """The consequence of an SQLite error for the work that it interrupted."""

    #: No room: nothing was stored; the work goes on when there is room.
    FULL = "full"
    #: A part of the file is damaged; work on other parts of it goes on.
    DAMAGED = "damaged"
    #: Lost device, I/O error, missing permission: the operator has to act.
    BROKEN = "broken"


#: SQLite has one code for an I/O error, a read-only file system, a quota and a limit on file sizes. It leaves
#: a log without a valid last frame, so that the transaction is not there, whenever it comes.
_PERHAPS_NO_ROOM: Final = {sqlite3.SQLITE_IOERR_WRITE}
#: So do these, but after the last frame has been written: at COMMIT they leave it open.
_PERHAPS_BEFORE_COMMIT: Final = {
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_SHMMAP,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_TRUNCATE,
}


def classify(error: BaseException | None, path: Path, *, at_commit: bool = False) -> Trouble:
    """The consequence of an error of the journal at `path`.

    Where SQLite's code does not tell whether there is room, a file is written beside the journal.
    """
    if is_damage(error):
        return Trouble.DAMAGED
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_FULL:
        return Trouble.FULL
    perhaps = _PERHAPS_NO_ROOM if at_commit else _PERHAPS_NO_ROOM | _PERHAPS_BEFORE_COMMIT
    no_room = code in perhaps and has_no_room(path.parent, _largest(path) + _GROWTH_BYTES)
    return Trouble.FULL if no_room else Trouble.BROKEN


def described_error(error: BaseException, path: Path) -> str:
    """The text of an error of the journal at `path`, with the error of the disk. Never empty, no path."""
    text = (str(error) or type(error).__name__).replace(f" {path}", "")
    code = getattr(error, "sqlite_errorcode", None)
    if code is None or (code & 0xFF) not in _OF_THE_DISK:
        return text
    cause = write_error(path.parent, _largest(path))
    if cause is None:
        free = free_bytes(path.parent)
        return f"{text} ({_name(code)}; {free} bytes are free, and another file can be written)"
    if cause.errno == errno.EROFS:
        return f"{text}: the file system is read-only"
    return f"{text}: {cause.strerror}"


#: SQLite's codes, without their extended parts, behind which is the operating system.
_OF_THE_DISK: Final = {
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
}
#: Bytes that a transaction, or a copy of the log, may add to a file: a limit on file sizes is nearer.
_GROWTH_BYTES: Final = 64 * 1024 * 1024


def _largest(path: Path) -> int:
    """Bytes of the journal's file, or of its log if that is longer."""
    sizes = [0]
    for one in (path, path.with_name(f"{path.name}-wal")):
        with contextlib.suppress(OSError):
            sizes.append(one.stat().st_size)
    return max(sizes)


def _name(code: int) -> str:
    """SQLite's name of an extended code, as `SQLITE_IOERR_WRITE`."""
    names = (name for name in dir(sqlite3) if name.startswith("SQLITE_") and getattr(sqlite3, name) == code)
    return next(names, f"SQLite code {code}")


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
    """A connection that cannot write; used by one thread at a time.

    It never copies the log: only the writer's does. SQLite before 3.51.3 may lose pages of a commit while
    another connection copies the log.
    """
    connection = _connect(path, "rw")  # a reader of a write-ahead log writes its marks beside it
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
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
    trouble = classify(error, path)
    if trouble is Trouble.DAMAGED:
        return damage(path, error)
    if trouble is Trouble.FULL:
        what = f"the journal {path} cannot grow; make room on its disk ({error})"
        return CannotGrow(what, key="node.data-directory", found=str(path))
    if is_read_only(path.parent):
        return _failure(path, f"cannot be written: the file system of {path.parent} is read-only ({error})")
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return _failure(path, f"{_NO_RIGHT} ({error})")
    return _failure(path, f"cannot be opened ({described_error(error, path)})")


def is_read_only(directory: Path) -> bool:
    """Whether the file system of `directory` takes no write."""
    with contextlib.suppress(OSError):
        return bool(os.statvfs(directory).f_flag & os.ST_RDONLY)
    return False


def damage(path: Path, error: Exception) -> JournalDamaged:
    """The error for the operator when `path` holds data that no journal has."""
    advice = (
        "copy it away with the files beside it; then restore it from a backup, or see what can be saved with "
        "core-bridge journal skip-damaged --dry-run"
    )
    detail = f"the journal {path} is damaged ({error}); it was left as it is: {advice}"
    return JournalDamaged(detail, key="node.data-directory", found=str(path))


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
        f"INSERT INTO sequence VALUES (1, 0, {row_checksum((0,))}); COMMIT;"
    )


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    row = connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    if row is None or not str(row[0]).isdecimal():
        raise damage(path, DamagedRow("meta", "schema", "it is missing"))
    version = int(row[0])
    if version > SCHEMA_VERSION:
        raise JournalFailed(
            f"the journal {path} was written by a later version: schema {version};"
            f" this one knows {SCHEMA_VERSION}",
            key="node.data-directory",
            limit=SCHEMA_VERSION,
            found=version,
        )
    missing = [step for step in range(version, SCHEMA_VERSION) if step not in MIGRATIONS]
    if missing:
        raise JournalFailed(
            f"the journal {path} was written by a version that is too old: schema {version}; this one reads"
            f" {missing[-1] + 1} and later. Deliver what it holds by that version, and start with an empty"
            " directory",
            key="node.data-directory",
            limit=missing[-1] + 1,
            found=version,
        )
    for step in range(version, SCHEMA_VERSION):
        connection.executescript(
            f"BEGIN IMMEDIATE; {MIGRATIONS[step]};"
            f" UPDATE meta SET value = '{step + 1}' WHERE key = 'schema'; COMMIT;"
        )
