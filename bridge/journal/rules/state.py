"""The journal's state in memory: an image of small tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bridge.filters import Filter
from bridge.journal.rules.owners import NOT_RECORDED, Owner
from bridge.journal.values.options import REPLAYED_QUEUE, AddressPolicy
from bridge.journal.values.queue_cursor import Cursor, Interval, cut
from bridge.journal.values.views import Intake
from bridge.messages.addresses import RoutingType
from bridge.messages.stream_names import journal_stream, source_of
from dedup.cache import IdCache

#: Later than every clock's time: kept for ever.
FOR_EVER_MS = 2**62

#: Bits of `auto_created` in rows of addresses and queues.
AUTOMATIC = 1
USED = 2

#: Name of an address that was deleted, followed by its id.
DELETED_PREFIX = "$deleted."


@dataclass(frozen=True, slots=True)
class Reservation:
    """Messages of a queue that a bridge has been given, and is about to move."""

    #: Disjoint, ascending.
    intervals: Sequence[Interval]
    #: Messages in them.
    count: int
    #: Whether the bridge's filter may leave some of them. Nothing behind them is given out before it has
    #: decided, or a reader would get what it leaves out of order.
    may_leave: bool


@dataclass(slots=True)
class QueueState:
    """A row of `queues`."""

    queue_id: int
    name: str
    #: The bridge it belongs to; None: readers'.
    bridge: str | None
    cursor: Cursor
    #: Asked for each message that arrives; None: the queue takes all.
    filter: Filter | None = None
    #: Messages that are addressed to it and not settled. Others may be stored beyond `cursor.next`, and each
    #: interval of a lease holds an addressed message at every position. None: all that are stored beyond
    #: `cursor.next` are addressed to it, and the number follows from positions.
    messages: int | None = None
    #: Whether a reader made it, or it came with an address that was made by itself.
    automatic: bool = False
    #: Whether it ever had a reader, or a bridge has taken messages from it.
    used: bool = False
    #: How often its row was written.
    version: int = 0
    #: By the name of the lease that a bridge has asked for; in memory only.
    reserved: dict[str, Reservation] = field(default_factory=dict)

    @property
    def condition(self) -> str:
        """The filter's text; empty: there is none."""
        return "" if self.filter is None else self.filter.text

    def free(self, upto: int) -> list[Interval]:
        """The intervals below `upto` that can be given out, ascending."""
        reserved = [interval for one in self.reserved.values() for interval in one.intervals]
        gaps = self.cursor.free(upto, reserved)
        undecided = [one.intervals[0][0] for one in self.reserved.values() if one.may_leave]
        return cut(gaps, min(undecided) - 1) if undecided else gaps

    def acknowledge(self, lease_id: str, upto: int | None) -> bool:
        """As `Cursor.acknowledge`, counted."""
        lease = self.cursor.leases.get(lease_id)
        if lease is not None and self.messages is not None:
            self.messages -= sum(end - from_ for from_, end in cut(lease.intervals, upto))
        return self.cursor.acknowledge(lease_id, upto)


