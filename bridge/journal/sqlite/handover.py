"""The leases and positions of a journal that is handed over to another node."""

from __future__ import annotations

import sqlite3

from bridge.journal.values.queue_cursor import Cursor

#: Bridge, stream, next, session, checksum, epoch, and the owner's principal and node.
PositionRow = tuple[str, str, int, str, int, int, str, str]


def read_leases(connection: sqlite3.Connection) -> list[tuple[str, str, str, int]]:
    """Every lease: address, queue, the lease's name, and when it ends, ms by the clock of leases."""
    rows = connection.execute(
        "SELECT a.name, q.name, q.next, q.cursor FROM queues q JOIN addresses a USING (address_id)"
        " WHERE q.cursor IS NOT NULL"
    ).fetchall()
    return [
        (address, queue, lease, held.expires_ms)
        for address, queue, next_position, packed in rows
        for lease, held in Cursor.unpack(next_position, packed).leases.items()
    ]


def read_positions(connection: sqlite3.Connection) -> list[PositionRow]:
    """The positions of all streams from which something was stored, but for those that were handed on."""
    return connection.execute(
        "SELECT bridge, stream, next, run, checksum, epoch, principal, node FROM positions"
        " WHERE next IS NOT NULL AND moved_to = ''"
    ).fetchall()
