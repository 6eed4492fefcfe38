"""A decided group as rows: one transaction, no rules."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from bridge.journal.rules.arrivals import Arrivals, Came
from bridge.journal.rules.commit_group import Group
from bridge.journal.rules.queue_filters import begin_counts, route
from bridge.journal.rules.shared_bodies import SharedBody, find_shared
from bridge.journal.rules.state import AUTOMATIC, USED
from bridge.journal.values.row_checksums import row_checksum
from bridge.journal.values.stored_block import PAGE_BYTES, chunks_bytes, stored_bytes
from bridge.journal.writer.id_rows import add_ids, fit_ids
from bridge.journal.writer.trimming import trim
from bridge.messages.block import KeptBody
from bridge.runtime.fault_injection import crash_point

_encode = msgspec.msgpack.Encoder().encode

#: Bytes that a group adds to the write-ahead log besides its messages, at most: pages of tables and indexes,
#: maps, and two pages for each row that it changes or deletes.
_OVERHEAD_BYTES: Final = 12 * PAGE_BYTES
_ROW_BYTES: Final = 2 * PAGE_BYTES

_INSERT_BLOCK = (
    "INSERT INTO blocks"
    " (first, address_id, count, ordinal, size, largest, checksum, stored_ms, buried, ids, origins, hops,"
    " routes, body_id, large_id, crc, body)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_UPSERT_ADDRESS = (
    "INSERT INTO addresses"
    " (address_id, name, routing_type, first, next, trimmed, total, messages, bytes, logged,"
    " ids_accepted, id_cache_capacity, id_cache_size, id_cache_configured, auto_created, crc)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (address_id) DO UPDATE"
    " SET name = excluded.name, routing_type = excluded.routing_type,"
    " next = excluded.next, trimmed = excluded.trimmed,"
    " total = excluded.total, messages = excluded.messages, bytes = excluded.bytes, logged = excluded.logged,"
    " ids_accepted = excluded.ids_accepted, id_cache_capacity = excluded.id_cache_capacity,"
    " id_cache_size = excluded.id_cache_size, id_cache_configured = excluded.id_cache_configured,"
    " auto_created = excluded.auto_created, crc = excluded.crc"
)
_UPSERT_QUEUE = (
    "INSERT INTO queues"
    " (queue_id, address_id, name, bridge, next, cursor, filter, messages, auto_created, version, crc)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (queue_id) DO UPDATE SET name = excluded.name, bridge = excluded.bridge,"
    " next = excluded.next, cursor = excluded.cursor, filter = excluded.filter,"
    " messages = excluded.messages, auto_created = excluded.auto_created, version = excluded.version,"
    " crc = excluded.crc"
)
_UPSERT_POSITION = (
    "INSERT INTO positions (bridge, stream, next, run, checksum, epoch, moved_to, principal, node, crc)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (bridge, stream) DO UPDATE SET next = excluded.next, run = excluded.run,"
    " checksum = excluded.checksum, epoch = excluded.epoch, moved_to = excluded.moved_to,"
    " principal = excluded.principal, node = excluded.node, crc = excluded.crc"
)
_UPSERT_SETTLED = (
    "INSERT INTO settled (bridge, stream, upto, checksum, store, stays, crc) VALUES (?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (bridge, stream) DO UPDATE SET upto = excluded.upto, checksum = excluded.checksum,"
    " store = excluded.store, stays = excluded.stays, crc = excluded.crc"
)


class CommitFailed(Exception):
    """COMMIT itself raised `cause`: unless room was missing, the group may have been stored or not."""

    def __init__(self, cause: sqlite3.Error) -> None:
        super().__init__(str(cause))
        self.cause = cause


def write_group(group: Group, connection: sqlite3.Connection) -> int:
    """Store the group durably; answers the bytes that went into the write-ahead log, or a few more.

    Raises:
        sqlite3.Error: nothing of the group was stored.
        CommitFailed: its cause says what was stored.
    """
    crash_point("journal.before-begin")
    connection.execute("BEGIN IMMEDIATE")
    size = _OVERHEAD_BYTES
    for sql, parameters in group.statements:
        connection.execute(sql, parameters)
    if group.chunks:
        chunks = [(number, row_checksum((number,), chunk), chunk) for number, chunk in group.chunks]
        connection.executemany("INSERT INTO chunks (chunk_id, crc, bytes) VALUES (?, ?, ?)", chunks)
        size += group.chunk_bytes + len(group.chunks) * _ROW_BYTES
    for change in group.changed_caches.values():
        fit_ids(connection, change.address, change.kept)
    shared: dict[int, SharedBody] = {}
    if group.options.router is not None and len(group.arrivals) > 1:
        shared = find_shared(group.arrivals.values())
    for arrivals in group.arrivals.values():
        size += _write_arrivals(group, connection, arrivals, shared)
    size += _write_ids(group, connection)
    size += _ROW_BYTES * trim(group, connection)
    size += _write_changes(group, connection)
    size += _write_lines(group, connection)
    crash_point("journal.before-commit")
    try:
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise CommitFailed(error) from error
    crash_point("journal.after-commit")
    return size


def _write_arrivals(
    group: Group, connection: sqlite3.Connection, arrivals: Arrivals, shared: Mapping[int, SharedBody]
) -> int:
    state, address = group.state, arrivals.address
    counting = begin_counts(group, connection, arrivals) if address.has_counts or arrivals.sets else ()
    from_clients = []
    rows = []
    bodies = []
    position = state.sequence
    for block, came, sets in arrivals.blocks():
        ids = _encode(block.ids) if block.ids else None
        origins = _encode(block.origins) if block.origins else None
        hops = _encode(block.hops) if block.hops else None
        routes = route(group, address, counting, block, sets) if counting or sets else None
        if routes:
            arrivals.size += len(routes)
        size = stored_bytes(block.body, ids, origins, hops, routes)
        large_id = None
        if block.large is not None:
            large_id = _take_large(connection, block.large)
            size += chunks_bytes(block.large.body.size)
        body, body_id = block.body, None
        if (common := shared.get(id(block))) is not None:
            if common.body_id is None:
                common.body_id = position
                bodies.append((position, row_checksum((position,), body), body))
            else:
                arrivals.size -= len(body)
            body, body_id = b"", common.body_id
        columns = (
            position, address.address_id, block.count, address.total, size, block.largest_whole,
            block.checksum, group.now_ms, int(came), ids, origins, hops, routes, body_id, large_id,
        )  # fmt: skip
        rows.append((*columns, row_checksum(columns, body), body))
        if came is Came.SENT:
            from_clients.append((position, block))
        position += block.count
        address.total += block.count
        address.bytes += size
        address.messages += block.count
    if address.policy.retain_time_ms and not address.retains:
        state.to_trim.add(address.address_id)  # retained messages give way
    connection.executemany(_INSERT_BLOCK, rows)
    connection.executemany("INSERT INTO bodies (body_id, crc, body) VALUES (?, ?, ?)", bodies)
    state.sequence = address.next = position
    for queue in counting:
        group.change_queue(address, queue)
    if from_clients:
        stream = address.stream(group.incarnation)
        group.log.client_sends(address.name, stream, address.logged, position, from_clients)
        address.logged = position
    group.changed_addresses[address.address_id] = address
    group.touched.add(address.name)
    return arrivals.size + (len(rows) + len(bodies)) * _ROW_BYTES


def _take_large(connection: sqlite3.Connection, kept: KeptBody) -> int:
    """Let a block have a large body, which is loose until the first block has it; answers its number."""
    connection.execute("DELETE FROM loose_bodies WHERE large_id = ?", (kept.body_id,))
    return kept.body_id


def _write_ids(group: Group, connection: sqlite3.Connection) -> int:
    size = 0
    for name, overlay in group.overlays.items():
        if overlay.added:
            address = group.state.addresses[name]
            group.changed_addresses[address.address_id] = address
            if group.options.persist_id_cache:
                size += add_ids(connection, address, overlay, group.now_ms)
    return size


def _write_changes(group: Group, connection: sqlite3.Connection) -> int:
    state, caches = group.state, group.changed_caches
    added = {state.addresses[name].address_id: len(overlay.added) for name, overlay in group.overlays.items()}
    connection.executemany(
        _UPSERT_ADDRESS,
        [
            _checked(
                a.address_id, a.name, a.routing_type, a.first, a.next, a.trimmed, a.total, a.messages,
                a.bytes, a.logged, a.cache.accepted + added.get(a.address_id, 0),
                caches[a.address_id].capacity if a.address_id in caches else a.cache.capacity,
                a.id_cache_size, a.id_cache_configured, AUTOMATIC * a.automatic + USED * a.used,
            )
            for a in group.changed_addresses.values()
        ],
    )  # fmt: skip
    for _, queue in group.changed_queues.values():
        queue.version += 1
        group.written_queue = (queue.queue_id, queue.version)
    queues = [
        _checked(
            queue.queue_id,
            address.address_id,
            queue.name,
            queue.bridge,
            queue.cursor.next,
            queue.cursor.pack(),
            queue.condition,
            queue.messages,
            AUTOMATIC * queue.automatic + USED * queue.used,
            queue.version,
        )
        for address, queue in group.changed_queues.values()
    ]
    connection.executemany(_UPSERT_QUEUE, queues)
    connection.executemany(
        _UPSERT_POSITION,
        [
            _checked(*key, position.next, position.run, position.checksum, position.epoch, position.moved_to,
                     *position.owner)
            for key, position in group.changed_positions.items()
        ],
    )  # fmt: skip
    connection.executemany(
        _UPSERT_SETTLED,
        [
            _checked(*key, settled.upto, settled.checksum, settled.store, settled.stays)
            for key, settled in group.changed_settled.items()
        ],
    )
    if group.arrivals:
        row = _checked(state.sequence)
        connection.execute("UPDATE sequence SET next = ?, crc = ?", row)
    rows = len(group.changed_addresses) + len(group.changed_positions) + len(group.changed_settled)
    return _ROW_BYTES * (rows + len(queues)) + sum(len(row[5] or b"") + len(row[6]) for row in queues)


def _checked(*columns: Any) -> tuple[Any, ...]:
    """The columns of a row, with its checksum behind them."""
    return (*columns, row_checksum(columns))


def _write_lines(group: Group, connection: sqlite3.Connection) -> int:
    group.log.close(
        {name: group.state.addresses[name].stream(group.incarnation) for name in group.log.addresses}
    )
    connection.executemany("INSERT INTO outbox (line) VALUES (?)", [(line,) for line in group.log.lines])
    group.state.lines += len(group.log.lines)
    return sum(map(len, group.log.lines))
