"""The state of one transactional id at the brokers, by partition: open transactions, and records.

The producer that asks has started under the id and so has ended what was open. A transaction that is open
nevertheless *hangs* (`bridge.kafka.recovery.hanging`), and can be ended here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterator, Mapping, Set

import aiokafka
from aiokafka.errors import KafkaError, for_code

from bridge.errors import TargetUnavailable
from bridge.kafka.client.connection import END_TRANSACTION_TIMEOUT_MS, KafkaConnection
from bridge.kafka.client.errors import explained
from bridge.kafka.client.metadata import ClusterClient, Topic
from bridge.kafka.client.transaction_requests import Fetched, Partition, ProducerState, TransactionRequests
from bridge.kafka.journal_topic.participants import refused


class OwnTransactions:
    """The transactions of one id, as the leaders of partitions have them."""

    def __init__(
        self, connection: KafkaConnection, producer: aiokafka.AIOKafkaProducer, transactional_id: str
    ) -> None:
        self._connection = connection
        self._requests = TransactionRequests(producer, transactional_id)
        self.transactional_id = transactional_id
        #: The name of such a transaction in errors.
        self.name = f"a transaction of {transactional_id}"
        self.producer_id = self._requests.producer_id
        #: The topics that `look_up` has found, by name.
        self._topics: dict[str, Topic] = {}

    async def look_up(self, cluster: ClusterClient, names: Set[str], *, anew: bool = False) -> None:
        """Find topics. A topic is gone only if no broker knows it: a broker that knew none lost the markers.

        `anew`: find those again that have been found already.

        Raises: KafkaError.
        """
        if anew:
            self._topics = {name: topic for name, topic in self._topics.items() if name not in names}
        everywhere = (await cluster.cluster()).brokers
        for broker in everywhere:
            missing = sorted(names - self._topics.keys())
            if missing:
                self._topics.update((await cluster.cluster(missing, broker=broker)).topics)

    def is_gone(self, topic: str) -> bool:
        """Whether no broker knew it. Raises: KafkaError, where they do not say."""
        found = self._topics.get(topic)
        if found is not None and found.error:
            raise for_code(found.error)(topic)
        return found is None

    async def states(self, tps: Collection[Partition]) -> Mapping[Partition, ProducerState]:
        """By partition, the leader's state of this producer id; no entry where it has not written.

        Raises: KafkaError. TargetUnavailable: a partition has no leader.
        """
        by_leader: dict[int, list[Partition]] = {}
        for tp in tps:
            by_leader.setdefault(self._leader(tp), []).append(tp)
        answers = await asyncio.gather(
            *(self._requests.describe(asked, leader=leader) for leader, asked in by_leader.items())
        )
        return {
            tp: producers[self.producer_id]
            for answer in answers
            for tp, producers in answer.items()
            if self.producer_id in producers
        }

    async def fetch(self, tp: Partition, offset: int, *, committed: bool = False) -> Fetched | None:
        """As `TransactionRequests.fetch`."""
        return await self._requests.fetch(tp, offset, leader=self._leader(tp), committed=committed)

    def is_ours(self, fetched: Fetched, offset: int) -> bool:
        """Whether the record at `offset`, from where `fetched` begins, exists and is of this id."""
        if not fetched.batches:
            return False
        batch = fetched.batches[0]
        return bool(batch.base_offset <= offset and batch.producer_id == self.producer_id)

    async def check_end(self, tp: Partition, last: int, state: ProducerState) -> None:
        """Check that what hangs there ends at `last`, the offset that the journal names, and not behind it.

        Raises: KafkaError. TargetRefused: there is more, or something else; says what was found.
        """
        topic, partition = tp
        fetched = await self.fetch(tp, last)
        ours = fetched is not None and state.open_from <= last and self.is_ours(fetched, last)
        if fetched is None or not ours:
            raise refused(
                self.name,
                f"{topic}/{partition} has it open from offset {state.open_from} on, where the journal"
                f" names {last} as the last",
            )
        batch = fetched.batches[0]
        last_sequence = batch.base_sequence + batch.last_offset_delta
        if (batch.producer_epoch, last_sequence) != (state.epoch, state.last_sequence):
            raise refused(
                self.name,
                f"{topic}/{partition} has more of it than the journal names: its last record has"
                f" sequence number {state.last_sequence} in epoch {state.epoch}, the last one named"
                f" {last_sequence} in epoch {batch.producer_epoch}",
            )

    async def end(self, tps: Collection[Partition], *, commit: bool) -> None:
        """End what hangs in these partitions: by a transaction with the new epoch, without a record.

        The marker of a newer epoch ends what an older one has left open. The producer is of no use any more.

        Between the coordinator's two answers a commit is not safe: were this process *and* the coordinator to
        die there, or another process to take the id just then, the transaction would be aborted. Kafka has no
        request that does both; they go out together, so it takes a second failure within milliseconds.

        Raises: Fenced, TargetUnavailable, TargetRefused.
        """
        with self.errors("Write", f"transactional id {self.transactional_id}"):
            await self._requests.end(tps, commit=commit, within_ms=END_TRANSACTION_TIMEOUT_MS)

    def _leader(self, tp: Partition) -> int:
        topic, partition = tp
        found = self._topics.get(topic)
        known = None if found is None else found.partitions.get(partition)
        if known is None or known.leader < 0:
            raise TargetUnavailable(
                f"connector {self._connection.name}: {topic}/{partition} has no leader", key=f"topic {topic}"
            )
        return known.leader

    @contextlib.contextmanager
    def errors(self, operation: str, resource: str) -> Iterator[None]:
        """Convert Kafka's errors to the bridge's own."""
        try:
            yield
        except (KafkaError, OSError, TimeoutError) as error:
            raise explained(
                error,
                side="target",
                connector=self._connection.name,
                operation=operation,
                resource=resource,
            ) from error
