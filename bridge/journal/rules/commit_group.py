"""One commit group: the changes of its commands, collected before the first row is written.

The rules are in `client_transactions`, `bridge_batches` and `queues`; they decide each command, in order, on
the state in memory. `writer.rows` then stores the collected changes in one transaction. Positions are given
out last, so that each address gets one contiguous range a group. If anything fails between here and COMMIT,
the state is loaded again from the file: nothing that was decided here counts. What no row has is changed
after COMMIT (`Group.stored`), or taken back (`Group.undo`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from bridge.errors import AddressFull, AddressNotFound, BridgeError, MessageTooLarge, QueueNotFound
from bridge.filters import Filter
from bridge.journal.rules.arrivals import Arrivals
from bridge.journal.rules.commands import CommitCommand, WriteCommand
from bridge.journal.rules.gone_queues import gone_statements
from bridge.journal.rules.log_lines import Logbook
from bridge.journal.rules.state import AddressState, PositionState, QueueState, SettledState, State
from bridge.journal.values.options import (
    REPLAYED_QUEUE,
    AddressPolicy,
    JournalOptions,
    bridge_queue_name,
)
from bridge.journal.values.queue_cursor import Cursor
from bridge.journal.values.routing import Undo
from bridge.journal.values.store import Committed
from bridge.messages.addresses import RoutingType, WantedType
from dedup.cache import IdCache, Overlay

#: (bridge, stream identity).
StreamKey = tuple[str, str]


class Wait(NamedTuple):
    """The room that a blocked command waits for."""

    #: Its answer when its time is up.
    error: BridgeError
    #: The address that has none; empty: the disk.
    address: str = ""


class Blocked(Exception):
    """There is no room now: the command waits."""

    def __init__(self, wait: Wait, client_ms: int | None = None) -> None:
        """`client_ms`: the longest that a client's transaction waits for it; None: as for all commands."""
        super().__init__(wait.error.detail)
        self.wait = wait
        self.client_ms = client_ms


class CacheChange(NamedTuple):
    """A change of an address's ID cache: it is made once the group is stored, as new IDs join it then."""

    address: AddressState
    #: The most IDs that it holds from then on.
    capacity: int
    #: The IDs, the newest, that it keeps.
    kept: int

    def apply(self) -> None:
        """Make it."""
        cache = self.address.cache
        if not self.kept:
            cache.clear()
        if self.capacity != cache.capacity:
            cache.resize(self.capacity)


class Pending(msgspec.Struct):
    """A transaction whose positions are given out with the rows."""

    command: CommitCommand
    #: By address: how many messages of the group come before its own, and how many are its own.
    offsets: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    #: As in `Committed`.
    skipped: list[int] = msgspec.field(default_factory=list)
    elsewhere: dict[str, int] = msgspec.field(default_factory=dict)


