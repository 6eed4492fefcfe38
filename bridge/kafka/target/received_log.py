"""The received side of a Kafka target's delivery log: line n is on disk before transaction n + 1 is begun.

The journal record carries the last line of each stream, so the next taker of the lane can write it, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bridge.delivery_log import LineWriter, WriteLines
from bridge.errors import TargetUnavailable
from bridge.kafka.journal_topic.lane_state import LaneState
from bridge.kafka.target.options import KafkaTargetOptions


class ReceivedLog:
    """Writes the lines of one lane, those of one transaction at a time. Without a `write` it does nothing."""

    def __init__(self, write: WriteLines | None) -> None:
        self._write = write
        #: The state whose lines are on disk.
        self._caught_up: LaneState | None = None
        #: The write under way; its error is its result, as no caller may wait for it.
        self._writing: asyncio.Future[OSError | None] | None = None

    def writer(self, options: KafkaTargetOptions, lane: int, store: str) -> LineWriter | None:
        """The writer of lines; None: there is no delivery log."""
        if self._write is None:
            return None
        return LineWriter(
            node=options.node,
            node_id=options.node_id,
            bridge=options.bridge,
            lane=lane,
            target=options.target_name,
            store=store,
        )

    def restart(self) -> None:
        """Reset after the lane was taken anew: the state carries the lines of a write under way."""
        self._caught_up = self._writing = None

    async def catch_up(self, state: LaneState) -> None:
        """Write the lines of a newly read state: the lane's previous owner may not have written them.

        Raises: as `written`.
        """
        if self._caught_up is not state:
            await self.written()
            self.begin([record.line for record in state.streams.values() if record.line])
            await self.written()
            self._caught_up = state

    def begin(self, lines: Sequence[str]) -> None:
        """Start writing the lines while the next transaction is planned; await `written` before it begins."""
        if self._write is not None and lines:
            self._writing = asyncio.ensure_future(_written(self._write, lines))

    async def written(self) -> None:
        """Wait until the lines that were begun are on disk.

        Raises:
            TargetUnavailable: the delivery log cannot be written. The lane must be given up.
        """
        writing, self._writing = self._writing, None
        error = None if writing is None else await writing
        if error is not None:
            raise TargetUnavailable(f"the delivery log cannot be written: {error}") from error


async def _written(write: WriteLines, lines: Sequence[str]) -> OSError | None:
    try:
        await write(lines)
    except OSError as error:
        return error
    return None
