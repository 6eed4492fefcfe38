"""What tests of the journal topic share: bridges whose workers take lanes as the target does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from bridge.kafka.client import producers
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.journal_topic.journal_topic import JournalTopic
from bridge.kafka.journal_topic.lane_state import LaneChange, LaneState
from bridge.kafka.journal_topic.options import JournalOptions, StateOptions
from bridge.kafka.journal_topic.records import StreamRecord
from bridge.kafka.records import identity
from bridge.settings import kafka_names
from tests.kafka.cluster.reachable import Reachable

CLUSTER_ID = "source-cluster"
TOPIC_ID = "00000000-0000-0000-0000-000000000001"
#: Longest that a test waits for what must come, seconds.
WITHIN_S = 30.0
Names = Callable[[str], str]


def stream(partition: int) -> str:
    return identity.stream_identity(CLUSTER_ID, TOPIC_ID, partition)


def covered(next_position: int) -> StreamRecord:
    return StreamRecord(next=next_position, run="7", checksum=next_position * 3, address="orders")


@dataclass
class Owner:
    """One worker that has taken a lane, as the target does."""

    journal: JournalTopic
    lane: int
    generation: int
    producer: Any
    state: LaneState | None = None

    @property
    def remembered(self) -> LaneState:
        assert self.state is not None
        return self.state

    async def read(self) -> LaneState:
        self.state = await self.journal.read(self.lane, self.generation)
        return self.state

    async def write(self, change: LaneChange) -> None:
        """The records of a change, in a transaction that stays open."""
        await self.producer.begin_transaction()
        for key, value in change.records():
            sent = await self.producer.send(
                self.journal.topic, value, key, partition=self.journal.partition(self.lane)
            )
            await sent

    async def commit(self, change: LaneChange) -> None:
        await self.write(change)
        await self.producer.commit_transaction()
        change.commit()

    async def cover(self, partition: int, upto: int, ids: Sequence[bytes] = (), address: str = "x") -> None:
        change = self.remembered.change()
        change.cover(stream(partition), covered(upto))
        change.add_ids(address, ids)
        await self.commit(change)

    def next(self, partition: int) -> int | None:
        record = self.remembered.stream(stream(partition))
        return None if record is None else record.next


@dataclass
class Bridge:
    """Workers of one bridge; `close` ends all of them."""

    cluster: Reachable
    name: str
    lanes: int = 1
    owner: str = ""
    topic: str = ""
    previous_topic: str = ""
    id_cache_size: int = 1_000
    persist_ids: bool = True
    replication_factor: int = 1
    stalled_after_ms: int = 20_000
    owners: list[Owner] = field(default_factory=list)

    @property
    def connection(self) -> KafkaConnection:
        return KafkaConnection("there", self.cluster.bootstrap)

    @property
    def journal_topic(self) -> str:
        return self.topic or kafka_names.journal_topic(self.name)

    def journal(self, **changed: Any) -> JournalTopic:
        size = changed.pop("id_cache_size", self.id_cache_size)
        state = StateOptions(
            owner=changed.pop("owner", self.owner),
            id_cache_size=lambda _: size,
            persist_ids=changed.pop("persist_ids", self.persist_ids),
        )
        settings: dict[str, Any] = {
            "bridge": self.name,
            "topic": self.journal_topic,
            "lanes": self.lanes,
            "previous_topic": self.previous_topic,
            "replication_factor": self.replication_factor,
        }
        settings |= {name: changed.pop(name) for name in settings if name in changed}
        options = JournalOptions(state=state, **settings)
        return JournalTopic(self.connection, options, stalled_after_ms=self.stalled_after_ms, **changed)

    async def begin(self, lane: int = 0, journal: JournalTopic | None = None, **changed: Any) -> Owner:
        """Prepared, with a producer that has fenced the one before."""
        journal = journal or self.journal(**changed)
        generation = await journal.prepare()
        producer = await producers.started(self.connection, journal.transactional_id(generation, lane))
        owner = Owner(journal, lane, generation, producer)
        self.owners.append(owner)
        return owner

    async def take(self, lane: int = 0, journal: JournalTopic | None = None, **changed: Any) -> Owner:
        owner = await self.begin(lane, journal, **changed)
        await owner.read()
        return owner

    async def close(self) -> None:
        for owner in self.owners:
            await producers.discard(owner.producer)
            await owner.journal.close()


@asynccontextmanager
async def bridge(cluster: Reachable, name: str, **settings: Any) -> AsyncIterator[Bridge]:
    made = Bridge(cluster, name, **settings)
    try:
        async with asyncio.timeout(4 * WITHIN_S):
            yield made
    finally:
        await made.close()


def lane_of(partition: int, lanes: int) -> int:
    return identity.lane_of("orders", partition, lanes)
