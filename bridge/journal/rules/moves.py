"""Moves: messages stored at a destination and settled in the queue that they leave, in one transaction."""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from bridge.filters import Filter
from bridge.filters.blocks import taken
from bridge.journal.rules.arrivals import LETTER_NAMES, Came
from bridge.journal.rules.commands import MoveCommand, Moved
from bridge.journal.rules.commit_group import Group
from bridge.journal.rules.placement import Parcel, require_room, store
from bridge.journal.rules.state import AddressState, QueueState, Reservation
from bridge.journal.sqlite.damage import DamagedMessages, required_row
from bridge.journal.sqlite.reader import find_address, find_blocks, read_block
from bridge.journal.sqlite.stretches import addressed_ranges
from bridge.journal.values.options import REPLAYED_QUEUE
from bridge.journal.values.queue_cursor import Cursor, Interval, common, intervals
from bridge.journal.values.routing import Destination
from bridge.messages.block import Block
from bridge.messages.stream_names import is_forward_log, journal_stream

#: Messages and bytes of one command, so that it delays others for some milliseconds only.
MOVE_MESSAGES: Final = 1_000
MOVE_BYTES: Final = 1024 * 1024
#: Bytes of blocks looked at in one step, and for one command where a condition leaves most of them.
_STEP_BYTES: Final = 4 * 1024 * 1024
_LOOK_BYTES: Final = 16 * 1024 * 1024


class Free(NamedTuple):
    """Messages of one block that are free in a queue: neither settled nor leased."""

    #: Position of the first; the others follow it directly.
    first: int
    #: One beyond the position of the message before it on its address.
    from_: int
    block: Block
    #: The way in which they came to the address.
    came: Came


@dataclass(slots=True)
class Choice:
    """The messages of one queue that a condition takes. It looks at each message once; one reader at a time
    uses it.
    """

    condition: Filter
    #: Settled in it: positions of messages that it has left, or that are settled in the queue.
    seen: Cursor = field(default_factory=lambda: Cursor(0))

    def unseen(self, queue: Cursor, upto: int) -> list[Interval]:
        """The free positions of the queue below `upto` that it has not looked at."""
        return common(queue.free(upto), self.seen.free(upto))

    def take(self, free: Free, address: str) -> list[int]:
        """Indices of the messages that the condition takes; the others are left from now on."""
        indices = taken(self.condition, free.block, address)
        there = set(indices)
        left = [index for index in range(free.block.count) if index not in there]
        # With the positions of other addresses before them, so that the list stays short.
        before = [(free.from_, free.first)] if left and left[0] == 0 else []
        self.seen.settle(*before, *intervals(free.first + index for index in left))
        return indices


class Movable(NamedTuple):
    """Messages of a queue that can be moved now."""

    messages: list[Moved]
    #: Whether it may hold more that can be moved at once.
    has_more: bool = False
    #: The time at which the first lease of the queue ends, by the clock of leases; None: nothing is leased.
    expiry_ms: int | None = None
    #: The intervals of messages that are settled behind others that are not.
    intervals: int = 0


