"""Units in commit groups: which go together, which rules decide each, and how an error is answered."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

import msgspec

from bridge.errors import AddressFull, AddressNotFound, BridgeError, DiskFull, Malformed, OutOfSequence
from bridge.journal.rules import branching, bridge_batches, client_transactions, dead_letters, queues
from bridge.journal.rules.commands import (
    BeginUnit,
    BranchUnit,
    CacheUnit,
    CommitUnit,
    DeleteAddressUnit,
    DeliverUnit,
    DisownUnit,
    ForgetUnit,
    LeaseEndUnit,
    LeaseUnit,
    OpenUnit,
    OutboxUnit,
    QueueUnit,
    ReplayUnit,
    SettleUnit,
    Unit,
)
from bridge.journal.rules.commit_group import Group, Held
from bridge.journal.rules.state import State
from bridge.relay.ports import Receipt
from dedup.verdict import Verdict

#: Errors for which a bridge is told to try again later, instead of being cut off.
_NOT_NOW = (AddressFull, AddressNotFound, DiskFull)
#: Exceptions that opening a block raises where its body does not agree with its fields.
_UNREADABLE = (msgspec.DecodeError, ValueError, IndexError, RecursionError)


def parts(units: Sequence[Unit], *, probe: bool) -> Iterator[list[Unit]]:
    """Divide units into groups: a unit that changes an ID cache goes alone, because no other unit may rely on
    that cache.

    `probe`: the first unit that brings messages goes alone, to find out whether there is room.
    """
    part: list[Unit] = []
    for unit in units:
        is_probe = probe and unit.grows
        if is_probe or isinstance(unit, (CacheUnit, DeleteAddressUnit)):
            if part:
                yield part
            yield [unit]
            part = []
            probe = probe and not is_probe
        else:
            part.append(unit)
    yield part


def decide(group: Group, connection: sqlite3.Connection, unit: Unit) -> None:
    """Let the unit change the group, or note that it is held. A refusal becomes the unit's error.

    Raises:
        sqlite3.Error: a lease could not be looked up; nothing of the group may be believed.
    """
    try:
        _apply(group, connection, unit)
    except Held as held:
        if isinstance(unit, DeliverUnit):
            group.waiting.setdefault((unit.bridge, unit.batch.stream), held.error)
        group.held.append((unit, held.error))
        return
    except BridgeError as error:
        refuse(
            group.state, unit, error.with_traceback(None)
        )  # its frames refer to the unit, and to all of the group
    except _UNREADABLE as error:
        if not isinstance(unit, DeliverUnit):
            raise
        # Nothing of it counts yet, and the group's other units must not fail with it.
        malformed = Malformed(
            f"{unit.batch.stream}: the batch from {unit.batch.from_} on is damaged ({error})"
        )
        malformed.__cause__ = error.with_traceback(None)
        refuse(group.state, unit, malformed)
    group.units.append(unit)


def _apply(group: Group, connection: sqlite3.Connection, unit: Unit) -> None:  # noqa: C901, PLR0912
    match unit:
        case CommitUnit():
            client_transactions.commit(group, unit)
        case DeliverUnit():
            bridge_batches.deliver(group, unit)
        case SettleUnit():
            bridge_batches.settle(group, unit)
        case BeginUnit():
            bridge_batches.begin(group, unit)
        case ReplayUnit():
            dead_letters.replay(group, unit)
        case LeaseUnit():
            queues.lease(group, connection, unit)
        case LeaseEndUnit():
            queues.end_lease(group, unit)
        case OpenUnit():
            bridge_batches.open_stream(group, unit)
        case QueueUnit():
            queues.change_queue_set(group, unit)
        case BranchUnit():
            branching.branch(group, unit)
        case ForgetUnit():
            queues.forget_bridge(group, unit)
        case DisownUnit():
            bridge_batches.disown(group, unit)
        case OutboxUnit():
            queues.forget_lines(group, unit)
        case CacheUnit():
            queues.change_cache(group, unit)
        case DeleteAddressUnit():
            queues.delete_address(group, unit)


def refuse(state: State, unit: Unit, error: BridgeError) -> None:
    """Make `error` the unit's answer.

    No batch behind one that was not taken may be taken: a stream never seen would take the next batch as its
    start. So the stream is blocked until it is opened again.
    """
    unit.result, unit.error = None, error
    if not isinstance(unit, DeliverUnit):
        return
    stream = unit.batch.stream
    position = state.positions.get((unit.bridge, stream))
    # Its epoch may be older because of an OPEN that fails with the same group: the stream is blocked all the
    # same.
    if position is None or unit.epoch > position.epoch:
        return
    if not isinstance(error, OutOfSequence):
        position.blocked_epoch = max(position.blocked_epoch, unit.epoch)
    if unit.epoch == position.epoch and isinstance(error, _NOT_NOW):
        reason = f"{error.code}: {error.detail}"
        unit.result, unit.error = Receipt(stream, Verdict.NOT_NOW, position.next or 0, reason=reason), None
