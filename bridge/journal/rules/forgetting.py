"""Leftovers that are dropped: delivery-log lines that were copied, and those of a bridge that is gone."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.errors import Conflict, NotFound
from bridge.journal.rules.commands import ForgetCommand, ForgetLinesCommand
from bridge.journal.rules.commit_group import Group


def forget_lines(group: Group, command: ForgetLinesCommand) -> None:
    """Delete the rows of delivery-log lines that their segment holds."""
    group.statements.append(("DELETE FROM outbox WHERE line_id <= ?", (command.upto,)))


def _check_unread(group: Group, command: ForgetCommand) -> None:
    """Check that no bridge reads the queues to be forgotten. Raises: Conflict: one does."""
    for bridge in group.options.bridges:
        if bridge.bridge != command.bridge:
            continue
        if command.address is None:
            detail = f"the bridge {command.bridge} is in the settings: take it out first, or name an address"
            raise Conflict(detail, key="bridge", found=command.bridge)
        if bridge.reads(command.address):
            detail = (
                f"the bridge {command.bridge} reads {command.address}: take it out of its queue-name first"
            )
            raise Conflict(detail, key="address", found=command.address)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The data that a bridge left in the journal."""

    #: Addresses with a queue of the bridge.
    queues: list[str]
    #: (stream, confirmed up to).
    settled: list[tuple[str, int]]
    #: Streams of which it remembers dead letters.
    letters: list[str]


def forget_bridge(group: Group, command: ForgetCommand) -> None:
    """Drop a bridge's queues, its settled positions, and the record of which of its messages have a dead
    letter.

    The positions that a bridge of this name delivered to this node stay: without them the messages would be
    stored again.

    Raises:
        Conflict: the bridge is configured, and reads the address. NotFound: it left nothing.
    """
    state, name = group.state, command.bridge
    _check_unread(group, command)
    queues = [(address, queue) for address in state.addresses.values() for queue in address.queues.values()]
    own = [
        (address, queue)
        for address, queue in queues
        if queue.bridge == name and command.address in (None, address.name)
    ]
    settled = sorted(key for key in state.settled if key[0] == name)
    letters = sorted(key for key in state.positions if key[0].startswith(f"{name}/"))
    if command.address is not None:
        streams = {address.stream(group.incarnation) for address, _ in own}
        settled = [key for key in settled if key[1] in streams]
        letters = [key for key in letters if key[1] in streams]
    if not (own or settled or letters):
        where = f" at {command.address}" if command.address is not None else ""
        raise NotFound(f"nothing is left of a bridge {name}{where}", key="bridge", found=name)
    command.result = Forgotten(
        [address.name for address, _ in own],
        [(stream, state.settled[name, stream].upto) for _, stream in settled],
        [stream for _, stream in letters],
    )
    if not command.really:
        return
    for address, queue in own:
        del address.queues[queue.name]
        group.statements.append(("DELETE FROM queues WHERE queue_id = ?", (queue.queue_id,)))
        state.to_trim.add(address.address_id)
    for key in settled:
        del state.settled[key]
        group.statements.append(("DELETE FROM settled WHERE bridge = ? AND stream = ?", key))
    for key in letters:
        del state.positions[key]
        group.statements.append(("DELETE FROM positions WHERE bridge = ? AND stream = ?", key))
