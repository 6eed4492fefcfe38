"""Damage to the journal's file: how it is recognised, and the places at which it was found."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from bridge.errors import JournalDamaged
from bridge.journal.values.row_checksums import row_checksum

#: Places that are kept; further ones are only counted.
PLACES_MOST: Final = 100
#: SQLite's codes for a file that has lost its form.
_LOST_FORM: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
#: Python's words for a text that is none; it has no code.
_NO_TEXT: Final = "Could not decode to UTF-8"


class DamagedRow(sqlite3.DatabaseError):
    """A row that is missing, or is not as it was stored."""

    def __init__(self, table: str, key: object, why: str = "its checksum is wrong") -> None:
        super().__init__(f"row {key} of {table}: {why}")
        self.sqlite_errorcode = sqlite3.SQLITE_CORRUPT


class DamagedMessages(DamagedRow):
    """Messages that cannot be read; the text names the address and their positions."""

    def __init__(self, place: str) -> None:
        super().__init__("blocks", place)
        self.args = (place,)


def is_damage(error: BaseException | None) -> bool:
    """Whether an error says that the file holds what no journal has stored."""
    if isinstance(error, msgspec.DecodeError):
        return True
    if not isinstance(error, sqlite3.Error):
        return False
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return str(error).startswith(_NO_TEXT)
    return (code & 0xFF) in _LOST_FORM


class FoundDamage:
    """The damaged places that were found since the journal was opened; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[str, None] = {}

    def add(self, place: str) -> None:
        """Remember a place."""
        with self._lock:
            if len(self._places) < PLACES_MOST:
                self._places[place] = None

    @property
    def places(self) -> Sequence[str]:
        """The places, in the order in which they were found; at most `PLACES_MOST`."""
        with self._lock:
            return list(self._places)

    @contextmanager
    def noticed(self) -> Iterator[None]:
        """Remember the damage that reading meets. Raises: JournalDamaged."""
        try:
            yield
        except (sqlite3.Error, msgspec.DecodeError) as error:
            if not is_damage(error):
                raise
            self.add(str(error))
            raise JournalDamaged(f"the journal is damaged: {error}. {ADVICE}", key="journal") from error


#: Advice to the operator about damage that was found while the node runs.
ADVICE: Final = (
    "Everything else can be read. Stop the node, copy its data directory away, and see what is lost with "
    "core-bridge journal skip-damaged --dry-run (docs/operations.md, A damaged journal)"
)


def check_form(connection: sqlite3.Connection, tables: Iterable[str]) -> None:
    """Check that these tables and their indexes have their form. SQLite checks only what it reads.

    Raises: DamagedRow; sqlite3.DatabaseError.
    """
    for table in tables:
        found = connection.execute(f"PRAGMA quick_check({table})").fetchall()
        if found != [("ok",)]:
            raise DamagedRow(table, "?", str(found[0][0]))


def required_row(
    connection: sqlite3.Connection, sql: str, parameters: Sequence[Any], table: str
) -> tuple[Any, ...]:
    """The row that another table, or an index, says is there. Raises: DamagedRow."""
    row: tuple[Any, ...] | None = connection.execute(sql, parameters).fetchone()
    if row is None:
        raise DamagedRow(table, tuple(parameters), "it is missing")
    return row


def check_row(table: str, row: Sequence[Any], key: int = 1) -> Sequence[Any]:
    """The columns of a row without the last one, its checksum; the first `key` of them name it.

    Raises: DamagedRow.
    """
    columns, crc = row[:-1], row[-1]
    if row_checksum(columns) != crc:
        raise DamagedRow(table, tuple(columns[:key]))
    return columns


def damaged_messages(connection: sqlite3.Connection, first: int, why: object) -> DamagedMessages:
    """The error about the block that begins at `first`: its address and positions are in an index."""
    name, last = "unknown address", first
    with contextlib.suppress(sqlite3.Error):
        for address_id, address in connection.execute("SELECT address_id, name FROM addresses").fetchall():
            found = connection.execute(
                "SELECT first + count - 1 FROM blocks INDEXED BY blocks_by_address"
                " WHERE address_id = ? AND first = ?",
                (address_id, first),
            ).fetchone()
            if found is not None:
                name, last = address, found[0]
                break
    return DamagedMessages(
        f"{name}: positions {first} to {last} cannot be read (row {first} of blocks: {why})"
    )


class Continuity:
    """Checks that an index has all blocks of an address: each block has the number of messages before it.

    Without this check, a reader would pass over messages whose entries the index has lost.
    """

    __slots__ = ("_address_id", "_connection", "_next", "_start")

    def __init__(self, connection: sqlite3.Connection, address_id: int, start: int) -> None:
        """`start`: the position from which on blocks are read, with the last one at or before it."""
        self._connection = connection
        self._address_id = address_id
        self._start = start
        #: The number of messages before the next block; None: no block was read yet.
        self._next: int | None = None

    def follow(self, first: int, count: int, before: int) -> None:
        """Check the next block: its position, its messages, and the number of messages before it.

        Raises: DamagedMessages.
        """
        if self._next != before:
            if self._next is not None:
                self._check(self._next, before, first)
            elif first > self._start:
                self._check_oldest(first, before)
        self._next = before + count

    def end(self, upto: int) -> None:
        """Check that there is no further block below `upto`. Raises: DamagedMessages."""
        row = self._connection.execute(
            "SELECT first, ordinal FROM blocks WHERE address_id = ? AND first >= ? ORDER BY first LIMIT 1",
            (self._address_id, upto),
        ).fetchone()
        if row is not None:
            if self._next is not None:
                self._check(self._next, row[1], row[0])
            else:
                self._check_oldest(*row)
            return
        total, messages, end = self._address()
        expected = self._next if self._next is not None else total - messages
        if expected < total:
            self._check(expected, total, end)

    def _address(self) -> tuple[int, int, int]:
        """Messages ever stored, messages stored now, and the end; zeros for an address without a row yet."""
        row: tuple[int, int, int] | None = self._connection.execute(
            "SELECT total, messages, next FROM addresses WHERE address_id = ?", (self._address_id,)
        ).fetchone()
        return (0, 0, 0) if row is None else row

    def _check_oldest(self, first: int, before: int) -> None:
        total, messages, _ = self._address()
        if before + self._lost(before, total) != total - messages:
            self._raise(first, abs(before - (total - messages)))

    def _check(self, expected: int, before: int, first: int) -> None:
        missing = before - expected
        if missing != self._lost(expected, before):
            self._raise(first, abs(missing))

    def _lost(self, low: int, high: int) -> int:
        """Messages that an operator has passed over, of those with these running numbers."""
        (lost,) = self._connection.execute(
            "SELECT coalesce(sum(messages), 0) FROM lost"
            " WHERE address_id = ? AND ordinal >= ? AND ordinal < ?",
            (self._address_id, low, high),
        ).fetchone()
        return int(lost)

    def _raise(self, first: int, missing: int) -> None:
        (name,) = required_row(
            self._connection,
            "SELECT name FROM addresses WHERE address_id = ?",
            (self._address_id,),
            "addresses",
        )
        raise DamagedMessages(
            f"{name}: {missing} messages before position {first} cannot be found (index blocks_by_address)"
        )
