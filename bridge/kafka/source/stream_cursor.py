"""The positions of one open stream of a Kafka source: read, handed out and settled."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from bridge.kafka.records.decoding import BatchOptions, make_batches
from bridge.kafka.source.consumer import Fetched
from bridge.kafka.source.partitions import Found
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch


@dataclass(slots=True, eq=False)
class StreamCursor:
    """The positions and batches of one stream."""

    found: Found
    #: Everything below was made into batches.
    at: int
    #: Checksum of the last message below `at`; 0: not known.
    checksum: int = 0
    #: Everything below is covered by the target.
    settled: int = 0
    #: The log's end when the stream was opened.
    end: int = 0
    #: End of what was sent before this opening and the delivery log may lack: it is read again for that.
    recover_upto: int = 0
    #: Batches that were not handed out yet: at most those of one fetch.
    _ready: deque[Batch] = field(default_factory=deque)
    #: Batches read for the delivery log alone.
    _recovered: deque[Batch] = field(default_factory=deque)
    #: End and first timestamp (ms) of batches that were read and are not settled.
    _unsettled: deque[tuple[int, int]] = field(default_factory=deque)

    def begin(self, coverage: Batch) -> None:
        """Hand out this coverage before anything is read."""
        self._ready.append(coverage)

    def recover(self, first: int, upto: int) -> None:
        """Read ``[first, upto)`` again for the delivery log before going on at `upto`, the target's next."""
        self.at, self.recover_upto = first, upto

    @property
    def recovers(self) -> bool:
        """Whether positions that were sent before are still being read."""
        return self.at < self.recover_upto

    def take(self, options: BatchOptions, fetched: Fetched) -> None:
        """Make batches of the next records."""
        stream = self.found.stream.identity
        if self.recovers:
            fetched = self._recover(options, fetched)
            if fetched.from_ == fetched.upto:
                return
        made = make_batches(options, stream, fetched.records, fetched.from_, fetched.upto, self.checksum)
        self._ready.extend(made)
        self.at, self.checksum = fetched.upto, made[-1].checksum

    def _recover(self, options: BatchOptions, fetched: Fetched) -> Fetched:
        """Take what was sent before; returns the rest. What the target refused itself is in its own log."""
        stream, upto = self.found.stream.identity, min(fetched.upto, self.recover_upto)
        before = [record for record in fetched.records if record.offset < upto]
        made = make_batches(options, stream, before, fetched.from_, upto)
        self._recovered.extend(made)
        self.at = upto
        return Fetched(upto, fetched.upto, fetched.records[len(before) :])

    def next_recovered(self) -> Batch | None:
        """The next batch for the delivery log alone; None: there is none."""
        return self._recovered.popleft() if self._recovered else None

    def next_batch(self) -> Batch | None:
        """Hand out the next batch; None: there is none."""
        if not self._ready:
            return None
        batch = self._ready.popleft()
        if batch.count:
            self._unsettled.append((batch.upto, batch.events[0]))
        return batch

    def drop_ready(self) -> None:
        """Drop the batches that were not handed out: they will be read again."""
        self._ready.clear()

    def settle(self, upto: int) -> None:
        """Note that the target covers everything below `upto`."""
        self.settled = max(self.settled, upto)
        while self._unsettled and self._unsettled[0][0] <= upto:
            self._unsettled.popleft()

    @property
    def is_unsettled(self) -> bool:
        """Whether the target has messages that are not settled."""
        return bool(self._unsettled)

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest message that was fetched and is not settled was stored."""
        if self._unsettled:
            return self._unsettled[0][1]
        return next((batch.events[0] for batch in self._ready if batch.count), None)


def without_refusals(batch: Batch) -> Batch:
    """A batch that was read again, as it was sent: positions refused here are covered and empty.

    Only its IDs are used.
    """
    if not batch.refusals:
        return batch
    assert batch.block is not None
    refused = dict(batch.refusals)
    positions = list(run_arithmetic.positions(batch.runs))
    return replace(
        batch,
        runs=run_arithmetic.join((at, at) for at in positions if at not in refused),
        block=batch.block.without(index for index, at in enumerate(positions) if at in refused),
        refused=tuple(refused),
        refusals=(),
    )