@dataclass(slots=True)
class AddressState:
    """A row of `addresses`, with its queues and its ID cache."""

    address_id: int
    name: str
    policy: AddressPolicy
    routing_type: RoutingType
    first: int
    next: int
    trimmed: int
    total: int
    messages: int
    bytes: int
    logged: int
    cache: IdCache
    #: The cache size that an operator set, and the settings' value that it replaced.
    id_cache_size: int | None = None
    id_cache_configured: int | None = None
    queues: dict[str, QueueState] = field(default_factory=dict)
    #: Whether a message or a reader made it.
    automatic: bool = False
    #: Whether it ever had a readers' queue.
    used: bool = False
    #: By name, readers' queues that went by themselves: the position from which on a reader that comes back
    #: has got nothing.
    gone: dict[str, int] = field(default_factory=dict)
    #: The places of messages that could not be read, and that the operator has passed over; ascending.
    lost: list[Interval] = field(default_factory=list)
    #: One beyond its oldest block; None: not looked up yet.
    oldest_end: int | None = None
    #: Whether there may be a queue that counts its messages.
    has_counts: bool = False

    def counting_queues(self) -> Sequence[QueueState]:
        """The queues to which some messages may not be addressed: those that count their messages."""
        if not self.has_counts:
            return ()
        found = [queue for queue in self.queues.values() if queue.messages is not None]
        self.has_counts = bool(found)
        return found

    def stream(self, incarnation: str) -> str:
        """The identity of this address's stream."""
        return journal_stream(incarnation, self.name, self.first)

    @property
    def deleted(self) -> bool:
        """Whether it was deleted; it is kept under another name until its blocks are gone."""
        return self.name.startswith(DELETED_PREFIX)

    @property
    def gives_copies(self) -> bool:
        """Whether each bridge that selects it gets all messages: those of an ANYCAST address are shared."""
        return not self.deleted and self.routing_type != "ANYCAST"

    @property
    def needed_from(self) -> int:
        """The first position that some queue still needs; without a queue, the first that did not go with one
        by itself.
        """
        if self.deleted:
            return self.next
        if not self.queues:
            return max(self.first, *self.gone.values()) if self.gone else self.first
        others = [queue for queue in self.queues.values() if queue.name != REPLAYED_QUEUE]
        return min(queue.cursor.next for queue in others or self.queues.values())

    @property
    def earliest(self) -> int:
        """The position at which a queue begins that is to get all that is stored."""
        return self.trimmed if self.queues else max(self.trimmed, self.needed_from)

    @property
    def retains(self) -> bool:
        """Whether messages that every queue has passed stay: `retain-time`, while there is room."""
        policy = self.policy
        return policy.retain_time_ms != 0 and self.bytes <= policy.retain_bytes and not self.deleted

    def retained_until_ms(self, stored_ms: int) -> int:
        """The wall-clock time until which a block stored then stays although no queue needs it, ms; 0: it
        does not stay.
        """
        if not self.retains:
            return 0
        keep_ms = self.policy.retain_time_ms
        return FOR_EVER_MS if keep_ms < 0 else stored_ms + keep_ms

    @property
    def to_trim(self) -> bool:
        """Whether it holds a block, or a row, that no queue needs."""
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
    #: The bridge that adopted it; empty: no bridge has.
    moved_to: str = ""
    #: The caller that may move it.
    owner: Owner = NOT_RECORDED
    #: The epoch of a batch that was not taken: no later one of it may be, until the stream is opened again.
    refused_epoch: int = 0


@dataclass(slots=True)
class SettledState:
    """A row of `settled`."""

    upto: int
    checksum: int
    store: str
    #: What other stores confirmed (`bridge.relay.stays`), as text.
    stays: str = ""


@dataclass(slots=True)
class Upload:
    """A large body on its way in."""

    #: Chunks that have come, and their bytes.
    chunks: int = 0
    size: int = 0


