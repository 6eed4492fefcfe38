"""What tests of the Kafka target share: targets as a process makes them, streams, batches, what arrived."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.journal_topic.journal_topic import JournalTopic
from bridge.kafka.journal_topic.options import JournalOptions, StateOptions
from bridge.kafka.target.target import KafkaTarget, KafkaTargetOptions
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.block import Block, FreshBlock, IndexedId
from bridge.messages.message import Message
from bridge.messages.positions import Runs
from bridge.relay.ports import Receipt, Stream, StreamState
from bridge.runtime.clock import Clock, SystemClock
from tests.kafka.cluster.reachable import CALL_TIMEOUT_S, Reachable
from tests.kafka.traffic.checker import Arrived, read

#: A timestamp that a topic's retention spares.
NOW: Final = time.time_ns() // 1_000_000 - 60_000
#: Longest that one call to a target may take, seconds.
WITHIN_S: Final = 30.0


@dataclass(slots=True)
class Rig:
    """One bridge's targets on one cluster; `close` closes all of them, and their journals."""

    cluster: Reachable
    bridge: str
    #: Of every target, besides.
    options: dict[str, Any] = field(default_factory=dict)
    lanes: int = 1
    owner: str = ""
    id_cache_size: int = 20_000
    #: Of the connection, besides.
    connection: dict[str, Any] = field(default_factory=dict)
    made: list[tuple[KafkaTarget, JournalTopic]] = field(default_factory=list)

    @property
    def journal_topic(self) -> str:
        return f"core-bridge.{self.bridge}.journal"

    def journal(self, connection: KafkaConnection) -> JournalTopic:
        options = JournalOptions(
            bridge=self.bridge,
            topic=self.journal_topic,
            lanes=self.lanes,
            replication_factor=1,
            state=StateOptions(
                owner=self.owner, id_cache_size=lambda _: self.id_cache_size, persist_ids=True
            ),
        )
        return JournalTopic(connection, options)

    def target(
        self,
        *,
        lane: int = 0,
        clock: Clock | None = None,
        arguments: dict[str, Any] | None = None,
        kind: type[KafkaTarget] = KafkaTarget,
        **options: Any,
    ) -> KafkaTarget:
        """A target as a process makes it that has just started."""
        connection = KafkaConnection("there", self.cluster.bootstrap, **self.connection)
        journal = self.journal(connection)
        target = kind(
            connection,
            journal,
            lane,
            KafkaTargetOptions(bridge=self.bridge, **{**self.options, **options}),
            clock=clock or SystemClock(),
            **(arguments or {}),
        )
        self.made.append((target, journal))
        return target

    async def close(self) -> None:
        for target, journal in self.made:
            await target.close()
            await journal.close()


@asynccontextmanager
async def rig(cluster: Reachable, bridge: str, **settings: Any) -> AsyncIterator[Rig]:
    made = Rig(cluster, bridge, **settings)
    try:
        yield made
    finally:
        await made.close()


def journal_stream(address: str, target_address: str = "") -> Stream:
    return Stream(f"journal:incarnation-1:{address}:0", address, target_address or address, "run-1")


def kafka_stream(
    address: str, partition: int = 0, *, partitions: int = 1, target_address: str = ""
) -> Stream:
    identity = f"kafka:source-cluster:00000000-0000-0000-0000-{address[-12:]:0>12}:{partition}"
    return Stream(identity, address, target_address or address, "3", partitions)


def batch(
    stream: Stream,
    messages: Sequence[Message],
    *,
    from_: int = 0,
    upto: int | None = None,
    runs: Runs | None = None,
    ids: Sequence[IndexedId] = (),
    refused: tuple[int, ...] = (),
    stamped: bool = True,
) -> Batch:
    """Messages at consecutive positions from `from_`, or at those of `runs`."""
    if runs is None:
        runs = ((from_, from_ + len(messages) - 1),) if messages else ()
    assert run_arithmetic.count(runs) == len(messages)
    block: Block | None = None
    if messages:
        fresh = FreshBlock(list(messages), tuple(ids))
        block = fresh.stamped(stream.identity, runs) if stamped else fresh
    end = runs[-1][1] + 1 if runs else from_
    upto = upto if upto is not None else end
    return Batch(stream.identity, from_, upto, runs, block, upto * 11 % 2**32, refused, (NOW, NOW))


def numbered(first: int, last: int, **fields: Any) -> list[Message]:
    """Messages ``m<first>`` to ``m<last>``, at one timestamp."""
    return [Message(b"m%d" % number, **{"timestamp": NOW, **fields}) for number in range(first, last + 1)]


async def opened(target: KafkaTarget, *streams: Stream) -> StreamState:
    """The state of the first."""
    async with asyncio.timeout(WITHIN_S):
        return (await target.open(streams)).streams[streams[0].identity]


async def deliver(target: KafkaTarget, *batches: Batch) -> list[Receipt]:
    async with asyncio.timeout(WITHIN_S):
        return list(await target.deliver(batches))


async def arrived(cluster: Reachable, topic: str) -> list[Arrived]:
    """What a reader under read_committed finds, by partition; nothing where there is no topic."""
    if topic not in await asyncio.to_thread(cluster.topics):
        return []
    found = await asyncio.to_thread(lambda: list(read(cluster, topic)))
    return sorted(found, key=lambda record: (record.partition, record.offset))


async def values(cluster: Reachable, topic: str) -> list[bytes | None]:
    return [record.value for record in await arrived(cluster, topic)]


def configure(cluster: Reachable, topic: str, **config: str) -> None:
    """Change a topic's configuration; underscores stand for dots."""
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in config.items()
    ]
    resource = ConfigResource("topic", topic, incremental_configs=entries)
    admin = cluster.admin()
    admin.incremental_alter_configs([resource])[resource].result(CALL_TIMEOUT_S)


def without_ids(record: Arrived) -> Arrived:
    """Less the duplicate ID."""
    headers = tuple(header for header in record.headers if header[0] != "_AMQ_DUPL_ID")
    return replace(record, headers=headers)
