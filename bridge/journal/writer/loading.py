"""The state in memory, loaded from the file: at opening, and after every failure."""

from __future__ import annotations

import sqlite3

from bridge.journal.rules.owners import Owner
from bridge.journal.rules.state import AddressState, PositionState, QueueState, SettledState, State
from bridge.journal.values.options import JournalOptions
from bridge.journal.values.queue_cursor import Cursor
from bridge.journal.writer.id_rows import load_ids
from bridge.messages.stream_names import source_of
from dedup.cache import IdCache


def load_state(connection: sqlite3.Connection, options: JournalOptions) -> State:
    """Read the small tables and the ID blocks; never the message blocks, so 10 GB load as fast as 10 MB.

    Raises:
        sqlite3.Error, msgspec.DecodeError: the file is damaged.
    """
    (sequence,) = connection.execute("SELECT next FROM sequence").fetchone()
    written = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'outbox'").fetchone()
    state = State(sequence, lines=0 if written is None else written[0])
    _load_addresses(connection, options, state)
    for queue_id, address_id, name, bridge, next_position, packed in connection.execute(
        "SELECT queue_id, address_id, name, bridge, next, cursor FROM queues"
    ):
        cursor = Cursor.unpack(next_position, packed)
        state.add_queue(state.by_id[address_id], QueueState(queue_id, name, bridge, cursor))
    for bridge, stream, principal, node, *rest in connection.execute(
        "SELECT bridge, stream, principal, node, next, run, checksum, epoch, moved_to FROM positions"
    ):
        position = state.positions[bridge, stream] = PositionState(*rest)
        position.owner = Owner(principal, node)
        if position.next is not None:
            state.brought.add((bridge, source_of(stream)))
    for bridge, stream, *rest in connection.execute(
        "SELECT bridge, stream, upto, checksum, store FROM settled"
    ):
        state.settled[bridge, stream] = SettledState(*rest)
    state.to_trim = {address.address_id for address in state.by_id.values() if address.to_trim}
    return state


def _load_addresses(connection: sqlite3.Connection, options: JournalOptions, state: State) -> None:
    rows = connection.execute(
        "SELECT address_id, name, routing_type, first, next, trimmed, total, messages, bytes, logged,"
        " ids_accepted, id_cache_capacity, id_cache_size, id_cache_configured FROM addresses"
    )
    for *values, accepted, capacity_before, own_size, replaced_size in rows.fetchall():
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
            )
        )  # fmt: skip
