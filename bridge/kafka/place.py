"""Where one open stream of a Kafka source is: what was read, handed out and settled."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from bridge.batch import Batch
from bridge.kafka.partitions import Found
from bridge.kafka.reading import Fetched
from bridge.kafka.records_in import Rules, make_batches


@dataclass(slots=True, eq=False)
class Place:
    """One stream."""

    found: Found
    #: Everything below was made into batches.
    at: int
    #: Of the last message below `at`; 0: not known.
    checksum: int = 0
    #: Everything below is covered by the target.
    settled: int = 0
    #: Batches that nobody has read yet: at most what one fetch brought.
    _ready: deque[Batch] = field(default_factory=deque)
    #: End and first timestamp (ms) of batches that were read and are not settled.
    _unsettled: deque[tuple[int, int]] = field(default_factory=deque)

    def begin(self, coverage: Batch) -> None:
        """This goes out before anything is read."""
        self._ready.append(coverage)

    def take(self, rules: Rules, fetched: Fetched) -> None:
        """What comes next."""
        stream = self.found.stream.identity
        made = make_batches(rules, stream, fetched.records, fetched.from_, fetched.upto, self.checksum)
        self._ready.extend(made)
        self.at, self.checksum = fetched.upto, made[-1].checksum

    def next_batch(self) -> Batch | None:
        """Hand out the next one; None: there is none."""
        if not self._ready:
            return None
        batch = self._ready.popleft()
        if batch.count:
            self._unsettled.append((batch.upto, batch.events[0]))
        return batch

    def drop_ready(self) -> None:
        """Nothing of what was made into batches goes out: it will be read again."""
        self._ready.clear()

    def settle(self, upto: int) -> None:
        """The target covers everything below `upto`."""
        self.settled = max(self.settled, upto)
        while self._unsettled and self._unsettled[0][0] <= upto:
            self._unsettled.popleft()

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest message that was fetched and is not settled was stored."""
        if self._unsettled:
            return self._unsettled[0][1]
        return next((batch.events[0] for batch in self._ready if batch.count), None)
