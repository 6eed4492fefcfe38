"""Queues, leases, caches and addresses: the less frequent commands of a commit group."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

from bridge.errors import Conflict, Forbidden, TooBusy, listed
from bridge.journal.rules import queue_filters
from bridge.journal.rules.client_transactions import stale_lease
from bridge.journal.rules.commands import (
    CacheCommand,
    DeleteAddressCommand,
    EndLeaseCommand,
    Grant,
    LeaseCommand,
    QueueCommand,
)
from bridge.journal.rules.commit_group import Group
from bridge.journal.rules.state import DELETED_PREFIX, AddressState, QueueState, Reservation
from bridge.journal.sqlite.shared_names import find_shared
from bridge.journal.sqlite.stretches import Stretch, addressed_stretches, stretches
from bridge.journal.values.options import LEASED_INTERVALS, LEASES, PASSED_BLOCKS
from bridge.journal.values.queue_cursor import Cursor, Interval, Lease, common
from bridge.messages.addresses import QueueName


def change_queue_set(group: Group, connection: sqlite3.Connection, command: QueueCommand) -> None:
    """Make a queue (True: it is new), change the filter of one that is there, or delete one."""
    if command.action == "delete":
        _delete_queue(group, connection, command)
    else:
        _make_queue(group, connection, command)


def _delete_queue(group: Group, connection: sqlite3.Connection, command: QueueCommand) -> None:
    queue = group.require_queue(command.address, command.queue)
    address = group.state.addresses[command.address]
    if not address.gives_copies:
        detail = f"{address.name} is ANYCAST: its one queue goes with the address"
        raise Conflict(detail, key="queue", limit=address.name, found=command.queue)
    check_not_shared(group, connection, address, command.queue)
    group.drop_queue(address, queue)
    group.touched.add(address.name)  # readers that wait for its messages learn that it is gone


def _make_queue(group: Group, connection: sqlite3.Connection, command: QueueCommand) -> None:
    name, there = command.address, group.state.addresses.get(command.address)
    is_there = there is not None and command.queue in there.queues
    if not is_there:
        _check_room_for_queue(group)
    group.policy(name)
    is_shared = group.type_of(name, command.routing_type) == "ANYCAST"
    if command.filter is not None:
        if is_shared:
            detail = f"{name} is ANYCAST: what a filter of its one queue rejects would have no reader"
            raise Conflict(detail, key="filter", limit=name, found=command.queue)
        if there is not None:
            queue_filters.check_room(there, command.queue)
    if there is not None and is_there:
        command.result = False
        _change_queue(group, connection, there, command)
        return
    if is_shared and command.queue != name:
        detail = f"{name} is ANYCAST: it has one queue, of its own name"
        raise Conflict(detail, key="queue", limit=name, found=command.queue)
    address = group.require_address(name, command.routing_type, automatic=command.automatic, bare=True)
    start = _start(address, command)
    made = queue_filters.make_queue(group, connection, address, command.queue, start, command.filter)
    made.automatic = command.automatic
    if address.gone.pop(command.queue, None) is not None:
        group.change_gone(address)
    command.result = True


def _start(address: AddressState, command: QueueCommand) -> int:
    """The position at which the new queue begins."""
    if command.start == "earliest":
        return address.earliest
    if command.start == "latest":
        return address.next  # this group's messages get their positions last, all of them behind
    return min(max(command.start, address.trimmed), address.next)


def _change_queue(
    group: Group, connection: sqlite3.Connection, address: AddressState, command: QueueCommand
) -> None:
    """Take what the command says of a queue that is there."""
    queue = group.require_queue(command.address, command.queue)
    if not command.keeps_filter:
        _change_filter(group, connection, address, queue, command)
    if queue.automatic and not command.automatic:
        queue.automatic = False
        group.change_queue(address, queue)


def _change_filter(
    group: Group,
    connection: sqlite3.Connection,
    address: AddressState,
    queue: QueueState,
    command: QueueCommand,
) -> None:
    condition = "" if command.filter is None else command.filter.text
    if condition == queue.condition:
        return
    if not command.may_change_filter:
        detail = (
            f"{command.queue} of {address.name} has another filter, and to change it needs the right to "
            "delete queues"
        )
        raise Forbidden(detail, key="filter", found=condition)
    command.replaced = queue.condition
    queue_filters.change_filter(group, connection, address, queue, command.filter)


def check_not_shared(
    group: Group, connection: sqlite3.Connection, address: AddressState, queue: str | None = None
) -> None:
    """Check that no bridge shares the queue, or with None any queue, with its readers. Raises: Conflict."""
    bridges = [
        bridge.bridge
        for bridge in group.options.bridges
        for name in find_shared(connection, bridge.selects, bridge.shared).queues
        if name.address == address.name and queue in (None, name.queue)
    ]
    if bridges:
        what = address.name if queue is None else str(QueueName(address.name, queue))
        detail = f"{what} is read by the bridges {listed(sorted(bridges))}"
        raise Conflict(detail, key="address" if queue is None else "queue", found=what)


def _check_room_for_queue(group: Group) -> None:
    """Check that another readers' queue may be made. Raises: Conflict: there are `max-queues` already."""
    most = group.options.max_queues
    readers = [
        queue
        for address in group.state.addresses.values()
        for queue in address.queues.values()
        if queue.bridge is None
    ]
    if len(readers) >= most:
        detail = f"no queue is made: there are {len(readers)}, and max-queues is {most}"
        raise Conflict(detail, "max-queues", most, len(readers) + 1)


