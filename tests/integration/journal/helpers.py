"""A journal on real files for tests: short ways to say what clients, readers and bridges do."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, cast

from bridge.journal.journal import Journal
from bridge.journal.sqlite.database import FILE_NAME
from bridge.journal.target import JournalTarget
from bridge.journal.values.options import AddressPolicy, JournalOptions
from bridge.journal.values.queue_cursor import Cursor, Interval
from bridge.journal.values.routes import addressed
from bridge.journal.values.row_checksums import row_checksum
from bridge.journal.values.store import Acknowledgement, Committed, Delivered, Page, Sent, Transaction
from bridge.journal.values.views import QueueView, Views
from bridge.journal.writer.publishing import everything
from bridge.messages.batch import Batch
from bridge.messages.block import IndexedId, encode_message, pack
from bridge.messages.message import Message
from bridge.relay.ports import Receipt, Stream, StreamState

#: Nothing here takes as long; what does has hung.
PATIENCE_S = 20.0
KIB = 1024
MIB = 1024 * KIB

QUEUE = "q"
BRIDGE = "edge-to-hub"
STREAM = "journal:0123456789abcdef:orders:0"


Policy = Callable[[str], AddressPolicy]


class ManualClock:
    """Both clocks, moved by hand."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def advance(self, ms: int) -> None:
        self.now_ms += ms


def policies(default: AddressPolicy, **by_name: AddressPolicy) -> Policy:
    """Address settings by exact name."""
    return lambda address: by_name.get(address, default)


def options(directory: Path, policy: AddressPolicy | Policy | None = None, **changes: Any) -> JournalOptions:
    """Options with this policy, or one policy for every address."""
    if isinstance(policy, AddressPolicy):
        changes["policy"] = lambda _address: policy
    elif policy is not None:
        changes["policy"] = policy
    return dataclasses.replace(JournalOptions(directory), **changes)


def stored(journal: Journal, address: str) -> int:
    """The messages that an address holds after the last commit."""
    view = journal.views.address(address)
    assert view is not None, f"there is no address {address}"
    return view.messages


@asynccontextmanager
async def opened(
    directory: Path | JournalOptions, clock: ManualClock | None = None
) -> AsyncIterator[Journal]:
    """A journal, closed at the end; the same directory again is a clean restart."""
    given = directory if isinstance(directory, JournalOptions) else JournalOptions(directory)
    journal = await Journal.open(given, clock)
    try:
        yield journal
    finally:
        await asyncio.wait_for(journal.close(), PATIENCE_S)
    check_views(journal)


def check_views(journal: Journal) -> None:
    """The views of a journal that has closed are those of the state that its writer has left."""
    if journal.broken:
        return  # the state is the one that a commit has failed with
    fresh = Views()
    fresh.merge(everything(journal._writer.state))
    for field in ("intake", "_addresses", "_names", "_queues"):
        found, expected = getattr(journal.views, field), getattr(fresh, field)
        if field == "_queues":
            found, expected = _without_empty(found), _without_empty(expected)
        assert found == expected, field


def _without_empty(queues: Mapping[int, Mapping[str, QueueView]]) -> dict[int, Mapping[str, QueueView]]:
    return {address_id: by_name for address_id, by_name in queues.items() if by_name}


def alter_queues(directory: Path, change: str) -> None:
    """Change rows of `queues` in a closed journal, as if they had been stored so."""
    columns = "queue_id, address_id, name, bridge, next, cursor, filter, messages, auto_created, version"
    with contextlib.closing(sqlite3.connect(directory / FILE_NAME)) as connection:
        connection.execute(f"UPDATE queues SET {change}")
        for row in connection.execute(f"SELECT {columns} FROM queues").fetchall():
            connection.execute("UPDATE queues SET crc = ? WHERE queue_id = ?", (row_checksum(row), row[0]))
        connection.commit()


def text(body: str | bytes) -> Message:
    return Message(body.encode() if isinstance(body, str) else body)


def submission(body: str | bytes, duplicate_id: str | bytes | None = None, address: str = "orders") -> Sent:
    value = duplicate_id.encode() if isinstance(duplicate_id, str) else duplicate_id
    return Sent.of(address, text(body), value)


async def send(
    journal: Journal, body: str | bytes, duplicate_id: str | bytes | None = None, address: str = "orders"
) -> Committed:
    """One plain send."""
    return await journal.commit(Transaction([submission(body, duplicate_id, address)], plain=True))


async def send_all(
    journal: Journal, bodies: Iterable[str], ids: Iterable[str] | None = None, address: str = "orders"
) -> list[bool]:
    """Plain sends one after the other; which were stored. IDs are the bodies unless given."""
    given = list(bodies)
    wanted = list(ids) if ids is not None else given
    return [(await send(journal, *pair, address)).stored for pair in zip(given, wanted, strict=True)]


async def transact(
    journal: Journal,
    *sent: Sent,
    duplicate_id: bytes | None = None,
    on_duplicate: Literal["reject", "skip"] = "reject",
    acknowledge: Sequence[Acknowledgement] = (),
) -> Committed:
    """One transaction."""
    return await journal.commit(Transaction(sent, duplicate_id, on_duplicate, acknowledge))


