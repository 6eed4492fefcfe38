"""Transactional producers: made, started within a time limit, and discarded without hanging.

aiokafka's own `stop` flushes first and waits without an end where a broker does not answer; and an error of
its sender stays in a future that no caller awaits. All access to its internals for this is in this module.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

import aiokafka
import aiokafka.client
import aiokafka.producer.sender
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.errors import KafkaError
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.produce import ProduceRequest, ProduceRequest_v8
from aiokafka.structs import TopicPartition

from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.error_codes import RECORD_ERRORS
from bridge.kafka.client.line import while_moving
from bridge.kafka.client.throttling import Throttle, honour, throttle_of

#: Longest that a producer may take to find its coordinator and fence the one before it, unless bytes move.
START_TIMEOUT_MS: Final = 30_000
#: Longest that `discard` waits for the producer's tasks, and then for its connections.
DISCARD_TIMEOUT_MS: Final = 1_000
#: The methods that aiokafka's sender starts as tasks of their own.
_SENDERS_WORK: Final = ("_send_produce_req", "_do_add_partitions_to_txn", "_do_txn_commit")


class _Asking(MetadataRequest):
    """Asks for topics without making them.

    aiokafka's own request lets the broker make what is missing: a topic deleted under the bridge would come
    back with the broker's defaults, the journal topic with ``cleanup.policy=delete``.
    """

    def __init__(self, topics: list[str] | None = None) -> None:
        super().__init__(topics, allow_auto_topic_creation=False)


aiokafka.client.MetadataRequest = _Asking


class _Producing(ProduceRequest):
    """As aiokafka's, in the version in which the broker names the records that it refuses (KIP-467).

    aiokafka reads that version's answers and does not ask for them. Brokers have had it since 2.4.
    """


_Producing._CLASSES = (ProduceRequest_v8,)  # noqa: SLF001
aiokafka.producer.sender.ProduceRequest = _Producing


async def started(
    connection: KafkaConnection, transactional_id: str, **own: Any
) -> aiokafka.AIOKafkaProducer:
    """Start a producer, which fences the one before it: the broker has ended that one's open transaction.

    `own`: options of aiokafka's producer, before those of the connection.

    Raises:
        KafkaError, TimeoutError: it could not be started; nothing is left of it.
    """
    producer = await _started(connection.producer(transactional_id, **own))
    _pin(producer)
    return producer


def leave_transactions(producer: aiokafka.AIOKafkaProducer) -> None:
    """Make a producer that has started, and is in no transaction, write without transactions.

    It keeps the producer id and the epoch by which it fenced the one before it: a partition that it has
    written to takes nothing of an older epoch.
    """
    producer._txn_manager.transactional_id = None  # noqa: SLF001


def is_transactional(producer: aiokafka.AIOKafkaProducer) -> bool:
    """Whether it writes in transactions."""
    return producer._txn_manager.transactional_id is not None  # noqa: SLF001


async def started_without_transactions(connection: KafkaConnection) -> aiokafka.AIOKafkaProducer:
    """Start an idempotent producer, for records that may be stored twice.

    Raises:
        KafkaError, TimeoutError: it could not be started; nothing is left of it.
    """
    return await _started(connection.producer(None))


async def _started(producer: aiokafka.AIOKafkaProducer) -> aiokafka.AIOKafkaProducer:
    _remember_tasks(producer)
    _hear(producer)
    try:
        async with while_moving(producer.client, START_TIMEOUT_MS):
            await producer.start()
    except BaseException:
        await discard(producer)
        raise
    return producer


def _hear(producer: aiokafka.AIOKafkaProducer) -> None:
    """Make the producer wait as long as brokers ask, and keep their errors and reasons for refusals.

    The next record batch for the partition takes the sequence numbers of a refused one, so that the broker
    judges that too (docs/kafka-traps.md 2). One record batch of a partition is in flight at a time.
    """
    sender, transactions = producer._sender, producer._txn_manager  # noqa: SLF001
    pending = producer._message_accumulator._pending_batches  # noqa: SLF001
    sender.refused = {}
    sender.error = 0

    def heard(answer: Any) -> None:
        for topic, partitions in answer.topics:
            for partition, error, *_, records, _message in partitions:
                sender.error = error or sender.error
                if error in RECORD_ERRORS:
                    tp = TopicPartition(topic, partition)
                    batch = next(one for one in pending if one.tp == tp)
                    sender.refused[batch._builder] = dict(records or ())  # noqa: SLF001
                    transactions._sequence_numbers[tp] -= batch.record_count  # noqa: SLF001

    honour(producer.client, ProduceRequest, heard)


def throttle(producer: aiokafka.AIOKafkaProducer) -> Throttle:
    """The waits that the brokers have asked of the producer."""
    return throttle_of(producer.client)


def refused_records(producer: aiokafka.AIOKafkaProducer, builder: BatchBuilder) -> Mapping[int, str]:
    """The broker's reasons for refusing a record batch, by the index of the record in it.

    Empty: the broker names no record; it may refuse the batch as a whole.
    """
    found: Mapping[int, str] = producer._sender.refused.get(builder, {})  # noqa: SLF001
    return found


def forget_error(producer: aiokafka.AIOKafkaProducer) -> None:
    """Forget the brokers' errors so far: something else is sent from now on."""
    producer._sender.error = 0  # noqa: SLF001


