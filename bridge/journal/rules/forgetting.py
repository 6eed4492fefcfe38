"""Leftovers that are dropped: delivery-log lines that were copied, and those of a bridge that is gone."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from bridge.errors import Conflict, NotFound
from bridge.journal.rules.commands import (
    DropLogCommand,
    ForgetCommand,
    ForgetLinesCommand,
)
from bridge.journal.rules.commit_group import Group
from bridge.journal.rules.queues import check_not_shared, drop_address


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
        group.drop_queue(address, queue)
    _forget_positions(group, settled, letters)


def _forget_positions(
    group: Group, settled: Sequence[tuple[str, str]], letters: Sequence[tuple[str, str]]
) -> None:
    """Delete these settled positions, and these of dead letters."""
    for key in settled:
        del group.state.settled[key]
        group.changed_settled.pop(key, None)
        group.statements.append(("DELETE FROM settled WHERE bridge = ? AND stream = ?", key))
    for key in letters:
        del group.state.positions[key]
        group.changed_positions.pop(key, None)
        group.statements.append(("DELETE FROM positions WHERE bridge = ? AND stream = ?", key))
    if letters:
        group.state.find_brought()


def drop_log(group: Group, connection: sqlite3.Connection, command: DropLogCommand) -> None:
    """Delete the log and what is known of its stream, if nothing waits in it: in one step, or a message that
    comes between the look and the deletion would go with it.

    In a group of its own (`writer`).
    """
    command.result = False
    state, name = group.state, command.bridge
    address = state.addresses.get(command.address)
    if address is None or any(bridge.bridge == name for bridge in group.options.bridges):
        return
    queues = address.queues.values()
    if any(queue.bridge != name or queue.cursor.next < address.next for queue in queues):
        return
    check_not_shared(group, connection, address)
    stream = address.stream(group.incarnation)
    _forget_positions(
        group,
        [key for key in state.settled if key == (name, stream)],
        [key for key in state.positions if key[0].startswith(f"{name}/") and key[1] == stream],
    )
    drop_address(group, address)
    command.result = True
