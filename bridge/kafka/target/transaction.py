"""One Kafka transaction: data, then the target's state, then the commit (design section 5, 'Target').

Only a transaction that completes all of it has taken effect. After anything else the producer is of no use
any more (docs/kafka-traps.md 1 to 3): a batch that failed leaves a gap in its sequence numbers,
`commit_transaction` commits although a batch failed, and a commit that timed out may still take effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiokafka
from aiokafka.errors import IllegalOperation, KafkaError
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.structs import RecordMetadata

from bridge.errors import listed
from bridge.kafka.client import line, producers
from bridge.kafka.client.connection import END_TRANSACTION_TIMEOUT_MS
from bridge.kafka.client.error_codes import RECORD_ERRORS
from bridge.kafka.client.errors import code_of
from bridge.kafka.client.throttling import RECORDS
from bridge.kafka.journal_topic.participants import MARK_HEADER, mark
from bridge.kafka.journal_topic.records import JOURNAL_BATCH_BYTES, JournalPartition, Record
from bridge.kafka.records.record_batches import Offsets, RecordBatch, RecordBatches
from bridge.messages.message import Header
from bridge.runtime.fault_injection import crash_point

#: Longest that the brokers may take to store the data, and again to store the journal's records: aiokafka
#: retries without end. The time that they ask to wait does not count (`bridge.kafka.client.throttling`), and
#: bytes that move extend it (`bridge.kafka.client.line`), until a broker answers with an error. Together with
#: the commit it must be over before they abort the transaction.
SEND_TIMEOUT_MS: Final = 15_000


#: Called with each record batch once the brokers have acknowledged it.
Acknowledged = Callable[[RecordBatch], None]


class SendFailed(Exception):
    """A record batch was not stored; `error` is the client's, and the transaction is lost."""

    def __init__(self, topic: str, partition: int, error: BaseException) -> None:
        super().__init__(f"{topic}/{partition}: {error!r}")
        self.topic = topic
        self.partition = partition
        self.error = error


class Throttled(TimeoutError):
    """The brokers asked to wait for longer than a transaction may be open."""

    def __init__(self, asked_ms: float, limit_ms: int) -> None:
        super().__init__(
            f"the brokers throttle (quota producer_byte_rate): they asked to wait {asked_ms:.0f} ms in one"
            f" transaction, and it may take {limit_ms} (transaction-timeout-ms). Raise the quota or that"
            " setting, or lower producer-window-size: a transaction holds one batch at least"
        )
        self.limit_ms = limit_ms


class LineTooSlow(TimeoutError):
    """The data was sent, or some of it, and no broker has said a word about it; the text has the figures."""

    def __init__(self, said: str, *, rate: float, is_at_limit: bool) -> None:
        super().__init__(said)
        #: Bytes per second that left this end.
        self.rate = rate
        #: Whether a transaction may take no longer.
        self.is_at_limit = is_at_limit


@dataclass(frozen=True, slots=True)
class Refusal:
    """A record batch that the broker will never take as it is."""

    batch: RecordBatch
    error: BaseException
    #: Kafka's error code, one of `RECORD_ERRORS`.
    code: int
    #: By the index of a record that is the cause: the broker's reason. Empty: it names none.
    records: Mapping[int, str]


class BatchesRefused(Exception):
    """The broker will never take these record batches as they are; the transaction is lost."""

    def __init__(self, refused: Sequence[Refusal]) -> None:
        super().__init__(listed(f"{one.batch.topic}/{one.batch.partition}: {one.error!r}" for one in refused))
        self.refused = refused

    @property
    def records(self) -> int:
        """The number of records in the refused record batches."""
        return sum(one.batch.builder.record_count() for one in self.refused)


class JournalReplaced(Exception):
    """The journal's records got offsets that their partition has had before: it is another topic's by now."""


async def commit(
    producer: aiokafka.AIOKafkaProducer,
    batches: RecordBatches,
    journal: JournalPartition,
    records: Callable[[Offsets], Iterable[Record]],
    expected_ms: float = 0.0,
) -> int:
    """Store all of it in one transaction; it is durable on return. Returns the journal partition's new end.

    `records` makes the journal's records once the data's offsets are known. `expected_ms`: as of `Until`.

    Raises:
        JournalReplaced: the topic was deleted and made again; nothing was committed.
        BatchesRefused, SendFailed, KafkaError, TimeoutError: discard the producer; whether it was stored is
            known only after the lane was taken again.
    """
    await producers.throttle(producer).over()  # before the time limit of an open transaction starts
    await producer.begin_transaction()
    until = Until(producer, expected_ms)
    crash_point("kafka.after-begin")
    producers.announce(producer, journal.topic, journal.partition)
    offsets = await send_all(producer, list(batches.by_partition.values()), until)
    crash_point("kafka.after-send")
    state = list(records(offsets))
    of_journal = journal_batches(producer, journal, state, [(MARK_HEADER, mark(len(state), offsets))])
    written = await send_all(producer, [of_journal], until)
    end = end_of(written, journal)
    crash_point("kafka.after-journal")
    async with asyncio.timeout(END_TRANSACTION_TIMEOUT_MS / 1000):
        crash_point("kafka.before-commit")
        await producer.commit_transaction()
    crash_point("kafka.after-commit")
    return end


