"""Ends a transaction of our own that the brokers have left open after its end.

Kafka's coordinator can call a transaction complete although no partition has the marker: where it does not
know a leader it takes the topic for deleted, and just after a broker's start it may know none (seen with
Kafka 4.3: 2 of 27 clean restarts under traffic). Such a transaction *hangs*: nobody ends it any more, its
records stay invisible, and the journal partition cannot be read beyond it, so the lane cannot be taken.

After a lane's producer has started no transaction of the ones before it is open, so one that is open hangs.
Its journal records say who takes part (`bridge.kafka.participants`), and it is ended in all partitions the
way it was ended in any: by a transaction of the same id, with the new epoch, over exactly these partitions
and without a record. The marker of a newer epoch ends what an older one has left open.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Set
from typing import Final

import aiokafka
import structlog
from aiokafka.errors import KafkaError, for_code

from bridge.errors import TargetUnavailable
from bridge.kafka.connection import END_TRANSACTION_TIMEOUT_MS, KafkaConnection
from bridge.kafka.errors import explained
from bridge.kafka.metadata import ClusterClient, Topic
from bridge.kafka.participants import (
    MARK_HEADER,
    Mark,
    Outcome,
    Participant,
    is_to_commit,
    marked,
    refused,
    together,
)
from bridge.kafka.transaction import JournalPartition
from bridge.kafka.transaction_requests import Fetched, Place, ProducerState, TransactionRequests

#: A journal partition that takes longer to read is looked at: a transaction may hang there.
SUSPECTED_AFTER_MS: Final = 2_000
#: Longest that finding out may take, before the transaction is ended.
LOOK_TIMEOUT_MS: Final = 30_000


async def end_own(
    connection: KafkaConnection,
    producer: aiokafka.AIOKafkaProducer,
    transactional_id: str,
    journal: JournalPartition,
) -> bool:
    """End what hangs of this id in the journal partition; whether there was anything.

    If so the brokers are writing its markers, and the producer is of no use any more: start another, which
    waits for them. Others' transactions are left alone. Called again, by whomever, it comes to the same.

    Args:
        connection: to the cluster.
        producer: has started under the id, and has written nothing.
        transactional_id: the lane's.
        journal: the lane's.

    Raises:
        Fenced: the lane has been taken meanwhile. TargetUnavailable: try again later.
        TargetRefused: a right is missing, or an operator has to decide; says what was found.
    """
    hanging = _Hanging(connection, producer, transactional_id, journal)
    with hanging.errors("Read", f"topic {journal.topic} (journal-topic)"):
        async with asyncio.timeout(LOOK_TIMEOUT_MS / 1000), ClusterClient(connection) as cluster:
            decided = await hanging.decided(cluster)
    if decided is None:
        return False
    places, commit = decided
    structlog.get_logger().warning(
        "hanging-transaction",
        transactional_id=transactional_id,
        partitions=[f"{topic}/{partition}" for topic, partition in places],
        decision="commit" if commit else "abort",
    )
    await hanging.end(places, commit=commit)
    return True


class _Hanging:
    """The transactions of one id that are open although none can be."""

    def __init__(
        self,
        connection: KafkaConnection,
        producer: aiokafka.AIOKafkaProducer,
        transactional_id: str,
        journal: JournalPartition,
    ) -> None:
        self._connection = connection
        self._requests = TransactionRequests(producer, transactional_id)
        self._transactional_id = transactional_id
        self._journal: Place = (journal.topic, journal.partition)
        self._name = f"a transaction of {transactional_id}"
        #: Of all topics that take part, by name.
        self._topics: dict[str, Topic] = {}

    async def decided(self, cluster: ClusterClient) -> tuple[list[Place], bool] | None:
        """The partitions to end it in, and whether by a commit; None: nothing of this id hangs here."""
        await self._look_up(cluster, {self._journal[0]})
        state = await self._own(self._journal)
        if state is None or state.open_from < 0:
            return None
        mark, complete = await self._told(state.open_from)
        await self._look_up(cluster, {one.topic for one in mark.participants})
        found: dict[Participant, Outcome] = {}
        for one in mark.participants:
            with self.errors("Read", f"topic {one.topic} (a transaction hangs there)"):
                found[one] = await self._outcome(one)
        commit = is_to_commit(self._name, found, complete=complete)
        hanging = [(one.topic, one.partition) for one, outcome in found.items() if outcome is Outcome.HANGING]
        return [*hanging, self._journal], commit

    async def _look_up(self, cluster: ClusterClient, names: Set[str]) -> None:
        """Find topics. One is gone only if no broker knows it: a broker that knew none lost the markers."""
        everywhere = (await cluster.cluster()).brokers
        for broker in everywhere:
            missing = sorted(names - self._topics.keys())
            if missing:
                self._topics.update((await cluster.cluster(missing, broker=broker)).topics)

    async def end(self, places: list[Place], *, commit: bool) -> None:
        """Raises: as `end_own`."""
        with self.errors("Write", f"transactional id {self._transactional_id}"):
            await self._requests.end(places, commit=commit, within_ms=END_TRANSACTION_TIMEOUT_MS)

    async def _told(self, offset: int) -> tuple[Mark, bool]:
        """What the open journal records say of their transactions, and whether all of them are there."""
        marks: list[Mark] = []
        records, end = 0, -1
        while end < 0 or offset < end:
            fetched = await self._fetch(self._journal, offset)
            if fetched is None or not fetched.batches:
                raise TargetUnavailable(f"the journal partition cannot be read at offset {offset}")
            end = end if end > 0 else fetched.high_watermark  # as it is now: others may go on writing
            for batch in fetched.batches:
                offset = batch.next_offset
                if batch.producer_id != self._requests.producer_id or batch.is_control_batch:
                    continue
                for record in batch:
                    records += 1
                    marks += [marked(value) for name, value in record.headers if name == MARK_HEADER]
        mark = together(marks)
        if not marks or (len(marks) > 1 and records != mark.records):
            raise refused(
                self._name,
                f"its journal records are not whole: {records} are there, of {mark.records} in"
                f" {len(marks)} transactions",
            )
        return mark, records == mark.records

    async def _outcome(self, one: Participant) -> Outcome:
        place = (one.topic, one.partition)
        topic = self._topics.get(one.topic)
        if topic is None:
            return Outcome.GONE
        if topic.error:
            raise for_code(topic.error)(one.topic)
        state = await self._own(place)
        if state is not None and state.open_from >= 0:
            await self._check_end(one, state)
            return Outcome.HANGING
        if one.last < 0:
            return Outcome.UNKNOWN
        fetched = await self._fetch(place, one.last, committed=True)
        if fetched is None:
            return Outcome.UNKNOWN
        if fetched.stable <= one.last:
            raise TargetUnavailable(
                f"{one.topic}/{one.partition} cannot be read at offset {one.last}: a transaction of another"
                " producer is open there"
            )
        if not self._is_ours(fetched, one.last):
            return Outcome.UNKNOWN
        own_id = self._requests.producer_id
        is_aborted = any(who == own_id and first <= one.last for who, first in fetched.aborted)
        return Outcome.ABORTED if is_aborted else Outcome.COMMITTED

    async def _check_end(self, one: Participant, state: ProducerState) -> None:
        """See that what hangs there is what the journal's records name, and no more."""
        if one.last < 0:
            return
        fetched = await self._fetch((one.topic, one.partition), one.last)
        ours = fetched is not None and state.open_from <= one.last and self._is_ours(fetched, one.last)
        if fetched is None or not ours:
            raise refused(
                self._name,
                f"{one.topic}/{one.partition} has it open from offset {state.open_from} on, where the journal"
                f" names {one.last} as the last",
            )
        batch = fetched.batches[0]
        last_sequence = batch.base_sequence + batch.last_offset_delta
        if (batch.producer_epoch, last_sequence) != (state.epoch, state.last_sequence):
            raise refused(
                self._name,
                f"{one.topic}/{one.partition} has more of it than the journal names: its last record has"
                f" sequence number {state.last_sequence} in epoch {state.epoch}, the last one named"
                f" {last_sequence} in epoch {batch.producer_epoch}",
            )

    def _is_ours(self, fetched: Fetched, offset: int) -> bool:
        """Whether the record at `offset`, from where on was fetched, is there and of this id."""
        if not fetched.batches:
            return False
        batch = fetched.batches[0]
        return bool(batch.base_offset <= offset and batch.producer_id == self._requests.producer_id)

    async def _own(self, place: Place) -> ProducerState | None:
        states = await self._requests.describe(place, leader=self._leader(place))
        return states.get(self._requests.producer_id)

    async def _fetch(self, place: Place, offset: int, *, committed: bool = False) -> Fetched | None:
        return await self._requests.fetch(place, offset, leader=self._leader(place), committed=committed)

    def _leader(self, place: Place) -> int:
        topic, partition = place
        found = self._topics.get(topic)
        known = None if found is None else found.partitions.get(partition)
        if known is None or known.leader < 0:
            raise TargetUnavailable(f"{topic}/{partition} has no leader")
        return known.leader

    @contextlib.contextmanager
    def errors(self, operation: str, resource: str) -> Iterator[None]:
        """Kafka's errors as the bridge's own."""
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
