"""Reading the journal: a few threads with a connection each, one read transaction for one piece of work."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, Final, NamedTuple, ParamSpec, TypeVar

import msgspec

from bridge.block import Block, IndexedId, Origin
from bridge.cursor import Cursor, Interval
from bridge.hops import Hops
from bridge.journal.database import connect_reader
from bridge.journal.options import REPLAYED_QUEUE
from bridge.journal.stored import END, StoredBlock, carried_id
from bridge.message import Message
from bridge.store import AddressStatus, Delivered, QueueStatus
from dedup.ids import Stamp

P = ParamSpec("P")
T = TypeVar("T")

#: Threads, and so connections, that read.
READERS: Final = 2

#: Bytes of blocks that stay decoded for the next page; one page takes a part of a block.
DECODED_BYTES: Final = 4 * 1024 * 1024

_ids_decoder = msgspec.msgpack.Decoder(tuple[IndexedId, ...])
_origins_decoder = msgspec.msgpack.Decoder(tuple[Origin, ...])
_hops_decoder = msgspec.msgpack.Decoder(Hops)


class DecodedBlocks:
    """The blocks that pages were read from last, decoded. Positions are never reused, so none grows stale."""

    def __init__(self, limit_bytes: int = DECODED_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._blocks: OrderedDict[int, tuple[StoredBlock, list[Message]]] = OrderedDict()

    def messages(self, stored: StoredBlock) -> list[Message]:
        """The block's messages, decoded once while it stays."""
        return self._remember(stored)[1]

    def get(self, first: int) -> StoredBlock | None:
        """The block that begins at `first`, if it is here."""
        with self._lock:
            found = self._blocks.get(first)
            if found is None:
                return None
            self._blocks.move_to_end(first)
            return found[0]

    def _remember(self, stored: StoredBlock) -> tuple[StoredBlock, list[Message]]:
        with self._lock:
            found = self._blocks.get(stored.first)
        if found is not None:
            return found
        entry = (stored, stored.block.messages())
        with self._lock:
            if stored.first not in self._blocks:
                self._blocks[stored.first] = entry
                self._bytes += stored.block.size
            while self._bytes > self._limit_bytes and len(self._blocks) > 1:
                _, (oldest, _) = self._blocks.popitem(last=False)
                self._bytes -= oldest.block.size
        return entry


class Readers:
    """Runs read functions in threads. Functions take the connection as their first argument."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="journal-reader")

    async def run(
        self, function: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """`function(connection, ...)` inside one read transaction, in a reader thread."""
        work = lambda: self._in_transaction(lambda connection: function(connection, *args, **kwargs))  # noqa: E731
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def _in_transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = connect_reader(self._path)
            self._connections.append(connection)
        connection.execute("BEGIN")
        try:
            return work(connection)
        finally:
            connection.execute("ROLLBACK")

    def close(self) -> None:
        """Waits for work under way."""
        self._pool.shutdown()
        for connection in self._connections:
            connection.close()


_BLOCK_COLUMNS = "first, count, largest, checksum, stored_ms, ids, origins, hops, body"


def find_blocks(
    connection: sqlite3.Connection, address_id: int, start: int, end: int, most_bytes: int
) -> list[int]:
    """First positions of the blocks that hold ``[start, end)``, up to `most_bytes` but at least one."""
    (holding,) = connection.execute(
        "SELECT max(first) FROM blocks WHERE address_id = ? AND first <= ?", (address_id, start)
    ).fetchone()
    rows = connection.execute(
        "SELECT first, count, size FROM blocks WHERE address_id = ? AND first >= ? AND first < ?"
        " ORDER BY first",
        (address_id, start if holding is None else holding, end),
    )
    wanted: list[int] = []
    size = 0
    for first, count, length in rows:
        if first + count <= start:
            continue
        size += length
        if wanted and size > most_bytes:
            break
        wanted.append(first)
        if size >= most_bytes:
            break
    rows.close()
    return wanted


def read_blocks(
    connection: sqlite3.Connection, address_id: int, start: int, end: int, most_bytes: int
) -> list[StoredBlock]:
    """Blocks that hold positions in ``[start, end)``, ascending, up to `most_bytes` but at least one."""
    firsts = find_blocks(connection, address_id, start, end, most_bytes)
    return [read_block(connection, first) for first in firsts]


def read_block(connection: sqlite3.Connection, first: int) -> StoredBlock:
    """The block that begins at `first`."""
    row = connection.execute(f"SELECT {_BLOCK_COLUMNS} FROM blocks WHERE first = ?", (first,)).fetchone()
    return _stored_block(row)


def _stored_block(
    row: tuple[int, int, int, int, int, bytes | None, bytes | None, bytes | None, bytes],
) -> StoredBlock:
    first, count, largest, checksum, stored_ms, ids, origins, hops, body = row
    block = Block(
        count,
        body,
        largest,
        checksum,
        _ids_decoder.decode(ids) if ids else (),
        _origins_decoder.decode(origins) if origins else (),
        _hops_decoder.decode(hops) if hops else (),
    )
    return StoredBlock(first, stored_ms, block)


class PageSize(NamedTuple):
    """How much a page may hold; one message at least."""

    messages: int
    bytes: int


def read_messages(
    connection: sqlite3.Connection,
    decoded: DecodedBlocks,
    address_id: int,
    intervals: Iterable[Interval],
    most: PageSize,
) -> list[Delivered]:
    """The first messages in these intervals, as many as the page takes."""
    page: list[Delivered] = []
    size = 0
    for low, end in intervals:
        start = low
        while start < end and len(page) < most.messages:
            firsts = find_blocks(connection, address_id, start, end, most.bytes)
            if not firsts:
                break
            for first in firsts:
                stored = decoded.get(first) or read_block(connection, first)
                start = max(start, first)
                high = min(end, stored.end, start + most.messages - len(page))
                for delivered in _deliver(stored, decoded.messages(stored), start, high):
                    size += len(delivered.message.body or b"")
                    if page and size > most.bytes:
                        return page
                    page.append(delivered)
                start = stored.end
                if len(page) >= most.messages:
                    break
    return page


def _deliver(stored: StoredBlock, messages: Sequence[Message], low: int, high: int) -> Iterator[Delivered]:
    """The block's messages at positions ``[low, high)`` with their IDs."""
    first, block = stored.first, stored.block
    ids = dict(block.ids)
    stamped = stamped_ids(block, low - first, high - first) if block.origins else {}
    for position in range(low, high):
        index = position - first
        message, implied = messages[index], stamped.get(index)
        if implied is not None:
            implied = carried_id(message) or implied
        yield Delivered(position, message, ids.get(index) or implied)


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
    """What a reader needs to know of an address."""

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
    #: Where the address's stream begins.
    first: int
    #: One beyond the address's last message.
    end: int
    trimmed: int
    queue_next: int


