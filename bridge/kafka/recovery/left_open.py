"""Looks before a session's first write to a partition whether a transaction of ours has been left open there.

`bridge.kafka.recovery.hanging` ends what hangs in the journal partition and with it. What hangs in data
partitions alone holds up nobody who takes the lane; but whatever ends the next transaction there ends it too.
Records of one that was aborted would become visible beside those that were sent again, and an abort would
take records away that have been confirmed.

A session is one started producer: nothing of its id is open then, so what is open hangs. It is committed
where the mark of the last committed transaction names it, else aborted. Only the last one can hang: the
coordinator begins no other before it holds the last for complete, and forgets markers only where it has been
started anew, which ends the session (`bridge.kafka.client.producers`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

import aiokafka
from aiokafka.errors import KafkaError

from bridge.errors import BridgeError, TargetUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.errors import is_fencing, is_for_good
from bridge.kafka.client.metadata import ClusterClient
from bridge.kafka.client.transaction_requests import Place, ProducerState
from bridge.kafka.journal_topic.participants import Mark, is_named
from bridge.kafka.recovery import hanging
from bridge.kafka.recovery.own_transactions import OwnTransactions

#: Longest that partitions' leaders may take to say what is open; a topic just made has none at first.
LOOK_TIMEOUT_MS: Final = 15_000
#: How long before they are asked again.
_LOOK_AGAIN_MS: Final = 100


class LeftOpen:
    """What hangs of one session's id in data partitions; each is looked at once."""

    def __init__(
        self,
        connection: KafkaConnection,
        producer: aiokafka.AIOKafkaProducer,
        transactional_id: str,
        last: Mark | None,
    ) -> None:
        """`last`: of the lane's last committed transaction; None: there is none."""
        self._connection = connection
        self._own = OwnTransactions(connection, producer, transactional_id)
        self._named = {one.place: one.last for one in last.participants} if last is not None else {}
        self._clear: set[Place] = set()

    async def end_named(self) -> bool:
        """`end_before` for where the last committed transaction has written, unless the topic is gone.

        To be called before anything is committed: the next mark takes the place of this one.
        """
        return await self._end(self._named.keys(), may_be_gone=True)

    async def end_before(self, places: Collection[Place]) -> bool:
        """End what hangs in these partitions, none of which is written to yet; whether there was anything.

        If so the producer is of no use any more: start another, which waits for the markers.

        Raises:
            Fenced: the lane has been taken meanwhile. TargetUnavailable: try again later.
            TargetRefused: the right to read a topic is missing, or an operator has to decide.
        """
        return await self._end(places, may_be_gone=False)

    async def _end(self, places: Collection[Place], *, may_be_gone: bool) -> bool:
        new = [place for place in places if place not in self._clear]
        if not new:
            return False
        names = ", ".join(sorted({topic for topic, _ in new}))
        with self._own.errors("Read", f"topics {names}"):
            states = await self._states(new, may_be_gone=may_be_gone)
            found = {place: state for place, state in states.items() if state.open_from >= 0}
            decided = {place: await self._is_committed(place, state) for place, state in found.items()}
        self._clear.update(place for place in new if place not in found)
        for commit in (True, False):
            hanging_there = [place for place, committed in decided.items() if committed is commit]
            if hanging_there:  # of the other kind, the next session ends it
                await hanging.end(self._own, hanging_there, commit=commit)
                return True
        return False

    async def _states(self, places: Collection[Place], *, may_be_gone: bool) -> Mapping[Place, ProducerState]:
        """By partition where we have written, in whatever session. Asks again while there is no leader."""
        clock = asyncio.get_running_loop().time
        ends = clock() + LOOK_TIMEOUT_MS / 1000
        async with asyncio.timeout(2 * LOOK_TIMEOUT_MS / 1000), ClusterClient(self._connection) as cluster:
            while True:
                try:
                    await self._own.look_up(cluster, {topic for topic, _ in places}, anew=True)
                    there = [place for place in places if not (may_be_gone and self._own.is_gone(place[0]))]
                    return await self._own.states(there)
                except (KafkaError, TargetUnavailable) as error:
                    if not _passes(error) or clock() > ends:
                        raise
                await asyncio.sleep(_LOOK_AGAIN_MS / 1000)

    async def _is_committed(self, place: Place, state: ProducerState) -> bool:
        last = self._named.get(place)
        if not is_named(self._own.name, place, last, state.open_from):
            return False
        assert last is not None
        await self._own.check_end(place, last, state)
        return True


def _passes(error: KafkaError | BridgeError) -> bool:
    """Whether it may be another in a moment."""
    return isinstance(error, TargetUnavailable) or not (is_for_good(error) or is_fencing(error))
