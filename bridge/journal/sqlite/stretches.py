"""The messages of an address, stretch by stretch, as leases and counts need them: no body is read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final, NamedTuple

from bridge.journal.sqlite.damage import Continuity, required_row
from bridge.journal.values.queue_cursor import Interval
from bridge.journal.values.routes import addressed

#: Blocks looked at in one step.
_BLOCKS_A_STEP: Final = 64


class Stretch(NamedTuple):
    """Messages of one block, at every position in ``[first, end)``."""

    first: int
    end: int
    #: Bytes of the whole block, and of its largest message.
    size: int
    largest: int


def stretches(connection: sqlite3.Connection, address_id: int, gap: Interval) -> Iterator[Stretch]:
    """The messages of a gap, block by block."""
    from_, end = gap
    for block in _blocks(connection, address_id, gap):
        low, high = max(block.first, from_), min(block.end, end)
        if low < high:
            yield block._replace(first=low, end=high)


def addressed_stretches(
    connection: sqlite3.Connection, address_id: int, queue: str, gap: Interval
) -> Iterator[tuple[int, list[Stretch]]]:
    """As `stretches`, with those messages only that are addressed to `queue`: for each block of the gap, the
    position at which it ends there, and its stretches.
    """
    from_, end = gap
    for block in _blocks(connection, address_id, gap):
        high = min(block.end, end)
        if high > from_:
            count = block.end - block.first
            found = addressed_ranges(connection, queue, block.first, count, from_, end)
            yield high, [block._replace(first=low, end=upto) for low, upto in found]


def addressed_ranges(
    connection: sqlite3.Connection, queue: str, first: int, count: int, from_: int, end: int
) -> list[Interval]:
    """The positions in ``[from_, end)`` at which a block has messages that are addressed to `queue`."""
    (routes,) = required_row(connection, "SELECT routes FROM blocks WHERE first = ?", (first,), "blocks")
    ranges = [
        (max(first + low, from_), min(first + high, end)) for low, high in addressed(routes, queue, count)
    ]
    return [(low, high) for low, high in ranges if low < high]


def _blocks(connection: sqlite3.Connection, address_id: int, gap: Interval) -> Iterator[Stretch]:
    """The blocks that hold positions of a gap, and perhaps one before it, each as a whole."""
    from_, end = gap
    (holding,) = connection.execute(
        "SELECT max(first) FROM blocks WHERE address_id = ? AND first <= ?", (address_id, from_)
    ).fetchone()
    at = from_ if holding is None else holding
    continuity = Continuity(connection, address_id, from_)
    while at < end:
        rows = connection.execute(
            "SELECT first, count, size, ordinal, largest FROM blocks"
            " WHERE address_id = ? AND first >= ? AND first < ? ORDER BY first LIMIT ?",
            (address_id, at, end, _BLOCKS_A_STEP),
        ).fetchall()
        if not rows:
            continuity.end(end)
            return
        for first, count, size, before, largest in rows:
            continuity.follow(first, count, before)
            at = first + count
            yield Stretch(first, at, size, largest)


def count_left_out(connection: sqlite3.Connection, address_id: int, queue: str, start: int) -> int:
    """The number of stored messages at positions >= `start` that are not addressed to `queue`."""
    left_out = 0
    for first, count, routes in connection.execute(
        "SELECT first, count, routes FROM blocks INDEXED BY blocks_with_routes"
        " WHERE address_id = ? AND routes IS NOT NULL AND first + count > ?",
        (address_id, start),
    ):
        begin = max(start - first, 0)
        left_out += count - begin
        left_out -= sum(max(stop - max(low, begin), 0) for low, stop in addressed(routes, queue, count))
    return left_out
