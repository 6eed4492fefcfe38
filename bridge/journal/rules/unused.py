"""Queues and addresses that come and go by themselves, as Artemis's do (its chapter "Address settings").

Decided in the transaction that deletes, in a group of its own: a reader, a message or a bridge that came
before it wins.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from bridge.errors import Conflict
from bridge.journal.rules.commands import (
    DeleteAddressCommand,
    DeleteUnusedCommand,
    LeaseCommand,
    QueueCommand,
)
from bridge.journal.rules.commit_group import Group
from bridge.journal.rules.queues import change_queue_set, delete_address
from bridge.journal.rules.state import AddressState, QueueState
from bridge.journal.sqlite.reader import count_unsettled
from bridge.journal.values.options import GONE_QUEUES, REPLAYED_QUEUE
from bridge.journal.values.views import AddressView, QueueView


def may_go(address: AddressState | AddressView, queue: QueueState | QueueView) -> bool:
    """Whether a queue may go by itself if it has no reader and few enough messages."""
    policy = address.policy.unused
    return (
        policy.delete_queues
        and queue.bridge is None
        and queue.name != REPLAYED_QUEUE
        and (queue.automatic or policy.delete_created_queues)
        and (queue.used or policy.queues_skip_usage_check)
    )


def address_may_go(
    address: AddressState | AddressView, queues: Iterable[QueueState] | Iterable[QueueView]
) -> bool:
    """Whether an address may go by itself if it holds no message: it has no queue, or none but its own of an
    ANYCAST address, which may go, too.
    """
    policy = address.policy.unused
    if not (policy.delete_addresses and address.automatic):
        return False
    if not (address.used or policy.addresses_skip_usage_check):
        return False
    return all(
        not address.gives_copies and queue.name == address.name and may_go(address, queue) for queue in queues
    )


def make_for_reader(group: Group, connection: sqlite3.Connection, command: LeaseCommand) -> None:
    """Make the queue whose messages a reader asks for, where it is missing and the settings say so.

    Raises: Conflict, AddressNotFound: it cannot be made.
    """
    address = group.state.addresses.get(command.address)
    if address is not None and command.queue in address.queues:
        return
    policy = group.options.policy(command.address) if address is None else address.policy
    if command.queue == REPLAYED_QUEUE:
        return
    shared = address is not None and not address.gives_copies and command.queue == address.name
    if policy.unused.create_queues or shared:
        gone = None if address is None else address.gone.get(command.queue)
        made = QueueCommand(
            future=command.future,
            action="create",
            address=command.address,
            queue=command.queue,
            start="earliest" if gone is None else gone,
            automatic=True,
        )
        change_queue_set(group, connection, made)


def delete_unused(group: Group, connection: sqlite3.Connection, command: DeleteUnusedCommand) -> None:
    """Delete the queue or the address, if it still may go."""
    command.result = False
    address = group.state.addresses.get(command.address)
    if address is None or address.deleted:
        return
    try:
        if command.queue is None:
            command.result = _delete_address(group, connection, command, address)
        else:
            command.result = _delete_queue(group, connection, command, address)
    except Conflict:  # a bridge shares it
        command.result = False


def _delete_queue(
    group: Group, connection: sqlite3.Connection, command: DeleteUnusedCommand, address: AddressState
) -> bool:
    queue = address.queues.get(command.queue or "")
    if queue is None or not address.gives_copies or not may_go(address, queue):
        return False
    if not _is_idle(group, connection, address, queue) or not _has_room_for_gone(address, queue):
        return False
    future, name = command.future, queue.name
    deletes = QueueCommand(future=future, action="delete", address=address.name, queue=name)
    change_queue_set(group, connection, deletes)
    if address.messages:  # what it has settled may still be stored, for others or for a while
        address.gone = _still_stored(address) | {name: address.next}
        group.change_gone(address)
    return True


def _still_stored(address: AddressState) -> dict[str, int]:
    """The queues that went, of which the address still stores messages."""
    return {name: position for name, position in address.gone.items() if position > address.trimmed}


def _has_room_for_gone(address: AddressState, queue: QueueState) -> bool:
    return queue.name in address.gone or len(_still_stored(address)) < GONE_QUEUES


def _delete_address(
    group: Group, connection: sqlite3.Connection, command: DeleteUnusedCommand, address: AddressState
) -> bool:
    if not address_may_go(address, address.queues.values()):
        return False
    if address.messages and address.gives_copies:
        return False
    if not all(_is_idle(group, connection, address, queue) for queue in address.queues.values()):
        return False
    delete_address(group, connection, DeleteAddressCommand(future=command.future, address=address.name))
    return True


def _is_idle(group: Group, connection: sqlite3.Connection, address: AddressState, queue: QueueState) -> bool:
    """Whether nothing of the queue is leased, and no more waits there than may go with it."""
    group.expire_leases(address, queue)
    if queue.cursor.leases:
        return False
    waiting = queue.messages
    if waiting is None:
        waiting = count_unsettled(connection, address.address_id, queue.cursor, address.total)
    most = address.policy.unused.queues_message_count
    return most < 0 or waiting <= most