def lease(group: Group, connection: sqlite3.Connection, command: LeaseCommand) -> None:
    """Lease the next messages that are neither settled nor leased, in order, of those that earlier commits
    stored.
    """
    queue = group.require_queue(command.address, command.queue)
    address = group.state.addresses[command.address]
    if not command.reserves:
        _check_leases(group, command, queue)
    group.expire_leases(address, queue)
    if not command.reserves:
        group.use_queue(address, queue)
    cursor = queue.cursor
    gaps = _gaps(command, address, queue)
    most = _share(connection, command, address, queue, gaps) if command.reserves else command.most
    room = _Room(most, command.most_bytes)
    if queue.messages is not None:
        _lease_addressed(group, connection, command, address, queue, gaps, room)
        return
    intervals: list[Interval] = []
    for gap in gaps:
        start, end = gap[0], room.fill(stretches(connection, address.address_id, gap))
        if end is not None:
            intervals.append((start, end))
        elif not room.count and gap[1] < address.next:
            cursor.settle(gap)  # holds no message: let `next` move over it
            group.change_queue(address, queue)
        if room.is_full:
            break
    _grant(group, command, address, queue, intervals, room.count)


def _check_leases(group: Group, command: LeaseCommand, queue: QueueState) -> None:
    """Check that the queue may have another lease. Raises: TooBusy."""
    name = f"{command.address}/{command.queue}"
    running = [one for one in queue.cursor.leases.values() if one.expires_ms > group.lease_now_ms]
    if len(running) >= LEASES:
        raise TooBusy(f"{name} has {len(running)} leases", key="leases", limit=LEASES, found=len(running))
    held = sum(len(one.intervals) for one in running)
    if queue.messages is not None and held >= LEASED_INTERVALS:
        detail = f"{name} has leases of {held} stretches of messages"
        raise TooBusy(detail, key="leases", limit=LEASED_INTERVALS, found=held)


def _leased_intervals(queue: QueueState) -> int:
    return sum(len(lease.intervals) for lease in queue.cursor.leases.values())


def _gaps(command: LeaseCommand, address: AddressState, queue: QueueState) -> list[Interval]:
    """The intervals of the queue that can be given out, but for what the bridge's filter has left."""
    gaps = queue.free(address.next)
    if command.left is None:
        return gaps
    # A copy: the queue's cursor may be that of a group that fails.
    left = command.left_now = Cursor(command.left.next, list(command.left.settled))
    left.follow(queue.cursor)
    return common(gaps, left.free(address.next))


