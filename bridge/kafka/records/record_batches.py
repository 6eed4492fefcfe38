"""The record batches that one transaction sends to each partition of the target. Pure.

Every message passes through here, so the loop in `RecordBatches.append` does as little as possible: one
`append` of the client's C code, and two comparisons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from bridge.errors import listed
from bridge.kafka.records.topic_rules import NO_TIMESTAMP, TopicRules
from bridge.messages.message import Header, Message

#: Bytes of a record batch, unless one message is larger (docs/kafka-traps.md).
RECORD_BATCH_BYTES: Final = 1024 * 1024


class Builder(Protocol):
    """The part of aiokafka's batch builder that is used here."""

    def append(
        self, *, timestamp: int, key: bytes | None, value: bytes | None, headers: list[Header]
    ) -> object | None:
        """Add a record; None: it does not fit. The first record always fits."""

    def size(self) -> int:
        """The size so far in bytes, uncompressed."""

    def record_count(self) -> int:
        """The number of records so far."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A contiguous part of a record batch that belongs to one stream."""

    #: The stream's identity.
    stream: str
    #: First and last position.
    first: int
    last: int
    #: Index of the last record in the record batch, from 0.
    last_index: int
    #: Whether the record is the dead letter of that position, not the message.
    is_letter: bool = False
    #: The positions and messages of its records, in their order.
    positions: Sequence[int] = field(default=(), compare=False, repr=False)
    messages: Sequence[Message] = field(default=(), compare=False, repr=False)

    def at(self, index: int) -> tuple[int, Message]:
        """The position and message of the record at this index of the record batch, in this segment."""
        from_end = index - self.last_index - 1
        return self.positions[from_end], self.messages[from_end]


@dataclass(slots=True, eq=False)
class RecordBatch:
    """One record batch, with the segments in it."""

    topic: str
    partition: int
    builder: Builder
    segments: list[Segment] = field(default_factory=list)
    #: Whether its records have no timestamp. Then it takes none that has one: the builder would give that one
    #: to all of them (docs/kafka-traps.md 7).
    untimed: bool = False
    #: Whether it is closed: no more records are added.
    sealed: bool = False

    def segment(self, index: int) -> Segment | None:
        """The segment of the record at this index; None: there is no such record."""
        return next((one for one in self.segments if one.last_index >= index >= 0), None)


#: By record batch, the offset of its first record; -1 where the broker no longer knows it.
Offsets = Mapping[RecordBatch, int]


class TooLarge(Exception):
    """Messages that no record batch of their topic can hold; the record batches made so far are of no use."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        super().__init__(
            listed(f"message {index} makes a record batch of {size} bytes" for index, size in sizes.items())
        )
        #: By index among the messages appended: bytes of a record batch that holds it alone.
        self.sizes = sizes


@dataclass(frozen=True, slots=True)
class Appended:
    """Messages of one stream for one partition: columns of the same length."""

    stream: str
    positions: Sequence[int]
    messages: Sequence[Message]
    headers: Sequence[list[Header]]
    is_letter: bool = False

    def chosen(self, indices: Sequence[int]) -> Appended:
        """The messages at these indices."""
        positions, messages, headers = (
            [column[index] for index in indices] for column in (self.positions, self.messages, self.headers)
        )
        return Appended(self.stream, positions, messages, headers, self.is_letter)  # type: ignore[arg-type]


class RecordBatches:
    """The record batches of one transaction, by topic and partition, each in the order of sending."""

    def __init__(self, make: Callable[[int], Builder], *, exact: bool) -> None:
        """`make` starts a record batch of at most so many bytes, if it holds more than one message.

        `exact`: whether sizes are those at the broker. The size of a compressed record batch is unknown
        before.
        """
        self._make = make
        self._exact = exact
        self.by_partition: dict[tuple[str, int], list[RecordBatch]] = {}

    def __iter__(self) -> Iterator[RecordBatch]:
        """All record batches."""
        return (batch for batches in self.by_partition.values() for batch in batches)

    @property
    def records(self) -> int:
        """The number of records in all record batches."""
        return sum(batch.builder.record_count() for batch in self)

    @property
    def bytes(self) -> int:
        """The size of all record batches in bytes, before compression."""
        return sum(batch.builder.size() for batch in self)

    def append(
        self,
        rules: TopicRules,
        partition: int,
        what: Appended,
        *,
        alone: bool = False,
        most_bytes: int = RECORD_BATCH_BYTES,
    ) -> None:
        """Append messages, in order. `alone`: in a record batch that holds nothing else, if they fit.

        Raises:
            TooLarge: some can never be stored; drop these record batches.
        """
        batches = self.by_partition.setdefault((rules.name, partition), [])
        index = 0
        too_large: dict[int, int] = {}
        while index < len(what.messages):
            if not batches or batches[-1].sealed or alone or index:
                most = min(RECORD_BATCH_BYTES, most_bytes, rules.max_message_bytes)
                untimed = what.messages[index].timestamp == NO_TIMESTAMP
                batches.append(
                    RecordBatch(rules.name, partition, self._make(most), untimed=untimed, sealed=alone)
                )
            batch, start = batches[-1], index
            index = _fill(batch, what, start)
            count = batch.builder.record_count()
            if index > start:
                first, last = what.positions[start], what.positions[index - 1]
                part = slice(start, index)
                own = what.positions[part], what.messages[part]
                batch.segments.append(Segment(what.stream, first, last, count - 1, what.is_letter, *own))
            batch.sealed = batch.sealed or index < len(what.messages)
            if count == 1 and self._exact and batch.builder.size() > rules.max_message_bytes:
                too_large[index - 1] = batch.builder.size()
        if too_large:
            raise TooLarge(too_large)


def _fill(batch: RecordBatch, what: Appended, start: int) -> int:
    """Append messages from index `start` on while they fit; returns the index of the first that did not."""
    messages, headers, untimed, append = what.messages, what.headers, batch.untimed, batch.builder.append
    for index in range(start, len(messages)):
        message = messages[index]
        timestamp = message.timestamp
        if untimed and timestamp != NO_TIMESTAMP:
            return index
        body: bytes | None = message.body  # type: ignore[assignment]  # none is large (`takes_chunks`)
        if append(timestamp=timestamp, key=message.key, value=body, headers=headers[index]) is None:
            return index
    return len(messages)