def end_of(written: Offsets, journal: JournalPartition, *, markers: int = 1) -> int:
    """The least offset that the partition's next record can have. Raises: JournalReplaced.

    `markers`: written by the broker behind the records.

    This costs nothing, and finds at once what a request for the topic's id finds within a second: offsets of
    a partition only grow, and no client but this one and its like writes to it.
    """
    known = {batch: base for batch, base in written.items() if base >= 0}
    if any(base < journal.end for base in known.values()):
        raise JournalReplaced(f"offset {min(known.values())}, expected {journal.end} or more")
    ends = (base + batch.builder.record_count() for batch, base in known.items())
    return max(ends, default=journal.end - markers) + markers


def journal_batches(
    producer: aiokafka.AIOKafkaProducer,
    journal: JournalPartition,
    records: Sequence[Record],
    headers: list[Header],
) -> list[RecordBatch]:
    """The journal's records as record batches, the first with `headers`. Their time is now."""
    batches: list[RecordBatch] = []
    for key, value in records:
        if not batches or not _append(batches[-1].builder, key, value, []):
            builder = producers.create_batch(producer, min(JOURNAL_BATCH_BYTES, journal.most_bytes))
            _append(builder, key, value, [] if batches else headers)
            batches.append(RecordBatch(journal.topic, journal.partition, builder))
    return batches


def _append(builder: BatchBuilder, key: bytes, value: bytes | None, headers: list[Header]) -> bool:
    return builder.append(timestamp=None, key=key, value=value, headers=headers) is not None


async def probe(producer: aiokafka.AIOKafkaProducer, batches: RecordBatches) -> Sequence[Refusal]:
    """Send record batches in a transaction that is never committed; returns those that the broker refuses.

    A read_committed consumer never sees the others. The producer is of no use any more.

    Raises: as `commit`.
    """
    await producers.throttle(producer).over()
    await producer.begin_transaction()
    try:
        await send_all(producer, list(batches.by_partition.values()), Until(producer))
    except BatchesRefused as error:
        return error.refused
    return ()


class Until:
    """The time that brokers may still take within a transaction, open or none. Times in ms."""

    def __init__(self, producer: aiokafka.AIOKafkaProducer, expected_ms: float = 0.0) -> None:
        """Start the time limit: the transaction begins now.

        `expected_ms`: how long what is sent is on the line, as far as that is known. Buffers on the way may
        take all of it at once, and nothing moves here until the answer comes.
        """
        self._producer = producer
        self._expected_ms = expected_ms
        self._throttle = producers.throttle(producer)
        self._limit_ms = max(
            SEND_TIMEOUT_MS, producers.transaction_timeout_ms(producer) - END_TRANSACTION_TIMEOUT_MS
        )
        self._began_ms = _now_ms()
        self._asked_ms = self._throttle.asked_ms
        self._written = line.written(producer.client, RECORDS)
        producers.forget_error(producer)

    async def done(self, work: Collection[asyncio.Future[Any]], when: str = asyncio.ALL_COMPLETED) -> None:
        """Wait for `work`, for `SEND_TIMEOUT_MS`, and longer while bytes move or as brokers ask.

        Raises: Throttled, LineTooSlow, TimeoutError.
        """
        patience = line.Patience(_now_ms() / 1000, SEND_TIMEOUT_MS / 1000)
        asked_ms = self._throttle.asked_ms - self._throttle.left_ms()
        pending = set(work)
        while pending:
            left_ms = self._end_ms(patience) + self._throttle.asked_ms - asked_ms - _now_ms()
            left_ms = min(left_ms, self._began_ms + self._limit_ms - _now_ms())
            if left_ms <= 0:
                raise self._late()
            look_ms = min(left_ms, line.LOOK_INTERVAL_MS, SEND_TIMEOUT_MS / 2)
            done, pending = await asyncio.wait(pending, timeout=look_ms / 1000, return_when=when)
            if when == asyncio.FIRST_EXCEPTION and any(one.exception() for one in done):
                return
            if pending and not producers.has_error(self._producer):
                patience.look(_now_ms() / 1000, line.moved(self._producer.client, RECORDS))

    def _end_ms(self, patience: line.Patience) -> float:
        return patience.until_s * 1000 + (self._expected_ms if self._sent else 0)

    @property
    def _sent(self) -> int:
        """Bytes that were written since the transaction began, and to which no broker has objected."""
        if producers.has_error(self._producer):
            return 0
        return max(0, line.written(self._producer.client, RECORDS) - self._written)

    def _late(self) -> TimeoutError:
        asked = self._throttle.asked_ms - self._asked_ms
        if asked > 0:
            return Throttled(asked, self._limit_ms)
        sent = self._sent
        if not sent:
            return TimeoutError()
        took_s = (_now_ms() - self._began_ms) / 1000
        waits = line.waiting(self._producer.client, RECORDS)
        left = min(sent, waits.bytes) if waits is not None else 0
        rate = (sent - left) / took_s
        if waits is not None:
            said = (
                f"the line to {waits.where} took {sent - left} of {sent} bytes in {took_s:.0f} s"
                f" ({rate:.0f} bytes a second), and {left} wait"
            )
        else:
            said = f"{sent} bytes were sent, and in {took_s:.0f} s no answer has come"
        is_at_limit = took_s * 1000 >= self._limit_ms
        if is_at_limit:
            said += f"; a transaction may take {self._limit_ms} ms (transaction-timeout-ms)"
        return LineTooSlow(said, rate=rate, is_at_limit=is_at_limit)


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000