@dataclass(slots=True)
class State:
    """The state by which the writer decides."""

    sequence: int
    #: Number of lines that were ever written to the outbox: the number of the newest.
    lines: int = 0
    addresses: dict[str, AddressState] = field(default_factory=dict)
    by_id: dict[int, AddressState] = field(default_factory=dict)
    positions: dict[tuple[str, str], PositionState] = field(default_factory=dict)
    #: Bridge and source (`stream_names.source_of`) of every stream in `positions` that has a next.
    brought: set[tuple[str, str]] = field(default_factory=set)
    settled: dict[tuple[str, str], SettledState] = field(default_factory=dict)
    #: IDs dropped at loading because a cache is smaller than it was, by address.
    ids_dropped: dict[str, int] = field(default_factory=dict)
    #: Addresses that `rows` searches for blocks that no queue needs any more.
    to_trim: set[int] = field(default_factory=set)
    #: Addresses whose unneeded blocks only `retain-time` keeps, and until when (wall clock, ms).
    retained: dict[int, int] = field(default_factory=dict)
    #: Large bodies on their way in, by number: the chunks that have come, and their bytes.
    uploads: dict[int, Upload] = field(default_factory=dict)
    #: Large bodies that no block has any more: `trimming` deletes their chunks.
    loose_bodies: set[int] = field(default_factory=set)
    last_address_id: int = 0
    last_queue_id: int = 0
    intake: Intake = Intake.OPEN

    def find_brought(self) -> None:
        """Find `brought` anew, after positions have gone."""
        self.brought = {
            (bridge, source_of(stream))
            for (bridge, stream), position in self.positions.items()
            if position.next is not None
        }

    @property
    def has_garbage(self) -> bool:
        """Whether `trimming` may find blocks that no queue needs, or chunks that no block has."""
        return bool(self.to_trim or self.loose_bodies)

    def streams_of(self, principal: str, ending: str = "") -> int:
        """The number of streams whose positions are this caller's, of those whose identity has this
        ending.
        """
        return sum(
            position.owner.principal == principal and stream.endswith(ending)
            for (_, stream), position in self.positions.items()
        )

    def has_queue(self, name: str) -> bool:
        """Whether readers have a queue of this name, on any address."""
        found = (address.queues.get(name) for address in self.addresses.values())
        return any(queue is not None and queue.bridge is None for queue in found)

    def add_address(self, address: AddressState) -> None:
        """Add an address that is new, or was read."""
        self.addresses[address.name] = self.by_id[address.address_id] = address
        self.last_address_id = max(self.last_address_id, address.address_id)

    def add_queue(self, address: AddressState, queue: QueueState) -> None:
        """Add a queue that is new, or was read."""
        address.queues[queue.name] = queue
        address.has_counts = address.has_counts or queue.messages is not None
        self.last_queue_id = max(self.last_queue_id, queue.queue_id)

    def filters(self) -> dict[str, Filter]:
        """The filters of all queues, by their conditions."""
        queues = [queue for address in self.by_id.values() for queue in address.queues.values()]
        return {queue.filter.text: queue.filter for queue in queues if queue.filter is not None}

    def carrying(self, before: State, *, ids: bool) -> State:
        """This state, loaded again, with the parts that no row has: the epochs that take nothing more, what
        is reserved for bridges, and with `ids` the IDs.

        A cache changes after COMMIT only (`Group.stored`): a failed group has left nothing in it, nor in the
        cache of an address that it has deleted under another name.
        """
        for key, position in self.positions.items():
            if (known := before.positions.get(key)) is not None:
                position.refused_epoch = known.refused_epoch
        reserved = {
            queue.queue_id: queue.reserved
            for address in before.by_id.values()
            for queue in address.queues.values()
            if queue.reserved
        }
        for address in self.by_id.values() if reserved else ():
            for queue in address.queues.values():
                queue.reserved = reserved.get(queue.queue_id, queue.reserved)
        for address_id, address in self.by_id.items() if ids else ():
            same = before.by_id.get(address_id)
            if same is not None and not address.deleted:
                if same.cache.capacity != address.cache.capacity:  # a change of it was lost with its group
                    same.cache.resize(address.cache.capacity)
                address.cache = same.cache
        return self

    def drop_address(self, address: AddressState) -> None:
        """Drop an address whose last row is gone."""
        del self.addresses[address.name], self.by_id[address.address_id]
        self.to_trim.discard(address.address_id)
        self.retained.pop(address.address_id, None)

    @property
    def next_due_ms(self) -> int | None:
        """The time when `look_at_retained` finds a block, wall clock; None: never."""
        due_ms = min(self.retained.values(), default=FOR_EVER_MS)
        return due_ms if due_ms < FOR_EVER_MS else None

    def look_at_retained(self, now_ms: int) -> None:
        """Mark the addresses whose blocks were retained for long enough to be trimmed."""
        for address_id in [address_id for address_id, due_ms in self.retained.items() if due_ms <= now_ms]:
            del self.retained[address_id]
            self.to_trim.add(address_id)