@dataclass(slots=True)
class Group:
    """The commands of one commit, and the changes that they make."""

    state: State
    #: Those of the journal from this commit on: some commands change them.
    options: JournalOptions
    incarnation: str
    #: Wall clock of the commit.
    now_ms: int
    log: Logbook
    #: The clock that ends leases: wall clock at the start and monotonic from then on, ms; 0: no leases in
    #: this group.
    lease_now_ms: int = 0
    #: Streams with a batch that is blocked, and why: no later batch of them may be stored before it.
    blocked_streams: dict[StreamKey, Wait] = field(default_factory=dict)
    #: Addresses at which commands wait for room: what comes now waits behind them.
    awaited: Collection[str] = ()
    #: Whether blocks that no queue needs are deleted with it, and the bytes that were freed.
    trims: bool = True
    freed_bytes: int = 0
    arrivals: dict[str, Arrivals] = field(default_factory=dict)
    overlays: dict[str, Overlay] = field(default_factory=dict)
    changed_addresses: dict[int, AddressState] = field(default_factory=dict)
    changed_queues: dict[int, tuple[AddressState, QueueState]] = field(default_factory=dict)
    #: Queues that were deleted or renamed: the address's id, and the name that is free now.
    dropped_queues: list[tuple[int, str]] = field(default_factory=list)
    #: The ids of addresses that were deleted.
    dropped_addresses: list[int] = field(default_factory=list)
    #: Addresses that have other settings, which no row has.
    changed_policies: list[AddressState] = field(default_factory=list)
    #: One of the queues whose rows were written, with its version; None: none was written.
    written_queue: tuple[int, int] | None = None
    #: By address, what becomes of its ID cache once the group is stored.
    changed_caches: dict[int, CacheChange] = field(default_factory=dict)
    changed_positions: dict[StreamKey, PositionState] = field(default_factory=dict)
    changed_settled: dict[StreamKey, SettledState] = field(default_factory=dict)
    #: Chunks of large bodies on their way in, as rows of `chunks`.
    chunks: list[tuple[int, bytes]] = field(default_factory=list)
    #: Rare changes, as SQL and its parameters, run before all rows.
    statements: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)
    made: list[str] = field(default_factory=list)
    #: Whether readers' queues were made or deleted, or have another filter.
    queues_changed: bool = False
    #: Messages that no queue of their address took, by address.
    unrouted: dict[str, int] = field(default_factory=dict)
    #: Messages for which the filter of a queue could not be evaluated, by address and queue.
    not_evaluated: dict[tuple[str, str], int] = field(default_factory=dict)
    #: Commands that are decided, and those that are blocked for want of room, each with the longest that a
    #: client's transaction waits.
    decided: list[WriteCommand] = field(default_factory=list)
    blocked: list[tuple[WriteCommand, Wait, int | None]] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    #: Takes back, should the group fail, what it has changed in memory and no row has.
    undo: Undo = field(default_factory=list)

    @property
    def changes_anything(self) -> bool:
        """Whether there is a row to write; answers that need no row rest on earlier commits."""
        return bool(
            self.arrivals
            or self.changed_queues
            or self.changed_caches
            or self.changed_positions
            or self.changed_settled
            or self.changed_addresses
            or self.statements
            or self.chunks
            or (self.trims and self.state.has_garbage)
            or not self.log.is_empty
            or any(overlay.added for overlay in self.overlays.values())
        )

    @property
    def message_bytes(self) -> int:
        """Bytes of the messages that the group brings, chunks of large bodies among them."""
        return sum(arrivals.size for arrivals in self.arrivals.values()) + self.chunk_bytes

    @property
    def chunk_bytes(self) -> int:
        """Bytes of the chunks of large bodies that the group brings."""
        return sum(len(chunk) for _, chunk in self.chunks) if self.chunks else 0

    # -- addresses -----------------------------------------------------------------------------------

    def policy(self, name: str) -> AddressPolicy:
        """The settings of an address that is there or may be made. Raises: AddressNotFound."""
        address = self.state.addresses.get(name)
        policy = address.policy if address is not None else self.options.policy(name)
        if address is None and not policy.auto_create:
            raise AddressNotFound(
                f"no address {name}, and auto-create-addresses is false for it", key="address", found=name
            )
        if address is None:
            self.check_room_for_addresses(name)
        return policy

    def check_room_for_addresses(self, *names: str) -> None:
        """Check that those of these addresses that do not exist may all be made. Raises: AddressNotFound."""
        there, most = self.state.addresses, self.options.max_addresses
        new = [name for name in names if name not in there]
        if new and len(there) + len(new) > most:
            raise AddressNotFound(
                f"no address {new[0]}, and none is made: there are {len(there)}, and max-addresses is {most}",
                key="max-addresses",
                limit=most,
                found=len(there) + len(new),
            )

    def require_address(
        self, name: str, routing_type: WantedType = "", *, automatic: bool = True, bare: bool = False
    ) -> AddressState:
        """The address that gets messages; it is made now if it may be, of this type or as the settings say.

        `bare`: its messages are stored elsewhere, so that the one queue of an ANYCAST address is not made.
        Raises: AddressNotFound.
        """
        address = self.state.addresses.get(name)
        if address is None:
            self.policy(name)
            address = self.make_address(
                name, self.type_of(name, routing_type), automatic=automatic, bare=bare
            )
        elif not (bare or address.gives_copies or address.name in address.queues):
            self.make_first_queues(address, address.next)
        return address

    def type_of(self, name: str, wanted: WantedType = "") -> RoutingType:
        """The type of an address; of one that is missing, the type that it gets when it is made."""
        address = self.state.addresses.get(name)
        if address is not None:
            return address.routing_type
        router = self.options.router
        if not wanted and router is not None:
            wanted = router.made_as(name)
        return wanted or self.options.policy(name).routing_type

    def existing_address(self, name: str) -> AddressState:
        """The address; it is not made where it is missing. Raises: AddressNotFound."""
        address = self.state.addresses.get(name)
        if address is None:
            raise AddressNotFound(f"no address {name}", key="address", found=name)
        return address

    def make_address(
        self, name: str, routing_type: WantedType = "", *, automatic: bool = False, bare: bool = False
    ) -> AddressState:
        """A new address, with the queues that it has from its beginning; `bare` as in `require_address`."""
        state, policy = self.state, self.options.policy(name)
        start = state.sequence
        address = AddressState(
            state.last_address_id + 1, name, policy, routing_type or policy.routing_type,
            start, start, start, 0, 0, 0, start, IdCache(policy.id_cache_size), automatic=automatic,
        )  # fmt: skip
        state.add_address(address)
        self.changed_addresses[address.address_id] = address
        self.made.append(name)
        if address.gives_copies or not bare:
            self.make_first_queues(address, start)
        return address

    def make_first_queues(self, address: AddressState, start: int) -> None:
        """Make the queues that an address has by its routing type: the one that all share, or one of each
        bridge that selects it.
        """
        if not address.gives_copies:
            if address.name not in address.queues:
                self.make_queue(address, address.name, None, start).automatic = address.automatic
            return
        for bridge in self.options.bridges:
            name = bridge_queue_name(bridge.bridge)
            if bridge.selects(address.name) and name not in address.queues:
                self.make_queue(address, name, bridge.bridge, start)

    # -- queues --------------------------------------------------------------------------------------

    def make_queue(
        self,
        address: AddressState,
        name: str,
        bridge: str | None,
        start: int,
        filter_: Filter | None = None,
        messages: int | None = None,
    ) -> QueueState:
        """A new queue that begins at position `start`; the last two as in `QueueState`."""
        queue = QueueState(self.state.last_queue_id + 1, name, bridge, Cursor(start), filter_, messages)
        self.state.add_queue(address, queue)
        self.change_queue(address, queue)
        if bridge is None and name != REPLAYED_QUEUE and not address.used:
            address.used = True
            self.changed_addresses[address.address_id] = address
        self.queues_changed = self.queues_changed or bridge is None
        return queue

    def drop_queue(self, address: AddressState, queue: QueueState) -> None:
        """Delete a queue, and its row."""
        del address.queues[queue.name]
        if queue.reserved:
            self.undo.append(lambda: address.queues.setdefault(queue.name, queue))
        self.changed_queues.pop(queue.queue_id, None)
        self.dropped_queues.append((address.address_id, queue.name))
        self.statements.append(("DELETE FROM queues WHERE queue_id = ?", (queue.queue_id,)))
        self.state.to_trim.add(address.address_id)
        self.queues_changed = self.queues_changed or queue.bridge is None

    def drop_address(self, address: AddressState) -> None:
        """Let the address have no queue, write no row of one any more, and publish that it is gone."""
        queues = dict(address.queues)
        for queue in queues.values():  # a lease that has ended has changed one of them
            self.changed_queues.pop(queue.queue_id, None)
        address.queues.clear()
        if any(queue.reserved for queue in queues.values()):
            self.undo.append(lambda: address.queues.update(queues))
        self.dropped_addresses.append(address.address_id)

    def rename_queue(self, address: AddressState, queue: QueueState, name: str, bridge: str) -> None:
        """Give a bridge's queue to another bridge, under that one's name."""
        del address.queues[queue.name]
        self.dropped_queues.append((address.address_id, queue.name))
        queue.name, queue.bridge = name, bridge
        address.queues[name] = queue
        self.change_queue(address, queue)

    def require_queue(self, address_name: str, queue_name: str) -> QueueState:
        """A readers' queue. Raises: AddressNotFound, QueueNotFound."""
        queue = self.existing_address(address_name).queues.get(queue_name)
        if queue is None or queue.bridge is not None or queue_name == REPLAYED_QUEUE:
            raise QueueNotFound(f"no queue {queue_name} on {address_name}", key="queue", found=queue_name)
        return queue

    def use_queue(self, address: AddressState, queue: QueueState) -> None:
        """Remember that the queue has had a reader, where that decides whether it may go by itself."""
        if not queue.used and address.policy.unused.delete_queues:
            queue.used = True
            self.change_queue(address, queue)

    def change_queue(self, address: AddressState, queue: QueueState) -> None:
        """Mark the queue's row to be written, and its address to be trimmed of blocks that no queue needs any
        more.

        A queue that counts its messages and has none left is at the end of its address: nothing waits for it.
        """
        if queue.messages == 0:
            queue.cursor = Cursor(max(queue.cursor.next, address.next))
        self.changed_queues[queue.queue_id] = (address, queue)
        self.state.to_trim.add(address.address_id)

    def change_gone(self, address: AddressState) -> None:
        """Store which queues of the address went by themselves."""
        self.statements.extend(gone_statements(address.address_id, address.gone))

    def expire_leases(self, address: AddressState, queue: QueueState) -> None:
        """End the leases whose time is up: their messages are free again."""
        if queue.cursor.expire(self.lease_now_ms):
            self.change_queue(address, queue)
            self.touched.add(address.name)

    def has_lease(self, queue: QueueState, lease: str) -> bool:
        """Whether the lease runs."""
        found = queue.cursor.leases.get(lease)
        return found is not None and found.expires_ms > self.lease_now_ms

    def take_upload(self, large_id: int) -> None:
        """Let the block that is added have a large body that was on its way in."""
        uploads = self.state.uploads
        upload = uploads.pop(large_id, None)
        if upload is not None:
            self.undo.append(lambda: uploads.setdefault(large_id, upload))

    # -- duplicate IDs -------------------------------------------------------------------------------

    def known(self, name: str, ids: Sequence[bytes]) -> list[int]:
        """Indices of the IDs that the address knows, those of this group included."""
        if name not in self.state.addresses:
            return []
        return self._overlay(name).known(ids)

    def accept(self, name: str, ids: Sequence[bytes]) -> list[int]:
        """Remember those of these IDs that are unknown, in order; answers the indices of the known ones
        (D6).
        """
        return self._overlay(name).accept(ids)

    def remember(self, name: str, ids: Sequence[bytes]) -> None:
        """Remember unknown IDs, each once, that commit with the group; the address exists."""
        if ids:
            self._overlay(name).add(ids)

    def change_cache(self, address: AddressState, capacity: int, kept: int | None = None) -> int:
        """Let the ID cache have this capacity, and the newest `kept` IDs (None: as many as it can), once the
        group is stored; answers the number of IDs that go.

        In a group of its own (`dispatch`), so that no overlay relies on what goes.
        """
        held = len(address.cache)
        stays = min(held, capacity if kept is None else kept)
        self.changed_caches[address.address_id] = CacheChange(address, capacity, stays)
        self.changed_addresses[address.address_id] = address
        return held - stays

    def _overlay(self, name: str) -> Overlay:
        overlay = self.overlays.get(name)
        if overlay is None:
            overlay = self.overlays[name] = self.state.addresses[name].cache.overlay()
        return overlay

    def cache_capacity(self, name: str) -> int:
        """The most IDs that the address holds, or would hold; 0: no ID is checked.

        Raises: AddressNotFound.
        """
        address = self.state.addresses.get(name)
        return address.cache.capacity if address is not None else self.policy(name).id_cache_size

    # -- messages ------------------------------------------------------------------------------------

    def arrivals_of(self, address: AddressState) -> Arrivals:
        """The messages that the address gets with this group."""
        arrivals = self.arrivals.get(address.name)
        if arrivals is None:
            arrivals = self.arrivals[address.name] = Arrivals(address)
        return arrivals

    def require_room(self, name: str, largest: int, *, may_be_made: bool = False) -> None:
        """Check that the address takes another message: below its limit, all of a command's are taken.

        `may_be_made`: it may be made whatever the settings and the number of addresses say.

        Raises:
            AddressNotFound: it is missing, and may not be made.
            MessageTooLarge: `largest` bytes are above the address's limit.
            AddressFull, Blocked: it is at its limit, with the policy FAIL and with BLOCK.
        """
        policy = self.settings(name) if may_be_made else self.policy(name)
        limit = policy.max_size_bytes
        if largest > limit:
            raise MessageTooLarge(
                f"{name} holds at most {limit} bytes; this message has {largest}",
                key="max-size-bytes",
                limit=limit,
                found=largest,
            )
        stored = self._stored_bytes(name)
        if stored < limit and not (name in self.awaited and policy.full_policy == "BLOCK"):
            return
        error = AddressFull(
            f"{name} holds {stored} bytes of {limit}", key="max-size-bytes", limit=limit, found=stored
        )
        if policy.full_policy == "FAIL":
            raise error
        times = [bridge.call_timeout_ms for bridge in self.options.bridges if bridge.reads_sent(name)]
        raise Blocked(Wait(error, name), min(times, default=None))

    def has_room(self, name: str) -> bool:
        """Whether the address is below its limit."""
        return self._stored_bytes(name) < self.settings(name).max_size_bytes

    def settings(self, name: str) -> AddressPolicy:
        """The settings of an address, whether or not it is there."""
        address = self.state.addresses.get(name)
        return address.policy if address is not None else self.options.policy(name)

    def _stored_bytes(self, name: str) -> int:
        """Bytes that the address holds, those of this group included."""
        address, arrivals = self.state.addresses.get(name), self.arrivals.get(name)
        return (address.bytes if address is not None else 0) + (arrivals.size if arrivals else 0)

    # -- the end -------------------------------------------------------------------------------------

    def stored(self) -> None:
        """Make the changes that wait for COMMIT: in the ID caches, and in the answers."""
        for overlay in self.overlays.values():
            overlay.commit()
        for change in self.changed_caches.values():
            change.apply()
        self._answer_commits()

    def take_back(self, since: int = 0) -> None:
        """Take back what is in memory only, from the entry `since` of `undo` on; all else is loaded again."""
        while len(self.undo) > since:
            self.undo.pop()()

    def _answer_commits(self) -> None:
        """Fill in the positions that `rows` gave out."""
        for pending in self.pending:
            positions = {}
            for name, (offset, count) in pending.offsets.items():
                arrivals = self.arrivals[name]
                first = arrivals.address.next - arrivals.count + offset
                positions[name] = (first, first + count - 1)
            pending.command.result = Committed(True, positions, pending.skipped, pending.elsewhere)
