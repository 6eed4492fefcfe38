"""The duplicate IDs that a topic holds: a replay checks them at a Kafka target before it sends again.

The topic itself is read, from about the time of the lost messages to its end: only headers are needed. IDs of
records that retention or compaction has removed are unknown. The index outlives the call that began it, so
that a plan of many calls reads the topic once, and a long read is spread over calls.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final

from aiokafka.structs import TopicPartition

from bridge.errors import TargetRefused, TargetUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.errors import explaining
from bridge.kafka.client.fetch_limits import fetch_options
from bridge.kafka.client.fetch_size import is_receiving
from bridge.kafka.client.metadata import ClusterClient
from bridge.kafka.records.decoding import is_stamp
from bridge.messages.positions import Run
from bridge.replay.copies import fingerprint
from dedup.ids import ID_HEADER, parse

#: Ranges of stamped IDs and single producers' IDs that are kept, some 100 bytes each.
ENTRIES_MOST: Final = 2_000_000
#: Records whose time is earlier than that of the first lost message by more than this are not read.
BEFORE_MS: Final = 24 * 3600 * 1000
#: Longest that a cluster may return nothing although there are records.
SILENT_S: Final = 30.0
_FETCH_BYTES: Final = 1024 * 1024
_POLL_MS: Final = 1_000


class PresentIds:
    """The IDs of a topic's records, in little memory: stamped ones as ranges of positions."""

    def __init__(self, limit: int = ENTRIES_MOST) -> None:
        self._limit = limit
        #: By prefix, ascending and disjoint, but for `_late`, which is not merged yet.
        self._runs: dict[int, list[Run]] = {}
        self._late: dict[int, list[int]] = {}
        self._digests: set[bytes] = set()
        self._entries = 0

    def add(self, value: bytes) -> None:
        """Add an ID. Raises: TargetRefused: too many."""
        stamped = parse(value.decode("ascii")) if is_stamp(value) else None
        before = self._entries
        if stamped is None:
            self._digests.add(_digest(value))
            self._entries = before + 1
        else:
            prefix, position = stamped
            runs = self._runs.setdefault(prefix, [])
            if runs and position == runs[-1][1] + 1:
                runs[-1] = (runs[-1][0], position)
            elif not runs or position > runs[-1][1]:
                runs.append((position, position))
                self._entries = before + 1
            else:
                self._late.setdefault(prefix, []).append(position)
                self._entries = before + 1
        if self._entries > self._limit:
            self._settle()
            if self._entries > self._limit * 3 // 4:
                raise TargetRefused(
                    f"the target has more than {self._limit} duplicate IDs that a replay would be compared"
                    " with; --force sends without asking",
                    limit=self._limit,
                    found=self._entries,
                )

    def __contains__(self, value: bytes) -> bool:
        stamped = parse(value.decode("ascii")) if is_stamp(value) else None
        if stamped is None:
            return _digest(value) in self._digests
        if self._late:
            self._settle()
        prefix, position = stamped
        runs = self._runs.get(prefix, [])
        index = bisect_right(runs, position, key=lambda run: run[0]) - 1
        return index >= 0 and runs[index][1] >= position

    def _settle(self) -> None:
        """Merge the positions that came out of order, with as few ranges as possible."""
        for prefix, positions in self._late.items():
            joined: list[Run] = []
            for first, last in sorted((*self._runs[prefix], *((one, one) for one in positions))):
                if joined and first <= joined[-1][1] + 1:
                    joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
                else:
                    joined.append((first, last))
            self._runs[prefix] = joined
        self._late.clear()
        self._entries = len(self._digests) + sum(map(len, self._runs.values()))


def _digest(value: bytes) -> bytes:
    return blake2b(value, digest_size=12).digest()


