"""The outbox: delivery-log lines that wait to be copied to their segment."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence


def read_lines(
    connection: sqlite3.Connection, after: int, most: int, most_bytes: int
) -> Sequence[tuple[int, bytes]]:
    """Delivery-log lines that wait in the outbox, in order, up to the one that reaches `most_bytes`."""
    found: list[tuple[int, bytes]] = []
    size = 0
    rows = connection.execute(
        "SELECT line_id, line FROM outbox WHERE line_id > ? ORDER BY line_id LIMIT ?", (after, most)
    )
    for row in rows:
        found.append(row)
        size += len(row[1])
        if size >= most_bytes:
            break
    rows.close()
    return found
