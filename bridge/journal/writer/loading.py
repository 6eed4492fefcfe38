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
from bridge.journal.sqlite.damage import check_row, required_row
from bridge.journal.sqlite.large_bodies import stored_chunks
from bridge.journal.values.options import JournalOptions
from bridge.journal.values.queue_cursor import Cursor
from bridge.journal.values.views import Intake
from bridge.journal.writer.id_rows import load_ids
from dedup.cache import IdCache


def load_state(connection: sqlite3.Connection, options: JournalOptions, before: State | None = None) -> State:
    """Read the small tables and the ID blocks; never the message blocks, so 10 GB load as fast as 10 MB.

    Args:
        before: the state that is loaded again: the conditions of its queues are not parsed anew.

    Raises:
        sqlite3.Error, msgspec.DecodeError: the file is damaged.
        JournalFailed: a queue has a condition that this version refuses.
    """
    (sequence,) = check_row(
        "sequence", required_row(connection, "SELECT next, crc FROM sequence", (), "sequence")
    )
    written = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'outbox'").fetchone()
    state = State(sequence, lines=0 if written is None else written[0])
    _load_addresses(connection, options, state)
    filters = {} if before is None else before.filters()
    for row in connection.execute(
        "SELECT queue_id, address_id, name, bridge, next, cursor, filter, messages, auto_created,"
        " version, crc FROM queues"
    ):
        queue_id, address_id, name, bridge, next_position, packed, condition, *rest = check_row(
            "queues", row, 3
        )
        address, cursor = state.by_id[address_id], Cursor.unpack(next_position, packed)
        filter_ = filters.get(condition) or _filter(address.name, name, condition)
        messages, made, version = rest
        came = (bool(made & AUTOMATIC), bool(made & USED))
        state.add_queue(
            address, QueueState(queue_id, name, bridge, cursor, filter_, messages, *came, version)
        )
    for address_id, first, upto in connection.execute(
        "SELECT address_id, first, first + messages FROM lost ORDER BY address_id, first"
    ):
        if (of := state.by_id.get(address_id)) is not None:
            of.lost.append((first, upto))
    for address_id, gone in load_gone(connection):
        if (of := state.by_id.get(address_id)) is not None:
            of.gone = gone
    for row in connection.execute(
        "SELECT bridge, stream, next, run, checksum, epoch, moved_to, principal, node, crc FROM positions"
    ):
        bridge, stream, *rest, principal, node = check_row("positions", row, 2)
        position = state.positions[bridge, stream] = PositionState(*rest)
        position.owner = Owner(principal, node)
    state.find_brought()
    for row in connection.execute("SELECT bridge, stream, upto, checksum, store, stays, crc FROM settled"):
        bridge, stream, *rest = check_row("settled", row, 2)
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
        " ids_accepted, id_cache_capacity, id_cache_size, id_cache_configured, auto_created, crc"
        " FROM addresses"
    )
    for row in rows.fetchall():
        *values, accepted, capacity_before, own_size, replaced_size, made = check_row("addresses", row, 2)
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
