"""Turns consumer records into batches: a record's message, and the cuts between batches. Pure.

A relay's speed depends on the work per record: a record without headers costs one `Message` and one size.
Headers are read only where a record has some.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from bridge.messages import hops, value_runs
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.block import IndexedId, encode_message, pack_messages
from bridge.messages.cutting import divisions
from bridge.messages.message import Header, Message
from dedup import ids as duplicate_ids
from dedup.ids import HORNETQ_ID_HEADER, ID_HEADER, ID_HEADERS

#: Most bytes that a message adds to body and key, with its encoding and one hop, and that each header adds.
MESSAGE_BYTES: Final = 64
HEADER_BYTES: Final = 16
_ID_NAMES: Final = frozenset(ID_HEADERS)
#: Length of a stamped ID's text.
_STAMP_BYTES: Final = 36


class Record(Protocol):
    """The fields that are used of a record: of `bridge.kafka.records.raw_records` or aiokafka's own."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """A bridge's settings for messages and batches. Sizes in bytes."""

    #: Name the origin of messages, and refuse impossible IDs (`use-duplicate-detection`).
    stamp: bool
    #: Largest batch (`producer-window-size`); one message may be larger.
    batch_bytes: int
    #: A message of this size or larger travels in a batch of its own (`min-large-message-size`).
    large_bytes: int
    #: Longest duplicate ID (`max-duplicate-id-size`).
    max_id_bytes: int


@dataclass(frozen=True, slots=True)
class _Headers:
    """The headers of a record, parsed."""

    #: As the message has them: byte for byte, but for the hops, which are stored apart from it.
    carried: tuple[Header, ...]
    size: int
    #: The hops that it has passed; None: there is no such header.
    passed: bytes | None
    #: The ID that the producer set.
    producer_id: bytes | None
    #: Why the message is refused, as `CODE: detail`; empty: it is not.
    problem: str


def make_batches(
    options: BatchOptions, stream: str, records: Sequence[Record], from_: int, upto: int, checksum: int = 0
) -> list[Batch]:
    """The records of `stream` as batches that cover ``[from_, upto)``; without records, coverage alone.

    Args:
        options: of the bridge.
        stream: identity of the stream.
        records: in order, all of them at offsets in ``[from_, upto)``.
        from_: where the last batch ended.
        upto: the consumer's next position: beyond markers and holes.
        checksum: of the last message below `from_`; what coverage alone carries.
    """
    if not records:
        return [Batch(stream, from_, upto, checksum=checksum)]
    messages, sizes, ids, passed, refusals = _read(options, records)
    made: list[Batch] = []
    for start, stop in divisions(sizes, options.batch_bytes, options.large_bytes):
        part = records[start:stop]
        end = upto if stop == len(records) else part[-1].offset + 1
        runs = _runs(part)
        block = pack_messages(
            messages[start:stop],
            _within(ids, start, stop),
            value_runs.cut(passed, start, stop),
            sum(sizes[start:stop]),
        )
        made.append(
            Batch(
                stream,
                from_,
                end,
                runs,
                block.stamped(stream, runs) if options.stamp else block,
                checksum_of(part[-1]),
                events=(part[0].timestamp, part[-1].timestamp),
                refusals=tuple(refusal for refusal in refusals if from_ <= refusal[0] < end),
            )
        )
        from_ = end
    return made


def checksum_of(record: Record) -> int:
    """CRC-32 of the message as it was read, without this bridge's hop: a renamed bridge finds it again."""
    message = Message(record.value, record.key, tuple(record.headers), record.timestamp)
    return zlib.crc32(encode_message(message))


def _read(
    options: BatchOptions, records: Sequence[Record]
) -> tuple[list[Message], list[int], list[IndexedId], hops.Hops, list[tuple[int, str]]]:
    """The messages, their sizes, producers' IDs by index, hops, and the refused positions with reasons."""
    messages: list[Message] = []
    sizes: list[int] = []
    ids: list[IndexedId] = []
    #: Hops by index, of the records that have any.
    passed: dict[int, bytes] = {}
    refusals: list[tuple[int, str]] = []
    for record in records:
        value, key, given = record.value, record.key, record.headers
        size = MESSAGE_BYTES + (0 if value is None else len(value)) + (0 if key is None else len(key))
        carried: tuple[Header, ...] = ()
        if given:
            headers = _look_through(options, given)
            carried = headers.carried
            size += headers.size
            if headers.passed:
                passed[len(messages)] = headers.passed
            if headers.problem:
                refusals.append((record.offset, headers.problem))
            elif headers.producer_id is not None:
                ids.append((len(messages), headers.producer_id))
        messages.append(Message(value, key, carried, record.timestamp))
        sizes.append(size)
    return messages, sizes, ids, _hops(passed, len(records)), refusals


def _hops(passed: Mapping[int, bytes], count: int) -> hops.Hops:
    """The hops of all messages; `passed`: those of messages that have any, by index."""
    return value_runs.joined((1, passed.get(index, b"")) for index in range(count)) if passed else ()


def _look_through(options: BatchOptions, headers: Sequence[Header]) -> _Headers:
    """Parse the headers. The last header of a name counts, as with Kafka's `lastHeader`; others are kept."""
    passed: bytes | None = None
    named: list[Header] = []
    has_hops = False
    size = 0
    for name, value in headers:
        size += len(name) + len(value or b"") + HEADER_BYTES
        if name in _ID_NAMES:
            named.append((name, value))
        elif name == hops.HEADER:
            passed, has_hops = value, True
    carried = tuple(header for header in headers if header[0] != hops.HEADER) if has_hops else tuple(headers)
    if not named:
        return _Headers(carried, size, passed, None, "")
    producer_id, problem = _producer_id(named, options.max_id_bytes)
    if problem:
        problem = f"INVALID_DUPLICATE_ID: {problem}" if options.stamp else ""
    return _Headers(carried, size, passed, producer_id, problem)


def _producer_id(named: Sequence[Header], max_bytes: int) -> tuple[bytes | None, str]:
    """The ID that the producer set, of the headers that may hold one, and why the record is refused for it.

    Different IDs are refused, as over HTTP. A stamp in front of a producer's ID does not count: a consumer
    that copies headers brings it along.
    """
    last = dict(named)
    for name, value in named:
        if value != last[name] and not is_stamp(value):
            return None, f"the values of {name} must not differ"
    if is_stamp(last.get(ID_HEADER)):
        return None, ""
    found, *others = last.values()
    if others and others != [found]:
        return None, f"{ID_HEADER} and {HORNETQ_ID_HEADER} must not differ"
    length = len(found or b"")
    if not 1 <= length <= max_bytes:
        return None, f"a duplicate ID must have 1 to {max_bytes} bytes; found {length}"
    return found, ""


def is_stamp(value: bytes | None) -> bool:
    """Whether an ID is one that a bridge stamped: then it is no producer's, and is not checked."""
    if value is None or len(value) != _STAMP_BYTES or not value.isascii():
        return False
    return duplicate_ids.parse(value.decode("ascii")) is not None


def _runs(records: Sequence[Record]) -> run_arithmetic.Runs:
    first, last = records[0].offset, records[-1].offset
    if last - first + 1 == len(records):
        return ((first, last),)
    return run_arithmetic.join((record.offset, record.offset) for record in records)


def _within(ids: Sequence[IndexedId], start: int, stop: int) -> tuple[IndexedId, ...]:
    if not ids:
        return ()
    return tuple((index - start, value) for index, value in ids if start <= index < stop)
