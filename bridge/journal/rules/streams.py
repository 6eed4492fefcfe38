"""Streams of bridges in a commit group: opened, adopted under a new name, and let go by their owner."""

from __future__ import annotations

from bridge.errors import NotFound, TargetRefused
from bridge.journal.rules.commands import DisownCommand, OpenCommand
from bridge.journal.rules.commit_group import Group
from bridge.journal.rules.owners import (
    EVERY_RIGHT,
    LETTER_STREAMS_MOST,
    NOT_RECORDED,
    STREAMS_MOST,
    THIS_NODE,
    Owner,
    check_owner,
)
from bridge.journal.rules.state import PositionState
from bridge.messages.stream_names import LETTERS, source_of
from bridge.relay.ports import StreamState


def open_stream(group: Group, command: OpenCommand) -> None:
    """Issue a new epoch; from its commit on, older links of this stream are fenced.

    Raises:
        TargetRefused: another bridge has adopted the stream (`previous-name`), its positions are another
            caller's, or the caller has as many streams as it may have.
    """
    key = (command.bridge, command.stream)
    position = group.state.positions.get(key)
    if position is not None and position.next is not None:
        check_owner(*key, position.owner, command.owner)
    if command.previous and (position is None or position.next is None):
        position = _adopted(group, command, position)
    if position is None:
        _check_room_for_stream(group, command.stream, command.owner)
        position = group.state.positions[key] = PositionState(None, "", 0, 0)
    if position.moved_to:
        raise _adopted_by_another(command.bridge, position.moved_to, command.stream)
    position.epoch += 1
    # Nothing has been written yet, or an older version wrote it: the owner is the first caller that comes.
    if position.next is None or not position.owner.principal:
        position.owner = command.owner
    group.changed_positions[key] = position
    has_run = position.next is None and _has_run(group, command)
    command.result = StreamState(position.next, position.run, position.checksum, position.epoch, has_run)


def _has_run(group: Group, command: OpenCommand) -> bool:
    """Whether this bridge, by either of its names, has brought anything from the stream's source."""
    source = source_of(command.stream)
    return any((name, source) in group.state.brought for name in (command.bridge, command.previous))


def _adopted(group: Group, command: OpenCommand, own: PositionState | None) -> PositionState | None:
    """Adopt the position of the bridge's previous name; answers `own` where there is nothing to adopt.

    The old name's row stays and says who has it: should that bridge come back, it is refused, for it would
    deliver again what its successor has delivered. Its open links are fenced.

    Raises:
        TargetRefused: the previous name's position is a third bridge's by now.
    """
    positions = group.state.positions
    before = positions.get((command.previous, command.stream))
    if before is None or before.moved_to == command.bridge:
        return own
    if before.moved_to:
        raise _adopted_by_another(command.previous, before.moved_to, command.stream)
    if before.next is not None:
        check_owner(command.previous, command.stream, before.owner, command.owner)
    epoch = max(before.epoch, own.epoch if own is not None else 0)
    moved = PositionState(before.next, before.run, before.checksum, epoch, owner=before.owner)
    left = PositionState(None, "", 0, before.epoch + 1, command.bridge, before.owner)
    for name, position in ((command.bridge, moved), (command.previous, left)):
        positions[name, command.stream] = group.changed_positions[name, command.stream] = position
    if moved.next is not None:
        group.state.find_brought()
    return moved


def _adopted_by_another(bridge: str, successor: str, stream: str) -> TargetRefused:
    return TargetRefused(
        f"{stream}: what {bridge} delivered was adopted by the bridge {successor} (previous-name); "
        f'run {successor}, or go on from there with previous-name = "{successor}"',
        key="previous-name",
        limit=successor,
        found=bridge,
    )


def _check_room_for_stream(group: Group, stream: str, owner: Owner) -> None:
    """Limit a user's streams, each of which is kept for good. Raises: TargetRefused: too many streams."""
    if owner.principal in (EVERY_RIGHT, THIS_NODE):
        return
    ending, most = (LETTERS, LETTER_STREAMS_MOST) if stream.endswith(LETTERS) else ("", STREAMS_MOST)
    if group.state.streams_of(owner.principal, ending) >= most:
        detail = f"TOO_MANY_STREAMS: {owner.principal} has {most} streams here, the most there may be"
        raise TargetRefused(detail, "streams", most, most)


def disown(group: Group, command: DisownCommand) -> None:
    """Let the positions of a bridge, and of its dead letters, belong to the first caller that opens them.

    Raises:
        NotFound: no bridge of this name has delivered here.
    """
    keys = [key for key in group.state.positions if key[0].partition("/")[0] == command.bridge]
    if not keys:
        raise NotFound(f"no bridge {command.bridge} has delivered here", key="bridge", found=command.bridge)
    command.result = {stream: group.state.positions[name, stream].owner for name, stream in sorted(keys)}
    if command.really:
        for key in keys:
            position = group.state.positions[key]
            position.owner = NOT_RECORDED
            group.changed_positions[key] = position
