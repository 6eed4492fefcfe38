"""One Kafka transaction: data, then what the target remembers, then the commit (design section 5, 'Target').

Only what went through all of it has happened. After anything else the producer is of no use any more
(docs/kafka-traps.md 1 to 3): a batch that failed leaves a gap in its sequence numbers, `commit_transaction`
commits although a batch failed, and a commit that timed out may still take effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import aiokafka
from aiokafka.errors import IllegalOperation, KafkaError
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.structs import RecordMetadata

from bridge.crash_points import crash_point
from bridge.kafka import producers
from bridge.kafka.connection import END_TRANSACTION_TIMEOUT_MS
from bridge.kafka.errors import code_of
from bridge.kafka.journal_records import Record
from bridge.kafka.participants import MARK_HEADER, mark
from bridge.kafka.piles import Offsets, Piles, RecordBatch

#: Longest that the brokers may take to store the data, and again to store the journal's records: aiokafka
#: tries again without end. Together with the commit it must be over before they abort the transaction.
SEND_TIMEOUT_MS: Final = 15_000
#: Bytes of a record batch of journal records, unless one record is larger.
JOURNAL_BATCH_BYTES: Final = 256 * 1024
#: A record that the broker will never take, by Kafka's code. The record batch with it is refused whole.
RECORD_ERRORS: Final = {
    10: "MESSAGE_TOO_LARGE",
    18: "RECORD_LIST_TOO_LARGE",
    32: "INVALID_TIMESTAMP",
    87: "INVALID_RECORD",
}


class SendFailed(Exception):
    """A record batch was not stored; `error` is what the client said, and the transaction is lost."""

    def __init__(self, topic: str, partition: int, error: BaseException) -> None:
        super().__init__(f"{topic}/{partition}: {error!r}")
        self.topic = topic
        self.partition = partition
        self.error = error


class BatchesRefused(Exception):
    """The broker will never take these record batches as they are; the transaction is lost."""

    def __init__(self, refused: Sequence[tuple[RecordBatch, BaseException]]) -> None:
        super().__init__(", ".join(f"{batch.topic}/{batch.partition}: {error!r}" for batch, error in refused))
        self.refused = refused


@dataclass(frozen=True, slots=True)
class JournalPartition:
    """Where the records of what the target remembers go."""

    topic: str
    partition: int


async def commit(
    producer: aiokafka.AIOKafkaProducer,
    piles: Piles,
    journal: JournalPartition,
    records: Callable[[Offsets], Iterable[Record]],
) -> None:
    """Store all of it in one transaction; it is durable when this returns.

    `records` makes the journal's records once the data's offsets are known.

    Raises:
        BatchesRefused, SendFailed, KafkaError, TimeoutError: discard the producer; whether it was stored is
            known only after the lane was taken again.
    """
    await producer.begin_transaction()
    crash_point("kafka.after-begin")
    producers.announce(producer, journal.topic, journal.partition)
    offsets = await _send_all(producer, list(piles.piles.values()))
    crash_point("kafka.after-send")
    await _send_all(producer, [_journal_batches(producer, journal, list(records(offsets)), offsets)])
    crash_point("kafka.after-journal")
    async with asyncio.timeout(END_TRANSACTION_TIMEOUT_MS / 1000):
        crash_point("kafka.before-commit")
        await producer.commit_transaction()
    crash_point("kafka.after-commit")


def _journal_batches(
    producer: aiokafka.AIOKafkaProducer, journal: JournalPartition, records: Sequence[Record], data: Offsets
) -> list[RecordBatch]:
    """The journal's records as record batches, the first with the mark. Their timestamps are the time now."""
    batches: list[RecordBatch] = []
    headers = [(MARK_HEADER, mark(len(records), data))]
    for key, value in records:
        if not batches or not _append(batches[-1].builder, key, value, []):
            builder = producers.create_batch(producer, JOURNAL_BATCH_BYTES)
            _append(builder, key, value, [] if batches else headers)
            batches.append(RecordBatch(journal.topic, journal.partition, builder))
    return batches


def _append(builder: BatchBuilder, key: bytes, value: bytes | None, headers: list[tuple[str, bytes]]) -> bool:
    return builder.append(timestamp=None, key=key, value=value, headers=headers) is not None


async def _send_all(
    producer: aiokafka.AIOKafkaProducer, piles: Sequence[Sequence[RecordBatch]]
) -> dict[RecordBatch, int]:
    """Send the record batches of each pile in order, the piles at the same time; await every one of them.

    Raises: BatchesRefused, SendFailed.
    """
    futures: dict[RecordBatch, asyncio.Future[RecordMetadata]] = {}
    sending = [asyncio.ensure_future(_send(producer, pile, futures)) for pile in piles]
    try:
        async with asyncio.timeout(SEND_TIMEOUT_MS / 1000):
            await asyncio.gather(*sending)
            if futures:
                await asyncio.wait(futures.values())
    except TimeoutError as error:
        waiting = [batch for pile in piles for batch in pile if not _is_done(futures.get(batch))]
        late = waiting[0] if waiting else piles[0][0]
        raise SendFailed(late.topic, late.partition, error) from error
    finally:
        for left in (*sending, *futures.values()):
            left.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
    return _offsets(futures)


async def _send(
    producer: aiokafka.AIOKafkaProducer,
    pile: Sequence[RecordBatch],
    futures: dict[RecordBatch, asyncio.Future[RecordMetadata]],
) -> None:
    for batch in pile:
        try:
            futures[batch] = await producer.send_batch(batch.builder, batch.topic, partition=batch.partition)
        except (KafkaError, IllegalOperation, AssertionError) as error:  # the last: no such partition (yet)
            raise SendFailed(batch.topic, batch.partition, producers.fault(producer) or error) from error


def _offsets(futures: Mapping[RecordBatch, asyncio.Future[RecordMetadata]]) -> dict[RecordBatch, int]:
    """By record batch, its first offset. Raises: BatchesRefused, SendFailed."""
    failed = [
        (batch, error) for batch, future in futures.items() if (error := future.exception()) is not None
    ]
    refused = [(batch, error) for batch, error in failed if code_of(error) in RECORD_ERRORS]
    if refused:
        raise BatchesRefused(refused)
    for batch, error in failed:
        raise SendFailed(batch.topic, batch.partition, error) from error
    return {batch: future.result().offset for batch, future in futures.items()}


def _is_done(future: asyncio.Future[RecordMetadata] | None) -> bool:
    return future is not None and future.done()
