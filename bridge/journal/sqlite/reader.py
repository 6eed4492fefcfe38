"""Reading the journal's tables: functions for a connection in a read transaction (`reading_threads`)."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple, ParamSpec, TypeVar

import msgspec

from bridge.journal.sqlite.damage import (
    Continuity,
    DamagedMessages,
    DamagedRow,
    damaged_messages,
    is_damage,
    required_row,
)
from bridge.journal.sqlite.large_bodies import with_large
from bridge.journal.values.options import REPLAYED_QUEUE, BridgeQueue
from bridge.journal.values.queue_cursor import Cursor, Interval
from bridge.journal.values.row_checksums import row_checksum
from bridge.journal.values.store import AddressStatus, QueueStatus
from bridge.journal.values.stored_block import END, StoredBlock
from bridge.messages.addresses import QueueName, RoutingType
from bridge.messages.block import Block, IndexedId, Origin
from bridge.messages.hops import Hops
from bridge.messages.stream_names import source_address
from dedup.ids import Stamp

P = ParamSpec("P")
T = TypeVar("T")

_ids_decoder = msgspec.msgpack.Decoder(tuple[IndexedId, ...])
_origins_decoder = msgspec.msgpack.Decoder(tuple[Origin, ...])
_hops_decoder = msgspec.msgpack.Decoder(Hops)


_READ_BLOCK = (
    "SELECT first, address_id, count, ordinal, size, largest, checksum, stored_ms, buried, ids, origins,"
    " hops, routes, body_id, large_id, crc, body FROM blocks WHERE first = ?"
)
_READ_SHARED = "SELECT body_id, crc, body FROM bodies WHERE body_id = ?"


def find_blocks(
    connection: sqlite3.Connection,
    address_id: int,
    start: int,
    end: int,
    most_bytes: int,
    most_messages: int = END,
) -> list[int]:
    """First positions of the blocks that hold ``[start, end)``, up to `most_bytes` but at least one.

    Returns no more blocks than `most_messages` needs: later ones are not read. Those before a damaged place
    are found.

    Raises:
        sqlite3.DatabaseError: the first of them cannot be found, because the index is damaged.
    """
    if start >= end:  # nothing was there when the caller looked; what has come since is not asked for
        return []
    (holding,) = connection.execute(
        "SELECT max(first) FROM blocks WHERE address_id = ? AND first <= ?", (address_id, start)
    ).fetchone()
    rows = connection.execute(
        "SELECT first, count, size, ordinal FROM blocks WHERE address_id = ? AND first >= ? AND first < ?"
        " ORDER BY first",
        (address_id, start if holding is None else holding, end),
    )
    wanted: list[int] = []
    size = messages = 0
    continuity = Continuity(connection, address_id, start)
    try:
        for first, count, length, before in rows:
            continuity.follow(first, count, before)
            if first + count <= start:
                continue
            size += length
            if wanted and size > most_bytes:
                break
            wanted.append(first)
            messages += first + count - max(first, start)
            if size >= most_bytes or messages >= most_messages:
                break
        else:
            continuity.end(end)
    except sqlite3.Error as error:
        if not (wanted and is_damage(error)):
            raise
    finally:
        rows.close()
    return wanted


def read_blocks(
    connection: sqlite3.Connection, address_id: int, start: int, end: int, most_bytes: int
) -> list[StoredBlock]:
    """Blocks that hold positions in ``[start, end)``, ascending, up to `most_bytes` but at least one.

    Those before a damaged one are read. Raises: DamagedMessages: the first is damaged.
    """
    found: list[StoredBlock] = []
    for first in find_blocks(connection, address_id, start, end, most_bytes):
        try:
            found.append(read_block(connection, first))
        except DamagedMessages:
            if not found:
                raise
            break
    return found


def read_block(connection: sqlite3.Connection, first: int) -> StoredBlock:
    """The block that begins at `first`. Raises: DamagedMessages: it is not as it was stored, or missing."""
    try:
        return _read_block(connection, first)
    except (sqlite3.Error, msgspec.DecodeError) as error:
        if not is_damage(error):
            raise
        raise damaged_messages(connection, first, error) from error


def _read_block(connection: sqlite3.Connection, first: int) -> StoredBlock:
    row = required_row(connection, _READ_BLOCK, (first,), "blocks")
    *columns, crc, body = row
    if row_checksum(columns, body) != crc:
        raise DamagedRow("blocks", first)
    _, _, count, _, _, largest, checksum, stored_ms, _, ids, origins, hops, _, body_id, large_id = columns
    if body_id is not None:
        *named, crc, body = required_row(connection, _READ_SHARED, (body_id,), "bodies")
        if row_checksum(named, body) != crc:
            raise DamagedRow("bodies", body_id)
    block = Block(
        count,
        body,
        largest,
        checksum,
        _ids_decoder.decode(ids) if ids else (),
        _origins_decoder.decode(origins) if origins else (),
        _hops_decoder.decode(hops) if hops else (),
    )
    return StoredBlock(first, stored_ms, block if large_id is None else with_large(block, large_id))


def stamped_ids(block: Block, start: int, stop: int) -> dict[int, bytes]:
    """The stamped IDs of the messages with index in ``[start, stop)``, as text."""
    ids: dict[int, bytes] = {}
    index = 0
    for stream, first, last in block.origins:
        low, high = max(start, index), min(stop, index + last - first + 1)
        if low < high:
            texts = Stamp(stream).texts(first + low - index, first + high - index - 1)
            ids.update((low + offset, text.encode()) for offset, text in enumerate(texts))
        index += last - first + 1
    return ids


class AddressRow(NamedTuple):
    """The numbers of an address that a read function needs."""

    address_id: int
    next: int
    trimmed: int


def find_address(connection: sqlite3.Connection, name: str) -> AddressRow | None:
    """The address's row, as committed."""
    row = connection.execute(
        "SELECT address_id, next, trimmed FROM addresses WHERE name = ?", (name,)
    ).fetchone()
    return None if row is None else AddressRow(*row)


