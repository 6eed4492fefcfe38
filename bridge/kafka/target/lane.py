"""A lane that this process has taken: its producer, and the target's state of it.

To take it: `JournalTopic.prepare`, a producer that fences the one before, `JournalTopic.read`. After that the
state in memory is correct as long as every transaction of the producer commits.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Self

import aiokafka
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from bridge.errors import BridgeError, TargetRefused, TargetUnavailable
from bridge.kafka.client import line, producers
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.errors import explained
from bridge.kafka.client.metadata import topics_as_seen
from bridge.kafka.client.pieces import PARTITIONS_AT_ONCE, pieces
from bridge.kafka.client.throttling import RECORDS, Throttle
from bridge.kafka.journal_topic.journal_topic import JournalTopic
from bridge.kafka.journal_topic.lane_state import LaneState
from bridge.kafka.journal_topic.records import JournalPartition, Record
from bridge.kafka.records.record_batches import Builder, Offsets, RecordBatches
from bridge.kafka.recovery import hanging
from bridge.kafka.recovery.left_open import LeftOpen
from bridge.kafka.target import transaction, truncation, without_transaction
from bridge.kafka.target.options import MOST_RECORDS
from bridge.kafka.target.transaction import Acknowledged, JournalReplaced, Refusal, SendFailed

#: Longest that a cluster may take to answer while nothing is sent.
REACHABLE_TIMEOUT_MS: Final = 10_000
#: Attempts to take a lane where each finds a transaction that the brokers left open, and ends it.
MOST_TAKINGS: Final = 3


class TargetLane:
    """One taken lane; `take` makes it."""

    def __init__(
        self,
        connection: KafkaConnection,
        journal: JournalTopic,
        lane: int,
        most_records: int,
        acknowledged: Acknowledged | None,
        transaction_ms: int,
    ) -> None:
        self._connection = connection
        self._journal = journal
        self._lane = lane
        self._most_records = most_records
        self._acknowledged = acknowledged
        self._transaction_ms = transaction_ms
        self._transactional_id = ""
        self._producer: aiokafka.AIOKafkaProducer
        self._left_open: LeftOpen
        #: Records written by this producer, by topic and partition.
        self._written: Counter[tuple[str, int]] = Counter()
        #: The least offset that the next record of the journal partition can have.
        self._journal_end = 0
        #: Whether the journal topic is another one by now: then no process takes the lane after this one.
        self._is_replaced = False
        #: Locked while the producer is used for something besides transactions, or is replaced.
        self._changing = asyncio.Lock()

    @classmethod
    async def take(
        cls,
        connection: KafkaConnection,
        journal: JournalTopic,
        lane: int,
        *,
        most_records: int = MOST_RECORDS,
        acknowledged: Acknowledged | None = None,
        transaction_ms: int = 0,
    ) -> Self:
        """Fence the lane's previous owner, and read the state that it committed.

        Args:
            connection: to the cluster.
            journal: the bridge's journal topic there.
            lane: its number.
            most_records: that a producer writes to one partition before it is replaced.
            acknowledged: the lane then stores without transactions, and calls it with each record batch that
                is stored.
            transaction_ms: how long the brokers let a transaction be open; 0: as the connection says.

        Raises:
            TargetUnavailable, TargetRefused: it could not be taken; nothing is left of the attempt.
        """
        taken = cls(connection, journal, lane, most_records, acknowledged, transaction_ms)
        await taken._take()
        try:
            await taken._begin()
        except SendFailed as failed:
            await taken.discard()
            raise taken._explained(failed.error, f"topic {failed.topic}") from failed
        except BaseException:
            await taken.discard()
            raise
        return taken

    async def _take(self) -> None:
        for _ in range(MOST_TAKINGS):
            if await self._taken():
                return
        raise TargetUnavailable(
            f"{self._transactional_id} had a transaction left open, and had one again after each of"
            f" {MOST_TAKINGS} ends",
            limit=MOST_TAKINGS,
        )

    async def _taken(self) -> bool:
        """Try to take the lane; False: a transaction hung there and has been ended, so try again."""
        generation = await self._journal.prepare()
        self._transactional_id = self._journal.transactional_id(generation, self._lane)
        try:
            own = {"transaction_timeout_ms": self._transaction_ms} if self._transaction_ms else {}
            producer = await producers.started(self._connection, self._transactional_id, **own)
        except (KafkaError, OSError, TimeoutError) as error:
            raise self._explained(error) from error
        try:
            state = await self._read(producer, generation)
            left_open = LeftOpen(
                self._connection, producer, self._transactional_id, state.last if state else None
            )
            if state is None or await left_open.end_named():
                await producers.discard(producer)
                return False
            await producer.partitions_for(self._journal.topic)
        except KafkaError as error:
            await producers.discard(producer)
            raise self._explained(error) from error
        except BaseException:
            await producers.discard(producer)
            raise
        self.state = state
        self._journal_end = state.end
        self._left_open = left_open
        self._producer = producer
        self._written.clear()
        return True

    async def _read(self, producer: aiokafka.AIOKafkaProducer, generation: int) -> LaneState | None:
        """The committed state; None: a transaction of this id hung there; its markers are being written."""
        reading = asyncio.ensure_future(self._journal.read(self._lane, generation))
        try:
            await asyncio.wait((reading,), timeout=hanging.SUSPECTED_AFTER_MS / 1000)
            if not reading.done() and await hanging.end_own(
                self._connection, producer, self._transactional_id, self._journal_partition
            ):
                return None
            return await reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _begin(self) -> None:
        """Write the changes from taking the lane, in a transaction of its own; then it can store."""
        if self.state.unwritten:
            change = self.state.change()
            await self.commit(RecordBatches(self.make_builder, exact=True), lambda _: change.records())
            change.commit()
        if self._acknowledged is not None:
            producers.leave_transactions(self._producer)

    @property
    def _journal_partition(self) -> JournalPartition:
        return JournalPartition(
            self._journal.topic,
            self._journal.partition(self._lane),
            most_bytes=self._journal.most_bytes,
            end=self._journal_end,
        )

    def make_builder(self, most_bytes: int) -> Builder:
        """Start a record batch of at most so many bytes."""
        builder: Builder = producers.create_batch(self._producer, most_bytes)
        return builder

    async def commit(
        self,
        batches: RecordBatches,
        records: Callable[[Offsets], Iterable[Record]],
        expected_ms: float = 0.0,
    ) -> None:
        """Store everything, in one transaction where the lane has them; `expected_ms` as of `Until`.

        After any error the lane must be discarded, but for one that has no transactions: it may go on after
        `BatchesRefused`, and what its brokers have acknowledged stays stored.

        Raises:
            BatchesRefused: the broker refuses some of the records, whenever they are sent.
            SendFailed: some could not be written.
            TargetUnavailable, TargetRefused, Fenced: the transaction could not be begun or committed.
        """
        try:
            self._journal_end = await self._store(batches, records, expected_ms)
        except JournalReplaced as error:
            self._is_replaced = True
            raise self._journal.lost(str(error)) from error
        except (KafkaError, OSError, TimeoutError) as error:
            raise self._explained(error) from error
        for batch in batches:
            self._written[batch.topic, batch.partition] += batch.builder.record_count()

    async def _store(
        self,
        batches: RecordBatches,
        records: Callable[[Offsets], Iterable[Record]],
        expected_ms: float,
    ) -> int:
        """As `transaction.commit`, in a transaction or without."""
        if self._acknowledged is None or producers.is_transactional(self._producer):
            return await transaction.commit(
                self._producer, batches, self._journal_partition, records, expected_ms
            )
        return await without_transaction.store(
            self._producer, batches, self._journal_partition, records, self._acknowledged, expected_ms
        )

    async def probe(self, batches: RecordBatches) -> Sequence[Refusal]:
        """Find which of these record batches the brokers refuse; none is stored. The lane is then taken anew.

        Raises: as `commit`, and as `take`.
        """
        try:
            refused = await transaction.probe(self._producer, batches)
        except (KafkaError, OSError, TimeoutError) as error:
            raise self._explained(error) from error
        await self.retake()
        return refused

    @property
    def throttle(self) -> Throttle:
        """The waits that the brokers have asked of its producer."""
        return producers.throttle(self._producer)

    @property
    def round_trip_ms(self) -> float:
        """The time of a small request to the cluster and its answer; 0: not known."""
        return line.round_trip_ms(self._producer.client)

    @property
    def waits_ms(self) -> float:
        """How long the oldest records have waited for their answer that brokers were sent; 0: none do."""
        return line.waits_ms(self._producer.client, RECORDS)

    @property
    def transaction_ms(self) -> int:
        """How long the brokers let one of its transactions be open."""
        return producers.transaction_timeout_ms(self._producer)

    async def renew(self) -> None:
        """Replace the producer where its sequence numbers would run out, or its session has ended.

        The lane is taken anew: another process may have had it in between.

        Raises: as `take`. The lane is of no use then.
        """
        full = any(count >= self._most_records for count in self._written.values())
        if full or (self._acknowledged is None and not producers.is_in_session(self._producer)):
            await self.retake()

    async def is_clear(self, tps: Collection[tuple[str, int]]) -> bool:
        """Whether nothing of this id hangs in these partitions (`bridge.kafka.recovery.left_open`).

        If something did, it has been ended, and the lane must be taken again.

        Raises: as `take`. The lane is of no use then.
        """
        async with self._changing:
            return not await self._left_open.end_before(tps)

    async def retake(self) -> None:
        """Replace the producer: after `BatchesRefused`, once it is known which records to leave out.

        Raises: as `take`. The lane is of no use then.
        """
        async with self._changing:
            await producers.discard(self._producer)
            await self._take()
            await self._begin()

    async def refresh(self) -> None:
        """Learn of new topics and partitions, and check that the cluster is available.

        Raises: TargetUnavailable.
        """
        async with self._asking():
            if not await self._producer.client.force_metadata_update():
                raise TimeoutError

    async def check_reachable(self) -> None:
        """Check that a broker of the cluster answers; as `refresh` does, without asking for all topics.

        Raises: TargetUnavailable.
        """
        async with self._asking():
            client = self._producer.client
            nodes = [broker.nodeId for broker in client.cluster.brokers()]
            for node in random.sample(nodes, len(nodes)):
                with contextlib.suppress(KafkaError):
                    await topics_as_seen(client, [self._journal.topic], node)
                    return
            raise TimeoutError

    async def check_journal(self) -> None:
        """Check that the journal topic is the one that was taken, as far as its leader knows.

        Raises: TargetRefused: it was deleted and made again. TargetUnavailable.
        """
        tp = TopicPartition(self._journal.topic, self._journal.partition(self._lane))
        async with self._asking():
            client = self._producer.client
            leader = client.cluster.leader_for_partition(tp)
            if leader is None or leader < 0:
                return
            try:
                found = await topics_as_seen(client, [tp.topic], leader)
            except KafkaError:  # `refresh` checks whether brokers are available
                return
        try:
            self._journal.check_same(found.get(tp.topic))
        except TargetRefused:
            self._is_replaced = True
            raise

    async def ends(self, tps: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The end offsets of these partitions, those that are known. Raises: TargetUnavailable."""
        found: dict[TopicPartition, int] = {}
        for piece in pieces(tps, PARTITIONS_AT_ONCE):
            async with self._asking():
                found |= await truncation.ends(self._producer.client, piece)
        return found

    @contextlib.asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        """Limit the time of a request: no broker answers where the lane was discarded meanwhile.

        Bytes that move extend it: the cluster is there, and the line is full.
        """
        async with self._changing:
            try:
                async with line.while_moving(self._producer.client, REACHABLE_TIMEOUT_MS):
                    yield
            except TimeoutError as error:
                raise TargetUnavailable(
                    f"connector {self._connection.name}: no broker of {self._connection.brokers} answers"
                ) from error

    async def discard(self) -> None:
        """Discard the producer, and with it a transaction that is open. Never raises."""
        if self._is_replaced:
            await producers.abort(self._producer)
        await producers.discard(self._producer)

    def _explained(self, error: BaseException, resource: str = "") -> BridgeError:
        return explained(
            error,
            side="target",
            connector=self._connection.name,
            operation="Write",
            resource=resource or f"transactional id {self._transactional_id}",
        )
