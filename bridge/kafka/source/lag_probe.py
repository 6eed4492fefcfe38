"""What waits for a bridge at its cluster, asked beside its lanes: without the target none of them reads."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from aiokafka.structs import TopicPartition

from bridge.errors import SourceUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.records.identity import LaneIndex
from bridge.kafka.source.options import SourceOptions
from bridge.kafka.source.partitions import Found, Partitions
from bridge.kafka.source.progress import Kind, Mark, Progress, show_a_start
from bridge.relay.lag import PartitionStatus
from bridge.runtime.clock import Clock

#: Longest that the cluster may take to answer all questions of one measurement.
MEASURE_TIMEOUT_MS: Final = 30_000


class KafkaLagProbe:
    """Implements `bridge.relay.lag.LagProbe`: high watermarks less the offsets of the progress group."""

    def __init__(self, connection: KafkaConnection, lanes: int, options: SourceOptions, clock: Clock) -> None:
        self._connection = connection
        self._lanes = [LaneIndex(lane, lanes) for lane in range(lanes)]
        self._options = options
        self._partitions = Partitions(connection, options.topics, self._lanes[0])
        self._progress = Progress(connection, options.group, clock)

    async def measure(self) -> Mapping[int, Sequence[PartitionStatus]]:
        """As `LagProbe.measure`. What waits has no age here: no record of it is read."""
        try:
            async with asyncio.timeout(MEASURE_TIMEOUT_MS / 1000):
                return await self._measure()
        except TimeoutError as error:
            raise SourceUnavailable(
                f"connector {self._connection.name}: no answer about the lag in {MEASURE_TIMEOUT_MS} ms"
            ) from error

    async def _measure(self) -> Mapping[int, Sequence[PartitionStatus]]:
        found = await self._partitions.find()
        marks = await self._progress.marks()
        begins, _ = await self._partitions.bounds(found)
        ends = await self._partitions.high_watermarks(found)
        has_run = show_a_start(marks.values())
        rows: dict[int, list[PartitionStatus]] = {lane.number: [] for lane in self._lanes}
        unknown = {self._lane_of(tp) for tp in self._partitions.leaderless}
        for one in found:
            lane, end = self._lane_of(one.tp), ends.get(one.tp)
            if end is None:
                unknown.add(lane)
                continue
            at = self._position(one, marks.get(one.tp), has_run=has_run)
            at = end if at is None else min(max(at, begins[one.tp]), end)
            rows[lane].append(PartitionStatus(one.tp.topic, one.tp.partition, at, end))
        return {lane: found for lane, found in rows.items() if lane not in unknown}

    def _lane_of(self, tp: TopicPartition) -> int:
        return next(lane.number for lane in self._lanes if lane.has(tp.topic, tp.partition))

    def _position(self, one: Found, mark: Mark | None, *, has_run: bool) -> int | None:
        """Where the bridge goes on in a partition; None: at its end, which is not recorded yet."""
        if mark is not None and mark.topic_id == one.topic_id and mark.kind is not Kind.UNSEEN:
            return mark.offset
        return None if not has_run and self._options.start_position == "latest" else 0

    async def close(self) -> None:
        """As `LagProbe.close`."""
        await self._progress.close()
        await self._partitions.close()
