"""The open streams of a lane: checks fetched records with their leaders, and finds new streams."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from aiokafka.structs import TopicPartition

from bridge.errors import BridgeError, SourceUnavailable, listed
from bridge.kafka.source.blocked_partitions import BlockedPartition, BlockedPartitions
from bridge.kafka.source.consumer import Fetched, OutOfRange, Reading
from bridge.kafka.source.missing_topics import MissingTopics
from bridge.kafka.source.options import SourceOptions
from bridge.kafka.source.partitions import Found, Partitions
from bridge.kafka.source.progress import Progress
from bridge.kafka.source.stream_cursor import StreamCursor
from bridge.messages.batch import Batch
from bridge.relay.lag import Lag, PartitionStatus
from bridge.runtime.clock import Clock

#: Metadata is asked for at least this often while reading (a re-created topic is noticed within 30 s).
METADATA_INTERVAL_MS: Final = 5_000
#: Leaders are asked at least this often, also without records: an unavailable source must be noticed soon.
WATCH_INTERVAL_MS: Final = 1_000
#: Partitions of one leader that are asked about then.
WATCHED_AT_ONCE: Final = 100
#: Commits are renewed this often: brokers keep them for 7 days by default, and 1 minute at least.
KEEP_INTERVAL_MS: Final = 30 * 60_000
#: A fetch waits no longer than this: markers at a log's end do not end a wait.
POLL_MS: Final = 250
#: Longest pause without a fetch at the log's end while a transaction runs: other streams wait so long for one
#: whose batch is blocked at the target.
LINGER_MS: Final = 100


@dataclass(slots=True, kw_only=True)
class LaneReading:
    """Reads the opened streams, until they end."""

    partitions: Partitions
    progress: Progress
    reading: Reading
    clock: Clock
    options: SourceOptions
    blocked: BlockedPartitions
    missing: MissingTopics
    #: Takes batches read for the delivery log alone; waits where that is behind. Raises: SourceUnavailable.
    recovered: Callable[[Batch], Awaitable[None]]
    #: The open streams by identity.
    cursors: dict[str, StreamCursor] = field(default_factory=dict)
    _by_partition: dict[TopicPartition, StreamCursor] = field(default_factory=dict)
    _settled: asyncio.Event = field(default_factory=asyncio.Event)
    #: Fetched records that the leaders have not yet vouched for.
    _unchecked: dict[TopicPartition, Fetched] = field(default_factory=dict)
    #: Identities that were ever opened. One that comes back is no new stream to the caller.
    _known: set[str] = field(default_factory=set)
    #: Identities of which nothing is read until they are opened again.
    _backed_off: set[str] = field(default_factory=set)
    #: When metadata is due, and when commits are to be renewed, monotonic.
    _look_at_ms: int = 0
    _keep_at_ms: int = 0
    #: When the leaders are to be asked although no records have come, monotonic.
    _watch_at_ms: int = 0
    #: Where the next of those partitions begin.
    _watched_upto: int = 0
    #: Ends of the partitions, asked for while nothing is read.
    _ends: dict[TopicPartition, int] = field(default_factory=dict)
    #: Whether streams were opened, if only none that there were.
    is_open: bool = False
    _log: Any = field(default_factory=structlog.get_logger)

    async def go_on(self, opened: Mapping[str, StreamCursor], there: Collection[str]) -> None:
        """Read these from their positions, and those that were open before and are still `there`.

        Drops what was fetched before. Raises: SourceUnavailable, SourceRefused.
        """
        kept = {identity: cursor for identity, cursor in self.cursors.items() if identity in there}
        self.cursors = {**kept, **opened}
        self._known.update(opened)
        self.is_open = True
        self._backed_off = (self._backed_off - opened.keys()) & self.cursors.keys()
        self._look_at_ms = self.clock.monotonic_ms() + METADATA_INTERVAL_MS
        self._ends = {}
        await self._assign()

    async def _assign(self) -> None:
        self._by_partition = {cursor.found.tp: cursor for cursor in self.cursors.values()}
        self._unchecked = {}
        positions = {tp: cursor.at for tp, cursor in self._by_partition.items()}
        await self.reading.assign(positions, [self.cursors[one].found.tp for one in self._backed_off])

    def back_off(self, streams: Collection[str]) -> None:
        """Read no more of these until they are opened again; what was read and not handed out is dropped."""
        cursors = [self.cursors[identity] for identity in streams if identity in self.cursors]
        self._backed_off.update(cursor.found.stream.identity for cursor in cursors)
        for cursor in cursors:
            cursor.drop_ready()
            self._unchecked.pop(cursor.found.tp, None)
        self.reading.back_off([cursor.found.tp for cursor in cursors])

    async def read(self) -> list[Batch]:
        """The next batches, at most one a stream, the oldest first; waits until there is one.

        Empty: there are new streams.

        Raises: SourceUnavailable: a leader has changed, or cannot be reached. SourceRefused.
        """
        while True:
            await self._record_recovered()
            if self.clock.monotonic_ms() >= self._look_at_ms and await self._look():
                return []
            ready = (cursor.next_batch() for cursor in self._by_partition.values())
            batches = [batch for batch in ready if batch is not None]
            if batches:
                # A worker that dies after its first transaction, again and again, must still serve all
                # partitions: if one falls far behind, the others' IDs push out of the cache those that its
                # next records repeat.
                batches.sort(key=_oldest_ms)
                return batches
            await self._linger()
            await self._fetch()

    async def _linger(self) -> None:
        """At the log's end, wait until all batches handed out are settled: at most `LINGER_MS`.

        Messages that arrive during a transaction would wait for it one by one: one fetch takes all of them.
        """
        if self.options.lingers and self.reading.at_end and not self._unchecked and self._is_unsettled():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINGER_MS / 1000):
                    while self._is_unsettled():
                        self._settled.clear()
                        await self._settled.wait()

    def _is_unsettled(self) -> bool:
        return any(
            cursor.is_unsettled
            for identity, cursor in self.cursors.items()
            if identity not in self._backed_off
        )

    def settle(self, cursor: StreamCursor, upto: int) -> None:
        """Note that the target covers everything below `upto` of one of the streams."""
        cursor.settle(upto)
        self._settled.set()

    async def _record_recovered(self) -> None:
        for cursor in self._by_partition.values():
            while (batch := cursor.next_recovered()) is not None:
                await self.recovered(batch)

    async def _fetch(self) -> None:
        """Fetch, and take what the leaders vouch for. After a cancellation the next call continues."""
        if not self._unchecked:
            try:
                self._unchecked = await self.reading.fetch(POLL_MS)
            except OutOfRange:
                ended = await self.partitions.replaced([one.found for one in self.cursors.values()])
                if not ended:
                    raise
                await self._end(ended)
                return
        if not self._unchecked and self.clock.monotonic_ms() < self._watch_at_ms:
            return
        asked = self._unchecked or self._watched()
        ended = await self.partitions.replaced([self._by_partition[tp].found for tp in asked])
        self._watch_at_ms = self.clock.monotonic_ms() + WATCH_INTERVAL_MS
        fetched, self._unchecked = self._unchecked, {}
        for tp, more in fetched.items():
            cursor = self._by_partition[tp]
            if cursor.found.stream.identity not in ended:
                cursor.take(self.options.batches, more)
        if ended:
            await self._end(ended)

    def _watched(self) -> list[TopicPartition]:
        """Partitions whose leaders are asked although no records have come, the next ones each time.

        Some of each leader are enough to notice that it is away; `_look` compares all.
        """
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp, cursor in self._by_partition.items():
            by_leader.setdefault(cursor.found.leader, []).append(tp)
        first, self._watched_upto = self._watched_upto, self._watched_upto + WATCHED_AT_ONCE
        return [
            tps[(first + number) % len(tps)]
            for tps in by_leader.values()
            for number in range(min(WATCHED_AT_ONCE, len(tps)))
        ]

    async def _end(self, ended: Collection[str]) -> None:
        """Drop streams whose topic was replaced, and look for the topic that has replaced it."""
        for identity in ended:
            cursor = self.cursors.pop(identity)
            self._backed_off.discard(identity)
            self.progress.forget(cursor.found.tp)
            self._log.warning(
                "stream-ended",
                bridge=self.options.bridge,
                topic=cursor.found.tp.topic,
                partition=cursor.found.tp.partition,
                stream=identity,
                reason="the topic was deleted or re-created",
            )
        self._look_at_ms = 0
        await self._assign()

    def _keep_progress(self) -> None:
        """Renew old commits: brokers forget those of a quiet partition (offsets.retention.minutes)."""
        now_ms = self.clock.monotonic_ms()
        if now_ms >= self._keep_at_ms:
            self._keep_at_ms = now_ms + KEEP_INTERVAL_MS
            self.progress.renew()

    async def _look(self) -> bool:
        """Check the metadata; end streams whose topic has been replaced; True: there are new streams.

        Raises: SourceUnavailable: a stream that was open has come back, and is to be opened anew.
        """
        self._look_at_ms = self.clock.monotonic_ms() + METADATA_INTERVAL_MS
        now = self.partitions.in_lane(await self.partitions.find())
        self.missing.look(self.partitions.missing)
        await self.reading.heal({found.tp for found in now.values()})
        self._keep_progress()
        await self._look_at_transactions()
        by_tp = {found.tp: identity for identity, found in now.items()}
        ended = [
            identity
            for identity, cursor in self.cursors.items()
            if by_tp.get(cursor.found.tp, identity) != identity
        ]
        absent = [cursor.found for cursor in self.cursors.values() if cursor.found.tp not in by_tp]
        ended += await self._deleted(absent)
        if ended:
            await self._end(ended)
            self._look_at_ms = self.clock.monotonic_ms() + METADATA_INTERVAL_MS
        new = now.keys() - self.cursors.keys()
        if back := sorted(new & self._known - set(ended)):
            raise SourceUnavailable(f"{listed(back)}: there again", key=back[0])
        return bool(new - self._known)

    async def _look_at_transactions(self) -> None:
        """Log open transactions that have blocked the next records for too long, and those that have ended.

        Uses the offsets of the last fetches: leaders are asked only for the producers of those that are
        logged.
        """
        seen: dict[TopicPartition, tuple[int, int]] = {}
        for tp in self.reading.partitions & self._by_partition.keys():
            stable, high = self.reading.end(tp), self.reading.high_watermark(tp)
            if stable is not None and high is not None and self._by_partition[tp].at >= stable:
                seen[tp] = stable, high
        now_ms, wall_ms = self.clock.monotonic_ms(), self.clock.wall_ms()
        due, ended = self.blocked.look(seen, self._by_partition.keys(), now_ms, wall_ms)
        for one in due:
            with contextlib.suppress(BridgeError):
                one.producers = await self.partitions.open_from(self._by_partition[one.tp].found, one.stable)
            keys = {**_event_fields(one), "bridge": self.options.bridge}
            self._log.warning("open-transaction", **keys, producers=one.producers, reason=str(one))
        for one in ended:
            self._log.info("open-transaction-ended", **_event_fields(one), bridge=self.options.bridge)

    async def _deleted(self, absent: Collection[Found]) -> list[str]:
        """The streams whose leader says that the topic does not exist: the client would ask for it for ever.

        That a partition has no leader now says nothing.
        """
        if not absent:
            return []
        try:
            return sorted(await self.partitions.replaced(absent))
        except SourceUnavailable:
            return []

    def lag(self) -> Lag | None:
        """Positions behind, and when the oldest message handed out and not settled was stored, ms.

        Counts up to the high watermark: records that an open transaction blocks wait too, for as long as it
        runs. None while nothing is open.
        """
        if not self.is_open:
            return None
        behind = 0
        oldest: int | None = None
        for tp, cursor in self._by_partition.items():
            behind += self._end_of(tp, cursor) - cursor.settled
            since = cursor.oldest_ms
            if since is not None and (oldest is None or since < oldest):
                oldest = since
        return behind, (self.blocked.since_wall_ms if behind and oldest is None else oldest)

    def _end_of(self, tp: TopicPartition, cursor: StreamCursor) -> int:
        high = self.reading.high_watermark(tp) or 0
        return max(cursor.at, cursor.settled, cursor.end, high, self._ends.get(tp, 0))

    def partition_status(self) -> list[PartitionStatus]:
        """The open partitions, with what of each waits."""
        return [
            PartitionStatus(tp.topic, tp.partition, cursor.settled, self._end_of(tp, cursor))
            for tp, cursor in self._by_partition.items()
        ]

    async def look_at_ends(self, there: Iterable[Found]) -> None:
        """For `lag` while nothing is read because the target is away: a client fetches only what is taken.

        Asks only for partitions that are `there`, with a leader: no broker answers for others, which would
        block all.

        Raises: SourceUnavailable, SourceRefused.
        """
        now_ms = self.clock.monotonic_ms()
        asked = [found for found in there if found.tp in self._by_partition]
        if not asked or now_ms < self._watch_at_ms:
            return
        self._watch_at_ms = now_ms + WATCH_INTERVAL_MS
        self._ends = {**self._ends, **await self.partitions.high_watermarks(asked)}

    def clear(self) -> None:
        """Close all streams."""
        self.is_open = False
        self.cursors, self._by_partition, self._unchecked = {}, {}, {}
        self._backed_off.clear()


def _event_fields(one: BlockedPartition) -> dict[str, Any]:
    """The fields of a log event about it."""
    return {
        "topic": one.tp.topic,
        "partition": one.tp.partition,
        "last_stable_offset": one.stable,
        "high_watermark": one.high,
        "since_ms": one.since_wall_ms,
    }


def _oldest_ms(batch: Batch) -> int:
    """When the batch's first message was stored; coverage alone has no such time."""
    return batch.events[0]
