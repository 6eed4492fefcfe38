"""The journal's knowledge of its own past: its sessions, and the last message below a position."""

from __future__ import annotations

import sqlite3

from bridge.journal.sqlite.reader import BridgeQueueRow, read_block
from bridge.relay.divergence import Past
from bridge.relay.ports import StreamState


def read_past(
    connection: sqlite3.Connection,
    bridge: str,
    identity: str,
    row: BridgeQueueRow,
    state: StreamState,
    session_id: str,
) -> Past:
    """The facts that `bridge.relay.divergence.check_past` asks about the stream `identity`.

    Args:
        connection: in a read transaction.
        bridge: the bridge whose settlements count.
        identity: of the stream, which is that of `row`.
        row: the bridge's queue.
        state: the target's word.
        session_id: this journal's session now.
    """
    opened = connection.execute("SELECT first, opened_ms FROM runs WHERE run = ?", (state.run,)).fetchone()
    run_end = None
    if opened is not None:
        (run_end,) = connection.execute(
            "SELECT min(first) FROM runs WHERE (first, opened_ms) > (?, ?)", opened
        ).fetchone()
    checksum = 0 if state.next is None else _checksum_below(connection, bridge, identity, row, state.next)
    return Past(session_id, opened is not None, run_end, row.end, checksum)


def _checksum_below(
    connection: sqlite3.Connection, bridge: str, identity: str, row: BridgeQueueRow, position: int
) -> int:
    """CRC-32 of the last message below `position`; 0 where it is gone and was not the last one settled."""
    found = connection.execute(
        "SELECT first, count, checksum FROM blocks WHERE address_id = ? AND first < ?"
        " ORDER BY first DESC LIMIT 1",
        (row.address_id, position),
    ).fetchone()
    if found is not None:
        first, count, checksum = found
        if connection.execute(
            "SELECT 1 FROM lost WHERE address_id = ? AND first < ? AND upto > ?",
            (row.address_id, position, first + count),
        ).fetchone():
            return 0
        if first + count > position:
            checksum = read_block(connection, first).block.part(0, position - first).checksum
        return int(checksum)
    settled = connection.execute(
        "SELECT checksum FROM settled WHERE bridge = ? AND stream = ? AND upto = ?",
        (bridge, identity, position),
    ).fetchone()
    return 0 if settled is None else int(settled[0])