def has_error(producer: aiokafka.AIOKafkaProducer) -> bool:
    """Whether a broker has answered a record batch with an error, which may pass, since `forget_error`."""
    return bool(producer._sender.error)  # noqa: SLF001


def transaction_timeout_ms(producer: aiokafka.AIOKafkaProducer) -> int:
    """The time after which the coordinator aborts an open transaction, in ms."""
    return int(producer._txn_manager.transaction_timeout_ms)  # noqa: SLF001


class CoordinatorLost(KafkaError):
    """The connection to the transaction coordinator has ended, and the producer's session with it."""


def _pin(producer: aiokafka.AIOKafkaProducer) -> None:
    """Begin no transaction over another connection to the coordinator than the present one.

    A coordinator that was restarted may have forgotten markers. The first request that it takes for the next
    transaction would merge the two (`bridge.kafka.recovery.left_open`), so the producer must not send that
    request again.
    """
    sender = producer._sender  # noqa: SLF001
    sender.session = _coordinator(producer)
    add = sender._do_add_partitions_to_txn  # noqa: SLF001

    async def pinned(tps: Any) -> Any:
        if is_in_session(producer):
            return await add(tps)
        error = CoordinatorLost("the connection to the transaction coordinator was lost")
        producer._txn_manager.fatal_error(error)  # noqa: SLF001
        producer._message_accumulator.fail_all(error)  # noqa: SLF001
        sender.sender_task.cancel()  # otherwise it sends the data nevertheless
        return False

    sender._do_add_partitions_to_txn = pinned  # noqa: SLF001


def is_in_session(producer: aiokafka.AIOKafkaProducer) -> bool:
    """Whether the coordinator's connection is that of the start: then it has forgotten nothing."""
    session = producer._sender.session  # noqa: SLF001
    return session is not None and session is _coordinator(producer) and session.connected()


def _coordinator(producer: aiokafka.AIOKafkaProducer) -> Any:
    """The connection to the transaction coordinator; None: there is none."""
    node = producer._sender._coordinators.get(CoordinationType.TRANSACTION)  # noqa: SLF001
    return producer.client._conns.get((node, ConnectionGroup.COORDINATION))  # noqa: SLF001


def _remember_tasks(producer: aiokafka.AIOKafkaProducer) -> None:
    """Keep the tasks that the producer's sender starts: it waits for them, but cancels none when it ends."""
    sender = producer._sender  # noqa: SLF001
    sender.tasks = set()
    for name in _SENDERS_WORK:
        setattr(sender, name, _remembered(sender.tasks, getattr(sender, name)))


