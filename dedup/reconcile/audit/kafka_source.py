"""Reads a range of a Kafka partition as `read_committed` shows it: offsets and headers, nothing else kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, Final, Protocol

from aiokafka.errors import CorruptRecordException, KafkaError, OffsetOutOfRangeError
from aiokafka.structs import TopicPartition

from dedup.reconcile.audit import loose_records
from dedup.reconcile.audit.errors import ReadFailed
from dedup.reconcile.audit.plan import STALLED_AFTER_MS, Range
from dedup.reconcile.audit.records import Record

#: Most bytes of a fetch: one that was taken and one that waits are in memory. A record above it still
#: comes, alone (KIP-74).
FETCH_BYTES: Final = 4 * 1024 * 1024
#: How long a broker delays a fetch that finds nothing, and how long one poll lasts.
FETCH_MAX_WAIT_MS: Final = 100
POLL_MS: Final = 500


class Connection(Protocol):
    """One cluster, its security included. `bridge.audit.access.KafkaEnd` is one."""

    @property
    def name(self) -> str:
        """The end's name in errors."""
        ...

    def consumer(self, **own: Any) -> Any:
        """An aiokafka consumer, not started, that reads what is committed and resets no offset by itself."""

    def counting(self, topic: str, records: Sequence[Any]) -> Sequence[Any]:
        """Those of a fetch's records that count: all, or what a bridge's filter takes."""

    def told(self, error: Exception, topic: str) -> str:
        """The explanation of an error at reading a topic, in one line, without a secret."""
        ...


@contextmanager
def clients_silenced() -> Iterator[None]:
    """Silence aiokafka's log within: it also raises what it cannot do, and that is reported once."""
    logger = logging.getLogger("aiokafka")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


async def read(
    connection: Connection, piece: Range, *, stalled_after_ms: int = STALLED_AFTER_MS
) -> AsyncGenerator[Sequence[Record]]:
    """The records of a range, in order, a fetch at a time; those that retention removes are left out.

    Raises:
        ReadFailed: not reached, no right, a damaged record, or no progress for `stalled_after_ms`.
    """
    tp = TopicPartition(piece.topic, piece.partition)
    options: Mapping[str, Any] = {
        "fetch_max_wait_ms": FETCH_MAX_WAIT_MS,
        "fetch_max_bytes": FETCH_BYTES,
        "max_partition_fetch_bytes": FETCH_BYTES,
    }
    consumer = connection.consumer(**options)
    at = piece.start
    try:
        await consumer.start()
        async with aclosing(_fetches(connection, consumer, tp, piece, stalled_after_ms)) as fetches:
            async for position, records in fetches:
                at = position
                yield records
    except (KafkaError, OSError, TimeoutError, _Stalled) as error:
        reason = str(error) if isinstance(error, _Stalled) else connection.told(error, piece.topic)
        raise ReadFailed(
            f"connector {connection.name}: {piece.topic}/{piece.partition} could not be read beyond offset"
            f" {at} of {piece.end}: {reason}"
        ) from error
    finally:
        await consumer.stop()


class _Stalled(Exception):
    pass


async def _fetches(
    connection: Connection, consumer: Any, tp: TopicPartition, piece: Range, stalled_after_ms: int
) -> AsyncGenerator[tuple[int, Sequence[Record]]]:
    """The position after each fetch, and its records."""
    clock = asyncio.get_running_loop().time
    consumer.assign([tp])
    consumer.seek(tp, piece.start)
    at, moved_s = piece.start, clock()
    while at < piece.end:
        try:
            found = (await consumer.getmany(tp, timeout_ms=POLL_MS)).get(tp, ())
            found = connection.counting(tp.topic, found)
        except OffsetOutOfRangeError:
            start = (await consumer.beginning_offsets([tp]))[tp]
            if start <= at:
                raise
            consumer.seek(tp, start)
            found = ()
        except (UnicodeDecodeError, CorruptRecordException):
            found = await _loosely(consumer, tp, at)
        # A position, not an offset of a record: markers and what compaction took are behind it too.
        position = await consumer.position(tp)
        yield position, [(one.offset, one.headers, None) for one in found if one.offset < piece.end]
        if position > at:
            at, moved_s = position, clock()
        elif clock() - moved_s > stalled_after_ms / 1000:
            raise _Stalled(f"nothing came for {stalled_after_ms} ms: an open transaction, or the broker")


async def _loosely(consumer: Any, tp: TopicPartition, at: int) -> Sequence[Any]:
    """The next records where aiokafka cannot decode them; the consumer continues behind them.

    Raises: CorruptRecordException: they cannot be decoded at all.
    """
    client = consumer._client  # noqa: SLF001 - a consumer has no fetch that leaves the decoding to others
    found, behind = await loose_records.fetch(
        client, tp, at, max_bytes=FETCH_BYTES, max_wait_ms=FETCH_MAX_WAIT_MS
    )
    consumer.seek(tp, behind)
    return found
