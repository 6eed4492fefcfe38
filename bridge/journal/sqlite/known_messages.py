"""The messages that an address holds, by where each was first stored: asked before a replay sends again.

Coordinates and duplicate ID are the same question (`dedup.ids`); asked by coordinates, whole runs are
compared, and no message is opened. Messages that readers have taken are trimmed, and so not known any more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from bridge.journal.sqlite.reader import find_address
from bridge.messages.block import Origin
from bridge.messages.origins import by_stream, overlaps

_ids = msgspec.msgpack.Decoder(list[bytes])
_origins = msgspec.msgpack.Decoder(tuple[Origin, ...])


def read_present(connection: sqlite3.Connection, address: str, asked: Sequence[Origin]) -> list[Origin]:
    """The parts of `asked` whose messages the address holds, once for each message; in no order.

    Reads the origins of each of its blocks: a page or two of the file for a block. `asked` are `disjoint`.
    """
    row = find_address(connection, address)
    return [] if row is None else [origin for origin, _ in read_copies(connection, row.address_id, asked)]


def read_copies(
    connection: sqlite3.Connection, address_id: int, asked: Sequence[Origin]
) -> list[tuple[Origin, int]]:
    """As `read_present`, each part with the position of its first message at the address."""
    if not asked:
        return []
    wanted = by_stream(asked)
    found: list[tuple[Origin, int]] = []
    for position, packed in connection.execute(
        "SELECT first, origins FROM blocks WHERE address_id = ? AND origins IS NOT NULL", (address_id,)
    ):
        at = position
        for stream, first, last in _origins.decode(packed):
            for low, high in overlaps(wanted.get(stream, ()), first, last):
                found.append(((stream, low, high), at + low - first))
            at += last - first + 1
    return found


def read_next(connection: sqlite3.Connection, bridge: str, stream: str) -> int | None:
    """The first position of the bridge's stream that is not covered here; None: it was never seen."""
    row = connection.execute(
        "SELECT next FROM positions WHERE bridge = ? AND stream = ?", (bridge, stream)
    ).fetchone()
    return None if row is None else row[0]


def read_known_ids(connection: sqlite3.Connection, address: str, ids: Sequence[bytes]) -> list[int]:
    """Indices of the producers' IDs that the address's cache holds, as far as it is persisted."""
    row = find_address(connection, address)
    if row is None or not ids:
        return []
    known: set[bytes] = set()
    wanted = frozenset(ids)
    for (packed,) in connection.execute("SELECT packed FROM ids WHERE address_id = ?", (row.address_id,)):
        known.update(wanted.intersection(_ids.decode(packed)))
    return [index for index, value in enumerate(ids) if value in known]
