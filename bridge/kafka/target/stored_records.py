"""The records that a lane without transactions has stored and not covered yet. Pure.

Where brokers refuse some records of a delivery, or fail in the middle of it, the others are stored already.
The next attempt leaves them out. It lives as long as the process: what another finds is what was covered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set

from bridge.kafka.records.record_batches import RecordBatch


class StoredRecords:
    """Positions of stored records, by stream; at most those of one attempt for each stream."""

    def __init__(self) -> None:
        #: By stream identity, and whether the records are dead letters.
        self._positions: defaultdict[tuple[str, bool], set[int]] = defaultdict(set)

    def add(self, batch: RecordBatch) -> None:
        """Record that the brokers have stored a record batch."""
        for segment in batch.segments:
            self._positions[segment.stream, segment.is_letter].update(segment.positions)

    def of(self, stream: str, *, letters: bool = False) -> Set[int]:
        """The positions whose messages, or whose dead letters, are stored."""
        return self._positions.get((stream, letters), frozenset())

    def covered(self, stream: str, upto: int) -> None:
        """Forget everything below `upto` of the stream."""
        for key in ((stream, False), (stream, True)):
            left = {position for position in self._positions.pop(key, ()) if position >= upto}
            if left:
                self._positions[key] = left
