"""Ends a transaction of this lane's id that the brokers have left open after its end.

Kafka's coordinator can call a transaction complete although no partition has the marker: where it does not
know a leader it assumes that the topic was deleted, and just after a broker's start there may be none
(KAFKA-20734, in 4.3.0 and 4.3.1; seen with 4.3: 2 of 27 clean restarts under traffic). Such a transaction
*hangs*: neither a client nor a broker ends it, its records stay invisible, and the journal partition cannot
be read beyond it, so the lane cannot be taken.

After a lane's producer has started, no transaction of the ones before it is open, so an open one hangs. Its
journal records name its participants (`bridge.kafka.journal_topic.participants`). It is ended in all
partitions the way it was ended in any: by a transaction of the same id, with the new epoch, over exactly
these partitions and without a record. The marker of a newer epoch ends what an older one has left open.
"""

from __future__ import annotations

import asyncio
from typing import Final

import aiokafka
import structlog

from bridge.errors import TargetUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.metadata import ClusterClient
from bridge.kafka.client.transaction_requests import Partition
from bridge.kafka.journal_topic.participants import (
    MARK_HEADER,
    Mark,
    Outcome,
    Participant,
    is_to_commit,
    marked,
    refused,
    together,
)
from bridge.kafka.journal_topic.records import JournalPartition
from bridge.kafka.recovery.own_transactions import OwnTransactions

#: A journal partition that takes longer to read is examined: a transaction may hang there.
SUSPECTED_AFTER_MS: Final = 2_000
#: Longest that the examination may take, before the transaction is ended.
LOOK_TIMEOUT_MS: Final = 30_000


async def end_own(
    connection: KafkaConnection,
    producer: aiokafka.AIOKafkaProducer,
    transactional_id: str,
    journal: JournalPartition,
) -> bool:
    """End what hangs of this id in the journal partition; returns whether there was anything.

    If so, the brokers are writing its markers, and the producer is of no use any more: start another, which
    waits for them. Transactions of other ids are left alone. A second call, by any process, has the same
    result.

    Args:
        connection: to the cluster.
        producer: has started under the id, and has written nothing.
        transactional_id: the lane's.
        journal: the lane's.

    Raises:
        Fenced: the lane has been taken meanwhile. TargetUnavailable: try again later.
        TargetRefused: a right is missing, or an operator has to decide; says what was found.
    """
    own = OwnTransactions(connection, producer, transactional_id)
    with own.errors("Read", f"topic {journal.topic} (journal-topic)"):
        async with asyncio.timeout(LOOK_TIMEOUT_MS / 1000), ClusterClient(connection) as cluster:
            decided = await _Hanging(own, journal).decided(cluster)
    if decided is None:
        return False
    tps, commit = decided
    await end(own, tps, commit=commit)
    return True


async def end(own: OwnTransactions, tps: list[Partition], *, commit: bool) -> None:
    """End what hangs in these partitions, and log it. Raises: as `OwnTransactions.end`."""
    structlog.get_logger().warning(
        "hanging-transaction",
        transactional_id=own.transactional_id,
        partitions=[f"{topic}/{partition}" for topic, partition in tps],
        decision="commit" if commit else "abort",
    )
    await own.end(tps, commit=commit)


class _Hanging:
    """The transactions of one id that are open in the journal partition although none can be."""

    def __init__(self, own: OwnTransactions, journal: JournalPartition) -> None:
        self._own = own
        self._journal: Partition = (journal.topic, journal.partition)

    async def decided(self, cluster: ClusterClient) -> tuple[list[Partition], bool] | None:
        """The partitions to end it in, and whether by a commit; None: nothing of this id hangs here."""
        await self._own.look_up(cluster, {self._journal[0]})
        state = (await self._own.states([self._journal])).get(self._journal)
        if state is None or state.open_from < 0:
            return None
        mark, complete = await self._marks(state.open_from)
        await self._own.look_up(cluster, {one.topic for one in mark.participants})
        found: dict[Participant, Outcome] = {}
        for one in mark.participants:
            with self._own.errors("Read", f"topic {one.topic} (a transaction hangs there)"):
                found[one] = await self._outcome(one)
        commit = is_to_commit(self._own.name, found, complete=complete)
        hanging = [one.tp for one, outcome in found.items() if outcome is Outcome.HANGING]
        return [*hanging, self._journal], commit

    async def _marks(self, offset: int) -> tuple[Mark, bool]:
        """The marks of the open journal records, as one, and whether all of the records are there."""
        marks: list[Mark] = []
        records, end = 0, -1
        while end < 0 or offset < end:
            fetched = await self._own.fetch(self._journal, offset)
            if fetched is None or not fetched.batches:
                raise TargetUnavailable(f"the journal partition cannot be read at offset {offset}")
            end = end if end > 0 else fetched.high_watermark  # as of now: others may continue writing
            for batch in fetched.batches:
                offset = batch.next_offset
                if batch.producer_id != self._own.producer_id or batch.is_control_batch:
                    continue
                for record in batch:
                    records += 1
                    marks += [marked(value) for name, value in record.headers if name == MARK_HEADER]
        mark = together(marks)
        if not marks or (len(marks) > 1 and records != mark.records):
            raise refused(
                self._own.name,
                f"its journal records are not whole: {records} are there, of {mark.records} in"
                f" {len(marks)} transactions",
            )
        return mark, records == mark.records

    async def _outcome(self, one: Participant) -> Outcome:
        if self._own.is_gone(one.topic):
            return Outcome.GONE
        state = (await self._own.states([one.tp])).get(one.tp)
        if state is not None and state.open_from >= 0:
            if one.last >= 0:
                await self._own.check_end(one.tp, one.last, state)
            return Outcome.HANGING
        if one.last < 0:
            return Outcome.UNKNOWN
        fetched = await self._own.fetch(one.tp, one.last, committed=True)
        if fetched is None:
            return Outcome.UNKNOWN
        if fetched.stable <= one.last:
            raise TargetUnavailable(
                f"{one.topic}/{one.partition} cannot be read at offset {one.last}: a transaction of another"
                " producer is open there"
            )
        if not self._own.is_ours(fetched, one.last):
            return Outcome.UNKNOWN
        own_id = self._own.producer_id
        is_aborted = any(who == own_id and first <= one.last for who, first in fetched.aborted)
        return Outcome.ABORTED if is_aborted else Outcome.COMMITTED
