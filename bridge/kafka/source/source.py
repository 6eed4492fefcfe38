"""Kafka as a source: one lane of a bridge, which is a fixed set of the partitions that the bridge selects.

The path of a record: `bridge.kafka.source.consumer` fetches it, `bridge.kafka.source.lane_reader` has
`partitions` ask its leader whether topic and log are still the ones that were opened,
`bridge.kafka.records.decoding` makes it part of a batch, and `read` hands the batch out. Where reading begins
is decided in `opening` and `start_positions`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Literal

from bridge.errors import SourceGap, SourceUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.records.decoding import Rules
from bridge.kafka.records.identity import store_identity
from bridge.kafka.source.consumer import Reading
from bridge.kafka.source.first_start import RECORDING_LANE, FirstStart
from bridge.kafka.source.held_back import HeldBack
from bridge.kafka.source.lane_reader import LaneReading
from bridge.kafka.source.missing_topics import MissingTopics
from bridge.kafka.source.opening import Opening
from bridge.kafka.source.partitions import Found, Partitions
from bridge.kafka.source.progress import Kind, Mark, Progress
from bridge.kafka.source.sent_log import SentLog
from bridge.kafka.source.stream_reader import Place
from bridge.messages.batch import Batch
from bridge.relay.gaps import Gaps
from bridge.relay.ports import Bounds, Receipt, Remembered, Stream, StreamState
from bridge.runtime.clock import Clock
from dedup.verdict import Verdict


class KafkaSource:
    """Implements `bridge.relay.ports.Source` for one lane of a bridge."""

    def __init__(  # noqa: PLR0913 - each by its name, as the settings have them
        self,
        connection: KafkaConnection,
        *,
        bridge: str,
        group: str,
        selects: Callable[[str], bool],
        forward: Callable[[str], str],
        lane: int,
        lanes: int,
        stamp: bool,
        start_position: Literal["earliest", "latest"],
        gap_policy: Literal["stop", "continue"],
        batch_bytes: int,
        large_bytes: int,
        max_id_bytes: int,
        clock: Clock,
        names: Sequence[str] = (),
        names_only: bool = False,
        sent_log: SentLog | None = None,
        lingers: bool = False,
        records_start: bool = False,
        open_transaction_warn_after_ms: int = 60_000,
    ) -> None:
        """Create the source. Sizes in bytes.

        Args:
            connection: the cluster.
            bridge: the bridge of these messages: its name is part of their hop.
            group: id of the progress group.
            selects: whether the bridge reads a topic.
            forward: the address at the target for a topic here.
            lane: this lane's number, of `lanes`.
            lanes: how many lanes the bridge has (`concurrency`).
            stamp: name the origin of messages (`use-duplicate-detection`).
            start_position: where partitions begin that exist at the bridge's first start ever.
            gap_policy: what to do where the log no longer has the next position.
            batch_bytes: largest batch (`producer-window-size`); one message may be larger.
            large_bytes: a message of this size or larger travels in a batch of its own
                (`min-large-message-size`).
            max_id_bytes: longest duplicate ID (`max-duplicate-id-size`).
            clock: times refreshes and commits.
            names: topics that the bridge names outright: a missing right to read one is an error.
            names_only: the bridge reads no others: nothing is asked about other topics.
            sent_log: takes what the target confirms, before the group's commit says so; None: there is none.
            lingers: at the log's end, fetch what arrives while a batch is unconfirmed all at once.
            records_start: make the target record the bridge's first start
            (`bridge.kafka.source.first_start`).
            open_transaction_warn_after_ms: how long an open transaction may block the next records before it
                is logged; -1: it never is.
        """
        self._bridge = bridge
        self._sizes = (stamp, batch_bytes, large_bytes, max_id_bytes)
        self._partitions = Partitions(
            connection,
            selects=selects,
            forward=forward,
            lane=lane,
            lanes=lanes,
            names=names,
            names_only=names_only,
        )
        self._progress = Progress(connection, group, clock)
        self._reading = Reading(connection, batch_bytes)
        self._sent_log = sent_log
        #: The positions that the source no longer had, and that were skipped.
        self.gaps = Gaps(bridge)
        self._missing = MissingTopics(bridge, tells=lane == RECORDING_LANE)
        self._opening = Opening(
            connection=connection,
            partitions=self._partitions,
            progress=self._progress,
            reading=self._reading,
            start_position=start_position,
            gap_policy=gap_policy,
            gaps=self.gaps,
            has_log=sent_log is not None,
        )
        self._lane = LaneReading(
            partitions=self._partitions,
            progress=self._progress,
            reading=self._reading,
            clock=clock,
            recovered=self._recovered,
            lingers=lingers,
            missing=self._missing,
            bridge=bridge,
            held_back=HeldBack(open_transaction_warn_after_ms),
        )
        self._first_start = FirstStart(records_start)
        self._store = ""
        #: By identity, the partitions as `streams` has shown them; the target was given their `run`.
        self._shown: dict[str, Found] = {}
        #: By identity, every stream that was opened.
        self._opened: dict[str, Stream] = {}

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
        return {
            identity: Remembered(mark.offset, mark.store)
            for identity, one in found.items()
            if (mark := marks.get(one.tp)) is not None
            and mark.kind is Kind.SETTLED
            and mark.topic_id == one.topic_id
        }

    async def bounds(self) -> Mapping[str, Bounds]:
        """By stream identity, the bounds of the readable log. Raises: SourceUnavailable, SourceRefused."""
        found = self._partitions.in_lane(await self._partitions.find())
        firsts, ends = await self._opening.bounds(list(found.values()))
        return {
            identity: Bounds(firsts[one.tp], max(firsts[one.tp], ends[one.tp]))
            for identity, one in found.items()
        }

    async def begin(self, stream: str, at: int, store: str) -> None:
        """Commit `at` as settled by `store` (see `bridge.relay.ports.Source.begin`).

        Raises:
            SourceGap: there is no such stream. SourceUnavailable, SourceRefused: it was not committed.
        """
        one = self._partitions.in_lane(await self._partitions.find()).get(stream)
        if one is None:
            raise SourceGap(f"the source has no stream {stream}", key=stream)
        await self._progress.commit({one.tp: Mark(at, Kind.SETTLED, one.topic_id, store)})

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
        self._lane.rules = self._rules()
        places: dict[str, Place] = {}
        try:
            places = await self._opening.places(resume, found, everything, record)
            told, held = self._opening.told(places, resume, store)
            self._progress.keep(held)
            await self._progress.settle_now(told)
            self._first_start.opened(record)
        finally:
            await self._lane.go_on(places, self._shown)

    def _rules(self) -> Rules:
        return Rules(*self._sizes)

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
        place = self._lane.places.get(batch.stream)
        upto = batch.upto
        if place is not None:
            self._lane.settle(place, upto)
            upto = place.settled
        await self._record(batch, receipt, upto)

    async def _recovered(self, batch: Batch) -> None:
        """Record a batch that the target had covered before this opening. Raises: as `settled`."""
        receipt = Receipt(batch.stream, Verdict.STORED, batch.upto)
        await self._record(batch, receipt, batch.upto, recovered=True)

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
        place = self._lane.places.get(identity)
        if place is not None:
            mark = Mark(upto, Kind.SETTLED, place.found.topic_id, self._store)
            self._progress.settle(place.found.tp, mark)

    @property
    def lag(self) -> tuple[int, int | None]:
        """Positions behind, and when the oldest message read and not settled was stored, ms, if any."""
        return self._lane.lag()

    @property
    def parked(self) -> Sequence[str]:
        """The parked partitions, each with the offset and the reason why its record cannot be decoded."""
        return self._reading.parked

    @property
    def waits(self) -> Sequence[str]:
        """The source's waits, as texts: topics that do not exist, and other producers' open transactions."""
        return [*self._missing.told, *self._lane.held_back.told]

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
