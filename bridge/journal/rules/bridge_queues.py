"""The queues of bridges that read this journal: made at opening, and when a bridge comes or goes later."""

from __future__ import annotations

from bridge.errors import Conflict, NotFound
from bridge.journal.rules.commands import BridgeCommand
from bridge.journal.rules.commit_group import Group
from bridge.journal.values.options import BridgeQueue, bridge_queue_name


def make_bridge_queues(group: Group, bridge: BridgeQueue) -> None:
    """Make what the bridge reads from, as far as it is missing: the addresses that it names, and its queue on
    each address that it selects.
    """
    state = group.state
    for name in bridge.addresses:
        if name not in state.addresses:
            group.make_address(name)
    queue = bridge_queue_name(bridge.bridge)
    if bridge.previous:
        _adopt_queues(group, bridge)
    for address in list(state.addresses.values()):
        if not address.deleted and bridge.selects(address.name) and queue not in address.queues:
            group.make_queue(address, queue, bridge.bridge, address.trimmed)


def change_bridge_set(group: Group, command: BridgeCommand) -> None:
    """Let a bridge read this journal from now on, or no more. The queues of one that goes stay as orphans.

    Raises: Conflict: it reads already. NotFound: it does not read.
    """
    name = command.bridge.bridge
    others = [one for one in group.options.bridges if one.bridge != name]
    reads = len(others) < len(group.options.bridges)
    if command.action == "add":
        if reads:
            raise Conflict(f"the bridge {name} reads this journal already", key="bridge", found=name)
        make_bridge_queues(group, command.bridge)
        others.append(command.bridge)
    elif not reads:
        raise NotFound(f"no bridge {name} reads this journal", key="bridge", found=name)
    group.bridges = others


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
        del address.queues[old_name]
        queue.name, queue.bridge = name, bridge.bridge
        address.queues[name] = queue
        renamed = (name, bridge.bridge, queue.queue_id)
        group.statements.append(("UPDATE queues SET name = ?, bridge = ? WHERE queue_id = ?", renamed))
        stream = address.stream(group.incarnation)
        settled = state.settled.pop((bridge.previous, stream), None)
        if settled is not None:
            group.statements.append(
                ("DELETE FROM settled WHERE bridge = ? AND stream = ?", (bridge.previous, stream))
            )
            if (bridge.bridge, stream) not in state.settled:
                key = (bridge.bridge, stream)
                state.settled[key] = group.changed_settled[key] = settled