class BridgeQueueRow(NamedTuple):
    """A bridge's queue on an address."""

    address: str
    address_id: int
    #: First position of the address's stream.
    first: int
    #: One beyond the address's last message.
    end: int
    trimmed: int
    queue_next: int
    #: Of the address that the messages came from.
    routing_type: RoutingType = "MULTICAST"


def bridge_queues(connection: sqlite3.Connection, bridge: str) -> list[BridgeQueueRow]:
    """The bridge's queues, by address."""
    rows = connection.execute(
        "SELECT a.name, a.address_id, a.first, a.next, a.trimmed, q.next, a.routing_type FROM queues q"
        " JOIN addresses a USING (address_id) WHERE q.bridge = ? ORDER BY a.name",
        (bridge,),
    ).fetchall()
    found = [BridgeQueueRow(*row) for row in rows]
    return [row._replace(routing_type=_source_type(connection, row)) for row in found]


def _source_type(connection: sqlite3.Connection, row: BridgeQueueRow) -> RoutingType:
    """The type of the address that the messages came from; the row's own where that is gone."""
    source = source_address(row.address)
    if source == row.address:
        return row.routing_type
    found = connection.execute("SELECT routing_type FROM addresses WHERE name = ?", (source,)).fetchone()
    return row.routing_type if found is None else found[0]


class BridgeLag(NamedTuple):
    """The messages that wait for a bridge on one address."""

    bridge: str
    address: str
    messages: int
    #: Time at which the oldest of them was stored, ms since the epoch; None: no message waits.
    oldest_ms: int | None


def bridge_lags(connection: sqlite3.Connection) -> list[BridgeLag]:
    """The messages that wait for each bridge."""
    lags = []
    for bridge, name, address_id, queue_next, total in connection.execute(
        "SELECT q.bridge, a.name, a.address_id, q.next, a.total FROM queues q"
        " JOIN addresses a USING (address_id) WHERE q.bridge IS NOT NULL ORDER BY q.bridge, a.name"
    ).fetchall():
        messages = total - ordinal(connection, address_id, queue_next, total)
        oldest_ms = _stored_ms(connection, address_id, queue_next) if messages else None
        lags.append(BridgeLag(bridge, name, messages, oldest_ms))
    return lags


def queue_lag(connection: sqlite3.Connection, bridge: str, name: QueueName) -> BridgeLag:
    """The messages of a queue that is there, for a bridge that shares it."""
    address_id, total, queue_next, packed, messages = required_row(
        connection,
        "SELECT a.address_id, a.total, q.next, q.cursor, q.messages FROM queues q"
        " JOIN addresses a USING (address_id) WHERE a.name = ? AND q.name = ?",
        name,
        "queues",
    )
    if messages is None:
        cursor = Cursor.unpack(queue_next, packed)
        messages = count_unsettled(connection, address_id, cursor, total)
    oldest_ms = _stored_ms(connection, address_id, queue_next) if messages else None
    return BridgeLag(bridge, str(name), messages, oldest_ms)


def _stored_ms(connection: sqlite3.Connection, address_id: int, start: int) -> int:
    """The time at which the first message at a position >= `start` was stored; there is one."""
    firsts = find_blocks(connection, address_id, start, END, 1)
    if not firsts:  # so the counts of the address, or of its queue, are wrong
        raise DamagedRow("addresses", address_id, f"there is no message from {start} on")
    (stored_ms,) = required_row(
        connection, "SELECT stored_ms FROM blocks WHERE first = ?", (firsts[0],), "blocks"
    )
    return int(stored_ms)


