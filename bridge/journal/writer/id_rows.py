"""Rows of duplicate IDs: one for each commit and address, deleted when all of its IDs are overwritten."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import chain

import msgspec

from bridge.journal.rules.state import AddressState
from bridge.journal.sqlite.damage import DamagedRow
from bridge.journal.values.row_checksums import row_checksum
from dedup.cache import IdCache, Overlay

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode


def load_ids(connection: sqlite3.Connection, address_id: int, cache: IdCache, accepted: int) -> int:
    """Fill `cache` from the address's rows, oldest first; answers how many IDs they hold.

    Raises:
        sqlite3.Error, msgspec.DecodeError: the file is damaged.
    """
    (found,) = connection.execute(
        "SELECT coalesce(sum(count), 0) FROM ids WHERE address_id = ?", (address_id,)
    ).fetchone()

    def packs() -> Iterator[list[bytes]]:
        for *columns, packed, crc in connection.execute(
            "SELECT address_id, first, count, stored_ms, packed, crc FROM ids"
            " WHERE address_id = ? ORDER BY first",
            (address_id,),
        ):
            if row_checksum(columns, packed) != crc:
                raise DamagedRow("ids", (address_id, columns[1]))
            yield _decode(packed)

    cache.load(chain.from_iterable(packs()), accepted=accepted)
    return int(found)


def add_ids(connection: sqlite3.Connection, address: AddressState, overlay: Overlay, now_ms: int) -> int:
    """Store the IDs that a group brought, and delete rows that it overwrites as a whole; answers the bytes
    stored.
    """
    added = overlay.added
    packed = _encode(added)
    columns = (address.address_id, overlay.first, len(added), now_ms)
    connection.execute(
        "INSERT INTO ids (address_id, first, count, stored_ms, packed, crc) VALUES (?, ?, ?, ?, ?, ?)",
        (*columns, packed, row_checksum(columns, packed)),
    )
    _forget(connection, address, overlay.first + len(added) - address.cache.capacity)
    return len(packed)


def fit_ids(connection: sqlite3.Connection, address: AddressState, kept: int) -> None:
    """Make the rows hold exactly the newest `kept` of the cache's IDs: as it is cleared or resized, and at
    opening.
    """
    oldest = address.cache.accepted - kept
    _forget(connection, address, oldest)
    row = connection.execute(
        "SELECT first, stored_ms, packed FROM ids"
        " WHERE address_id = ? AND first < ? ORDER BY first DESC LIMIT 1",
        (address.address_id, oldest),
    ).fetchone()
    if row is not None:
        first, stored_ms, packed = row
        left = _decode(packed)[oldest - first :]
        packed = _encode(left)
        crc = row_checksum((address.address_id, oldest, len(left), stored_ms), packed)
        connection.execute(
            "UPDATE ids SET first = ?, count = ?, packed = ?, crc = ? WHERE address_id = ? AND first = ?",
            (oldest, len(left), packed, crc, address.address_id, first),
        )


def _forget(connection: sqlite3.Connection, address: AddressState, oldest: int) -> None:
    """Delete the rows of IDs that all have running numbers below `oldest`; younger rows are not read."""
    connection.execute(
        "DELETE FROM ids WHERE address_id = ? AND first < ? AND first + count <= ?",
        (address.address_id, oldest, oldest),
    )