async def lease(
    journal: Journal, address: str = "orders", queue: str = QUEUE, *, most: int = 100, lease_ms: int = 60_000,
    wait_ms: int = 0, most_bytes: int = 16 * MIB,
) -> Page:  # fmt: skip
    """The next page."""
    return await journal.lease(
        address, queue, most=most, wait_ms=wait_ms, lease_ms=lease_ms, most_bytes=most_bytes
    )


def acknowledgement(
    page: Page, upto: int | None = None, address: str = "orders", queue: str = QUEUE
) -> Acknowledgement:
    assert page.lease is not None
    return Acknowledgement(address, queue, page.lease, upto)


async def consume(journal: Journal, address: str = "orders", queue: str = QUEUE) -> list[str]:
    """Read and acknowledge until there is nothing left; the bodies in the order they came."""
    found: list[str] = []
    while (page := await lease(journal, address, queue)).lease is not None:
        found += bodies(page.messages)
        await journal.acknowledge(acknowledgement(page, address=address, queue=queue))
    return found


def bodies(messages: Iterable[Delivered]) -> list[str]:
    return [(delivered.message.whole or b"").decode() for delivered in messages]


async def browsed(journal: Journal, address: str = "orders") -> list[str]:
    """The bodies of everything on an address."""
    return bodies(await journal.browse(address, after=-1, most=100_000, most_bytes=1 << 40))


def batch(
    bodies_at: Mapping[int, str], upto: int, from_: int | None = None, ids: Mapping[int, str] | None = None,
    stream: str = STREAM,
) -> Batch:  # fmt: skip
    """A batch with these bodies at these positions; `from_` is the first of them unless given."""
    places = sorted(bodies_at)
    given = ids or {}
    indexed: tuple[IndexedId, ...] = tuple(
        (index, given[place].encode()) for index, place in enumerate(places) if place in given
    )
    block = pack([encode_message(text(bodies_at[place])) for place in places], indexed) if places else None
    start = from_ if from_ is not None else places[0]
    runs = tuple((place, place) for place in places)
    return Batch(stream, start, upto, runs, block, block.checksum if block else 0)


def target(
    journal: Journal, bridge: str = BRIDGE, *, check_ids: bool = False, places: bool = False
) -> JournalTarget:
    return JournalTarget(journal, bridge, check_producer_ids=check_ids, places=places)


async def open_stream(end: JournalTarget, stream: str = STREAM, address: str = "orders") -> StreamState:
    """Open one stream; what the journal remembers of it."""
    return (await end.open([Stream(stream, "orders", address, "run-1")])).streams[stream]


async def deliver(end: JournalTarget, *batches: Batch) -> list[Receipt]:
    return list(await end.deliver(batches))


def rows(directory: Path, sql: str) -> list[tuple[Any, ...]]:
    """What the file says, whatever is in memory."""
    connection = sqlite3.connect(directory / FILE_NAME)
    try:
        return cast("list[tuple[Any, ...]]", connection.execute(sql).fetchall())
    finally:
        connection.close()


def number(directory: Path, sql: str) -> int:
    """A single number from the file."""
    return int(rows(directory, sql)[0][0])


def check_file(directory: Path) -> None:
    """SQLite's own check, and that the counters of addresses and queues are those of the blocks."""
    assert rows(directory, "PRAGMA integrity_check") == [("ok",)]
    check_bodies(directory)
    for address_id, messages, size in rows(directory, "SELECT address_id, messages, bytes FROM addresses"):
        counted = "SELECT coalesce(sum(count), 0), coalesce(sum(size), 0) FROM blocks"
        assert rows(directory, f"{counted} WHERE address_id = {address_id}") == [(messages, size)]
    for name, *queue in rows(directory, "SELECT name, address_id, next, cursor, messages FROM queues"):
        address_id, next_position, packed, counted = queue
        if counted is not None:
            cursor = Cursor.unpack(next_position, packed)
            waiting = addressed_positions(directory, address_id, name) - settled_positions(cursor)
            assert len(waiting) == counted, name
            leased = [place for lease in cursor.leases.values() for place in spread(lease.intervals)]
            assert len(set(leased)) == sum(lease.count for lease in cursor.leases.values()), name
            assert waiting.issuperset(leased), name


def check_bodies(directory: Path) -> None:
    """Each block has its body, by itself or shared, and no body is kept that no block has."""
    unnamed = "SELECT body_id FROM bodies EXCEPT SELECT body_id FROM blocks"
    missing = "SELECT body_id FROM blocks WHERE body_id IS NOT NULL EXCEPT SELECT body_id FROM bodies"
    twice_or_never = "SELECT first FROM blocks WHERE (body_id IS NULL) = (length(body) = 0)"
    found = f"SELECT * FROM ({unnamed}) UNION ALL SELECT * FROM ({missing}) UNION ALL {twice_or_never}"
    assert rows(directory, found) == []


def addressed_positions(directory: Path, address_id: int, queue: str) -> set[int]:
    """The positions of stored messages that are addressed to a queue."""
    blocks = rows(directory, f"SELECT first, count, routes FROM blocks WHERE address_id = {address_id}")
    return {
        first + index
        for first, count, routes in blocks
        for low, high in addressed(routes, queue, count)
        for index in range(low, high)
    }


def settled_positions(cursor: Cursor) -> set[int]:
    """The positions that a cursor has settled."""
    return {*range(cursor.next), *spread(cursor.settled)}


def spread(intervals: Iterable[Interval]) -> list[int]:
    """The positions in intervals."""
    return [place for from_, end in intervals for place in range(from_, end)]
