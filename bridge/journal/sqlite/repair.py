"""Saves what can be read of a damaged journal: into a file of its own, with the places of what is lost.

Nothing is written to the damaged file: SQLite would spread the damage to pages that are whole.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from bridge.errors import JournalDamaged, NotFound
from bridge.journal.sqlite.damage import DamagedRow, check_row, is_damage
from bridge.journal.sqlite.database import FILE_NAME, SCHEMA_VERSION, connect_reader, connect_writer
from bridge.journal.sqlite.identity_file import forget_reached, lost_since, read_reached
from bridge.journal.sqlite.large_bodies import read_chunk, stored_chunks
from bridge.journal.sqlite.reader import read_block
from bridge.journal.sqlite.stretches import addressed_stretches
from bridge.journal.values.options import REPLAYED_QUEUE
from bridge.journal.values.queue_cursor import Cursor
from bridge.journal.values.row_checksums import row_checksum
from bridge.journal.values.stored_block import END
from bridge.messages.block import KeptBody

#: The damaged file is kept under this name.
KEPT_NAME: Final = f"{FILE_NAME}.damaged"
_NEW_NAME: Final = f"{FILE_NAME}.saved"
#: Reads that may fail before the rest of a table counts as lost.
FAILURES_MOST: Final = 20_000
#: Rows that are written at once.
_ROWS: Final = 500

#: Tables without which a journal is none, and how many of their columns name a row; 0: they have no checksum.
_NEEDED: Final[Mapping[str, int]] = {
    "meta": 0, "sequence": 1, "runs": 0, "addresses": 2, "queues": 3, "positions": 2, "settled": 2, "lost": 0,
    "loose_bodies": 0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Lost:
    """Messages of an address that cannot be read, one after the other."""

    address: str
    address_id: int
    #: They are at positions in ``[first, upto)``, perhaps not at all of them.
    first: int
    upto: int
    messages: int
    #: Messages of the address that were stored before them.
    ordinal: int

    def __str__(self) -> str:
        exactly = self.messages == self.upto - self.first
        where = f"positions {self.first} to {self.upto - 1}"
        about = "at" if exactly else "somewhere at"
        return f"{self.address}: {self.messages} messages are lost, {about} {where}"


class _Block(NamedTuple):
    """Where a block is."""

    ordinal: int
    first: int
    messages: int
    size: int


@dataclass(slots=True)
class Findings:
    """The parts of a journal that can be read, and those that cannot."""

    #: The rows of the needed tables, and the names of the columns of each.
    tables: dict[str, list[Sequence[Any]]]
    #: By address id, the blocks that can be read.
    blocks: dict[int, list[_Block]] = field(default_factory=dict)
    lost: list[Lost] = field(default_factory=list)
    #: By address, duplicate IDs that cannot be read.
    ids: dict[str, int] = field(default_factory=dict)
    #: Lines of the delivery log that cannot be read.
    lines: int = 0
    #: The number of the newest line that was ever written.
    newest_line: int = 0
    #: The newest commits are not there: why.
    newest: str = ""

    @property
    def meta(self) -> Mapping[str, str]:
        """The rows of `meta`."""
        return {str(key): str(value) for key, value in self.tables["meta"]}

    def __iter__(self) -> Iterator[str]:
        """The lost messages, in words."""
        yield from map(str, self.lost)
        for address, number in self.ids.items():
            yield f"{address}: {number} duplicate IDs are lost: a message that comes again is stored again"
        if self.lines:
            yield f"{self.lines} delivery-log lines are lost: reconcile reports their messages as unknown"
        if self.newest:
            yield self.newest


def examine(path: Path) -> Findings:
    """Read all of the journal at `path`, which no process has open.

    Raises: JournalDamaged: it cannot be saved.
    """
    with contextlib.ExitStack() as stack:
        try:
            connection = stack.enter_context(contextlib.closing(connect_reader(path)))
            findings = Findings({table: _rows(connection, table, key) for table, key in _NEEDED.items()})
            meta = findings.meta
            if meta.get("schema") != str(SCHEMA_VERSION) or not meta.keys() >= {"node-id", "incarnation"}:
                raise DamagedRow("meta", "schema, node-id, incarnation", "they are not there")
            row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'outbox'").fetchone()
            findings.newest_line = 0 if row is None else row[0]
        except (sqlite3.Error, msgspec.DecodeError, ValueError, TypeError) as error:
            raise JournalDamaged(
                f"the journal {path} cannot be saved: {error}. Restore it from a backup, or move it and the"
                " files beside it away to start empty",
                key="node.data-directory",
                found=str(path),
            ) from error
        ids = _readable(connection, "ids", "rowid, address_id, first, count, stored_ms, packed, crc")
        known: dict[int, int] = {}
        for _, *columns, packed, crc in ids:
            if row_checksum(columns, packed) == crc:
                known[columns[0]] = known.get(columns[0], 0) + columns[2]
        for row in findings.tables["addresses"]:
            _examine_address(connection, findings, row)
            accepted, capacity = row[10], row[11]
            missing = min(accepted, capacity) - known.get(row[0], 0)
            if missing > 0 and not _is_whole(connection, "ids"):
                findings.ids[row[1]] = missing
        if not _is_whole(connection, "outbox"):
            findings.lines = _missing_lines(connection, findings.newest_line)
        findings.newest = _newest(path, findings)
    return findings


def _rows(connection: sqlite3.Connection, table: str, key: int) -> list[Sequence[Any]]:
    rows = connection.execute(f"SELECT * FROM {table} NOT INDEXED").fetchall()
    for row in rows if key else ():
        check_row(table, row[1:] if table == "sequence" else row, key)
    return rows


def _is_whole(connection: sqlite3.Connection, table: str) -> bool:
    """Whether a table and its indexes have their form."""
    try:
        return connection.execute(f"PRAGMA quick_check({table})").fetchall() == [("ok",)]
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        return False


def _missing_lines(connection: sqlite3.Connection, newest: int) -> int:
    """The number of lines that are missing among those that can be read, and behind them; 1 at least."""
    found = [row[0] for row in _readable(connection, "outbox", "line_id, line")]
    return max(newest + 1 - min(found, default=newest + 1) - len(found), 1)


def _newest(path: Path, findings: Findings) -> str:
    with contextlib.suppress(JournalDamaged):
        reached = read_reached(path.parent)
        if reached is not None:
            node_id = findings.meta.get("node-id")
            versions = {row[0]: row[9] for row in findings.tables["queues"]}
            sequence = findings.tables["sequence"][0][1]
            lacks = lost_since(reached, node_id, sequence, findings.newest_line, versions)
            return f"it {lacks}" if lacks else ""
    return ""


def _readable(
    connection: sqlite3.Connection, table: str, columns: str, low: int = 0, high: int = END
) -> Iterator[tuple[Any, ...]]:
    """The rows of a table that can be read, by rowid, in no order; the first column is the rowid."""
    failures = 0
    parts = deque([(low, high)])
    while parts and failures < FAILURES_MOST:
        low, high = parts.popleft()  # the widest first
        for order in ("ASC", "DESC"):
            at = None
            try:
                for row in connection.execute(
                    f"SELECT {columns} FROM {table} WHERE rowid >= ? AND rowid < ? ORDER BY rowid {order}",
                    (low, high),
                ):
                    if not low <= row[0] < high or (at is not None and (row[0] <= at) is (order == "ASC")):
                        raise DamagedRow(table, row[0], "it is not in its place")
                    at = row[0]
                    yield row
                low = high
                break
            except sqlite3.Error as error:
                if not is_damage(error):
                    raise
                failures += 1
            if at is not None:
                low, high = (at + 1, high) if order == "ASC" else (low, at)
        if high - low > 1:
            middle = (low + high) // 2
            parts += [(low, middle), (middle, high)]


def _examine_address(connection: sqlite3.Connection, findings: Findings, row: Sequence[Any]) -> None:
    """Find the blocks of an address that can be read, and what lies between them."""
    address_id, name, first, end, trimmed, total, messages = (
        row[0],
        row[1],
        row[3],
        row[4],
        row[5],
        row[6],
        row[7],
    )
    known = [lost for lost in findings.tables["lost"] if lost[0] == address_id]
    oldest = total - messages - sum(lost[3] for lost in known if lost[1] >= trimmed)
    entries = sorted(_entries(connection, address_id))
    found = []
    for candidate in _candidates(connection, findings, address_id, entries):
        block = _whole(connection, address_id, candidate.first)
        if block is not None and block.ordinal >= oldest:
            found.append(block)
    found = sorted(set(found))
    findings.blocks[address_id] = found
    at, place = oldest, max(first, trimmed)
    for block in [*found, _Block(total, end, 0, 0)]:
        missing = block.ordinal - at
        gone = [lost for lost in known if at <= lost[4] < block.ordinal]
        if missing - sum(lost[3] for lost in gone) > 0:
            between = [one for one in entries if at <= one.ordinal < block.ordinal and one not in found]
            findings.lost += _places(
                name, address_id, between, _Block(at, place, missing, 0), block.first, gone
            )
        at, place = block.ordinal + block.messages, block.first + block.messages


def _places(
    name: str,
    address_id: int,
    entries: Sequence[_Block],
    hole: _Block,
    upto: int,
    gone: Sequence[Sequence[Any]],
) -> list[Lost]:
    """The messages that are missing in a hole: where the index says, or anywhere in it."""
    missing = hole.messages - sum(lost[3] for lost in gone)
    if sum(one.messages for one in entries) == missing:
        joined: list[Lost] = []
        for _, first, count, _ in entries:
            ordinal = joined[-1].ordinal + joined[-1].messages if joined else hole.ordinal
            if joined and joined[-1].upto == first:
                last = joined.pop()
                joined.append(
                    Lost(name, address_id, last.first, first + count, last.messages + count, last.ordinal)
                )
            else:
                joined.append(Lost(name, address_id, first, first + count, count, ordinal))
        return joined
    return [Lost(name, address_id, hole.first, upto, missing, hole.ordinal)]


def _entries(connection: sqlite3.Connection, address_id: int) -> list[_Block]:
    """The blocks of an address, as far as the index can be read from either end."""
    found: set[_Block] = set()
    for order in ("ASC", "DESC"):
        try:
            for row in connection.execute(
                "SELECT ordinal, first, count, size FROM blocks INDEXED BY blocks_by_address"
                f" WHERE address_id = ? ORDER BY first {order}",
                (address_id,),
            ):
                if all(isinstance(value, int) for value in row):
                    found.add(_Block._make(row))
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
        else:
            break
    return list(found)


def _candidates(
    connection: sqlite3.Connection, findings: Findings, address_id: int, entries: Sequence[_Block]
) -> Iterable[_Block]:
    """The blocks of an address that the index or the table itself has."""
    if _is_contiguous(findings, address_id, entries):
        return entries
    end = findings.tables["sequence"][0][1]
    columns = "first, address_id, count, ordinal, size"
    rows = _readable(connection, "blocks", columns, 0, end)
    of_table = {
        _Block(ordinal, first, count, size)
        for first, owner, count, ordinal, size in rows
        if owner == address_id and isinstance(count, int) and isinstance(ordinal, int)
    }
    return of_table.union(entries)


def _is_contiguous(findings: Findings, address_id: int, entries: Sequence[_Block]) -> bool:
    """Whether the index has every message of the address."""
    (row,) = [row for row in findings.tables["addresses"] if row[0] == address_id]
    return bool(sum(entry.messages for entry in entries) == row[7])


def _whole(connection: sqlite3.Connection, address_id: int, first: int) -> _Block | None:
    """A block of an address, if it is as it was stored, with its large body; None: it is not."""
    try:
        block = read_block(connection, first).block
        block.messages()
        owner, *place = connection.execute(
            "SELECT address_id, ordinal, first, count, size FROM blocks WHERE first = ?", (first,)
        ).fetchone()
        large = block.large
        if owner != address_id or (large is not None and not _has_body(connection, large)):
            return None
        return _Block._make(place)
    except (msgspec.DecodeError, AssertionError, ValueError, NotFound):
        return None
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        return None


def _has_body(connection: sqlite3.Connection, large: KeptBody) -> bool:
    chunks, size = stored_chunks(connection, large.body_id)
    read = sum(len(read_chunk(connection, large.body_id, number)) for number in range(chunks))
    return size == read == large.body.size


def save(path: Path, findings: Findings, now_ms: int) -> Path:
    """Write what can be read into a file, and put it into the place of the journal at `path`.

    Answers the name under which the damaged file is kept. Cut short, the journal is as it was.

    Raises:
        sqlite3.Error, OSError: there is no room, or the disk is broken.
    """
    new, kept = path.with_name(_NEW_NAME), path.with_name(KEPT_NAME)
    for one in new.parent.glob(f"{_NEW_NAME}*"):
        one.unlink()
    with (
        contextlib.closing(connect_reader(path)) as old,
        contextlib.closing(connect_writer(new, create=True)) as connection,
    ):
        connection.execute("BEGIN IMMEDIATE")
        _copy(old, connection, findings, now_ms)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    # SQLite has copied the log and removed it with the last connection, unless the file is too damaged.
    log = path.with_name(f"{path.name}-wal")
    if log.exists():
        log.replace(kept.with_name(f"{kept.name}-wal"))
    kept.unlink(missing_ok=True)
    os.link(path, kept)
    new.replace(path)
    forget_reached(path.parent)
    return kept


def _copy(old: sqlite3.Connection, new: sqlite3.Connection, findings: Findings, now_ms: int) -> None:
    for table in _NEEDED:
        new.execute(f"DELETE FROM {table}")  # what a journal begins with
        _insert(new, table, findings.tables[table])
    for table in ("ids", "outbox", "bodies", "chunks"):
        columns = [row[1] for row in new.execute(f"PRAGMA table_info({table})")]
        rows = _readable(old, table, ", ".join(["rowid", *columns]))
        for part in _parts(row[1:] for row in rows if _is_sound(table, row[1:])):
            _insert(new, table, part)
    new.execute("DELETE FROM sqlite_sequence")
    new.execute("INSERT INTO sqlite_sequence VALUES ('outbox', ?)", (findings.newest_line,))
    for blocks in findings.blocks.values():
        for places in _parts((block.first,) for block in blocks):
            rows = (old.execute("SELECT * FROM blocks WHERE first = ?", place).fetchone() for place in places)
            _insert(new, "blocks", list(rows))
    new.execute("DELETE FROM bodies WHERE body_id NOT IN (SELECT body_id FROM blocks WHERE body_id NOT NULL)")
    new.execute(
        "INSERT OR IGNORE INTO loose_bodies SELECT DISTINCT chunk_id >> 16 FROM chunks"
        " WHERE chunk_id >> 16 NOT IN (SELECT large_id FROM blocks WHERE large_id NOT NULL)"
    )
    for lost in findings.lost:
        row = (lost.address_id, lost.first, lost.upto, lost.messages, lost.ordinal, now_ms)
        _insert(new, "lost", [row])
    for address_id in {lost.address_id for lost in findings.lost}:
        _pass_over(new, address_id, [lost for lost in findings.lost if lost.address_id == address_id])


def _insert(connection: sqlite3.Connection, table: str, rows: Sequence[Sequence[Any]]) -> None:
    if rows:
        places = ", ".join("?" * len(rows[0]))
        connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)


def _parts(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    part: list[tuple[Any, ...]] = []
    for row in rows:
        part.append(row)
        if len(part) == _ROWS:
            yield part
            part = []
    yield part


def _is_sound(table: str, row: Sequence[Any]) -> bool:
    """Whether a row is as it was stored, as far as its table has checksums."""
    try:
        if table == "ids":
            *columns, packed, crc = row
        elif table == "outbox":
            return isinstance(row[0], int) and isinstance(row[1], bytes)
        else:
            columns, crc, packed = [row[0]], row[1], row[2]
        return bool(row_checksum(columns, packed) == crc)
    except (TypeError, ValueError):
        return False


def _pass_over(connection: sqlite3.Connection, address_id: int, lost: Sequence[Lost]) -> None:
    """Count an address without its lost messages, and let its readers' queues go on behind them.

    Leased messages are given out again. A bridge covers what is lost as a gap, when it comes to it.
    """
    (left, size) = connection.execute(
        "SELECT coalesce(sum(count), 0), coalesce(sum(size), 0) FROM blocks WHERE address_id = ?",
        (address_id,),
    ).fetchone()
    connection.execute(
        "UPDATE addresses SET messages = ?, bytes = ? WHERE address_id = ?", (left, size, address_id)
    )
    _seal(connection, "addresses", "address_id", address_id)
    (end,) = connection.execute("SELECT next FROM addresses WHERE address_id = ?", (address_id,)).fetchone()
    for queue_id, name, at, packed, counted in connection.execute(
        "SELECT queue_id, name, next, cursor, messages FROM queues WHERE address_id = ? AND bridge IS NULL",
        (address_id,),
    ).fetchall():
        cursor = Cursor.unpack(at, packed)
        cursor.leases.clear()
        if name != REPLAYED_QUEUE:
            cursor.settle(*((one.first, one.upto) for one in lost))
        left_to_read = counted
        if counted is not None:
            left_to_read = sum(
                stretch.end - stretch.first
                for gap in cursor.free(end)
                for _, found in addressed_stretches(connection, address_id, name, gap)
                for stretch in found
            )
        connection.execute(
            "UPDATE queues SET next = ?, cursor = ?, messages = ?, version = version + 1 WHERE queue_id = ?",
            (cursor.next, cursor.pack(), left_to_read, queue_id),
        )
        _seal(connection, "queues", "queue_id", queue_id)


def _seal(connection: sqlite3.Connection, table: str, key: str, value: int) -> None:
    row = connection.execute(f"SELECT * FROM {table} WHERE {key} = ?", (value,)).fetchone()
    connection.execute(f"UPDATE {table} SET crc = ? WHERE {key} = ?", (row_checksum(row[:-1]), value))
