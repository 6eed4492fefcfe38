"""Reads and writes whole partitions of journal topics: for taking lanes and for repartitioning."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import structlog
from aiokafka.structs import TopicPartition

from bridge.errors import TargetRefused, TargetUnavailable
from bridge.kafka.client import producers
from bridge.kafka.client.connection import END_TRANSACTION_TIMEOUT_MS, KafkaConnection
from bridge.kafka.client.errors import explaining
from bridge.kafka.client.fetch_size import is_receiving
from bridge.kafka.journal_topic.participants import MARK_HEADER
from bridge.kafka.journal_topic.records import Record, Snapshot, foreign

#: Reading gives up after this long without progress: another producer's open transaction may block it until
#: the broker ends it (TRANSACTION_TIMEOUT_MS at the latest). An answer that is coming is progress.
STALLED_AFTER_MS: Final = 20_000
#: How long a poll for more records waits; a marker at the very end costs as much.
_POLL_MS: Final = 50
#: Records of a transaction in flight at a time.
_IN_FLIGHT: Final = 1_000


class JournalLog:
    """The partitions of journal topics on one cluster."""

    def __init__(self, connection: KafkaConnection, *, stalled_after_ms: int = STALLED_AFTER_MS) -> None:
        self._connection = connection
        self._stalled_after_ms = stalled_after_ms
        self._log = structlog.get_logger()

    async def read(
        self, topic: str, partitions: Collection[int], *, settled: bool = True
    ) -> Mapping[int, Snapshot]:
        """Read the committed records of these partitions.

        Args:
            topic: must exist.
            partitions: of it.
            settled: read up to the *uncommitted* high watermark of now: wait for every transaction that has
                written anything, committed or aborted in the end (docs/kafka-traps.md 15). Without it the
                last stable offset is enough, and the call waits for nothing.

        Raises:
            TargetUnavailable: not reached, or blocked by an open transaction.
            TargetRefused: no right to read, or a record that no bridge can have written.
        """
        asked = [TopicPartition(topic, partition) for partition in sorted(partitions)]
        with self._errors("Read", f"topic {topic} (journal-topic)"):
            ends = await self._ends(asked, "read_uncommitted" if settled else "read_committed")
            async with self._connection.consuming(fetch_max_wait_ms=_POLL_MS) as consumer:
                consumer.assign(asked)
                for tp, offset in (await consumer.beginning_offsets(asked)).items():
                    consumer.seek(tp, offset)
                return await self._read(consumer, ends)

    async def _ends(self, asked: Sequence[TopicPartition], isolation: str) -> dict[TopicPartition, int]:
        async with self._connection.consuming(isolation_level=isolation) as consumer:
            ends: dict[TopicPartition, int] = await consumer.end_offsets(asked)
        return ends

    async def _read(self, consumer: Any, ends: Mapping[TopicPartition, int]) -> Mapping[int, Snapshot]:
        found = {tp.partition: Snapshot() for tp in ends}
        clock = asyncio.get_running_loop().time
        before: list[int] = []
        progress = clock()
        while True:
            # A position, not a record's offset: it is beyond markers and records that compaction removed.
            positions = [await consumer.position(tp) for tp in ends]
            if all(position >= end for position, end in zip(positions, ends.values(), strict=True)):
                for tp, position in zip(ends, positions, strict=True):
                    found[tp.partition].end = position
                return found
            if positions != before or is_receiving(consumer):
                before, progress = positions, clock()
            elif clock() - progress > self._stalled_after_ms / 1000:
                raise _stalled(ends, positions, self._stalled_after_ms)
            for tp, records in (await self._records(consumer, ends, positions)).items():
                snapshot = found[tp.partition]
                for record in records:
                    where = f"{tp.topic} partition {tp.partition} offset {record.offset}"
                    if record.key is not None and (why := foreign(record.key)):
                        self._log.warning("journal-foreign-record", where=where, reason=why)
                        continue
                    mark = next((value for name, value in record.headers if name == MARK_HEADER), None)
                    snapshot.apply(record.key, record.value, mark, where=where)

    @staticmethod
    async def _records(
        consumer: Any, ends: Iterable[TopicPartition], positions: Sequence[int]
    ) -> Mapping[TopicPartition, Sequence[Any]]:
        """The next records. Raises: TargetRefused: the client cannot read one of them."""
        try:
            found: Mapping[TopicPartition, Sequence[Any]] = await consumer.getmany(timeout_ms=_POLL_MS)
        except UnicodeDecodeError as error:  # the name of a header (docs/kafka-traps.md 6)
            topic = next(iter(ends)).topic
            where = [f"{tp.partition} from {at} on" for tp, at in zip(ends, positions, strict=True)]
            raise TargetRefused(
                f"the journal topic {topic} holds a record that no bridge wrote and that cannot be read: the"
                f" name of a header is not UTF-8 ({error.reason}). It is in partition {', or '.join(where)}",
                key="journal-topic",
            ) from error
        return found

    async def fence(self, transactional_ids: Iterable[str]) -> None:
        """End every open transaction of these ids, and keep their producers from beginning another.

        Raises: as `read`.
        """
        for transactional_id in transactional_ids:
            async with self.writer(transactional_id):
                pass

    @contextlib.asynccontextmanager
    async def writer(self, transactional_id: str) -> AsyncIterator[JournalWriter]:
        """A writer of whole transactions under this id; fences its previous producer. Raises: as `read`."""
        errors = functools.partial(self._errors, "Write", f"transactional id {transactional_id}")
        with errors():
            producer = await producers.started(self._connection, transactional_id)
        try:
            yield JournalWriter(producer, errors)
        finally:
            await producers.discard(producer)

    @contextlib.contextmanager
    def _errors(self, operation: str, resource: str) -> Iterator[None]:
        with explaining(self._connection.name, operation, resource, side="target"):
            yield


class JournalWriter:
    """Writes whole transactions to journal topics."""

    def __init__(self, producer: Any, errors: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
        self._producer = producer
        self._errors = errors

    async def write(self, records: Iterable[tuple[str, int, Record]]) -> None:
        """Commit these records (topic, partition, key and value) in one transaction, all or nothing.

        Raises:
            TargetUnavailable: whether it was committed is unknown.
            TargetRefused: it was not committed, and will not be.
        """
        with self._errors():
            await self._producer.begin_transaction()
            sent: list[asyncio.Future[Any]] = []
            for topic, partition, (key, value) in records:
                try:
                    sent.append(await self._producer.send(topic, value, key, partition=partition))
                except AssertionError as error:  # aiokafka's error for a partition that it does not know yet
                    raise TargetUnavailable(f"{topic} has no partition {partition} yet: {error}") from error
                if len(sent) == _IN_FLIGHT:
                    await _all(sent)
            await _all(sent)
            async with asyncio.timeout(END_TRANSACTION_TIMEOUT_MS / 1000):
                await self._producer.commit_transaction()


async def _all(sent: list[asyncio.Future[Any]]) -> None:
    """Wait for every send: a commit would not notice that one has failed (docs/kafka-traps.md 1)."""
    answers = await asyncio.gather(*sent, return_exceptions=True)
    sent.clear()
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer


def _stalled(
    ends: Mapping[TopicPartition, int], positions: Sequence[int], limit_ms: int
) -> TargetUnavailable:
    tp, position, end = next(
        (tp, position, end)
        for (tp, end), position in zip(ends.items(), positions, strict=True)
        if position < end
    )
    return TargetUnavailable(
        f"partition {tp.partition} of {tp.topic} cannot be read beyond offset {position} of {end}: for"
        f" {limit_ms} ms an open transaction of another producer, or the broker, has held it up",
        key="journal-topic",
        limit=end,
        found=position,
    )