def _remembered(
    tasks: set[asyncio.Task[Any]], work: Callable[..., Coroutine[Any, Any, Any]]
) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def remembered(*args: Any) -> Any:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return await work(*args)

    return remembered


async def discard(producer: aiokafka.AIOKafkaProducer) -> None:
    """End the producer's tasks and close its connections, whatever state it is in. Never raises.

    Messages that were not sent are dropped; the broker aborts its open transaction when the next one starts.
    """
    producer._closed = True  # noqa: SLF001 - else it complains when it is collected
    sender, transactions = producer._sender, producer._txn_manager  # noqa: SLF001
    tasks = [task for task in (sender.sender_task, *sender.tasks) if task is not None]
    for task in tasks:
        task.cancel()
    await _bounded(asyncio.gather(*tasks, return_exceptions=True))
    await _bounded(asyncio.ensure_future(producer.client.close()))
    unsent = [batch for pile in producer._message_accumulator._batches.values() for batch in pile]  # noqa: SLF001
    for waiter in (transactions._transaction_waiter, *(batch._drain_waiter for batch in unsent)):  # noqa: SLF001
        if waiter is not None and waiter.done() and not waiter.cancelled():
            waiter.exception()  # retrieved, so that asyncio does not log it


async def abort(producer: aiokafka.AIOKafkaProducer) -> None:
    """Abort a transaction that is open, so that no consumer has to wait for it. Never raises.

    Call it only where no producer of this id starts afterwards: its start would end the transaction.
    """
    if producer._txn_manager.is_in_transaction():  # noqa: SLF001
        await _bounded(asyncio.ensure_future(producer.abort_transaction()))


async def _bounded(work: asyncio.Future[Any]) -> None:
    """Wait for `work`, but no longer than `DISCARD_TIMEOUT_MS`."""
    await asyncio.wait((work,), timeout=DISCARD_TIMEOUT_MS / 1000)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


def create_batch(producer: aiokafka.AIOKafkaProducer, most_bytes: int) -> BatchBuilder:
    """As `AIOKafkaProducer.create_batch`, with a size of its own: topics have different limits."""
    compression = producer._message_accumulator._compression_type  # noqa: SLF001
    return BatchBuilder(most_bytes, compression, is_transactional=is_transactional(producer))


def identity(producer: aiokafka.AIOKafkaProducer) -> tuple[int, int]:
    """The producer id and epoch of a producer that has started."""
    transactions = producer._txn_manager  # noqa: SLF001
    return int(transactions.producer_id), int(transactions.producer_epoch)


def fault(producer: aiokafka.AIOKafkaProducer) -> BaseException | None:
    """The error that ended the producer's transaction, such as being fenced; None: none is known.

    aiokafka meets it in a background task, and afterwards only says that there is no transaction.
    """
    waiter = producer._txn_manager._transaction_waiter  # noqa: SLF001
    if waiter is None or not waiter.done() or waiter.cancelled():
        return None
    found: BaseException | None = waiter.exception()
    return found


def know(producer: aiokafka.AIOKafkaProducer, topic: str) -> None:
    """Make the producer ask for this topic's leaders whenever it asks for metadata.

    At its start it learns those of all topics, and afterwards keeps only those of topics that it was given:
    one that it had found by itself is forgotten with the next answer. Records for that topic then wait for a
    leader, and never get one (docs/kafka-traps.md 23).
    """
    producer.client._topics.add(topic)  # noqa: SLF001


def announce(producer: aiokafka.AIOKafkaProducer, topic: str, partition: int) -> None:
    """Add a partition to the open transaction with the next ones that are added.

    Saves a request to the coordinator where a record is written there last.
    """
    producer._txn_manager.maybe_add_partition_to_txn(TopicPartition(topic, partition))  # noqa: SLF001
