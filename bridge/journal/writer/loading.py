"""The state in memory, loaded from the file: at opening, and after every failure."""

from __future__ import annotations

import sqlite3

from bridge.errors import FilterRefused, JournalFailed
from bridge.filters import Filter, parse
from bridge.journal.rules.gone_queues import load_gone
from bridge.journal.rules.handover import INTAKE_ROW
from bridge.journal.rules.owners import Owner
from bridge.journal.rules.state import (
    AUTOMATIC,
    USED,
    AddressState,
    PositionState,
    QueueState,
    SettledState,
    State,
    Upload,
)
from bridge.journal.sqlite.large_bodies import stored_chunks
from bridge.journal.values.options import JournalOptions
from bridge.journal.values.queue_cursor import Cursor
from bridge.journal.values.views import Intake
from bridge.journal.writer.id_rows import load_ids
from bridge.messages.stream_names import source_of
from dedup.cache import IdCache


def load_state(connection: sqlite3.Connection, options: JournalOptions, before: State | None = None) -> State:
    """Read the small tables and the ID blocks; never the message blocks, so 10 GB load as fast as 10 MB.

    Args:
        before: the state that is loaded again: the conditions of its queues are not parsed anew.

    Raises:
        sqlite3.Error, msgspec.DecodeError: the file is damaged.
        JournalFailed: a queue has a condition that this version refuses.
    """
    (sequence,) = connection.execute("SELECT next FROM sequence").fetchone()
    written = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'outbox'").fetchone()
    state = State(sequence, lines=0 if written is None else written[0])
    _load_addresses(connection, options, state)
    filters = {} if before is None else before.filters()
    for queue_id, address_id, name, bridge, next_position, packed, condition, *rest in connection.execute(
        "SELECT queue_id, address_id, name, bridge, next, cursor, filter, messages, auto_created FROM queues"
    ):
        address, cursor = state.by_id[address_id], Cursor.unpack(next_position, packed)
        filter_ = filters.get(condition) or _filter(address.name, name, condition)
        messages, made = rest
        came = (bool(made & AUTOMATIC), bool(made & USED))
        state.add_queue(address, QueueState(queue_id, name, bridge, cursor, filter_, messages, *came))
    for address_id, gone in load_gone(connection):
        if (of := state.by_id.get(address_id)) is not None:
            of.gone = gone
    for bridge, stream, principal, node, *rest in connection.execute(
        "SELECT bridge, stream, principal, node, next, run, checksum, epoch, moved_to FROM positions"
    ):
        position = state.positions[bridge, stream] = PositionState(*rest)
        position.owner = Owner(principal, node)
        if position.next is not None:
            state.brought.add((bridge, source_of(stream)))
    for bridge, stream, *rest in connection.execute(
        "SELECT bridge, stream, upto, checksum, store, stays FROM settled"
    ):
        state.settled[bridge, stream] = SettledState(*rest)
    intake = connection.execute("SELECT value FROM meta WHERE key = ?", (INTAKE_ROW,)).fetchone()
    state.intake = Intake.OPEN if intake is None else Intake(intake[0])
    state.loose_bodies = {large_id for (large_id,) in connection.execute("SELECT large_id FROM loose_bodies")}
    if before is not None:
        _keep_uploads(connection, state, before)
    state.to_trim = {address.address_id for address in state.by_id.values() if address.to_trim}
    return state


def _keep_uploads(connection: sqlite3.Connection, state: State, before: State) -> None:
    """Let large bodies that were on their way in go on, from the chunks of them that are stored."""
    for large_id in before.uploads.keys() & state.loose_bodies:
        state.uploads[large_id] = Upload(*stored_chunks(connection, large_id))
        state.loose_bodies.discard(large_id)


def _filter(address: str, queue: str, condition: str) -> Filter | None:
    try:
        return parse(condition)
    except FilterRefused as refused:
        raise JournalFailed(
            f"the queue {queue} of {address} has a filter that this version refuses ({refused}): {condition};"
            " change it with the version that made it",
            key="filter",
            found=condition,
        ) from refused


def _load_addresses(connection: sqlite3.Connection, options: JournalOptions, state: State) -> None:
    rows = connection.execute(
        "SELECT address_id, name, routing_type, first, next, trimmed, total, messages, bytes, logged,"
        " ids_accepted, id_cache_capacity, id_cache_size, id_cache_configured, auto_created FROM addresses"
    )
    for *values, accepted, capacity_before, own_size, replaced_size, made in rows.fetchall():
        address_id, name, routing_type, first, next_position, trimmed, total, messages, size, logged = values
        policy = options.policy(name)
        # An operator's size holds until the settings' size changes.
        resized, configured = own_size, replaced_size
        if configured != policy.id_cache_size:
            resized = configured = None
        cache = IdCache(policy.id_cache_size if resized is None else resized)
        if options.persist_id_cache:
            found = load_ids(connection, address_id, cache, accepted)
            # A crash, or a row that is overwritten in part, leaves more than the cache ever had.
            if (dropped := min(found, capacity_before) - len(cache)) > 0:
                state.ids_dropped[name] = dropped
        state.add_address(
            AddressState(
                address_id, name, policy, routing_type, first, next_position, trimmed,
                total, messages, size, logged, cache, resized, configured,
                automatic=bool(made & AUTOMATIC), used=bool(made & USED),
            )
        )  # fmt: skip