def read_movable(
    connection: sqlite3.Connection,
    leaving: tuple[str, str],
    to: Destination,
    incarnation: str,
    *,
    lease_now_ms: int = 0,
    choice: Choice | None = None,
    reserved: Sequence[Interval] | None = None,
) -> Movable:
    """The first free messages of a queue, for one command: at most `MOVE_MESSAGES` and `MOVE_BYTES`, but one
    message at least.

    `leaving` is the address and the queue. Leases that have ended by `lease_now_ms` hold nothing. Messages
    that have no origin yet get their place here as their origin. `reserved`: where they are; None: anywhere.
    """
    address, queue = leaving
    row = find_address(connection, address)
    cursor = None if row is None else read_cursor(connection, row.address_id, queue)
    if cursor is None and queue == REPLAYED_QUEUE:
        cursor = Cursor(0)  # it is made with the first messages that leave it
    if row is None or cursor is None:
        return Movable([])
    cursor.expire(lease_now_ms)
    if choice is not None:
        choice.seen.follow(cursor)  # what is settled in the file: the writer may be ahead of it
    gaps = reserved
    if gaps is None:
        gaps = cursor.free(row.next) if choice is None else choice.unseen(cursor, row.next)
    (start,) = required_row(
        connection, "SELECT first FROM addresses WHERE address_id = ?", (row.address_id,), "addresses"
    )
    stream = journal_stream(incarnation, address, start)
    found: list[Moved] = []
    count = size = looked = 0
    has_more = False
    for free in read_free(connection, row.address_id, gaps, queue=queue):
        block = free.block
        indices = range(block.count) if choice is None else choice.take(free, address)
        fitting = max((MOVE_BYTES - size) // block.largest, 0 if found else 1)
        number = min(len(indices), MOVE_MESSAGES - count, fitting)
        if number:
            chosen = indices[:number]
            places = intervals(free.first + index for index in chosen)
            part = block.chosen(chosen).stamped(stream, ((low, high - 1) for low, high in places))
            before = free.from_ if chosen[0] == 0 else places[0][0]
            found.append(Moved(places, before, _letters_to(to, free.came), part))
            count += number
            size += part.size
        looked += block.size
        has_more = number < len(indices) or looked >= _LOOK_BYTES
        if has_more:
            break
    return Movable(found, has_more, cursor.next_expiry_ms, len(cursor.settled))


def _letters_to(to: Destination, came: Came) -> Destination:
    """The destination, which for dead letters that go to another node says that they are some."""
    if not is_forward_log(to.address):
        return to
    name = next((name for name, letter in LETTER_NAMES.items() if letter is came), None)
    return to if name is None else msgspec.structs.replace(to, only=(*to.only, name))


def read_cursor(connection: sqlite3.Connection, address_id: int, queue: str) -> Cursor | None:
    """The cursor of a queue; None: there is no such queue."""
    row = connection.execute(
        "SELECT next, cursor FROM queues WHERE address_id = ? AND name = ?", (address_id, queue)
    ).fetchone()
    return None if row is None else Cursor.unpack(*row)


def read_free(
    connection: sqlite3.Connection,
    address_id: int,
    gaps: Iterable[Interval],
    start: int = 0,
    *,
    queue: str = REPLAYED_QUEUE,
) -> Iterator[Free]:
    """The messages of an address that are addressed to `queue`, in these intervals, at positions from `start`
    on, in order, up to a damaged one.

    Raises: DamagedMessages: the first is damaged.
    """
    found = False
    for gap, end in gaps:
        low = max(gap, start)
        while low < end and (firsts := find_blocks(connection, address_id, low, end, _STEP_BYTES)):
            for first in firsts:
                try:
                    block = read_block(connection, first).block
                except DamagedMessages:
                    if not found:
                        raise
                    return  # those before it can go
                found = True
                before, came = _beside(connection, address_id, first)
                for begin, stop in addressed_ranges(connection, queue, first, block.count, low, end):
                    part = block.part(begin - first, stop - first)
                    yield Free(begin, before if begin == first else begin, part, came)
                low = first + block.count


def _beside(connection: sqlite3.Connection, address_id: int, first: int) -> tuple[int, Came]:
    """One beyond the last message before a block, and how the block came."""
    (before,) = connection.execute(
        "SELECT coalesce(max(first + count), 0) FROM (SELECT first, count FROM blocks"
        " WHERE address_id = ? AND first < ? ORDER BY first DESC LIMIT 1)",
        (address_id, first),
    ).fetchone()
    (buried,) = required_row(connection, "SELECT buried FROM blocks WHERE first = ?", (first,), "blocks")
    return before, Came(buried)


def move(group: Group, command: MoveCommand) -> None:
    """Store the messages that are still free at their destinations, and settle them in their queue.

    Producers' IDs are not checked: what is moved was accepted before.

    Raises:
        AddressNotFound, QueueNotFound, AddressFull, MessageTooLarge.
        Blocked: there is no room now.
    """
    address = group.existing_address(command.address)
    queue = _queue(group, address, command.queue)
    cursor = Cursor(address.trimmed) if queue is None else queue.cursor.at(group.lease_now_ms)
    free = _free(group, command, address, cursor)
    parcels = [Parcel(one.to, one.block, one.came) for one in free]
    require_room(group, parcels)
    if queue is None:
        queue = group.make_queue(address, command.queue, None, address.trimmed)
    group.expire_leases(address, queue)
    reserved = _end_reservation(group, queue, command.lease)
    moved = sum(one.block.count for one in free)
    if reserved is not None and (reserved.may_leave or reserved.count > moved):
        group.touched.add(address.name)  # others may have the rest, and what is behind
    group.use_queue(address, queue)
    queue.cursor.settle((queue.cursor.next, address.trimmed))
    store(group, parcels)
    for one in free:
        if one.learns_ids:
            _learn_ids(group, one)
    # With the positions of other addresses before them, so that the list beyond `next` stays short.
    queue.cursor.settle(
        *((one.from_, one.first) for one in free), *(place for one in free for place in one.places)
    )
    if queue.messages is not None:
        queue.messages -= moved
    group.change_queue(address, queue)
    command.result = [one.first for one in free]


def _queue(group: Group, address: AddressState, name: str) -> QueueState | None:
    """The queue that messages leave; None: that of replayed letters, which is made with the first of them.

    The queue of a bridge that runs is not among them: its source has read ahead of the cursor.
    """
    there = address.queues.get(name)
    running = {bridge.bridge for bridge in group.options.bridges}
    if name == REPLAYED_QUEUE or (there is not None and there.bridge and there.bridge not in running):
        return there
    return group.require_queue(address.name, name)


def _end_reservation(group: Group, queue: QueueState, lease: str) -> Reservation | None:
    reserved = queue.reserved.pop(lease, None)
    if reserved is not None:
        group.undo.append(lambda: queue.reserved.setdefault(lease, reserved))
    return reserved


def _lacks_queue(group: Group, to: Destination) -> bool:
    """Whether no queue would get what is stored there: those that it is for have been deleted."""
    there = group.state.addresses.get(to.address)
    names = () if there is None else there.queues
    return bool(to.only) and to.bridge is None and not any(queue in names for queue in to.only)


def _free(group: Group, command: MoveCommand, address: AddressState, cursor: Cursor) -> list[Moved]:
    """The blocks of which every message is free, each once."""
    gaps = cursor.free(address.next)
    free: list[Moved] = []
    upto = address.trimmed
    for one in command.messages:
        if _lacks_queue(group, one.to):
            continue
        if one.first >= upto and all(_is_within(gaps, *place) for place in one.places):
            free.append(one)
            upto = one.end
    return free


def _is_within(gaps: list[Interval], first: int, end: int) -> bool:
    index = bisect_right(gaps, first, key=lambda gap: gap[0]) - 1
    return index >= 0 and end <= gaps[index][1]


def _learn_ids(group: Group, one: Moved) -> None:
    name, values = one.to.address, [value for _, value in one.block.ids]
    known = set(group.known(name, values))
    group.remember(name, [value for place, value in enumerate(values) if place not in known])
