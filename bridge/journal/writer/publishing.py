"""Views of addresses and queues, made in the writer's thread from the state that a commit has left."""

from __future__ import annotations

from bridge.journal.rules.commit_group import Group
from bridge.journal.rules.state import AddressState, QueueState, State
from bridge.journal.values.views import AddressView, Changes, QueueView


def committed_changes(group: Group) -> Changes:
    """The views of what a group has changed, after its COMMIT.

    The queues of an address are not among them unless they have changed: an address may have 10,000.
    """
    changed = group.changed_addresses
    if group.changed_policies:
        changed = changed | {address.address_id: address for address in group.changed_policies}
    return Changes(
        group.state.intake,
        False,
        group.dropped_addresses,
        group.dropped_queues,
        [_address_view(address) for address in changed.values() if not address.deleted],
        [(address.address_id, _queue_view(queue)) for address, queue in group.changed_queues.values()],
    )


def everything(state: State) -> Changes:
    """The views of all that a state has, when it has just been loaded."""
    there = [address for address in state.by_id.values() if not address.deleted]
    return Changes(
        state.intake,
        everything=True,
        addresses=[_address_view(address) for address in there],
        queues=[
            (address.address_id, _queue_view(queue)) for address in there for queue in address.queues.values()
        ],
    )


def _address_view(address: AddressState) -> AddressView:
    cache = address.cache
    return AddressView(
        address.address_id, address.name, address.policy, address.routing_type, address.first, address.next,
        address.messages, address.bytes, address.automatic, address.used,
        len(cache), cache.capacity, cache.evicted,
    )  # fmt: skip


def _queue_view(queue: QueueState) -> QueueView:
    cursor, filter_ = queue.cursor, queue.filter
    return QueueView(
        queue.name, queue.bridge, cursor.next, "" if filter_ is None else filter_.text, queue.messages,
        queue.automatic, queue.used, cursor.last_expiry_ms if cursor.leases else 0,
    )  # fmt: skip
