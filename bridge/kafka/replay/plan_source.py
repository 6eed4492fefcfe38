"""Reads by offset the records that a replay plan sends again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from aiokafka.structs import TopicPartition

from bridge.errors import SourceUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.errors import explaining
from bridge.kafka.client.fetch_limits import fetch_options
from bridge.kafka.client.fetch_size import is_receiving
from bridge.kafka.records.decoding import BatchOptions, make_batches
from bridge.kafka.records.identity import store_identity
from bridge.kafka.replay.survey import Survey
from bridge.kafka.source.partitions import Found, Partitions
from bridge.messages import positions as run_arithmetic
from bridge.messages.block import Origin
from bridge.messages.positions import Runs
from bridge.relay.ports import Stream
from bridge.replay.sending import Part, Sibling

#: Batches' bytes that one read returns, approximately.
BATCHES_AT_ONCE: Final = 4
#: A range that begins this close is reached by reading on, not by seeking.
NEAR: Final = 1_000
#: Longest that a cluster may return nothing although there are records.
SILENT_S: Final = 30.0
_POLL_MS: Final = 1_000


class KafkaPlanSource:
    """Implements `bridge.replay.sending.PlanSource` for the topics of one bridge, in all lanes."""

    def __init__(self, connection: KafkaConnection, partitions: Partitions, batches: BatchOptions) -> None:
        """`partitions`: of all lanes."""
        self._connection = connection
        self._partitions = partitions
        self._batches = batches
        self._found: dict[str, Found] = {}
        self._consumer: Any = None

    @property
    def store(self) -> str:
        """As `PlanSource.store`."""
        return store_identity(self._partitions.cluster)

    async def stream(self, identity: str) -> Stream | None:
        """The partition, if the bridge reads it. Raises: SourceUnavailable, SourceRefused."""
        for one in await self._partitions.find():
            if one.stream.identity == identity:
                self._found[identity] = one
                return one.stream
        return None

    async def siblings(self, stream: Stream) -> Sequence[Sibling]:
        """As `PlanSource.siblings`. Raises: SourceUnavailable, SourceRefused."""
        found = [
            one for one in await self._partitions.find() if one.stream.target_address == stream.target_address
        ]
        self._found.update({one.stream.identity: one for one in found})
        survey = Survey(self._connection, "source")
        bounds = await survey.bounds((one.tp for one in found), settle=False)
        return [
            Sibling(one.stream, its.start, its.end, is_whole=its.start == 0 and not its.compacted)
            for one in found
            for its in (bounds[one.tp],)
        ]

    async def copies(self, stream: Stream, origins: Sequence[Origin]) -> Sequence[tuple[Origin, int]]:  # noqa: ARG002
        """As `PlanSource.copies`: to the bridge, its records were first stored where it reads them."""
        return ()

    async def read(self, stream: Stream, wanted: Runs) -> Part:
        """As `PlanSource.read`. Records that retention, compaction or a truncation has removed are missing.

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
        return Part(make_batches(self._batches, stream.identity, records, records[0].offset, upto), upto)

    async def _started(self) -> Any:
        if self._consumer is None:
            options = fetch_options(self._batches.batch_bytes, self._connection.consumer_options)
            self._consumer = await self._connection.started_consumer(**options)
        return self._consumer

    async def _records(self, consumer: Any, tp: TopicPartition, wanted: Runs) -> tuple[list[Any], int]:
        """The records at wanted offsets, some batches' bytes; and the offset up to which it has read."""
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
            if size >= self._batches.batch_bytes * BATCHES_AT_ONCE and at <= there[-1][1]:
                return records, at
        return records, wanted[-1][1] + 1

    async def _next(self, consumer: Any, tp: TopicPartition) -> Sequence[Any]:
        """The next records; returns once the position has moved."""
        before = await consumer.position(tp)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + SILENT_S
        while True:
            came: Sequence[Any] = (await consumer.getmany(tp, timeout_ms=_POLL_MS)).get(tp, ())
            if came or await consumer.position(tp) > before:
                return came
            if is_receiving(consumer):
                until_s = loop.time() + SILENT_S
            if loop.time() >= until_s:
                raise SourceUnavailable(
                    f"topic {tp.topic} partition {tp.partition}: nothing came from {before} on"
                    f" for {SILENT_S:g} s"
                )

    async def close(self) -> None:
        """Close consumer and client."""
        consumer, self._consumer = self._consumer, None
        try:
            if consumer is not None:
                await consumer.stop()
        finally:
            await self._partitions.close()
