"""Blocks as the queue of one bridge gets them: those to which not all of their messages are addressed."""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bridge.journal.sqlite import reader
from bridge.journal.values.options import bridge_queue_name
from bridge.journal.values.queue_cursor import Interval
from bridge.journal.values.routes import addressed, unpack_sets
from bridge.journal.values.stored_block import StoredBlock
from bridge.messages import positions as run_arithmetic
from bridge.messages import value_runs
from bridge.messages.batch import Batch
from bridge.messages.stream_names import is_forward_log


@dataclass(frozen=True, slots=True)
class Routed:
    """Stored blocks, and which of their messages are not for the bridge that reads them."""

    blocks: Sequence[StoredBlock]
    #: Positions of messages for other queues only.
    others: Sequence[Interval] = ()

    def kept(self, batch: Batch) -> Batch:
        """The batch with the positions of others' messages covered and empty."""
        if not self.others or batch.block is None:
            return batch
        places = run_arithmetic.positions(batch.runs)
        indices = [index for index, place in enumerate(places) if not self._is_others(place)]
        return replace(batch.only(indices), filtered=batch.filtered, not_evaluated=batch.not_evaluated)

    def _is_others(self, position: int) -> bool:
        index = bisect_right(self.others, position, key=lambda interval: interval[0]) - 1
        return index >= 0 and position < self.others[index][1]


def read_routed(
    connection: sqlite3.Connection,
    bridge: str,
    address: tuple[str, int],
    within: Interval,
    most_bytes: int,
) -> Routed:
    """Blocks that hold positions in ``[start, end)``, as `reader.read_blocks`.

    `address`: its name and id. Blocks of a forward log carry the queues that their messages are for at the
    other node.
    """
    name, address_id = address
    blocks = reader.read_blocks(connection, address_id, *within, most_bytes)
    if not blocks:
        return Routed(blocks)
    routes = dict(
        connection.execute(
            "SELECT first, routes FROM blocks INDEXED BY blocks_with_routes"
            " WHERE address_id = ? AND routes IS NOT NULL AND first BETWEEN ? AND ?",
            (address_id, blocks[0].first, blocks[-1].first),
        )
    )
    if not routes:
        return Routed(blocks)
    if is_forward_log(name):
        return Routed([_named(stored, routes.get(stored.first)) for stored in blocks])
    queue = bridge_queue_name(bridge)
    others: list[Interval] = []
    for stored in blocks:
        at = stored.first
        for low, high in addressed(routes.get(stored.first), queue, stored.block.count):
            others.append((at, stored.first + low))
            at = stored.first + high
        others.append((at, stored.end))
    return Routed(blocks, [(low, high) for low, high in others if low < high])


def _named(stored: StoredBlock, routes: bytes | None) -> StoredBlock:
    sets = unpack_sets(routes, stored.block.count)
    queues = value_runs.joined((1, one.names if one.kind == "only" else ()) for one in sets)
    return stored._replace(block=stored.block.for_queues(queues))
