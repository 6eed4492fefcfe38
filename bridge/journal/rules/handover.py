"""Handing a journal over to another node: what it still takes, and what the other takes from it.

A journal that is handed over first takes no more from clients, then nothing at all. What it remembers of
others' streams and IDs is stored at the other node, which answers for it from then on.
"""

from __future__ import annotations

from bridge.errors import Conflict, Stopping
from bridge.journal.rules.commands import InheritCommand, IntakeCommand, NoteCommand, ReadIdsCommand
from bridge.journal.rules.commit_group import Group
from bridge.journal.rules.owners import THIS_NODE, Owner
from bridge.journal.rules.state import PositionState, State
from bridge.journal.sqlite.notes import NOTE
from bridge.journal.values.views import Intake
from bridge.messages.stream_names import source_of

#: The row of `meta` that has the journal's intake, where it is not OPEN.
INTAKE_ROW = "intake"
_PUT = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
_DELETE = "DELETE FROM meta WHERE key = ?"


def check_clients(group: Group) -> None:
    """Check that the journal takes messages of clients. Raises: Stopping."""
    if group.state.intake is not Intake.OPEN:
        raise _handed_over(group)


def check_open(group: Group, owner: Owner | None = None) -> None:
    """Check that it takes anything: new leases, queues, and the batches of `owner`. Raises: Stopping."""
    if group.state.intake is Intake.CLOSED and (owner is None or owner.principal != THIS_NODE):
        raise _handed_over(group)


def _handed_over(group: Group) -> Stopping:
    router = group.options.router
    location = "" if router is None else router.taken_over_at
    where = f", {location}" if location else ""
    return Stopping(f"this node hands its messages over to another one{where}", location=location)


def change_intake(group: Group, command: IntakeCommand) -> None:
    """Take less, or again everything. CLOSED only if no bridge but `but` has anything left to send: the
    answer names those that have.
    """
    state = group.state
    if command.intake is Intake.CLOSED and state.intake is not Intake.CLOSED:
        command.result = _waiting(state, command.but)
        if command.result:
            return
    state.intake = command.intake
    sql, row = (
        (_DELETE, (INTAKE_ROW,)) if command.intake is Intake.OPEN else (_PUT, (INTAKE_ROW, command.intake))
    )
    group.statements.append((sql, row))
    command.result = []


def _waiting(state: State, but: str) -> list[str]:
    """The bridges that have messages left to send, each with an address."""
    return sorted(
        {
            f"{queue.bridge}: {address.name}"
            for address in state.addresses.values()
            for queue in address.queues.values()
            if queue.bridge is not None and queue.bridge != but and queue.cursor.next < address.next
        }
    )


def note(group: Group, command: NoteCommand) -> None:
    """Keep a value under a name, or drop it."""
    row = NOTE + command.name
    if command.value is None:
        group.statements.append((_DELETE, (row,)))
    else:
        group.statements.append((_PUT, (row, command.value)))


def inherit(group: Group, command: InheritCommand) -> None:
    """Remember what another journal did: positions that are beyond those here, and IDs.

    Repeated, it changes nothing.

    Raises:
        AddressNotFound. Conflict: the ID cache is too small for all of them.
    """
    unknown = _unknown_ids(group, command)
    for bridge, stream, next_, run, checksum, epoch, principal, node in command.positions:
        key = (bridge, stream)
        known = group.state.positions.get(key)
        if known is not None and known.next is not None and known.next >= next_:
            continue
        position = PositionState(next_, run, checksum, epoch, owner=Owner(principal, node))
        if known is not None:
            position.epoch = max(epoch, known.epoch)
        group.state.positions[key] = group.changed_positions[key] = position
        group.state.brought.add((bridge, source_of(stream)))
    if unknown is not None:
        group.require_address(command.address, bare=True)
        group.remember(command.address, unknown)


def _unknown_ids(group: Group, command: InheritCommand) -> list[bytes] | None:
    """Those of the IDs that the address is to remember; None: it remembers none. Raises: as `inherit`."""
    name = command.address
    capacity = group.cache_capacity(name) if command.ids else 0
    if not capacity:
        return None
    known = set(group.known(name, command.ids))
    unknown = [value for index, value in enumerate(command.ids) if index not in known]
    address = group.state.addresses.get(name)
    held = 0 if address is None else len(address.cache)
    if held + len(unknown) > capacity:
        detail = f"{name} remembers {held} IDs, and {len(unknown)} come to them"
        raise Conflict(detail, "id-cache-size", capacity, held + len(unknown))
    return unknown


def read_ids(group: Group, command: ReadIdsCommand) -> None:
    """Answer with the IDs that earlier commits have left in the address's cache."""
    command.result = list(group.existing_address(command.address).cache)
