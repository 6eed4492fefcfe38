"""Queues that not all messages are addressed to: those with a filter, and those that a cluster passes by.

A filter is asked once for each message, in the transaction that stores it. So another filter acts on the
messages that arrive from then on, and those that are stored stay as they were addressed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from bridge.errors import Conflict
from bridge.filters import Filter
from bridge.filters.blocks import taken
from bridge.journal.rules.arrivals import Arrivals, Sets
from bridge.journal.rules.commit_group import Group
from bridge.journal.rules.state import AddressState, QueueState
from bridge.journal.sqlite.reader import count_unsettled
from bridge.journal.sqlite.stretches import addressed_stretches, count_left_out, stretches
from bridge.journal.values.options import FILTERED_QUEUES, PASSED_BLOCKS, REPLAYED_QUEUE
from bridge.journal.values.queue_cursor import Cursor, Interval
from bridge.journal.values.routes import pack_routes
from bridge.messages.block import Block
from bridge.messages.stream_names import is_forward_log


def make_queue(
    group: Group,
    connection: sqlite3.Connection,
    address: AddressState,
    name: str,
    start: int,
    filter_: Filter | None,
) -> QueueState:
    """Make a readers' queue that begins at position `start`: what is stored there is addressed to it, but for
    messages that a queue of its name has not taken.
    """
    left_out = count_left_out(connection, address.address_id, name, start)
    messages = None
    if filter_ is not None or left_out:
        stored = count_unsettled(connection, address.address_id, Cursor(start), address.total)
        messages = stored - left_out
    return group.make_queue(address, name, None, start, filter_, messages)


def check_room(address: AddressState, queue: str) -> None:
    """Check that another queue of the address may have a filter. Raises: Conflict: `FILTERED_QUEUES` do."""
    others = [one for one in address.counting_queues() if one.filter is not None and one.name != queue]
    if len(others) >= FILTERED_QUEUES:
        detail = f"{address.name} has {len(others)} queues with a filter, the most there may be"
        raise Conflict(detail, "filter", FILTERED_QUEUES, len(others) + 1)


def change_filter(
    group: Group,
    connection: sqlite3.Connection,
    address: AddressState,
    queue: QueueState,
    filter_: Filter | None,
) -> None:
    """Let the queue take what arrives from now on by another filter, or everything where that is None."""
    _begin_to_count(group, connection, address, queue)
    queue.filter = filter_
    group.change_queue(address, queue)
    group.queues_changed = True


def _begin_to_count(
    group: Group, connection: sqlite3.Connection, address: AddressState, queue: QueueState
) -> None:
    """Let a queue count its messages, of which all that are stored are addressed to it until now."""
    if queue.messages is not None:
        return
    cursor, address_id = queue.cursor, address.address_id
    queue.messages = count_unsettled(connection, address_id, cursor, address.total)
    for lease in cursor.leases.values():
        lease.intervals = [
            (stretch.first, stretch.end)
            for gap in lease.intervals
            for stretch in stretches(connection, address_id, gap)
        ]
    address.has_counts = True
    group.change_queue(address, queue)


def begin_counts(group: Group, connection: sqlite3.Connection, arrivals: Arrivals) -> Sequence[QueueState]:
    """The queues of an address that count their messages, before the messages of a group are stored there.

    Those to which not all of these are addressed begin to. One without a filter that has none left ends it:
    all from here on are addressed to it.
    """
    address = arrivals.address
    for queue in address.queues.values():
        if queue.bridge is None and queue.name != REPLAYED_QUEUE and arrivals.leave_out(queue.name):
            _begin_to_count(group, connection, address, queue)
    counting = address.counting_queues()
    for queue in counting:
        if queue.filter is None and queue.messages == 0 and not arrivals.leave_out(queue.name):
            queue.messages = None
    return counting


def route(
    group: Group, address: AddressState, counting: Sequence[QueueState], block: Block, sets: Sets
) -> bytes | None:
    """Address the messages of a block to the address's queues: answers `blocks.routes`."""
    filtered: dict[str, Sequence[int]] = {}
    for queue in counting:
        if queue.filter is not None:
            raised = queue.filter.raised
            filtered[queue.name] = taken(queue.filter, block, address.name)
            if raised := queue.filter.raised - raised:
                key = (address.name, queue.name)
                group.not_evaluated[key] = group.not_evaluated.get(key, 0) + raised
        if queue.messages is not None:
            indices = filtered.get(queue.name, range(block.count))
            queue.messages += len(indices) if sets is None else sum(sets[i].has(queue.name) for i in indices)
    if not filtered and sets is None:
        return None
    routes, unrouted = pack_routes(block.count, filtered, address.queues.keys() - {REPLAYED_QUEUE}, sets)
    if unrouted and not is_forward_log(address.name):
        group.unrouted[address.name] = group.unrouted.get(address.name, 0) + unrouted
    return routes


def pass_left_out(group: Group, connection: sqlite3.Connection, address: AddressState) -> bool:
    """Let the queues that hold an address's oldest messages pass over those that are not addressed to them.

    Answers whether any did: there may be more to pass.
    """
    oldest, moved = address.needed_from, False
    for queue in address.counting_queues():
        if queue.cursor.next != oldest or not queue.messages:
            continue
        gap = next(iter(queue.cursor.free(address.next)), (oldest, oldest))
        upto = _first_addressed(connection, address, queue.name, gap) if gap[0] == oldest else oldest
        if upto > oldest:
            queue.cursor.settle((oldest, upto))
            group.change_queue(address, queue)
            moved = True
    return moved


def _first_addressed(connection: sqlite3.Connection, address: AddressState, queue: str, gap: Interval) -> int:
    """The first position in a gap with a message for the queue; or how far one command has looked for it."""
    blocks = addressed_stretches(connection, address.address_id, queue, gap)
    for number, (end, found) in enumerate(blocks, 1):
        if found:
            return found[0].first
        if number == PASSED_BLOCKS:
            return end
    return gap[1]
