"""Commands in commit groups: which go together, which rules decide each, and how an error is answered."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

import msgspec

from bridge.errors import AddressFull, AddressNotFound, BridgeError, DiskFull, Malformed, OutOfSequence
from bridge.journal.rules import (
    branching,
    bridge_batches,
    bridge_queues,
    client_transactions,
    configuring,
    forgetting,
    handover,
    large_bodies,
    moves,
    queues,
    streams,
    unused,
)
from bridge.journal.rules.commands import (
    BeginCommand,
    BranchCommand,
    BridgeCommand,
    CacheCommand,
    CommitCommand,
    ConfigureCommand,
    DeleteAddressCommand,
    DeleteUnusedCommand,
    DeliverCommand,
    DisownCommand,
    DropLogCommand,
    EndLeaseCommand,
    ForgetCommand,
    ForgetLinesCommand,
    InheritCommand,
    IntakeCommand,
    LeaseCommand,
    LogMissingCommand,
    MoveCommand,
    NoteCommand,
    OpenCommand,
    QueueCommand,
    ReadIdsCommand,
    SettleCommand,
    WriteCommand,
)
from bridge.journal.rules.commit_group import Blocked, Group
from bridge.journal.rules.large_bodies import ChunkCommand, DropBodyCommand
from bridge.journal.rules.state import State
from bridge.messages.batch import Batch
from bridge.relay.ports import Receipt
from dedup.verdict import Verdict

#: Errors for which a bridge is told to try again later, instead of being cut off.
_NOT_NOW = (AddressFull, AddressNotFound, DiskFull)
#: Exceptions that opening a block raises where its body does not agree with its fields.
_UNREADABLE = (msgspec.DecodeError, ValueError, IndexError, RecursionError)


#: Commands that are decided in a group of their own.
_ALONE = (
    CacheCommand,
    DeleteAddressCommand,
    DeleteUnusedCommand,
    DropLogCommand,
    BridgeCommand,
    ConfigureCommand,
    IntakeCommand,
)


def parts(commands: Sequence[WriteCommand], *, probe: bool) -> Iterator[list[WriteCommand]]:
    """Divide commands into groups: one that changes an ID cache goes alone, because no other may rely on that
    cache, and so does one that changes which bridges read, or deletes what others of the group may still use.

    `probe`: the first command that brings messages goes alone, to find out whether there is room.
    """
    part: list[WriteCommand] = []
    for command in commands:
        is_probe = probe and command.grows
        if is_probe or isinstance(command, _ALONE):
            if part:
                yield part
            yield [command]
            part = []
            probe = probe and not is_probe
        else:
            part.append(command)
    yield part


def decide(group: Group, connection: sqlite3.Connection, command: WriteCommand) -> None:
    """Let the command change the group, or note that it is blocked. A refusal becomes the command's error.

    Raises:
        sqlite3.Error: a lease could not be looked up; nothing of the group may be believed.
    """
    command.forget_answer()
    before = len(group.undo)
    try:
        _apply(group, connection, command)
    except Blocked as blocked:
        group.take_back(before)
        command.forget_answer()
        if isinstance(command, DeliverCommand):
            group.blocked_streams.setdefault((command.bridge, command.batch.stream), blocked.wait)
        group.blocked.append((command, blocked.wait, blocked.client_ms))
        return
    except BridgeError as error:
        group.take_back(before)
        # Without its frames: they refer to the command, and to all of the group.
        refuse(group.state, command, error.with_traceback(None))
    except _UNREADABLE as error:
        if not isinstance(command, DeliverCommand):
            raise
        # Nothing of it counts yet, and the group's other commands must not fail with it.
        group.take_back(before)
        malformed = Malformed(
            f"{command.batch.stream}: the batch from {command.batch.from_} on is damaged ({error})"
        )
        malformed.__cause__ = error.with_traceback(None)
        refuse(group.state, command, malformed)
    group.decided.append(command)


def _apply(group: Group, connection: sqlite3.Connection, command: WriteCommand) -> None:  # noqa: C901, PLR0912, PLR0915
    match command:
        case CommitCommand():
            if command.transaction.sent:
                handover.check_clients(group)
            if command.transaction.large is not None:
                large_bodies.check_kept(group, connection, command.transaction.large)
            client_transactions.commit(group, command)
        case DeliverCommand(batch=Batch(block=block)):
            if block is not None and block.large is not None:
                large_bodies.check_kept(group, connection, block.large)
            bridge_batches.deliver(group, command)
        case ChunkCommand():
            if command.from_client and not command.number:
                handover.check_clients(group)
            large_bodies.add_chunk(group, command)
        case DropBodyCommand():
            large_bodies.drop_body(group, command)
        case SettleCommand():
            bridge_batches.settle(group, command)
        case BeginCommand():
            bridge_batches.begin(group, command)
        case LogMissingCommand():
            group.log.missing(command)
        case MoveCommand():
            moves.move(group, command)
        case LeaseCommand():
            if not command.reserves:
                handover.check_open(group)
                unused.make_for_reader(group, connection, command)
            queues.lease(group, connection, command)
        case EndLeaseCommand():
            queues.end_lease(group, command)
        case OpenCommand():
            handover.check_open(group, command.owner)
            streams.open_stream(group, command)
        case QueueCommand():
            queues.change_queue_set(group, connection, command)
        case BridgeCommand():
            bridge_queues.change_bridge_set(group, command)
        case ConfigureCommand():
            configuring.configure(group, connection, command)
        case BranchCommand():
            branching.branch(group, command)
        case ForgetCommand():
            forgetting.forget_bridge(group, command)
        case DropLogCommand():
            forgetting.drop_log(group, connection, command)
        case DisownCommand():
            streams.disown(group, command)
        case ForgetLinesCommand():
            forgetting.forget_lines(group, command)
        case CacheCommand():
            queues.change_cache(group, command)
        case DeleteUnusedCommand():
            unused.delete_unused(group, connection, command)
        case DeleteAddressCommand():
            queues.delete_address(group, connection, command)
        case IntakeCommand():
            handover.change_intake(group, command)
        case NoteCommand():
            handover.note(group, command)
        case InheritCommand():
            handover.inherit(group, command)
        case ReadIdsCommand():
            handover.read_ids(group, command)


def refuse(state: State, command: WriteCommand, error: BridgeError) -> None:
    """Make `error` the command's answer.

    No batch behind one that was not taken may be taken: a stream never seen would take the next batch as its
    start. So nothing more of the stream is taken until it is opened again.
    """
    command.forget_answer()
    command.error = error
    if not isinstance(command, DeliverCommand):
        return
    stream = command.batch.stream
    position = state.positions.get((command.bridge, stream))
    # Its epoch may be older because of an OPEN that fails with the same group: nothing more is taken all the
    # same.
    if position is None or command.epoch > position.epoch:
        return
    if not isinstance(error, OutOfSequence):
        position.refused_epoch = max(position.refused_epoch, command.epoch)
    if command.epoch == position.epoch and isinstance(error, _NOT_NOW):
        reason = f"{error.code}: {error.detail}"
        command.result = Receipt(stream, Verdict.NOT_NOW, position.next or 0, reason=reason)
        command.error = None
