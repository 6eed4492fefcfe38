"""Transactional producers: made, started within a time, and let go without hanging.

aiokafka's own `stop` flushes first and waits without an end where a broker does not answer; and an error
of its sender stays in a future that nobody asks. What is needed of its inside is done here and nowhere else.
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
from bridge.kafka.client.throttling import Throttle, honour, throttle_of

#: Longest that a producer may take to find its coordinator and fence the one before it.
START_TIMEOUT_MS: Final = 30_000
#: Longest that letting go waits for the producer's tasks, and then for its connections.
DISCARD_TIMEOUT_MS: Final = 1_000
#: What aiokafka's sender starts as tasks of their own.
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


async def started(connection: KafkaConnection, transactional_id: str) -> aiokafka.AIOKafkaProducer:
    """A producer that has fenced the one before it. The broker has ended that one's open transaction.

    Raises:
        KafkaError, TimeoutError: it could not; nothing is left of it.
    """
    producer = await _started(connection.producer(transactional_id))
    _pin(producer)
    return producer


async def started_without_transactions(connection: KafkaConnection) -> aiokafka.AIOKafkaProducer:
    """An idempotent producer for what may come twice.

    Raises:
        KafkaError, TimeoutError: it could not be started; nothing is left of it.
    """
    return await _started(connection.producer(None))


async def _started(producer: aiokafka.AIOKafkaProducer) -> aiokafka.AIOKafkaProducer:
    _remember_tasks(producer)
    _hear(producer)
    try:
        async with asyncio.timeout(START_TIMEOUT_MS / 1000):
            await producer.start()
    except BaseException:
        await discard(producer)
        raise
    return producer


def _hear(producer: aiokafka.AIOKafkaProducer) -> None:
    """Wait as long as brokers ask, and keep what they say about records that they refuse.

    What is sent to the partition next takes the sequence numbers of a refused record batch, so that the
    broker judges that too (docs/kafka-traps.md 2). One of a partition is on its way at a time.
    """
    sender, transactions = producer._sender, producer._txn_manager  # noqa: SLF001
    pending = producer._message_accumulator._pending_batches  # noqa: SLF001
    sender.refused = {}

    def heard(answer: Any) -> None:
        for topic, partitions in answer.topics:
            for partition, error, *_, records, _message in partitions:
                if error in RECORD_ERRORS:
                    place = TopicPartition(topic, partition)
                    batch = next(one for one in pending if one.tp == place)
                    sender.refused[batch._builder] = dict(records or ())  # noqa: SLF001
                    transactions._sequence_numbers[place] -= batch.record_count  # noqa: SLF001

    honour(producer.client, ProduceRequest, heard)


def throttle(producer: aiokafka.AIOKafkaProducer) -> Throttle:
    """What the brokers have asked the producer to wait."""
    return throttle_of(producer.client)


def refused_records(producer: aiokafka.AIOKafkaProducer, builder: BatchBuilder) -> Mapping[int, str]:
    """Why a refused record batch was refused: by the place of a record in it, the broker's word.

    Empty: the broker names none; it may be the whole that it does not take.
    """
    found: Mapping[int, str] = producer._sender.refused.get(builder, {})  # noqa: SLF001
    return found


def transaction_timeout_ms(producer: aiokafka.AIOKafkaProducer) -> int:
    """After how long the coordinator aborts an open transaction."""
    return int(producer._txn_manager.transaction_timeout_ms)  # noqa: SLF001


class CoordinatorLost(KafkaError):
    """The connection to the transaction coordinator has ended, and the producer's session with it."""


def _pin(producer: aiokafka.AIOKafkaProducer) -> None:
    """Begin no transaction by another connection to the coordinator than the one that it has now.

    A coordinator that was started anew may have forgotten markers. The first request that it takes for the
    next transaction would tie the two together (`bridge.kafka.recovery.left_open`), so it must not be sent
    again.
    """
    sender = producer._sender  # noqa: SLF001
    sender.session = _coordinator(producer)
    add = sender._do_add_partitions_to_txn  # noqa: SLF001

    async def pinned(places: Any) -> Any:
        if is_in_session(producer):
            return await add(places)
        error = CoordinatorLost("the connection to the transaction coordinator was lost")
        producer._txn_manager.fatal_error(error)  # noqa: SLF001
        producer._message_accumulator.fail_all(error)  # noqa: SLF001
        sender.sender_task.cancel()  # else it sends the data all the same
        return False

    sender._do_add_partitions_to_txn = pinned  # noqa: SLF001


def is_in_session(producer: aiokafka.AIOKafkaProducer) -> bool:
    """Whether the coordinator is connected as it has been since the start: it has forgotten nothing."""
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

    What it had not sent is gone, and the broker aborts its open transaction when the next one starts.
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
            waiter.exception()  # asked for, so that asyncio does not log it


async def abort(producer: aiokafka.AIOKafkaProducer) -> None:
    """End a transaction that is open, so that nobody who reads has to wait for it. Never raises.

    Only where no next producer of this id will: its start would end it.
    """
    if producer._txn_manager.is_in_transaction():  # noqa: SLF001
        await _bounded(asyncio.ensure_future(producer.abort_transaction()))


async def _bounded(work: asyncio.Future[Any]) -> None:
    """Wait for `work`, but no longer than `DISCARD_TIMEOUT_MS`."""
    await asyncio.wait((work,), timeout=DISCARD_TIMEOUT_MS / 1000)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


def create_batch(producer: aiokafka.AIOKafkaProducer, most_bytes: int) -> BatchBuilder:
    """As `AIOKafkaProducer.create_batch`, with a size of its own: topics differ in what they take."""
    compression = producer._message_accumulator._compression_type  # noqa: SLF001
    return BatchBuilder(most_bytes, compression, is_transactional=True)


def identity(producer: aiokafka.AIOKafkaProducer) -> tuple[int, int]:
    """Producer id and epoch, of one that has started."""
    transactions = producer._txn_manager  # noqa: SLF001
    return int(transactions.producer_id), int(transactions.producer_epoch)


def fault(producer: aiokafka.AIOKafkaProducer) -> BaseException | None:
    """What has ended the producer's transaction, being fenced above all; None: nothing that is known.

    aiokafka finds out in its background, and then only says that there is no transaction.
    """
    waiter = producer._txn_manager._transaction_waiter  # noqa: SLF001
    if waiter is None or not waiter.done() or waiter.cancelled():
        return None
    found: BaseException | None = waiter.exception()
    return found


def know(producer: aiokafka.AIOKafkaProducer, topic: str) -> None:
    """Have the producer ask for this topic's leaders whenever it asks for any.

    At its start it learns those of all topics, and afterwards keeps only those that it was told of: one that
    it had found by itself is forgotten with the next answer. What is sent there then waits for a leader, and
    never gets one (docs/kafka-traps.md 23).
    """
    producer.client._topics.add(topic)  # noqa: SLF001


def announce(producer: aiokafka.AIOKafkaProducer, topic: str, partition: int) -> None:
    """Add a partition to the open transaction with the next ones that are added.

    Saves a request to the coordinator where something is written there last.
    """
    producer._txn_manager.maybe_add_partition_to_txn(TopicPartition(topic, partition))  # noqa: SLF001
