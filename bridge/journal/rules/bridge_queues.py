"""The queues of bridges that read this journal: made at opening, and when a bridge comes or goes later."""

from __future__ import annotations

from dataclasses import replace

from bridge.errors import Conflict, JournalFailed, NotFound
from bridge.journal.rules.commands import BridgeCommand
from bridge.journal.rules.commit_group import Group
from bridge.journal.rules.state import AddressState, QueueState
from bridge.journal.values.options import REPLAYED_QUEUE, BridgeQueue, bridge_queue_name


def make_bridge_queues(group: Group, bridge: BridgeQueue) -> None:
    """Make what the bridge reads from, as far as it is missing: the addresses that it names, unless a queue
    has the name, and its queue on each address that it selects.
    """
    state = group.state
    for name in bridge.addresses:
        if name not in state.addresses and not (name in bridge.shared.candidates and state.has_queue(name)):
            group.make_address(name)
    queue = bridge_queue_name(bridge.bridge)
    if bridge.previous:
        _adopt_queues(group, bridge)
    for address in list(state.addresses.values()):
        if address.gives_copies and bridge.selects(address.name) and queue not in address.queues:
            group.make_queue(address, queue, bridge.bridge, address.trimmed)


def fit_routing_type(group: Group, address: AddressState) -> None:
    """Let an address that was made before have the routing type that the settings say now.

    Raises:
        JournalFailed: it has queues that an ANYCAST address cannot have, or that still hold messages.
    """
    wanted = address.policy.routing_type
    if address.routing_type == wanted:
        return
    start = address.trimmed
    if wanted == "ANYCAST":
        own = {address.name, REPLAYED_QUEUE}
        others = [queue for queue in address.queues.values() if queue.name not in own]
        for queue in others:
            if queue.bridge is None or queue.cursor.next < address.next:
                raise _cannot_become_anycast(address, queue)
        for queue in others:
            group.drop_queue(address, queue)
            start = address.next
    else:
        start = address.next  # what was there before was for one of the readers or bridges
    address.routing_type = wanted
    group.changed_addresses[address.address_id] = address
    group.make_first_queues(address, start)


def _cannot_become_anycast(address: AddressState, queue: QueueState) -> JournalFailed:
    if queue.bridge is None:
        why = f"it has the queue {queue.name}: delete that first"
    else:
        waiting = f"from {queue.cursor.next} up to {address.next}"
        why = f"messages wait for the bridge {queue.bridge}, {waiting}: let it send them first"
    return JournalFailed(
        f"addresses.{address.name}.routing-type: {address.name} cannot become ANYCAST, {why}",
        key=f"addresses.{address.name}.routing-type",
        limit=address.name,
        found=queue.name,
    )


def change_bridge_set(group: Group, command: BridgeCommand) -> None:
    """Let a bridge read this journal from now on, or no more. The queues of one that goes stay as orphans.

    Raises: Conflict: it reads already. NotFound: it does not read.
    """
    name = command.bridge.bridge
    others = [one for one in group.options.bridges if one.bridge != name]
    reads = len(others) < len(group.options.bridges)
    if command.action == "add" and reads:
        raise Conflict(f"the bridge {name} reads this journal already", key="bridge", found=name)
    if command.action == "remove" and not reads:
        raise NotFound(f"no bridge {name} reads this journal", key="bridge", found=name)
    if command.action != "remove":
        make_bridge_queues(group, command.bridge)
        others.append(command.bridge)
    group.options = replace(group.options, bridges=others)


def _adopt_queues(group: Group, bridge: BridgeQueue) -> None:
    """Rename the queues of the bridge's previous name, with what the target confirmed of their streams.

    Decided by address: where the bridge has a queue of its own, or does not read, the old queue stays as an
    orphan.
    """
    old_name, name = bridge_queue_name(bridge.previous), bridge_queue_name(bridge.bridge)
    state = group.state
    for address in state.addresses.values():
        queue = address.queues.get(old_name)
        if queue is None or name in address.queues or not bridge.reads(address.name):
            continue
        group.rename_queue(address, queue, name, bridge.bridge)
        stream = address.stream(group.incarnation)
        settled = state.settled.pop((bridge.previous, stream), None)
        if settled is not None:
            group.statements.append(
                ("DELETE FROM settled WHERE bridge = ? AND stream = ?", (bridge.previous, stream))
            )
            if (bridge.bridge, stream) not in state.settled:
                key = (bridge.bridge, stream)
                state.settled[key] = group.changed_settled[key] = settled
