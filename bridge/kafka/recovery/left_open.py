"""Finds transactions of a lane's id that were left open in a partition before a session first writes there.

`bridge.kafka.recovery.hanging` ends what hangs in the journal partition and with it. A transaction that hangs
in data partitions alone does not delay the taking of the lane; but whatever ends the next transaction there
ends it too. Records of one that was aborted would become visible beside those that were sent again, and an
abort would remove records that have been confirmed.

A session is one started producer: none of its id's transactions is open then, so an open one hangs. It is
committed where the mark of the last committed transaction names it, else aborted. Only the last one can hang:
the coordinator begins no other before it considers the last complete, and forgets markers where it was
restarted, which ends the session (`bridge.kafka.client.producers`). Kafka 4.3 also forgets those of a
partition without any leader, and the session goes on: that is not handled (trap 18 in docs/kafka-traps.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

import aiokafka
from aiokafka.errors import KafkaError

from bridge.errors import BridgeError, TargetUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.errors import is_fencing, is_for_good, topics_named
from bridge.kafka.client.metadata import ClusterClient
from bridge.kafka.client.transaction_requests import Partition, ProducerState
from bridge.kafka.journal_topic.participants import Mark, is_named
from bridge.kafka.recovery import hanging
from bridge.kafka.recovery.own_transactions import OwnTransactions

#: Longest that partitions' leaders may take to say what is open; a new topic has no leaders at first.
LOOK_TIMEOUT_MS: Final = 15_000
#: Pause before they are asked again.
_LOOK_AGAIN_MS: Final = 100


class LeftOpen:
    """The transactions of one session's id that hang in data partitions; each partition is checked once."""

    def __init__(
        self,
        connection: KafkaConnection,
        producer: aiokafka.AIOKafkaProducer,
        transactional_id: str,
        last: Mark | None,
    ) -> None:
        """`last`: the mark of the lane's last committed transaction; None: there is none."""
        self._connection = connection
        self._own = OwnTransactions(connection, producer, transactional_id)
        self._named = {one.tp: one.last for one in last.participants} if last is not None else {}
        self._clear: set[Partition] = set()

    async def end_named(self) -> bool:
        """As `end_before` for the partitions of the last committed transaction, unless the topic is gone.

        Call it before anything is committed: the next mark replaces this one.
        """
        return await self._end(self._named.keys(), may_be_gone=True)

    async def end_before(self, tps: Collection[Partition]) -> bool:
        """End what hangs in these partitions, none of which is written to yet; returns whether anything did.

        If so, the producer is of no use any more: start another, which waits for the markers.

        Raises:
            Fenced: the lane has been taken meanwhile. TargetUnavailable: try again later.
            TargetRefused: the right to read a topic is missing, or an operator has to decide.
        """
        return await self._end(tps, may_be_gone=False)

    async def _end(self, tps: Collection[Partition], *, may_be_gone: bool) -> bool:
        new = [tp for tp in tps if tp not in self._clear]
        if not new:
            return False
        with self._own.errors("Read", topics_named(topic for topic, _ in new)):
            states = await self._states(new, may_be_gone=may_be_gone)
            found = {tp: state for tp, state in states.items() if state.open_from >= 0}
            decided = {tp: await self._is_committed(tp, state) for tp, state in found.items()}
        self._clear.update(tp for tp in new if tp not in found)
        for commit in (True, False):
            hanging_there = [tp for tp, committed in decided.items() if committed is commit]
            if hanging_there:  # if both kinds hang, the next session ends the other
                await hanging.end(self._own, hanging_there, commit=commit)
                return True
        return False

    async def _states(
        self, tps: Collection[Partition], *, may_be_gone: bool
    ) -> Mapping[Partition, ProducerState]:
        """By partition that this id has written to, in any session. Asks again while there is no leader."""
        clock = asyncio.get_running_loop().time
        ends = clock() + LOOK_TIMEOUT_MS / 1000
        async with asyncio.timeout(2 * LOOK_TIMEOUT_MS / 1000), ClusterClient(self._connection) as cluster:
            while True:
                try:
                    await self._own.look_up(cluster, {topic for topic, _ in tps}, anew=True)
                    there = [tp for tp in tps if not (may_be_gone and self._own.is_gone(tp[0]))]
                    return await self._own.states(there)
                except (KafkaError, TargetUnavailable) as error:
                    if not _passes(error) or clock() > ends:
                        raise
                await asyncio.sleep(_LOOK_AGAIN_MS / 1000)

    async def _is_committed(self, tp: Partition, state: ProducerState) -> bool:
        last = self._named.get(tp)
        if not is_named(self._own.name, tp, last, state.open_from):
            return False
        assert last is not None
        await self._own.check_end(tp, last, state)
        return True


def _passes(error: KafkaError | BridgeError) -> bool:
    """Whether a retry may succeed."""
    return isinstance(error, TargetUnavailable) or not (is_for_good(error) or is_fencing(error))
