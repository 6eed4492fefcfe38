"""Kafka as a source: one lane of a bridge, which is a fixed set of the partitions that the bridge selects.

The path of a record: `bridge.kafka.source.consumer` fetches it, `bridge.kafka.source.lane_reader` has
`partitions` ask its leader whether topic and log are still the ones that were opened,
`bridge.kafka.records.decoding` makes it part of a batch, and `read` hands the batch out. Where reading begins
is decided in `opening` and `start_positions`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from bridge.errors import SourceGap, SourceUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.records.identity import LaneIndex, store_identity
from bridge.kafka.source.blocked_partitions import BlockedPartitions
from bridge.kafka.source.consumer import Reading
from bridge.kafka.source.first_start import RECORDING_LANE, FirstStart
from bridge.kafka.source.lane_reader import LaneReading
from bridge.kafka.source.missing_topics import MissingTopics
from bridge.kafka.source.opening import Opening
from bridge.kafka.source.options import SourceOptions
from bridge.kafka.source.partitions import Found, Partitions
from bridge.kafka.source.progress import Kind, Mark, Progress
from bridge.kafka.source.sent_log import SentLog
from bridge.kafka.source.stream_cursor import StreamCursor, without_refusals
from bridge.messages.batch import Batch
from bridge.messages.positions import Runs
from bridge.relay.counts import Counts
from bridge.relay.gaps import Gaps
from bridge.relay.lag import Lag, PartitionStatus
from bridge.relay.ports import Bounds, Receipt, Stream, StreamState
from bridge.relay.stages import Stage
from bridge.relay.stays import NO_STAYS, Remembered, Stays
from bridge.runtime.clock import Clock
from dedup.verdict import Verdict


class KafkaSource:
    """Implements `bridge.relay.ports.Source` for one lane of a bridge."""

    def __init__(
        self,
        connection: KafkaConnection,
        lane: LaneIndex,
        options: SourceOptions,
        *,
        clock: Clock,
        sent_log: SentLog | None = None,
        filter: Stage | None = None,  # noqa: A002 - the setting's name
        counts: Counts | None = None,
    ) -> None:
        """Create the source; `streams` is the first call that connects.

        Args:
            connection: the cluster.
            lane: the lane that this source reads.
            options: the bridge's settings.
            clock: times refreshes and commits.
            sent_log: takes what the target confirms, before the group's commit says so; None: there is none.
            filter: the bridge's, for lines about what was sent before (`recovered`); None: it has none. What
                is read has not passed it. A bridge with a transformer writes no such lines.
            counts: the relay's: they show how far the opening of many partitions has come.
        """
        self._options = options
        self._filter = filter
        self._partitions = Partitions(connection, options.topics, lane, counts)
        self._progress = Progress(connection, options.group, clock)
        self._reading = Reading(
            connection, options.batches.batch_bytes, addresses=lambda: self._partitions.addresses
        )
        self._sent_log = sent_log
        #: The positions that the source no longer had, and that were skipped.
        self.gaps = Gaps(options.bridge)
        self._missing = MissingTopics(options.bridge, logs=lane.number == RECORDING_LANE)
        self._opening = Opening(
            connection=connection,
            partitions=self._partitions,
            progress=self._progress,
            reading=self._reading,
            options=options,
            gaps=self.gaps,
            has_log=sent_log is not None,
        )
        self._lane = LaneReading(
            partitions=self._partitions,
            progress=self._progress,
            reading=self._reading,
            clock=clock,
            options=options,
            blocked=BlockedPartitions(options.open_transaction_warn_after_ms),
            missing=self._missing,
            recovered=self._recovered,
        )
        self._first_start = FirstStart(options.records_start)
        self._store = ""
        #: By identity, the partitions as `streams` has shown them; the target was given their `run`.
        self._shown: dict[str, Found] = {}
        #: By identity, every stream that was opened.
        self._opened: dict[str, Stream] = {}
        #: By identity, what the group remembers of other stores (`Mark.stays`).
        self._stays: dict[str, str] = {}

    async def streams(self) -> Sequence[Stream]:
        """Every stream of this lane, as of now. Raises: SourceUnavailable, SourceRefused."""
        self._shown = self._partitions.in_lane(await self._partitions.find())
        self._missing.look(self._partitions.missing)
        await self._lane.look_at_ends(self._shown.values())
        record = self._first_start.streams(self._partitions.cluster)
        return [*record, *(found.stream for found in self._shown.values())]

    async def remembered(self) -> Mapping[str, Remembered]:
        """By stream identity, the positions that were confirmed before: the progress group's offsets.

        Raises: SourceUnavailable, SourceRefused.
        """
        marks = await self._progress.marks()
        found = self._shown or self._partitions.in_lane(await self._partitions.find())
        own = {
            identity: mark
            for identity, one in found.items()
            if (mark := marks.get(one.tp)) is not None
            and mark.kind is Kind.SETTLED
            and mark.topic_id == one.topic_id
        }
        self._stays = {identity: mark.stays for identity, mark in own.items() if mark.stays}
        return {
            identity: Remembered(mark.offset, mark.store, Stays.decode(mark.stays))
            for identity, mark in own.items()
        }

    async def bounds(self) -> Mapping[str, Bounds]:
        """By stream identity, the bounds of the readable log. Raises: SourceUnavailable, SourceRefused."""
        found = self._partitions.in_lane(await self._partitions.find())
        firsts, ends = await self._partitions.bounds(found.values())
        return {
            identity: Bounds(firsts[one.tp], max(firsts[one.tp], ends[one.tp]))
            for identity, one in found.items()
        }

    async def begin(self, stream: str, at: int, store: str, stays: Stays = NO_STAYS) -> None:
        """Commit `at` as settled by `store` (see `bridge.relay.ports.Source.begin`).

        Raises:
            SourceGap: there is no such stream. SourceUnavailable, SourceRefused: it was not committed.
        """
        one = self._partitions.in_lane(await self._partitions.find()).get(stream)
        if one is None:
            raise SourceGap(f"the source has no stream {stream}", key=stream)
        mark = Mark(at, Kind.SETTLED, one.topic_id, store, stays=stays.encode())
        await self._progress.commit({one.tp: mark})
        self._stays[stream] = mark.stays

    async def log_missing(self, stream: str, runs: Runs, store: str) -> None:
        """Write lines of what the target lacks (see `bridge.relay.ports.LoggingSource.log_missing`).

        Raises: SourceUnavailable: the delivery log cannot be written.
        """
        if self._sent_log is not None:
            await self._sent_log.missing(self._shown[stream].stream, runs, store)

    # -- opening ---------------------------------------------------------------------------------------

    async def open(self, resume: Mapping[str, StreamState], store: str) -> None:
        """Seek to the target's next of each stream; see `bridge.kafka.source.start_positions`.

        Raises:
            SourceGap: a position is gone or beyond the end. Diverged: the log below is another.
            SourceUnavailable: try again; also where a leader has changed since `streams` was asked.
            SourceRefused: trying again does not help.
        """
        if self._sent_log is not None:
            await self._sent_log.flush()
        self._store = store
        everything = await self._partitions.find()
        now = self._partitions.in_lane(everything)
        found: dict[str, Found] = {}
        record = {one: state for one, state in resume.items() if self._first_start.is_it(one)}
        resume = {one: state for one, state in resume.items() if one not in record}
        for identity in resume:
            shown = self._shown.get(identity)
            if identity not in now or shown is None or shown.stream.run != now[identity].stream.run:
                raise SourceUnavailable(f"{identity} has changed since it was asked for", key=identity)
            found[identity] = now[identity]
            self._opened[identity] = now[identity].stream
        cursors: dict[str, StreamCursor] = {}
        try:
            cursors = await self._opening.cursors(resume, found, everything, record)
            beyond, confirmed = self._opening.settled(cursors, resume, store)
            self._progress.keep(confirmed)
            await self._progress.settle_now(beyond)
            self._first_start.opened(record)
        finally:
            await self._lane.go_on(cursors, self._shown)

    @property
    def store(self) -> str:
        """The cluster's store identity, once a stream was asked for."""
        return store_identity(self._partitions.cluster)

    # -- reading ---------------------------------------------------------------------------------------

    async def read(self) -> Sequence[Batch]:
        """The next batches, at most one a stream; waits until there is one. Empty: there are new streams.

        Raises: SourceUnavailable: a leader has changed, or cannot be reached. SourceRefused.
        """
        record = self._first_start.take()
        return [record] if record is not None else await self._lane.read()

    def back_off(self, streams: Collection[str]) -> None:
        """Read no more of these until they are opened again: their partitions are paused."""
        self._first_start.back_off(streams)
        self._lane.back_off(streams)

    # -- settling --------------------------------------------------------------------------------------

    async def settled(self, batch: Batch, receipt: Receipt) -> None:
        """Record the positions that the target covers; committed soon, unless the topic was re-created.

        Raises: SourceUnavailable: the delivery log cannot be written.
        """
        if self._first_start.is_it(batch.stream):
            self._first_start.settled()
            return
        cursor = self._lane.cursors.get(batch.stream)
        upto = batch.upto
        if cursor is not None:
            self._lane.settle(cursor, upto)
            upto = cursor.settled
        await self._record(batch, receipt, upto)

    async def _recovered(self, batch: Batch) -> None:
        """Record a batch that the target had covered before this opening. Raises: as `settled`."""
        if self._options.transforms:
            self._progress_to(batch.stream, batch.upto)  # what was made of it is not known: no line
            return
        receipt = Receipt(batch.stream, Verdict.STORED, batch.upto)
        if self._filter is not None:
            batch = self._filter(batch, self._opened[batch.stream].address)
        await self._record(without_refusals(batch), receipt, batch.upto, recovered=True)

    async def _record(self, batch: Batch, receipt: Receipt, upto: int, *, recovered: bool = False) -> None:
        """Write to the delivery log, and then to the group."""
        log, stream = self._sent_log, self._opened[batch.stream]
        if log is None:
            self._progress_to(stream.identity, upto)
            return
        written = partial(self._progress_to, stream.identity, upto)
        log.add(batch, receipt, stream, self._store, written, recovered=recovered)
        await log.room()

    def _progress_to(self, identity: str, upto: int) -> None:
        cursor = self._lane.cursors.get(identity)
        if cursor is not None:
            stays = self._stays.get(identity, "")
            mark = Mark(upto, Kind.SETTLED, cursor.found.topic_id, self._store, stays=stays)
            self._progress.settle(cursor.found.tp, mark)

    @property
    def lag(self) -> Lag | None:
        """Positions behind, and when the oldest message read and not settled was stored, ms, if any.

        None while no streams are open.
        """
        return self._lane.lag()

    @property
    def parked(self) -> Mapping[tuple[str, int], str]:
        """The parked partitions, each with the offset and the reason why its record cannot be decoded."""
        return self._reading.parked

    @property
    def partition_status(self) -> Sequence[PartitionStatus]:
        """The open partitions, with what of each waits."""
        return self._lane.partition_status()

    @property
    def waits(self) -> Sequence[str]:
        """The source's waits, as texts: topics that do not exist, and other producers' open transactions."""
        return [*self._missing.reported, *self._lane.blocked.reported]

    async def close(self) -> None:
        """Commit the settled marks and disconnect."""
        try:
            if self._sent_log is not None:
                await self._sent_log.close()
            self._lane.clear()
            self._opened.clear()
            self._first_start.forget()
            await self._progress.close()
        finally:
            try:
                await self._reading.close()
            finally:
                await self._partitions.close()
