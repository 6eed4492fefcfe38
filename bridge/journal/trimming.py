"""Blocks that nobody needs any more: deleted in bounded steps, within whatever commits next."""

from __future__ import annotations

import sqlite3

from bridge.journal.group import Group
from bridge.journal.options import TRIM_BLOCKS, TRIM_BYTES
from bridge.journal.state import AddressState

#: First position, messages and bytes of a block.
_Row = tuple[int, int, int]


def trim(group: Group, connection: sqlite3.Connection) -> None:
    """Delete blocks wholly below what every queue still needs; what is left to do stays in `to_trim`.

    A message goes when no queue needs it; an address without queues keeps its messages (design section 3).
    """
    if not group.trims:
        return
    state = group.state
    blocks, size = TRIM_BLOCKS, TRIM_BYTES
    for address_id in sorted(state.to_trim):
        address = state.by_id[address_id]
        if address.to_trim:
            if blocks <= 0 or size <= 0:
                return
            gone = _trim_address(connection, address, blocks, size)
            blocks -= len(gone)
            freed = sum(row[2] for row in gone)
            group.freed_bytes += freed
            size -= freed
            group.changed_addresses[address_id] = address
            if address.deleted and not address.messages:
                state.drop_address(address)
                del group.changed_addresses[address_id]
                connection.execute("DELETE FROM addresses WHERE address_id = ?", (address_id,))
                continue
        if not address.to_trim:
            state.to_trim.discard(address_id)


def _trim_address(
    connection: sqlite3.Connection, address: AddressState, blocks: int, size: int
) -> list[_Row]:
    """Delete the oldest blocks, up to `blocks` and about `size` bytes; answers those that went."""
    needed = address.needed_from
    rows: list[_Row] = connection.execute(
        "SELECT first, count, size FROM blocks WHERE address_id = ? AND first < ? ORDER BY first LIMIT ?",
        (address.address_id, needed, blocks + 1),
    ).fetchall()
    gone: list[_Row] = []
    for first, count, length in rows[:blocks]:
        if first + count > needed or size <= 0:
            break
        gone.append((first, count, length))
        size -= length
    connection.executemany("DELETE FROM blocks WHERE first = ?", [(first,) for first, _, _ in gone])
    address.messages -= sum(count for _, count, _ in gone)
    address.bytes -= sum(length for _, _, length in gone)
    if len(gone) < len(rows):
        first, count, _ = rows[len(gone)]
        address.trimmed, address.oldest_end = first, first + count
    else:
        address.trimmed, address.oldest_end = needed, None
    return gone
