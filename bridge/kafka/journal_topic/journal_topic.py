"""The journal topic of a bridge with a Kafka target: the target's state, kept in the cluster of its messages.

Compacted, one partition a lane (design section 5). To take a lane, do all of this: `prepare`; start the
producer with `transactional_id`, which fences the lane's previous owner and ends its open transaction;
`read`, which goes to the *uncommitted* high watermark and so sees all that the previous owner has committed;
then run. All later changes are in the lane's own transactions (`lane_state`).
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Collection, Iterable, Sequence

from bridge.errors import TargetRefused, TargetUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.metadata import Topic
from bridge.kafka.journal_topic import generations
from bridge.kafka.journal_topic.lane_state import LaneState
from bridge.kafka.journal_topic.options import JournalOptions
from bridge.kafka.journal_topic.origin import Origin
from bridge.kafka.journal_topic.partition_io import STALLED_AFTER_MS, JournalLog
from bridge.kafka.journal_topic.records import GenerationRecord, LaneRecord, Past, Snapshot
from bridge.kafka.journal_topic.repartitioning import (
    check_bridge,
    check_lanes,
    check_source,
    lane_identity,
    taken_over,
    with_source,
)
from bridge.kafka.journal_topic.setup import JournalSetup, check_partitions, replaced
from bridge.kafka.records import identity
from bridge.settings import kafka_names


class JournalTopic:
    """The journal topic of one bridge, for all lanes that this process takes."""

    def __init__(
        self,
        connection: KafkaConnection,
        options: JournalOptions,
        *,
        origin: Origin | None = None,
        warned: set[str] | None = None,
        stalled_after_ms: int = STALLED_AFTER_MS,
    ) -> None:
        """The topic is not touched before `prepare`.

        Args:
            connection: to the target's cluster.
            options: the bridge's settings.
            origin: returns where the bridge's messages come from; None: it is neither recorded nor checked.
            warned: the warnings logged about the topic; for the journal topics of one process to share.
            stalled_after_ms: reading gives up after this long without progress.
        """
        self._options = options
        self._topic = options.topic
        self._lanes = options.lanes
        self._owner = options.state.owner
        self._origin = origin
        self._connection = connection
        self._log = JournalLog(connection, stalled_after_ms=stalled_after_ms)
        self._setup = JournalSetup(connection, replication_factor=options.replication_factor, warned=warned)
        self._preparing = asyncio.Lock()
        #: As found at the last `prepare`; a lane that finds another generation at its taking forgets it.
        self._generation: GenerationRecord | None = None
        #: The topic's id as found first: a topic re-created under its name has another.
        self._id = ""
        #: Lanes read by this process: their IDs outlive a new taking even where they are not stored.
        self._states: dict[int, LaneState] = {}

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._topic

    @property
    def most_bytes(self) -> int:
        """Most bytes of a record batch that the topic takes, as of the last `prepare`."""
        return self._setup.most_bytes

    def transactional_id(self, generation: int, lane: int) -> str:
        """The id under which the lane's one producer writes messages, state and dead letters."""
        return identity.transactional_id(self._topic, generation, self._owner or lane)

    def partition(self, lane: int) -> int:
        """The partition that holds the lane's state; an owner's is the same at every start."""
        return zlib.crc32(self._owner.encode()) % self._lanes if self._owner else lane

    async def prepare(self) -> int:
        """Make the topic or check that it can hold a journal; returns the present generation.

        Call it at every taking of a lane, before its producer is started. Asking never makes the topic.

        Raises:
            TargetUnavailable: try again later. SourceUnavailable, SourceRefused: the source's identity must
                be known.
            TargetRefused: not compacted; another bridge's, or another source's; cut into other lanes (names
                `core-bridge lanes`); deleted since the last time, or made again (names `core-bridge
                positions`); moved to another name; or a right or replicas are missing.
        """
        async with self._preparing:
            source = "" if self._origin is None else await self._origin()
            found = await self._setup.ready(self._topic, self._lanes, known=self._id)
            self._id = found.id
            if self._generation is None:
                # As a hint the last stable offset is enough: `read` compares with the lane's record.
                partitions = await self._log.read(self._topic, [0], settled=False)
                decided = await self._decided(found, partitions[0].generation, source)
                self._check(decided, source)
                self._generation = decided
            check_source(self._generation, bridge=self._options.bridge, source=source, topic=self._topic)
            return self._generation.generation

    async def _decided(self, found: Topic, present: GenerationRecord | None, source: str) -> GenerationRecord:
        """The generation that counts, made where there is none or another name's state is to be adopted."""
        previous, bridge = self._options.previous_topic, self._options.bridge
        topic, lanes = self._topic, self._lanes
        if (
            present is not None
            and previous == kafka_names.journal_topic(present.bridge)
            and present.bridge != bridge
        ):
            previous = topic  # renamed, with a journal-topic of its own that did not change
        unadopted = present is None or present.moved or previous not in present.adopted
        if previous and unadopted and await self._setup.find(previous) is not None:
            check_partitions(found, lanes)
            present = await generations.adopt(
                self._connection,
                topic,
                previous,
                bridge=bridge,
                lanes=lanes,
                source=source,
                owner=self._owner,
            )
        if present is None:
            check_partitions(found, lanes)
        if present is None or with_source(present, bridge=bridge, source=source) is not None:
            present = await generations.first(
                self._connection, topic, bridge=bridge, lanes=lanes, source=source
            )
        return present

    def _check(self, record: GenerationRecord, source: str = "") -> None:
        """Check that the generation is this bridge's, and cut as its settings say. Raises: TargetRefused."""
        check_bridge(record, bridge=self._options.bridge, topic=self._topic)
        check_source(record, bridge=self._options.bridge, source=source, topic=self._topic)
        check_lanes(record, bridge=self._options.bridge, lanes=self._lanes, topic=self._topic)

    async def read(self, lane: int, generation: int) -> LaneState:
        """Read the state that the lane's earlier owners committed. Its producer must have fenced them before.

        A lane that is not initialised for this generation takes over what earlier generations hold, after
        fencing them all; the first change writes that, and until then another taker does the same again.

        Args:
            lane: its number.
            generation: as `prepare` returned it and the producer's id names it.

        Raises:
            TargetUnavailable: not reached, delayed by an open transaction, or the generation has changed:
                take the lane again. TargetRefused: as `prepare`.
        """
        partition = self.partition(lane)
        own = (await self._log.read(self._topic, [partition]))[partition]
        record = own.generation
        if record is None or record != self._generation or record.generation != generation:
            await self._changed(record)
            raise TargetUnavailable(
                f"the journal topic {self._topic} left generation {generation} while lane {lane} was taken",
                key="journal-topic",
                limit=generation,
                found=record.generation if record else None,
            )
        expected = lane_identity(record)
        if own.lane(self._owner) == expected or not record.past:
            memory = self._states[lane].caches if lane in self._states else {}
            state = LaneState.rebuilt(
                expected, own, self._options.state, memory=memory, most_bytes=self.most_bytes
            )
        else:
            state = await self._taken_over(lane, expected, own, record.past)
        state.end = own.end
        self._states[lane] = state
        return state

    def lost(self, why: str) -> TargetRefused:
        """The error where the offsets of the topic's partition show that the topic is another one."""
        return replaced(self._topic, f" and made again, or cut back ({why})")

    def check_same(self, found: Topic | None) -> None:
        """Check that the topic, as a broker shows it now, is the one that was prepared. None is not an error.

        Raises: TargetRefused: it was deleted and made again.
        """
        if found is not None and not found.error and found.id != self._id:
            raise replaced(self._topic, f" and made again (topic id {self._id} before)", found.id)

    async def _changed(self, record: GenerationRecord | None) -> None:
        """Forget the generation; raise at once where the new one is not for this bridge."""
        async with self._preparing:
            self._generation = None
        if record is not None:
            self._check(record)

    async def _taken_over(
        self, lane: int, record: LaneRecord, own: Snapshot, past: Iterable[Past]
    ) -> LaneState:
        """The lane's state out of all partitions, once no other producer can add to it."""
        await self._log.fence(
            identity.transactional_id(each.topic, each.generation, name)
            for each in past
            for name in ([self._owner] if self._owner else range(each.lanes))
        )
        everything: list[Snapshot] = []
        for topic in dict.fromkeys((self._topic, *(each.topic for each in past))):
            partitions = await self._whole(topic)
            if partitions is not None:
                everything += partitions
            elif not self._owner:
                raise TargetRefused(
                    f"the journal topic {topic} is gone, and lane {lane} of bridge {self._options.bridge} has"
                    " not taken over what it remembered",
                    key="previous-name",
                    found=topic,
                )
        return taken_over(record, lane, own, everything, self._options.state, most_bytes=self.most_bytes)

    async def _whole(self, topic: str, *, settled: bool = True) -> Collection[Snapshot] | None:
        """All partitions of a topic; None: the topic is gone."""
        found = await self._setup.find(topic)
        if found is None:
            return None
        return (await self._log.read(topic, found.partitions.keys(), settled=settled)).values()

    async def look(self) -> Sequence[Snapshot]:
        """The content of its partitions, without taking a lane; empty: there is no such topic.

        Raises: as `read`.
        """
        return [*(await self._whole(self._topic, settled=False) or ())]

    async def has_run(self) -> bool:
        """Whether any stream is remembered, in any lane, also under former names. Raises: as `read`.

        Reads all partitions, so call it only where a lane remembers no stream. Call it after `prepare`.
        """
        past = () if self._generation is None else self._generation.past
        for topic in dict.fromkeys((self._topic, *(each.topic for each in past))):
            # What an open transaction hides now was not there before this start.
            partitions = await self._whole(topic, settled=False)
            if partitions is not None and any(each.has_streams(self._owner) for each in partitions):
                return True
        return False

    async def close(self) -> None:
        """Forget what was read. No connection is open between calls."""
        async with self._preparing:
            self._generation, self._id = None, ""
        self._states.clear()
