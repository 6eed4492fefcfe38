"""Fetches records that aiokafka cannot decode: record batches in which the name of a header is no text.

Brokers do not look at headers, and some clients take any bytes for a name. aiokafka raises at such a record,
and again whenever it is fetched (docs/kafka-traps.md 6). Here only the records are read another way; what is
aborted, what is a marker and where the next fetch begins stays aiokafka's (`PartitionRecords`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiokafka.codec import gzip_decode, lz4_decode, snappy_decode, zstd_decode
from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.errors import CorruptRecordException, KafkaError
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import decode_varint_py as decode_varint  # the one in C reads past the end
from aiokafka.structs import TopicPartition

#: A batch's first bytes: its offset, and the length of what is behind them.
_PREFIX: Final = struct.Struct(">qi")
#: Where a batch tells its format; 2 is the first one with headers.
_MAGIC_AT: Final = 16
_MAGIC: Final = 2
#: Where it tells how many records it has, and where they begin.
_COUNT_AT: Final = 57
_RECORDS_AT: Final = 61
#: By the lowest bits of a batch's attributes.
_DECODERS: Final = {0: bytes, 1: gzip_decode, 2: snappy_decode, 3: lz4_decode, 4: zstd_decode}


@dataclass(frozen=True, slots=True)
class _Record:
    """The part of a record that `PartitionRecords` uses; key and value are left out."""

    offset: int
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int = -1
    timestamp_type: int = 0
    key: None = None
    value: None = None
    checksum: None = None


async def fetch(
    client: Any, tp: TopicPartition, offset: int, *, max_bytes: int, max_wait_ms: int
) -> tuple[Sequence[Any], int]:
    """Committed records from `offset` on with offsets and headers, and where the next fetch begins.

    Nothing comes, and the next fetch begins at `offset` again, where the leader has moved, is away, or no
    longer has the offset: a consumer's own fetch finds out why.

    Args:
        client: a consumer's, connected.
        tp: where.
        offset: the first one.
        max_bytes: of the fetch, unless one batch is larger.
        max_wait_ms: how long the broker may wait for something to come.

    Raises:
        CorruptRecordException: a batch is damaged.
    """
    leader = client.cluster.leader_for_partition(tp)
    if leader is None or leader < 0:
        return (), offset
    asked = [(tp.topic, [(tp.partition, offset, max_bytes)])]
    try:
        answer = await client.send(leader, FetchRequest(max_wait_ms, 1, max_bytes, READ_COMMITTED, asked))
    except KafkaError:
        return (), offset
    ((_, ((_, error, _, _, _, aborted, *_, data),)),) = answer.topics
    return ((), offset) if error else read(tp, data or b"", aborted or (), offset)


def read(
    tp: TopicPartition, data: bytes, aborted: Sequence[tuple[int, int]], offset: int
) -> tuple[Sequence[Any], int]:
    """As `fetch`, of the bytes that a broker has sent.

    Args:
        tp: where they are from.
        data: whole record batches; the last one may be cut off.
        aborted: transactions in it, as producer id and first offset.
        offset: the first one that was asked for; its batch may begin before it.

    Raises:
        CorruptRecordException: a batch is damaged.
    """
    made = PartitionRecords(tp, _Batches(data), aborted, offset, None, None, True, READ_COMMITTED)
    return list(made), made.next_fetch_offset


class _Batches:
    """Replaces aiokafka's `MemoryRecords`: the batches of a fetch, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def has_next(self) -> bool:
        """Whether there is another whole batch."""
        return len(self._data) - self._at >= _PREFIX.size and self._end() <= len(self._data)

    def next_batch(self) -> Any:
        """The next batch; markers, and formats without headers, as aiokafka reads them."""
        here = self._data[self._at : self._end()]
        self._at += len(here)
        batch = MemoryRecords(here).next_batch()
        return batch if here[_MAGIC_AT] < _MAGIC or batch.is_control_batch else _Batch(batch, here)

    def _end(self) -> int:
        _, length = _PREFIX.unpack_from(self._data, self._at)
        return int(self._at + _PREFIX.size + length)


class _Batch:
    """aiokafka's record batch, except for its records."""

    def __init__(self, batch: Any, data: bytes) -> None:
        self._batch = batch
        self._data = data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __iter__(self) -> Iterator[_Record]:
        (count,) = struct.unpack_from(">i", self._data, _COUNT_AT)
        buffer = _DECODERS[self._batch.compression_type](self._data[_RECORDS_AT:])
        try:
            yield from _records(buffer, count, self._batch.base_offset)
        except (ValueError, IndexError) as error:
            raise CorruptRecordException(f"a record of another structure: {error!r}") from error


def _records(buffer: bytes, count: int, base_offset: int) -> Iterator[_Record]:
    """The records of one batch. Bytes of a name that are no text become escapes; a bridge's name has none."""
    at = 0
    for _ in range(count):
        length, at = decode_varint(buffer, at)
        end = at + length
        _, at = decode_varint(buffer, at + 1)  # behind the attributes: the time
        delta, at = decode_varint(buffer, at)
        for _ in ("key", "value"):
            _, at = _bytes(buffer, at)
        headers = []
        names, at = decode_varint(buffer, at)
        for _ in range(names):
            name, at = _bytes(buffer, at)
            value, at = _bytes(buffer, at)
            headers.append(((name or b"").decode("utf-8", "backslashreplace"), value))
        if at != end or end > len(buffer):
            raise ValueError(f"it says that it ends at byte {end} of {len(buffer)}, and ends at {at}")
        yield _Record(base_offset + delta, headers)


def _bytes(buffer: bytes, at: int) -> tuple[bytes | None, int]:
    """The bytes behind their length, None where that is negative; and the index after them."""
    length, at = decode_varint(buffer, at)
    return (None, at) if length < 0 else (buffer[at : at + length], at + length)
