"""Messages of this journal read again by position, as a replay plan asks for them.

A message that the bridge's queue has passed is there only where another queue, or `retain-time`, keeps it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from bridge.journal.batching import Cutter
from bridge.journal.journal import Journal
from bridge.journal.sqlite import reader
from bridge.journal.sqlite.known_messages import read_copies
from bridge.journal.sqlite.large_bodies import read_whole
from bridge.journal.values.options import BridgeSelection
from bridge.journal.values.stored_block import StoredBlock
from bridge.messages.batch import Batch
from bridge.messages.block import Origin
from bridge.messages.message import WHOLE_BODY_BYTES
from bridge.messages.positions import Runs
from bridge.messages.stream_names import journal_stream, source_address
from bridge.relay.ports import Stream
from bridge.replay.sending import Part, Sibling

#: Batches' worth of bytes that are read in one transaction.
BATCHES_AT_ONCE: Final = 4


class JournalPlanSource:
    """Implements `bridge.replay.sending.PlanSource` for one bridge that reads this journal."""

    def __init__(self, journal: Journal, selection: BridgeSelection, cutter: Cutter) -> None:
        """As `bridge.journal.source.JournalSource`."""
        self._journal = journal
        self._bridge = selection.bridge
        self._selection = selection
        self._cutter = cutter
        #: By identity, the address IDs of the streams that were asked for.
        self._address_ids: dict[str, int] = {}

    @property
    def store(self) -> str:
        """The journal's."""
        return self._journal.store

    async def stream(self, identity: str) -> Stream | None:
        """The stream, if the bridge reads it here. Raises: JournalUnavailable."""
        own = self._streams(await self._journal.look(reader.bridge_queues, self._bridge))
        return next((stream for stream, _ in own if stream.identity == identity), None)

    async def siblings(self, stream: Stream) -> Sequence[Sibling]:
        """Implements `PlanSource.siblings`. Raises: JournalUnavailable."""
        rows = await self._journal.look(reader.bridge_queues, self._bridge)
        return [
            Sibling(
                one,
                max(row.first, row.trimmed),
                row.end,
                is_whole=not await self._journal.look(reader.was_trimmed, row, row.first),
            )
            for one, row in self._streams(rows)
            if one.target_address == stream.target_address
        ]

    def _streams(
        self, rows: Sequence[reader.BridgeQueueRow]
    ) -> Iterator[tuple[Stream, reader.BridgeQueueRow]]:
        own = self._journal.identity
        for row in rows:
            if self._selection.reads(row.address):
                identity = journal_stream(own.incarnation, row.address, row.first)
                self._address_ids[identity] = row.address_id
                address = source_address(row.address)
                yield self._selection.stream(identity, address, own.session_id, row.routing_type), row

    async def copies(self, stream: Stream, origins: Sequence[Origin]) -> Sequence[tuple[Origin, int]]:
        """Implements `PlanSource.copies`. Raises: JournalUnavailable."""
        return await self._journal.look(read_copies, self._address_ids[stream.identity], origins)

    async def read(self, stream: Stream, wanted: Runs) -> Part:
        """Implements `PlanSource.read`; reads some batches at a time."""
        most_bytes = self._cutter.batch_bytes * BATCHES_AT_ONCE
        address_id = self._address_ids[stream.identity]
        blocks, upto = await self._journal.look(read_wanted, address_id, wanted, most_bytes)
        batches = self._cutter.cut(stream.identity, blocks, blocks[0].first) if blocks else []
        if self._cutter.whole_bodies:
            batches = [await self._whole(batch) for batch in batches]
        return Part(batches, upto)

    async def _whole(self, batch: Batch) -> Batch:
        if batch.block is None or batch.block.large is None:
            return batch
        return replace(batch, block=await self._journal.look(read_whole, batch.block, WHOLE_BODY_BYTES))

    async def close(self) -> None:
        """Does nothing: the journal belongs to the node."""


def read_wanted(
    connection: sqlite3.Connection, address_id: int, wanted: Runs, most_bytes: int
) -> tuple[list[StoredBlock], int]:
    """The parts of blocks that hold the first of these positions, up to `most_bytes` but at least one.

    Returns them, and the position up to which it has looked.
    """
    found: list[StoredBlock] = []
    block: StoredBlock | None = None
    size = 0
    for first, last in wanted:
        at = first
        while at <= last:
            if block is None or not block.first <= at < block.end:
                firsts = reader.find_blocks(connection, address_id, at, last + 1, 1)
                if not firsts:
                    break  # the rest of the run is gone
                block = reader.read_block(connection, firsts[0])
                at = max(at, block.first)
            end = min(last + 1, block.end)
            part = block.block.part(at - block.first, end - block.first)
            found.append(StoredBlock(at, block.stored_ms, part))
            size += part.whole_size
            at = end
            if size >= most_bytes:
                return found, at
    return found, wanted[-1][1] + 1
