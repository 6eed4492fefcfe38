"""The coverage of one transaction by stream, and the offsets of its messages. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from bridge.kafka.records.record_batches import Offsets
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.positions import Run
from bridge.relay.ports import Stream


@dataclass(slots=True)
class Covered:
    """The coverage of one stream in the transaction, over all its batches."""

    stream: Stream
    from_: int
    upto: int = 0
    checksum: int = 0
    runs: list[Run] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    #: Producers' IDs that were accepted, each with its position, and those that were known.
    ids: list[tuple[int | None, bytes]] = field(default_factory=list)
    rejected: list[bytes] = field(default_factory=list)
    #: Whether IDs of this stream are not looked up.
    unchecked: bool = False
    #: Positions of messages that the target already had.
    known: list[int] = field(default_factory=list)
    events: tuple[int, int] = (0, 0)

    def add(self, fresh: Batch, rejected: Collection[int]) -> None:
        """Add the next batch, which begins where this ends. `rejected`: indices of messages already known."""
        if fresh.block is not None:
            first = self.events[0] if self.runs else fresh.events[0]
            self.events = (first, fresh.events[1])
            if fresh.block.ids or rejected:
                positions = list(run_arithmetic.positions(fresh.runs))
                self.known += [positions[index] for index in sorted(rejected)]
                for index, value in fresh.block.ids:
                    if index in rejected:
                        self.rejected.append(value)
                    else:
                        self.ids.append((positions[index], value))
        self.upto, self.checksum = fresh.upto, fresh.checksum
        self.runs += fresh.runs
        self.refused += fresh.refused


def last_offsets(offsets: Offsets) -> dict[str, tuple[tuple[str, int, int], ...]]:
    """By stream, (topic, partition, last offset of its messages), ascending; dead letters do not count."""
    found: dict[str, dict[tuple[str, int], int]] = {}
    for batch, base in offsets.items():
        for segment in batch.segments:
            if base >= 0 and not segment.is_letter:
                lasts = found.setdefault(segment.stream, {})
                where = (batch.topic, batch.partition)
                lasts[where] = max(lasts.get(where, -1), base + segment.last_index)
    return {
        stream: tuple((topic, partition, offset) for (topic, partition), offset in sorted(lasts.items()))
        for stream, lasts in found.items()
    }