async def send_all(
    producer: aiokafka.AIOKafkaProducer,
    partitions: Sequence[Sequence[RecordBatch]],
    until: Until,
    *,
    acknowledged: Acknowledged | None = None,
) -> dict[RecordBatch, int]:
    """Send the record batches of each partition in order, the partitions at the same time; await all of them.

    With `acknowledged` a record batch is sent when the one before it in its partition is stored: nothing is
    stored behind one that failed.

    Returns: by record batch, the offset of its first record.

    Raises: BatchesRefused, SendFailed.
    """
    futures: dict[RecordBatch, asyncio.Future[RecordMetadata]] = {}
    sending = [
        asyncio.ensure_future(_send(producer, batches, futures, acknowledged)) for batches in partitions
    ]
    try:
        if sending:
            await until.done(sending, asyncio.FIRST_EXCEPTION)
            await asyncio.gather(*(one for one in sending if one.done()))
        await until.done(futures.values())
    except TimeoutError as error:
        waiting = [batch for batches in partitions for batch in batches if not _is_done(futures.get(batch))]
        late = waiting[0] if waiting else partitions[0][0]
        raise SendFailed(late.topic, late.partition, error) from error
    finally:
        for left in (*sending, *futures.values()):
            left.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
    return _offsets(producer, futures)


async def _send(
    producer: aiokafka.AIOKafkaProducer,
    batches: Sequence[RecordBatch],
    futures: dict[RecordBatch, asyncio.Future[RecordMetadata]],
    acknowledged: Acknowledged | None,
) -> None:
    for batch in batches:
        producers.know(producer, batch.topic)
        try:
            futures[batch] = await producer.send_batch(batch.builder, batch.topic, partition=batch.partition)
        except (KafkaError, IllegalOperation, AssertionError) as error:  # the last: no such partition (yet)
            raise SendFailed(batch.topic, batch.partition, producers.fault(producer) or error) from error
        if acknowledged is not None:
            await asyncio.wait((futures[batch],))
            if futures[batch].exception() is not None:
                return
            acknowledged(batch)


def _offsets(
    producer: aiokafka.AIOKafkaProducer, futures: Mapping[RecordBatch, asyncio.Future[RecordMetadata]]
) -> dict[RecordBatch, int]:
    """By record batch, its first offset. Raises: BatchesRefused, SendFailed."""
    failed = [
        (batch, error) for batch, future in futures.items() if (error := future.exception()) is not None
    ]
    refused = [
        Refusal(batch, error, code, producers.refused_records(producer, batch.builder))
        for batch, error in failed
        if (code := code_of(error) or 0) in RECORD_ERRORS
    ]
    if refused:
        raise BatchesRefused(refused)
    for batch, error in failed:
        raise SendFailed(batch.topic, batch.partition, error) from error
    return {batch: future.result().offset for batch, future in futures.items()}


def _is_done(future: asyncio.Future[RecordMetadata] | None) -> bool:
    return future is not None and future.done()
