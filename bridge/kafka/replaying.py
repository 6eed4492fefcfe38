"""Kafka's ends of what a replay plan sends again: records by offset, and a target that is asked first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final

from aiokafka.structs import TopicPartition

from bridge import hops
from bridge import runs as run_arithmetic
from bridge.batch import Batch
from bridge.errors import SourceUnavailable
from bridge.journal.stored import carried_id
from bridge.kafka.connection import KafkaConnection
from bridge.kafka.errors import explaining
from bridge.kafka.fetch_limits import fetch_options
from bridge.kafka.held import TopicIds
from bridge.kafka.identity import store_identity
from bridge.kafka.metadata import ClusterClient
from bridge.kafka.partitions import Found, Partitions
from bridge.kafka.records_in import Rules, make_batches
from bridge.kafka.records_out import duplicate_ids
from bridge.kafka.target import KafkaTarget
from bridge.ports import Opened, Receipt, Stream
from bridge.replay_desk import Known
from bridge.resending import Part
from bridge.runs import Runs

#: Batches' bytes that one reading brings, about.
BATCHES_AT_ONCE: Final = 4
#: A run that begins this close is read on to, and not sought.
NEAR: Final = 1_000
#: Longest that a cluster may bring nothing although there is something.
SILENT_S: Final = 30.0
_POLL_MS: Final = 1_000


class KafkaPlanSource:
    """Implements `bridge.resending.PlanSource` for the topics of one bridge, whatever their lane."""

    def __init__(
        self,
        connection: KafkaConnection,
        partitions: Partitions,
        make_rules: Callable[[bytes], Rules],
        *,
        bridge: str,
        batch_bytes: int,
    ) -> None:
        """`partitions`: of all lanes; `make_rules`: given the bridge's own hop."""
        self._connection = connection
        self._partitions = partitions
        self._make_rules = make_rules
        self._bridge = bridge
        self._batch_bytes = batch_bytes
        self._found: dict[str, Found] = {}
        self._consumer: Any = None

    async def stream(self, identity: str) -> Stream | None:
        """The partition, if the bridge reads it. Raises: SourceUnavailable, SourceRefused."""
        for one in await self._partitions.find():
            if one.stream.identity == identity:
                self._found[identity] = one
                return one.stream
        return None

    async def read(self, stream: Stream, wanted: Runs) -> Part:
        """As `PlanSource.read`. What retention, compaction or a truncation has removed is not there.

        Raises: SourceUnavailable: also where the topic was re-created meanwhile. SourceRefused.
        """
        one = self._found[stream.identity]
        with explaining(self._connection.name, "Read", f"topic {one.tp.topic}"):
            consumer = await self._started()
            records, upto = await self._records(consumer, one.tp, wanted)
        if stream.identity in await self._partitions.replaced([one]):
            raise SourceUnavailable(f"topic {one.tp.topic} was re-created meanwhile", key=one.tp.topic)
        if not records:
            return Part((), upto)
        rules = self._make_rules(hops.hop(self._bridge, store_identity(self._partitions.cluster)))
        return Part(make_batches(rules, stream.identity, records, records[0].offset, upto), upto)

    async def _started(self) -> Any:
        if self._consumer is None:
            options = fetch_options(self._batch_bytes, self._connection.consumer_options)
            self._consumer = await self._connection.started_consumer(**options)
        return self._consumer

    async def _records(self, consumer: Any, tp: TopicPartition, wanted: Runs) -> tuple[list[Any], int]:
        """Records at wanted offsets, some batches' bytes; and up to where it has looked."""
        consumer.assign([tp])
        start = (await consumer.beginning_offsets([tp]))[tp]
        end = (await consumer.end_offsets([tp]))[tp]
        there = run_arithmetic.below(run_arithmetic.from_position(wanted, start), end)
        records: list[Any] = []
        size, at = 0, -1
        for first, last in there:
            if at < 0 or first > at + NEAR:
                consumer.seek(tp, first)
            at = max(at, first)
            while at <= last:
                came = await self._next(consumer, tp)
                at = await consumer.position(tp)
                for record in came:
                    if run_arithmetic.index(there, record.offset) >= 0:
                        records.append(record)
                        size += len(record.value or b"")
            if size >= self._batch_bytes * BATCHES_AT_ONCE and at <= there[-1][1]:
                return records, at
        return records, wanted[-1][1] + 1

    async def _next(self, consumer: Any, tp: TopicPartition) -> Sequence[Any]:
        """What comes next; returns once the position has moved."""
        before = await consumer.position(tp)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + SILENT_S
        while True:
            came: Sequence[Any] = (await consumer.getmany(tp, timeout_ms=_POLL_MS)).get(tp, ())
            if came or await consumer.position(tp) > before:
                return came
            if loop.time() >= until_s:
                raise SourceUnavailable(
                    f"topic {tp.topic} partition {tp.partition}: nothing came from {before} on"
                    f" for {SILENT_S:g} s"
                )

    async def close(self) -> None:
        """Let go of consumer and client."""
        consumer, self._consumer = self._consumer, None
        try:
            if consumer is not None:
                await consumer.stop()
        finally:
            await self._partitions.close()


