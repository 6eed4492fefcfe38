"""A new incarnation of a journal that was restored or copied: where each bridge's streams branch off.

Up to the branch the target has this journal's messages; behind it the target has another copy's. Under the
new incarnation every stream has a new identity, and begins where the old one's common part ends or the
target's word ended before that: so nothing is sent again, and nothing that came since is taken for delivered.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from bridge.errors import Conflict
from bridge.journal.rules.commands import Branch, BranchCommand
from bridge.journal.rules.commit_group import Group
from bridge.journal.rules.state import SettledState
from bridge.journal.sqlite.history import read_past
from bridge.journal.sqlite.reader import BridgeQueueRow, bridge_queues
from bridge.journal.values.options import bridge_queue_name
from bridge.journal.values.queue_cursor import Cursor
from bridge.messages.stream_names import journal_stream
from bridge.relay.divergence import Past
from bridge.relay.ports import StreamState


@dataclass(frozen=True, slots=True)
class Look:
    """The journal's own knowledge of one stream of a bridge, beside the target's word."""

    row: BridgeQueueRow
    past: Past


def read_looks(
    connection: sqlite3.Connection,
    bridge: str,
    incarnation: str,
    states: Mapping[str, StreamState],
    session_id: str,
) -> dict[str, Look]:
    """The data that `branch_at` needs, by stream identity, for the streams that `states` names."""
    looks = {}
    for row in bridge_queues(connection, bridge):
        identity = journal_stream(incarnation, row.address, row.first)
        if identity in states:
            looks[identity] = Look(
                row, read_past(connection, bridge, identity, row, states[identity], session_id)
            )
    return looks


def read_sessions(connection: sqlite3.Connection) -> list[tuple[int, int]]:
    """(first position, wall clock in ms) of every opening of this journal, in order."""
    return connection.execute("SELECT first, opened_ms FROM runs ORDER BY first, opened_ms").fetchall()


def branch_at(state: StreamState, look: Look, restored_at: int | None) -> int | None:
    """The position where the stream goes on; None: it cannot be known, and the operator has to say when the
    copy was made.

    Args:
        state: the target's word on the stream as it was.
        look: this journal's knowledge of it.
        restored_at: the position at which this journal was restored, if the operator has said so.
    """
    if state.next is None:
        return look.row.queue_next
    if restored_at is not None:
        return min(state.next, restored_at)
    past = look.past
    end = past.end if past.run_end is None else min(past.run_end, past.end)
    if state.run and not past.run_known:
        return None
    if state.next > end:
        return None if past.run_end is None else end
    if state.checksum and past.checksum and state.checksum != past.checksum:
        return None
    return state.next


def branch(group: Group, command: BranchCommand) -> None:
    """Give the journal its new incarnation; every stream begins where the command says, with the store
    that confirmed it.

    The target does not know the new streams yet: until it does (`bridge.relay.reposition`), the bridges
    refuse.

    Raises:
        Conflict: a bridge's queue is not among the branches.
    """
    state = group.state
    branches = {(one.bridge, one.address): one for one in command.branches}
    for address in state.addresses.values():
        for queue in address.queues.values():
            if queue.bridge is not None and (queue.bridge, address.name) not in branches:
                raise Conflict(
                    f"the bridge {queue.bridge} has a queue on {address.name} and is not in the settings, or "
                    "reads it no more: put it back, or drop what it left with core-bridge forget",
                    key="bridge",
                    found=queue.bridge,
                )
    for one in command.branches:
        address = state.addresses[one.address]
        queue = address.queues[bridge_queue_name(one.bridge)]
        queue.cursor = Cursor(max(one.at, address.trimmed))
        group.change_queue(address, queue)
        key = (one.bridge, address.stream(command.incarnation))
        state.settled[key] = group.changed_settled[key] = SettledState(one.at, 0, one.store)
    record = _record(group, command)
    group.statements += [
        ("UPDATE meta SET value = ? WHERE key = 'incarnation'", (command.incarnation,)),
        ("INSERT OR REPLACE INTO meta VALUES (?, ?)", (f"branched:{command.incarnation}", record)),
    ]


def _record(group: Group, command: BranchCommand) -> str:
    """The record of a branching, kept for a later investigation."""
    return msgspec.json.encode(
        {"from": group.incarnation, "at-ms": group.now_ms, "branches": list(map(_shown, command.branches))}
    ).decode()


def _shown(one: Branch) -> dict[str, str | int]:
    return {"bridge": one.bridge, "address": one.address, "at": one.at, "store": one.store}