def _share(
    connection: sqlite3.Connection,
    command: LeaseCommand,
    address: AddressState,
    queue: QueueState,
    gaps: Iterable[Interval],
) -> int:
    """The most messages that a bridge gets: as many of those that are free as each of the others.

    Readers that hold leases count as one, however many there are: they may not come back.
    """
    others = command.others + bool(queue.cursor.leases)
    if not others:
        return command.most
    free = 0
    for stretch in (one for gap in gaps for one in stretches(connection, address.address_id, gap)):
        free += stretch.end - stretch.first
        if free >= command.most:
            break
    return -(-min(free, command.most) // (1 + others))


def _grant(
    group: Group,
    command: LeaseCommand,
    address: AddressState,
    queue: QueueState,
    intervals: list[Interval],
    count: int,
) -> None:
    cursor = queue.cursor
    if intervals and command.reserves:
        queue.reserved[command.lease] = Reservation(intervals, count, command.left is not None)
        group.undo.append(lambda: queue.reserved.pop(command.lease, None))
        command.result = Grant(command.lease, intervals, count)
    elif intervals:
        cursor.take(command.lease, Lease(intervals, count, group.lease_now_ms + command.lease_ms))
        group.change_queue(address, queue)
        command.result = Grant(command.lease, intervals, count)
    elif (expiry := cursor.next_expiry_ms) is not None:
        command.retry_ms = expiry - group.lease_now_ms


def _lease_addressed(
    group: Group,
    connection: sqlite3.Connection,
    command: LeaseCommand,
    address: AddressState,
    queue: QueueState,
    gaps: Iterable[Interval],
    room: _Room,
) -> None:
    """Lease messages of a queue to which not all are addressed. What lies before and between them is settled.

    Each interval of the lease holds a message at every position.
    """
    held = _leased_intervals(queue)
    taken: list[Interval] = []
    passed: list[Interval] = []
    looked_at = 0
    for before, stretch in _walk(connection, address, queue.name, gaps) if queue.messages else ():
        passed.append(before)
        if stretch is None:
            looked_at += 1
            if looked_at >= PASSED_BLOCKS:
                break
            continue
        upto = room.fill((stretch,))
        if upto is not None and taken and taken[-1][1] == stretch.first:
            taken[-1] = (taken[-1][0], upto)
        elif upto is not None:
            taken.append((stretch.first, upto))
        if room.is_full or held + len(taken) >= LEASED_INTERVALS:
            break
    if passed := [(from_, end) for from_, end in passed if from_ < end]:
        queue.cursor.settle(*passed)
        group.change_queue(address, queue)
    if looked_at >= PASSED_BLOCKS and not taken:
        command.retry_ms = 0
        return
    _grant(group, command, address, queue, taken, room.count)


def _walk(
    connection: sqlite3.Connection, address: AddressState, queue: str, gaps: Iterable[Interval]
) -> Iterator[tuple[Interval, Stretch | None]]:
    """The messages of these gaps that are addressed to a queue, in order: each stretch with the positions of
    its gap before it, and None behind the last stretch of a block.
    """
    for gap_start, gap_end in gaps:
        at = gap_start
        for end, found in addressed_stretches(connection, address.address_id, queue, (gap_start, gap_end)):
            for stretch in found:
                yield (at, stretch.first), stretch
                at = stretch.end
            yield (at, end), None
            at = end
        yield (at, gap_end), None


class _Room:
    """The room that a page still has. Bytes are estimated from above: a page is never more than was asked
    for.
    """

    def __init__(self, messages: int, size: int) -> None:
        self._messages = messages
        self._bytes = size
        self.count = 0
        self.is_full = False

    def fill(self, found: Iterable[Stretch]) -> int | None:
        """Take messages in order; answers one beyond the last taken, None where none was."""
        end = None
        for stretch in found:
            number = min(stretch.end - stretch.first, self._messages - self.count)
            if min(number * stretch.largest, stretch.size) > self._bytes:
                number = min(number, self._bytes // stretch.largest)
            if number <= 0 and not self.count:
                number = 1  # one message at least, however large
            if number > 0:
                end = stretch.first + number
                self.count += number
                self._bytes -= min(number * stretch.largest, stretch.size)
            if number < stretch.end - stretch.first or self.count >= self._messages or self._bytes <= 0:
                self.is_full = True
                break
        return end


def end_lease(group: Group, command: EndLeaseCommand) -> None:
    """Settle a lease or release it, or release a reservation.

    Raises: StaleLease, QueueNotFound, AddressNotFound.
    """
    wanted = command.acknowledgement
    queue = group.require_queue(wanted.address, wanted.queue)
    address = group.state.addresses[wanted.address]
    if not command.settle and queue.reserved.pop(wanted.lease, None) is not None:
        group.touched.add(wanted.address)
        return
    if not group.has_lease(queue, wanted.lease):
        raise stale_lease(wanted)
    group.expire_leases(address, queue)
    if command.settle:
        queue.acknowledge(wanted.lease, wanted.upto)
    else:
        queue.cursor.release(wanted.lease)
    if wanted.upto is not None or not command.settle:
        group.touched.add(wanted.address)
    group.change_queue(address, queue)


def change_cache(group: Group, command: CacheCommand) -> None:
    """Clear or resize an ID cache, on disk and then in memory. In a group of its own (`dispatch`)."""
    address = group.existing_address(command.address)
    if command.capacity is None:
        command.result = group.change_cache(address, address.cache.capacity, 0)
    else:
        command.result = group.change_cache(address, command.capacity)
        address.id_cache_size, address.id_cache_configured = command.capacity, address.policy.id_cache_size


def delete_address(group: Group, connection: sqlite3.Connection, command: DeleteAddressCommand) -> None:
    """Delete an address: its queues and IDs at once, its blocks in bounded steps; the name is free at once.

    In a group of its own (`writer`). Raises: AddressNotFound, Conflict.
    """
    address = group.existing_address(command.address)
    check_no_bridge(group, connection, address)
    drop_address(group, address)


def check_no_bridge(group: Group, connection: sqlite3.Connection, address: AddressState) -> None:
    """Check that no bridge reads the address. Raises: Conflict."""
    bridges = sorted(queue.bridge for queue in address.queues.values() if queue.bridge is not None)
    if bridges:
        raise Conflict(
            f"{address.name} is read by the bridges {listed(bridges)}",
            key="address",
            found=address.name,
        )
    check_not_shared(group, connection, address)


def drop_address(group: Group, address: AddressState) -> None:
    """Delete an address and its queues, with or without readers. In a group of its own (`dispatch`)."""
    state = group.state
    group.touched.add(address.name)
    group.queues_changed = True
    group.drop_address(address)
    del state.addresses[address.name]
    address.name = f"{DELETED_PREFIX}{address.address_id}"
    state.addresses[address.name] = address
    group.change_cache(address, address.cache.capacity, 0)
    state.to_trim.add(address.address_id)
    if address.gone:
        address.gone.clear()
        group.change_gone(address)
    for table in ("queues", "ids"):
        group.statements.append((f"DELETE FROM {table} WHERE address_id = ?", (address.address_id,)))
