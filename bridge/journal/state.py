"""The journal's state in memory: an image of small tables, loaded at opening and after every failure."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

import msgspec

from bridge.cursor import Cursor
from bridge.journal.options import AddressPolicy, JournalOptions
from dedup.cache import IdCache

#: Name of an address that was deleted, followed by its id.
DELETED_PREFIX = "$deleted."

_ids_decoder = msgspec.msgpack.Decoder(list[bytes])


@dataclass(slots=True)
class QueueState:
    """A row of `queues`."""

    queue_id: int
    name: str
    #: The bridge it belongs to; None: readers'.
    bridge: str | None
    cursor: Cursor


@dataclass(slots=True)
class AddressState:
    """A row of `addresses`, with its queues and its ID cache."""

    address_id: int
    name: str
    policy: AddressPolicy
    routing_type: str
    first: int
    next: int
    trimmed: int
    total: int
    messages: int
    bytes: int
    logged: int
    cache: IdCache
    #: Operator's cache size, and the settings' value it replaced.
    id_cache_size: int | None = None
    id_cache_configured: int | None = None
    queues: dict[str, QueueState] = field(default_factory=dict)
    #: One beyond its oldest block; None: not looked up yet.
    oldest_end: int | None = None

    def stream(self, incarnation: str) -> str:
        """The identity of this address's stream."""
        return f"journal:{incarnation}:{self.name}:{self.first}"

    @property
    def deleted(self) -> bool:
        """Deleted, and kept under another name until its blocks are gone."""
        return self.name.startswith(DELETED_PREFIX)

    @property
    def needed_from(self) -> int:
        """The first position that some queue still needs; `first` where there is no queue."""
        if self.deleted:
            return self.next
        if not self.queues:
            return self.first
        return min(queue.cursor.next for queue in self.queues.values())

    @property
    def to_trim(self) -> bool:
        """Whether it holds a block, or a row, that nobody needs."""
        if self.deleted:
            return True
        needed = self.needed_from
        return needed > self.trimmed and (self.oldest_end is None or self.oldest_end <= needed)


@dataclass(slots=True)
class PositionState:
    """A row of `positions`."""

    next: int | None
    run: str
    checksum: int
    epoch: int
    #: A batch of this epoch was not taken: nothing behind it may be, until the stream is opened again.
    blocked_epoch: int = 0


@dataclass(slots=True)
class SettledState:
    """A row of `settled`."""

    upto: int
    checksum: int
    store: str


@dataclass(slots=True)
class State:
    """Everything that the writer decides by."""

    sequence: int
    addresses: dict[str, AddressState] = field(default_factory=dict)
    by_id: dict[int, AddressState] = field(default_factory=dict)
    positions: dict[tuple[str, str], PositionState] = field(default_factory=dict)
    settled: dict[tuple[str, str], SettledState] = field(default_factory=dict)
    #: IDs dropped at loading because a cache is smaller than it was, by address.
    ids_dropped: dict[str, int] = field(default_factory=dict)
    #: Addresses that `rows` looks through for what nobody needs any more.
    to_trim: set[int] = field(default_factory=set)
    last_address_id: int = 0
    last_queue_id: int = 0

    def add_address(self, address: AddressState) -> None:
        """An address that is new, or was read."""
        self.addresses[address.name] = self.by_id[address.address_id] = address
        self.last_address_id = max(self.last_address_id, address.address_id)

    def add_queue(self, address: AddressState, queue: QueueState) -> None:
        """A queue that is new, or was read."""
        address.queues[queue.name] = queue
        self.last_queue_id = max(self.last_queue_id, queue.queue_id)

    def drop_address(self, address: AddressState) -> None:
        """An address whose last row is gone."""
        del self.addresses[address.name], self.by_id[address.address_id]
        self.to_trim.discard(address.address_id)


def load_state(connection: sqlite3.Connection, options: JournalOptions) -> State:
    """Read the small tables and the ID blocks; never the message blocks, so 10 GB load as fast as 10 MB.

    Raises:
        sqlite3.Error, msgspec.DecodeError: the file is damaged.
    """
    (sequence,) = connection.execute("SELECT next FROM sequence").fetchone()
    state = State(sequence)
    _load_addresses(connection, options, state)
    for queue_id, address_id, name, bridge, next_position, packed in connection.execute(
        "SELECT queue_id, address_id, name, bridge, next, cursor FROM queues"
    ):
        cursor = Cursor.unpack(next_position, packed)
        state.add_queue(state.by_id[address_id], QueueState(queue_id, name, bridge, cursor))
    for bridge, stream, *rest in connection.execute(
        "SELECT bridge, stream, next, run, checksum, epoch FROM positions"
    ):
        state.positions[bridge, stream] = PositionState(*rest)
    for bridge, stream, *rest in connection.execute(
        "SELECT bridge, stream, upto, checksum, store FROM settled"
    ):
        state.settled[bridge, stream] = SettledState(*rest)
    state.to_trim = {address.address_id for address in state.by_id.values() if address.to_trim}
    return state


def _load_addresses(connection: sqlite3.Connection, options: JournalOptions, state: State) -> None:
    rows = connection.execute(
        "SELECT address_id, name, routing_type, first, next, trimmed, total, messages, bytes, logged,"
        " ids_accepted, id_cache_capacity, id_cache_size, id_cache_configured FROM addresses"
    )
    for *values, accepted, capacity_before, own_size, replaced_size in rows.fetchall():
        address_id, name, routing_type, first, next_position, trimmed, total, messages, size, logged = values
        policy = options.policy(name)
        # An operator's size holds until the settings say something new.
        resized, configured = own_size, replaced_size
        if configured != policy.id_cache_size:
            resized = configured = None
        cache = IdCache(policy.id_cache_size if resized is None else resized)
        if options.persist_id_cache:
            found = _load_ids(connection, address_id, cache, accepted)
            # A crash, or a row that is overwritten in part, leaves more than the cache ever held.
            if (dropped := min(found, capacity_before) - len(cache)) > 0:
                state.ids_dropped[name] = dropped
        state.add_address(
            AddressState(
                address_id, name, policy, routing_type, first, next_position, trimmed,
                total, messages, size, logged, cache, resized, configured,
            )
        )  # fmt: skip


def _load_ids(connection: sqlite3.Connection, address_id: int, cache: IdCache, accepted: int) -> int:
    """Fill `cache` from the address's rows, oldest first; answers how many IDs they hold."""
    (found,) = connection.execute(
        "SELECT coalesce(sum(count), 0) FROM ids WHERE address_id = ?", (address_id,)
    ).fetchone()

    def blocks() -> Iterator[list[bytes]]:
        for (packed,) in connection.execute(
            "SELECT packed FROM ids WHERE address_id = ? ORDER BY first", (address_id,)
        ):
            yield _ids_decoder.decode(packed)

    cache.load(chain.from_iterable(blocks()), accepted=accepted)
    return int(found)