class KnownPositions:
    """Which positions of a batch the target has, as its planning asks (`KafkaTargetOptions.held`)."""

    def __init__(self) -> None:
        self.positions: frozenset[int] = frozenset()

    def __call__(self, _batch: Batch) -> Collection[int]:
        """Those of whatever batch is planned: there is one at a time."""
        return self.positions


class KafkaPlanTarget:
    """A `KafkaTarget` of the bridge's replays, which leaves out what its topic holds. One call's."""

    def __init__(
        self,
        target: KafkaTarget,
        connection: KafkaConnection,
        *,
        known: KnownPositions,
        ids_of: Callable[[str], TopicIds] | None,
        covered: Callable[[str], Awaitable[int | None]],
        stamp: bool,
    ) -> None:
        """Made of parts.

        Args:
            target: where batches go; its options ask `known`.
            connection: to its cluster.
            known: what it is told before each batch.
            ids_of: the index of a topic's IDs; None: the target is not asked (`--force`).
            covered: the target's next of a plan's stream, without opening it.
            stamp: whether messages get an ID from where they were first stored.
        """
        self._target = target
        self._connection = connection
        self._known = known
        self._ids_of = ids_of
        self._covered = covered
        self._stamp = stamp
        self._topics: dict[str, str] = {}

    async def ready(self, stream: Stream, part: Part, deadline_s: float) -> bool:
        """Learn which IDs the topic of `stream` holds; False: not done by the deadline, call again.

        Raises: TargetUnavailable, TargetRefused.
        """
        times = [batch.events[0] for batch in part.batches if batch.count]
        if self._ids_of is None or not times:
            return True
        return await self._ids_of(stream.target_address).read(min(times), deadline_s)

    async def ask(self, stream: Stream, batches: list[Batch]) -> Known:
        """What there is of these, and how far the plan has come. Raises: TargetUnavailable, TargetRefused."""
        with explaining(self._connection.name, "Describe", "the cluster", side="target"):
            async with ClusterClient(self._connection) as client:
                cluster = (await client.cluster()).id
        held = [self._held(stream.target_address, batch) for batch in batches]
        return Known(
            store_identity(self._connection.identity or cluster),
            await self._covered(stream.identity),
            frozenset().union(*held),
        )

    def _held(self, topic: str, batch: Batch) -> frozenset[int]:
        """Positions of the batch's messages whose ID the topic holds."""
        if self._ids_of is None or batch.block is None:
            return frozenset()
        ids = self._ids_of(topic).ids
        own = duplicate_ids(batch.block, stamp=self._stamp)
        values = [
            carried_id(message) or one for message, one in zip(batch.block.messages(), own, strict=True)
        ]
        places = run_arithmetic.positions(batch.runs)
        return frozenset(
            place for place, value in zip(places, values, strict=True) if value is not None and value in ids
        )

    # -- the port Target -------------------------------------------------------------------------------

    async def open(self, streams: Sequence[Stream]) -> Opened:
        """As `KafkaTarget.open`."""
        self._topics.update({stream.identity: stream.target_address for stream in streams})
        return await self._target.open(streams)

    async def deliver(self, batches: Sequence[Batch]) -> Sequence[Receipt]:
        """As `KafkaTarget.deliver`, less what the topic holds; one call at a time."""
        held = (self._held(self._topics[batch.stream], batch) for batch in batches)
        self._known.positions = frozenset[int]().union(*held)
        return await self._target.deliver(batches)

    async def lost(self) -> None:
        """As `KafkaTarget.lost`."""
        await self._target.lost()

    async def close(self) -> None:
        """As `KafkaTarget.close`."""
        await self._target.close()
