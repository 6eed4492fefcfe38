"""Trims blocks that no queue needs any more, in bounded steps, within the next commit.

With `retain-time` they stay for a while, so that `core-bridge replay` can send messages again that a target
lost.
"""

from __future__ import annotations

import sqlite3
from heapq import nsmallest
from typing import Final

from bridge.journal.rules.commit_group import Group
from bridge.journal.rules.queue_filters import pass_left_out
from bridge.journal.rules.state import AddressState, State
from bridge.journal.sqlite.large_bodies import chunk_id
from bridge.journal.values.options import TRIM_BLOCKS, TRIM_BYTES
from bridge.messages.message import CHUNK_BYTES

#: First position, messages and bytes of a block, when it was stored, wall clock in ms, the body that it
#: shares, and its large body.
_Row = tuple[int, int, int, int, int | None, int | None]

_DELETE_BODY: Final = (
    "DELETE FROM bodies WHERE body_id = ? AND NOT EXISTS (SELECT 1 FROM blocks WHERE body_id = ?)"
)


_LOOSEN: Final = (
    "INSERT OR IGNORE INTO loose_bodies SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM blocks WHERE large_id = ?1)"
)


def trim(group: Group, connection: sqlite3.Connection) -> int:
    """Delete blocks wholly below what every queue still needs; addresses with more to delete stay in
    `to_trim`.

    Answers the number of blocks deleted.

    A message goes when no queue needs it; an address without queues keeps its messages (design section 3).
    """
    if not group.trims:
        return 0
    state = group.state
    blocks, size = TRIM_BLOCKS, TRIM_BYTES
    for address_id in sorted(state.to_trim):
        address = state.by_id[address_id]
        if address.retains and state.retained.get(address_id, 0) > group.now_ms:
            state.to_trim.discard(address_id)
            continue
        passed = address.has_counts and pass_left_out(group, connection, address)
        if address.to_trim:
            if blocks <= 0 or size <= 0:
                break
            gone, due_ms = _trim_address(connection, address, blocks, size, group.now_ms)
            state.loose_bodies.update(_loosened(connection, gone))
            blocks -= len(gone)
            freed = sum(row[2] for row in gone)
            group.freed_bytes += freed
            size -= freed
            group.changed_addresses[address_id] = address
            if address.deleted and not address.messages:
                _drop_address(group, address)
                del group.changed_addresses[address_id]
                connection.execute("DELETE FROM addresses WHERE address_id = ?", (address_id,))
                connection.execute("DELETE FROM lost WHERE address_id = ?", (address_id,))
                continue
            if due_ms is not None:
                state.to_trim.discard(address_id)
                state.retained[address_id] = due_ms
                continue
        if not address.to_trim and not passed:
            state.to_trim.discard(address_id)
    group.freed_bytes += _delete_loose(state, connection, size)
    return TRIM_BLOCKS - blocks


def _drop_address(group: Group, address: AddressState) -> None:
    by_id = group.state.by_id
    group.state.drop_address(address)
    group.undo.append(lambda: by_id.setdefault(address.address_id, address))


def _loosened(connection: sqlite3.Connection, gone: list[_Row]) -> list[int]:
    """The large bodies that no block has any more, of those of the blocks that are gone."""
    bodies = {row[5] for row in gone if row[5] is not None}
    return [body for body in bodies if connection.execute(_LOOSEN, (body,)).rowcount == 1]


def _delete_loose(state: State, connection: sqlite3.Connection, size: int) -> int:
    """Delete large bodies that no block has, about `size` bytes; answers the bytes that they had."""
    freed = 0
    for large_id in nsmallest(TRIM_BLOCKS, state.loose_bodies):
        if freed >= size:
            break
        freed += _delete_chunks(state, connection, large_id, size - freed)
    return freed


def _delete_chunks(state: State, connection: sqlite3.Connection, large_id: int, size: int) -> int:
    """Delete chunks of a body that no block has, about `size` bytes; answers the bytes that they had.

    The body goes with its last chunk.
    """
    first, end = chunk_id(large_id, 0), chunk_id(large_id + 1, 0)
    rows = connection.execute(
        "SELECT chunk_id, length(bytes) FROM chunks WHERE chunk_id >= ? AND chunk_id < ? LIMIT ?",
        (first, end, max(size // CHUNK_BYTES, 1)),
    ).fetchall()
    connection.executemany("DELETE FROM chunks WHERE chunk_id = ?", [(row[0],) for row in rows])
    if len(rows) < max(size // CHUNK_BYTES, 1):
        connection.execute("DELETE FROM loose_bodies WHERE large_id = ?", (large_id,))
        state.loose_bodies.discard(large_id)
    return sum(row[1] for row in rows)


def _trim_address(
    connection: sqlite3.Connection, address: AddressState, blocks: int, size: int, now_ms: int
) -> tuple[list[_Row], int | None]:
    """Delete the oldest blocks, up to `blocks` and about `size` bytes.

    Answers the deleted blocks, and the time (wall clock, ms) at which the next may be, where only
    `retain-time` keeps it.
    """
    needed, due_ms = address.needed_from, None
    rows: list[_Row] = connection.execute(
        "SELECT first, count, size, stored_ms, body_id, large_id FROM blocks"
        " WHERE address_id = ? AND first < ?"
        " ORDER BY first LIMIT ?",
        (address.address_id, needed, blocks + 1),
    ).fetchall()
    gone: list[_Row] = []
    for row in rows[:blocks]:
        first, count, length, stored_ms, *_ = row
        if first + count > needed or size <= 0:
            break
        due_ms = address.retained_until_ms(stored_ms)
        if due_ms > now_ms:
            break
        gone.append(row)
        size -= length
        address.messages -= count
        address.bytes -= length
    connection.executemany("DELETE FROM blocks WHERE first = ?", [(row[0],) for row in gone])
    connection.executemany(_DELETE_BODY, [(row[4], row[4]) for row in gone if row[4] is not None])
    if len(gone) < len(rows):
        first, count, *_ = rows[len(gone)]
        address.trimmed, address.oldest_end = first, first + count
    else:
        address.trimmed, address.oldest_end = needed, None
    return gone, due_ms if due_ms is not None and due_ms > now_ms else None
