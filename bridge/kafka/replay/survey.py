"""The content of a cluster for an audit: where partitions begin and end, and what a bridge has confirmed.

Nothing is changed, and no group is joined.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from bridge.errors import BridgeError, SourceUnavailable, TargetUnavailable, listed
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.errors import Side, explaining, topics_named
from bridge.kafka.client.metadata import Cluster, ClusterClient, Offset, Topic
from bridge.kafka.journal_topic.partition_io import JournalLog
from bridge.kafka.source.checksums import maybe_compacted
from bridge.kafka.source.progress import Kind, Progress
from bridge.runtime.clock import SystemClock

#: How long an open transaction may hide what was written before the audit began: a bridge's transaction ends
#: after TRANSACTION_TIMEOUT_MS, and its broker checks every 10 s.
SETTLED_WITHIN_MS: Final = 75_000
#: A topic and the number of a partition; aiokafka's TopicPartition is one.
Part = tuple[str, int]
#: Pause between two checks, and the number of look-ups of leaders while a partition has none.
LOOK_PAUSE_MS: Final = 200
LOOKS: Final = 150


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of one partition."""

    start: int
    #: Last stable offset at the first check.
    stable: int
    #: High watermark at the second check; everything below it is settled now.
    end: int
    #: Whether the topic may be compacted (also where that is unknown: no right to DescribeConfigs).
    compacted: bool


class Survey:
    """Reads one cluster's topics, bounds and confirmed positions."""

    def __init__(
        self, connection: KafkaConnection, side: Side, *, settled_within_ms: int = SETTLED_WITHIN_MS
    ) -> None:
        """`side`: the cluster's side in errors."""
        self._connection = connection
        self._side = side
        self._settled_within_ms = settled_within_ms

    async def cluster(self, topics: Sequence[str] | None) -> Cluster:
        """These topics; None: all. Raises: …Unavailable, …Refused of its side, as all of these methods do."""
        with self._errors("Describe", "cluster"):
            async with ClusterClient(self._connection) as client:
                return await client.cluster(topics)

    async def starts(self, partitions: Iterable[Part]) -> Mapping[Part, int]:
        """The first offset of each partition."""
        asked = [TopicPartition(*part) for part in partitions]
        if not asked:
            return {}
        with self._errors("Describe", _named(asked)):
            async with ClusterClient(self._connection) as client:
                return await self._offsets(client, asked, Offset.START)

    async def bounds(self, partitions: Iterable[Part], *, settle: bool) -> Mapping[Part, Bounds]:
        """The first offsets and ends. With `settle` the end is the high watermark, and the call waits for
        open transactions below it; without, it is the last stable offset.
        """
        asked = [TopicPartition(*part) for part in partitions]
        if not asked:
            return {}
        with self._errors("Describe", _named(asked)):
            async with ClusterClient(self._connection) as client:
                starts = await self._offsets(client, asked, Offset.START)
                stable = await self._offsets(client, asked, Offset.STABLE)
                ends = await self._settled(client, asked) if settle else stable
        compacted = await maybe_compacted(self._connection, {tp.topic for tp in asked})
        return {tp: Bounds(starts[tp], stable[tp], ends[tp], compacted=tp.topic in compacted) for tp in asked}

    async def _offsets(
        self, client: ClusterClient, asked: Collection[TopicPartition], which: Offset
    ) -> dict[TopicPartition, int]:
        """This offset of each partition; leaders that have changed meanwhile are looked up again."""
        absent: list[str] = []
        for look in range(1, LOOKS + 1):
            topics = (await client.cluster(sorted({tp.topic for tp in asked}))).topics
            leaders = {tp: _leader(tp, topics.get(tp.topic)) for tp in asked}
            absent = [f"{tp.topic}/{tp.partition}" for tp, leader in leaders.items() if leader < 0]
            try:
                if not absent:
                    return await client.offsets(leaders, which)
            except KafkaError as error:
                if not error.invalid_metadata or look == LOOKS:
                    raise
            await asyncio.sleep(LOOK_PAUSE_MS / 1000)
        raise self._unavailable(
            f"{listed(absent)}: no leader after {LOOKS * LOOK_PAUSE_MS} ms", key=absent[0]
        )

    async def _settled(
        self, client: ClusterClient, asked: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """The high watermarks, once no open transaction hides anything below them."""
        ends = await self._offsets(client, asked, Offset.HIGH)
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._settled_within_ms / 1000
        while True:
            stable = await self._offsets(client, asked, Offset.STABLE)
            hidden = [tp for tp in asked if stable[tp] < ends[tp]]
            if not hidden:
                return ends
            if clock() >= deadline:
                break
            await asyncio.sleep(LOOK_PAUSE_MS / 1000)
        tp = hidden[0]
        raise self._unavailable(
            f"{tp.topic}/{tp.partition}: an open transaction has hidden"
            f" what is beyond offset {stable[tp]} of {ends[tp]} for {self._settled_within_ms} ms: what is"
            " missing cannot be told from what is hidden",
            key=f"topic {tp.topic}",
            limit=ends[tp],
            found=stable[tp],
        )

    async def nexts(self, journal_topic: str) -> dict[str, int]:
        """By stream, the first position that the target does not cover, as a journal topic has it."""
        found = (await self.cluster([journal_topic])).topics.get(journal_topic)
        if found is None:
            return {}
        snapshots = await JournalLog(self._connection).read(journal_topic, found.partitions, settled=False)
        nexts: dict[str, int] = {}
        # After a repartitioning two partitions may have a stream: the greatest next wins.
        for snapshot in snapshots.values():
            for identity, record in snapshot.streams("").items():
                nexts[identity] = max(nexts.get(identity, 0), record.next)
        return nexts

    async def progress(self, group: str, store: str = "") -> dict[tuple[str, int], int]:
        """By topic id and partition, the offset below which the target covers everything, by a group.

        `store`: only what this store has settled counts.
        """
        progress = Progress(self._connection, group, SystemClock())
        try:
            marks = await progress.marks()
        finally:
            await progress.close()
        return {
            (mark.topic_id, tp.partition): mark.offset
            for tp, mark in marks.items()
            if (mark.kind is Kind.SETTLED and mark.store == store if store else mark.kind is not Kind.FOREIGN)
        }

    def _unavailable(self, what: str, **evidence: Any) -> BridgeError:
        kind = SourceUnavailable if self._side == "source" else TargetUnavailable
        return kind(f"connector {self._connection.name}: {what}", **evidence)

    def _errors(self, operation: str, resource: str) -> AbstractContextManager[None]:
        return explaining(self._connection.name, operation, resource, side=self._side)


def _named(asked: Collection[TopicPartition]) -> str:
    return topics_named(tp.topic for tp in asked)


def _leader(tp: TopicPartition, topic: Topic | None) -> int:
    found = None if topic is None else topic.partitions.get(tp.partition)
    return -1 if found is None else found.leader