def bridge_queues(connection: sqlite3.Connection, bridge: str) -> list[BridgeQueueRow]:
    """The bridge's queues, by address."""
    rows = connection.execute(
        "SELECT a.name, a.address_id, a.first, a.next, a.trimmed, q.next FROM queues q"
        " JOIN addresses a USING (address_id) WHERE q.bridge = ? ORDER BY a.name",
        (bridge,),
    )
    return [BridgeQueueRow(*row) for row in rows]


class BridgeLag(NamedTuple):
    """What waits for a bridge on one address."""

    bridge: str
    address: str
    messages: int
    #: When the oldest of them was stored, ms since the epoch; None: nothing waits.
    oldest_ms: int | None


def bridge_lags(connection: sqlite3.Connection) -> list[BridgeLag]:
    """What waits for each bridge."""
    lags = []
    for bridge, name, address_id, queue_next, total in connection.execute(
        "SELECT q.bridge, a.name, a.address_id, q.next, a.total FROM queues q"
        " JOIN addresses a USING (address_id) WHERE q.bridge IS NOT NULL ORDER BY q.bridge, a.name"
    ).fetchall():
        messages = total - ordinal(connection, address_id, queue_next, total)
        oldest_ms = None
        if messages:
            firsts = find_blocks(connection, address_id, queue_next, END, 1)
            (oldest_ms,) = connection.execute(
                "SELECT stored_ms FROM blocks WHERE first = ?", (firsts[0],)
            ).fetchone()
        lags.append(BridgeLag(bridge, name, messages, oldest_ms))
    return lags


def oldest_ids(connection: sqlite3.Connection) -> dict[str, int | None]:
    """By address, when the oldest row of duplicate IDs was stored, ms since the epoch; None: none is."""
    return dict(
        connection.execute(
            "SELECT a.name,"
            " (SELECT stored_ms FROM ids i WHERE i.address_id = a.address_id ORDER BY first LIMIT 1)"
            " FROM addresses a"
        ).fetchall()
    )


def was_trimmed(connection: sqlite3.Connection, row: BridgeQueueRow, start: int) -> bool:
    """Whether messages at positions >= `start` were stored once and are gone."""
    (total,) = connection.execute(
        "SELECT total - messages FROM addresses WHERE address_id = ?", (row.address_id,)
    ).fetchone()
    return total > 0 and start < row.trimmed


def read_settled(connection: sqlite3.Connection, bridge: str) -> dict[str, tuple[int, str]]:
    """By stream: up to where the target's word confirmed it, and the target's store identity."""
    rows = connection.execute("SELECT stream, upto, store FROM settled WHERE bridge = ?", (bridge,))
    return {stream: (upto, store) for stream, upto, store in rows}


def ordinal(connection: sqlite3.Connection, address_id: int, position: int, total: int) -> int:
    """How many messages of the address were ever stored below `position`."""
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


def describe_addresses(
    connection: sqlite3.Connection, name: str | None, now_ms: int
) -> list[tuple[AddressStatus, list[tuple[QueueStatus, str | None]]]]:
    """Addresses by name (or the one), each queue with the bridge it belongs to; no cache, no limits.

    Leases count for as long as they last: one that has ended by `now_ms` is only taken away when the
    queue is next asked for.
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
        for queue, bridge, queue_next, packed in connection.execute(
            "SELECT name, bridge, next, cursor FROM queues WHERE address_id = ? AND name <> ? ORDER BY name",
            (address_id, REPLAYED_QUEUE),
        ):
            cursor = Cursor.unpack(queue_next, packed)
            settled = sum(
                ordinal(connection, address_id, end, total) - ordinal(connection, address_id, from_, total)
                for from_, end in cursor.settled
            )
            lag = total - ordinal(connection, address_id, queue_next, total) - settled
            cursor.expire(now_ms)
            queues.append((QueueStatus(queue, queue_next, lag, cursor.leased, -1), bridge))
        status = AddressStatus(
            address_name, routing_type, messages, size, 0, next_position if first is None else first,
            next_position, 0, 0,
        )  # fmt: skip
        described.append((status, queues))
    return described


def read_orphans(connection: sqlite3.Connection, bridges: Sequence[str]) -> list[tuple[str, str, int]]:
    """(bridge, address, messages) of bridges' queues whose bridge is not among `bridges`."""
    return [
        (lag.bridge, lag.address, lag.messages)
        for lag in bridge_lags(connection)
        if lag.bridge not in bridges
    ]