class TopicReading(ABC):
    """Reads the records of one topic to its end; continues where it was when it is called again."""

    def __init__(self, connection: KafkaConnection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._since_ms: int | None = None
        self._topic_id = ""
        self._next: dict[TopicPartition, int] = {}

    @abstractmethod
    def _clear(self) -> None:
        """Forget what was read: the topic is read anew, from an earlier time, or another one of this name."""

    @abstractmethod
    def _take(self, duplicate_id: bytes, record: Any) -> None:
        """Take a record with an ID."""

    async def read(self, since_ms: int, deadline_s: float) -> bool:
        """Read on from records of this time to the topic's end; False: the deadline (loop clock) came first.

        Raises: TargetUnavailable, TargetRefused.
        """
        with explaining(self._connection.name, "Read", f"topic {self._topic}", side="target"):
            async with ClusterClient(self._connection) as client:
                topic = (await client.cluster([self._topic])).topics.get(self._topic)
            if topic is None or not topic.partitions:
                return True  # the topic does not exist yet
            if self._since_ms is None or since_ms < self._since_ms or topic.id != self._topic_id:
                self._since_ms, self._topic_id, self._next = since_ms, topic.id, {}
                self._clear()
            options = fetch_options(_FETCH_BYTES, self._connection.consumer_options)
            async with self._connection.consuming(**options) as consumer:
                tps = [TopicPartition(self._topic, number) for number in sorted(topic.partitions)]
                return await self._read(consumer, tps, deadline_s)

    async def _read(self, consumer: Any, tps: list[TopicPartition], deadline_s: float) -> bool:
        ends: Mapping[TopicPartition, int] = await consumer.end_offsets(tps)
        await self._begin(consumer, [tp for tp in tps if tp not in self._next], ends)
        consumer.assign(tps)
        for tp in tps:
            consumer.seek(tp, self._next[tp])
        loop = asyncio.get_running_loop()
        moved_s = loop.time()
        while any(self._next[tp] < ends[tp] for tp in tps):
            if loop.time() >= deadline_s:
                return False
            for tp, records in (await consumer.getmany(timeout_ms=_POLL_MS)).items():
                self._look_at(records)
                moved_s = loop.time()
                self._next[tp] = records[-1].offset + 1
            for tp in tps:  # the position, beyond markers and aborted records, too
                position = await consumer.position(tp)
                moved_s = loop.time() if position > self._next[tp] else moved_s
                self._next[tp] = max(self._next[tp], position)
            if is_receiving(consumer):
                moved_s = loop.time()
            if loop.time() - moved_s > SILENT_S:
                raise TargetUnavailable(f"topic {self._topic}: nothing came for {SILENT_S:g} s")
        return True

    async def _begin(
        self, consumer: Any, tps: list[TopicPartition], ends: Mapping[TopicPartition, int]
    ) -> None:
        if not tps:
            return
        assert self._since_ms is not None
        firsts = await consumer.beginning_offsets(tps)
        found = await consumer.offsets_for_times(dict.fromkeys(tps, max(self._since_ms - BEFORE_MS, 0)))
        for tp in tps:
            self._next[tp] = max(firsts[tp], ends[tp] if found[tp] is None else found[tp].offset)

    def _look_at(self, records: Iterable[Any]) -> None:
        for record in records:
            values = [value for name, value in record.headers if name == ID_HEADER]
            if values and values[-1]:
                self._take(bytes(values[-1]), record)


class TopicIds(TopicReading):
    """The IDs that a topic holds."""

    def __init__(self, connection: KafkaConnection, topic: str) -> None:
        super().__init__(connection, topic)
        self.ids = PresentIds()

    def _clear(self) -> None:
        self.ids = PresentIds()

    def _take(self, duplicate_id: bytes, record: Any) -> None:  # noqa: ARG002 - its ID is all that counts
        self.ids.add(duplicate_id)


class TopicCopies(TopicReading):
    """The number of a topic's records with some IDs, by `fingerprint`."""

    def __init__(self, connection: KafkaConnection, topic: str, ids: frozenset[bytes]) -> None:
        super().__init__(connection, topic)
        self._ids = ids
        self.copies: Counter[bytes] = Counter()

    def _clear(self) -> None:
        self.copies.clear()

    def _take(self, duplicate_id: bytes, record: Any) -> None:
        if duplicate_id in self._ids:
            self.copies[fingerprint(duplicate_id, record.key, record.value)] += 1