def oldest_ids(connection: sqlite3.Connection) -> dict[str, int | None]:
    """The time, by address, at which the oldest row of duplicate IDs was stored, ms since the epoch; None: no
    row.
    """
    return dict(
        connection.execute(
            "SELECT a.name,"
            " (SELECT stored_ms FROM ids i WHERE i.address_id = a.address_id ORDER BY first LIMIT 1)"
            " FROM addresses a"
        ).fetchall()
    )


def was_trimmed(connection: sqlite3.Connection, row: BridgeQueueRow, start: int) -> bool:
    """Whether messages at positions >= `start` were stored once and are gone."""
    (total,) = required_row(
        connection,
        "SELECT total - messages FROM addresses WHERE address_id = ?",
        (row.address_id,),
        "addresses",
    )
    return total > 0 and start < row.trimmed


def read_lost(connection: sqlite3.Connection, address_id: int) -> list[Interval]:
    """Where messages of the address were that could not be read, and that the operator has passed over."""
    return connection.execute(
        "SELECT first, upto FROM lost WHERE address_id = ? ORDER BY first", (address_id,)
    ).fetchall()


def read_settled(connection: sqlite3.Connection, bridge: str) -> dict[str, tuple[int, str, str]]:
    """The confirmed position, the target's store identity, and the stays at others as text, by stream."""
    rows = connection.execute("SELECT stream, upto, store, stays FROM settled WHERE bridge = ?", (bridge,))
    return {stream: (upto, store, stays) for stream, upto, store, stays in rows}


def ordinal(connection: sqlite3.Connection, address_id: int, position: int, total: int) -> int:
    """The number of messages of the address that were ever stored below `position`."""
    row = connection.execute(
        "SELECT first, count, ordinal FROM blocks WHERE address_id = ? AND first <= ?"
        " ORDER BY first DESC LIMIT 1",
        (address_id, position),
    ).fetchone()
    if row is not None:
        first, count, before = row
        return int(before + min(position - first, count))
    row = connection.execute(
        "SELECT ordinal FROM blocks WHERE address_id = ? ORDER BY first LIMIT 1", (address_id,)
    ).fetchone()
    return int(row[0]) if row is not None else total


def count_unsettled(connection: sqlite3.Connection, address_id: int, cursor: Cursor, total: int) -> int:
    """The number of messages that a cursor has not settled; `total` is the address's."""
    settled = sum(
        ordinal(connection, address_id, end, total) - ordinal(connection, address_id, from_, total)
        for from_, end in cursor.settled
    )
    return total - ordinal(connection, address_id, cursor.next, total) - settled


def describe_addresses(
    connection: sqlite3.Connection, name: str | None, now_ms: int
) -> list[tuple[AddressStatus, list[tuple[QueueStatus, str | None]]]]:
    """Addresses by name (or the one), each queue with the bridge it belongs to; no cache, no limits.

    A lease counts until it ends: one that has ended by `now_ms` is not counted, and is removed when the queue
    is next used.
    """
    described = []
    condition = "name = ?" if name is not None else "name NOT LIKE '$deleted.%' OR ?"
    for address_id, address_name, routing_type, next_position, total, messages, size in connection.execute(
        f"SELECT address_id, name, routing_type, next, total, messages, bytes FROM addresses"
        f" WHERE {condition} ORDER BY name",
        (name if name is not None else 0,),
    ).fetchall():
        (first,) = connection.execute(
            "SELECT min(first) FROM blocks WHERE address_id = ?", (address_id,)
        ).fetchone()
        queues = []
        for queue, bridge, queue_next, packed, condition, counted in connection.execute(
            "SELECT name, bridge, next, cursor, filter, messages FROM queues"
            " WHERE address_id = ? AND name <> ? ORDER BY name",
            (address_id, REPLAYED_QUEUE),
        ):
            cursor = Cursor.unpack(queue_next, packed)
            lag = count_unsettled(connection, address_id, cursor, total) if counted is None else counted
            cursor.expire(now_ms)
            queues.append((QueueStatus(queue, queue_next, lag, cursor.leased, -1, condition), bridge))
        status = AddressStatus(
            address_name, routing_type, messages, size, 0, next_position if first is None else first,
            next_position, 0, 0,
        )  # fmt: skip
        described.append((status, queues))
    return described


class Orphan(NamedTuple):
    """A bridge's queue that no bridge reads any more."""

    bridge: str
    address: str
    messages: int
    reason: str


def read_orphans(connection: sqlite3.Connection, bridges: Sequence[BridgeQueue]) -> list[Orphan]:
    """Queues whose bridge is not among `bridges`, or does not select their address any more."""
    configured = {bridge.bridge: bridge for bridge in bridges}
    found = []
    for lag in bridge_lags(connection):
        bridge = configured.get(lag.bridge)
        if bridge is None or not bridge.reads(lag.address):
            reason = "the bridge is not in the settings" if bridge is None else "its queue-name leaves it out"
            found.append(Orphan(lag.bridge, lag.address, lag.messages, reason))
    return found
