"""Opens a lane's streams: where each begins, checked against its leader before anything is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import structlog
from aiokafka.structs import TopicPartition

from bridge.errors import SourceUnavailable, listed
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.source.checksums import last_checksums
from bridge.kafka.source.consumer import Reading
from bridge.kafka.source.options import SourceOptions
from bridge.kafka.source.partitions import Found, Partitions
from bridge.kafka.source.progress import Kind, Mark, Progress, show_a_start
from bridge.kafka.source.start_positions import Log, Start, find_start, run_epoch
from bridge.kafka.source.stream_cursor import StreamCursor
from bridge.relay.gaps import Gaps
from bridge.relay.ports import StreamState

Marks = Mapping[TopicPartition, Mark]

#: Most positions of one stream that are read again for the delivery log. It may lack what was confirmed in
#: the last second before a crash; much more where the group could not be committed for long.
MOST_RECOVERED: Final = 1_000_000
_NO_RECORD: Final[Mapping[str, StreamState]] = {}


@dataclass(slots=True, kw_only=True)
class Opening:
    """Opens streams; `cursors` may be called any number of times."""

    connection: KafkaConnection
    partitions: Partitions
    progress: Progress
    reading: Reading
    options: SourceOptions
    gaps: Gaps
    #: Whether the sent side has a delivery log.
    has_log: bool
    #: Whether it is certain that this is not, or no longer, the bridge's first start ever.
    started: bool = False
    #: The offsets that were committed when streams were opened last.
    _committed: Marks = field(default_factory=dict)

    async def cursors(
        self,
        resume: Mapping[str, StreamState],
        found: Mapping[str, Found],
        everything: Sequence[Found],
        record: Mapping[str, StreamState] = _NO_RECORD,
    ) -> dict[str, StreamCursor]:
        """A cursor at which to read each stream; positions gone and covered are counted in `gaps`.

        Leaves `reading` assigned to something else: assign it anew.

        Args:
            resume: the target's state of each stream.
            found: by identity, the streams' partitions.
            everything: all partitions of the bridge, of every lane.
            record: the target's state of the first start's own stream, where this lane asked for it.

        Raises:
            SourceGap, Diverged: see `bridge.kafka.source.start_positions`. SourceUnavailable, SourceRefused.
        """
        await self._confirm(found)
        marks = self._committed = await self._marks({**resume, **record}, everything)
        logs = await self._logs(resume, found)
        await self._confirm(found)
        starts: dict[str, Start] = {}
        for identity, state in resume.items():
            one = found[identity]
            mark = _mark_of(one, marks)
            log, number = logs[identity], one.tp.partition
            at = 0 if mark is None else log.start if mark.kind is Kind.UNSEEN else mark.offset
            starts[identity] = find_start(one.stream, number, state, at, log, self.options.gap_policy)
        for identity, start in starts.items():
            for first, last in start.gone:
                self.gaps.passed(identity, first, last + 1)
        cursors = {
            identity: _cursor(found[identity], start, resume[identity], logs[identity])
            for identity, start in starts.items()
        }
        if self.has_log:
            await self._prepare_log(cursors, resume, logs, starts)
        return cursors

    async def _prepare_log(
        self,
        cursors: Mapping[str, StreamCursor],
        resume: Mapping[str, StreamState],
        logs: Mapping[str, Log],
        starts: Mapping[str, Start],
    ) -> None:
        """Mark positions that the log may lack for reading again; commit where a new stream's log begins.

        Without a mark the content of the log is unknown: then nothing is read again.
        """
        begins: dict[TopicPartition, Mark] = {}
        for identity, cursor in cursors.items():
            topic_id = cursor.found.topic_id
            marks = (self._committed.get(cursor.found.tp), self.progress.settled(cursor.found.tp))
            known = [
                mark.offset
                for mark in marks
                if mark is not None and mark.topic_id == topic_id and mark.kind is not Kind.UNSEEN
            ]
            upto = resume[identity].next
            if upto is None:
                if not known:
                    begins[cursor.found.tp] = Mark(starts[identity].begins, Kind.START, topic_id)
            elif known and max(known) < upto:
                self._recover(cursor, max(known), upto, logs[identity].start)
        if begins:
            await self.progress.settle_now(begins)

    def _recover(self, cursor: StreamCursor, known: int, upto: int, log_start: int) -> None:
        first = max(known, log_start, upto - MOST_RECOVERED)
        if first > known:
            gap = {"stream": cursor.found.stream.identity, "first": known, "end": min(first, upto)}
            structlog.get_logger().warning("delivery-log-gap", bridge=self.gaps.bridge, **gap)
        if first < upto:
            cursor.recover(first, upto)

    def settled(
        self, cursors: Mapping[str, StreamCursor], resume: Mapping[str, StreamState], store: str
    ) -> tuple[Marks, Marks]:
        """The marks that the target's state settles beyond the committed ones: receipts may have been lost.

        And the committed marks that it confirms.
        """
        beyond: dict[TopicPartition, Mark] = {}
        confirmed: dict[TopicPartition, Mark] = {}
        for identity, cursor in cursors.items():
            upto, known = resume[identity].next, self._committed.get(cursor.found.tp)
            if upto is None or cursor.recovers:
                continue  # committed when its lines are on disk
            stays = "" if known is None else known.stays
            mark = Mark(upto, Kind.SETTLED, cursor.found.topic_id, store, stays=stays)
            same = known is not None and replace(known, offset=upto) == mark
            if known is None or not same or known.offset < upto:
                beyond[cursor.found.tp] = mark
            else:
                confirmed[cursor.found.tp] = known
        return beyond, confirmed

    async def _confirm(self, found: Mapping[str, Found]) -> None:
        """Check that the leaders still confirm `found`."""
        gone = await self.partitions.replaced(found.values())
        if gone:
            raise SourceUnavailable(f"re-created or deleted while it was opened: {listed(sorted(gone))}")

    # -- marks -----------------------------------------------------------------------------------------

    async def _marks(self, resume: Mapping[str, StreamState], everything: Sequence[Found]) -> Marks:
        """The committed marks; at the first start ever they are made here, for all lanes in one request.

        So a topic that appears later has no mark and begins at 0, in any lane. The progress group alone
        cannot identify a first start: it is empty under a new name too, after its retention, when all topics
        were deleted, and where none was found; then the target decides (`bridge.kafka.source.first_start`). A
        lane for which the target has no state cannot either: it leaves that to the others.
        """
        marks: Marks = await self.progress.marks()
        known = any(state.next is not None or state.has_run for state in resume.values())
        if not self.started and resume and not known and not show_a_start(marks.values()):
            marks = await self._begun(marks, everything)
        found_nothing = not everything and not self.partitions.leaderless
        self.started = self.started or bool(resume) or found_nothing
        return marks

    async def _begun(self, marks: Marks, everything: Sequence[Found]) -> Marks:
        """Make marks for all existing partitions, where `start-position` says; an existing mark stays.

        Positions that expired before this do not concern the bridge; those that expire after it do.
        """
        new = [one for one in everything if _mark_of(one, marks) is None]
        begins, ends = await self.partitions.bounds(new)
        at = ends if self.options.start_position == "latest" else begins
        made = {
            tp: Mark(0, Kind.UNSEEN, topic_id)
            for tp, topic_id in self.partitions.leaderless.items()
            if tp not in marks or marks[tp].topic_id != topic_id
        }
        made |= {one.tp: Mark(max(begins[one.tp], at[one.tp]), Kind.START, one.topic_id) for one in new}
        there = self.partitions.leaderless.keys() | {one.tp for one in everything}
        made = {tp: replace(made.get(tp) or marks[tp], of=len(there)) for tp in there}
        if made:
            await self.progress.commit(made)
        return {**marks, **made}

    # -- logs ------------------------------------------------------------------------------------------

    async def _logs(self, resume: Mapping[str, StreamState], found: Mapping[str, Found]) -> dict[str, Log]:
        opened = [found[identity] for identity in resume]
        begins, _ = await self.partitions.bounds(opened)
        ends = await self.partitions.epoch_ends({one.tp: (one.leader, one.epoch) for one in opened})
        logs = {
            one.stream.identity: Log(begins[one.tp], max(begins[one.tp], ends[one.tp]), one.epoch)
            for one in opened
        }
        asked: dict[TopicPartition, tuple[int, int]] = {}
        wanted: dict[TopicPartition, int] = {}
        for identity, state in resume.items():
            one, log, epoch = found[identity], logs[identity], run_epoch(state)
            if epoch is not None and epoch < one.epoch:
                asked[one.tp] = (one.leader, epoch)
            if state.checksum and state.next is not None and log.start < state.next <= log.end:
                wanted[one.tp] = state.next
        run_ends = await self.partitions.epoch_ends(asked)
        checksums = await last_checksums(self.connection, self.reading, wanted, begins) if wanted else {}
        for one in opened:
            run_end = run_ends.get(one.tp, -1)
            logs[one.stream.identity] = replace(
                logs[one.stream.identity],
                run_end=run_end if run_end >= 0 else None,
                checksum=checksums.get(one.tp, 0),
            )
        return logs


def _mark_of(one: Found, marks: Marks) -> Mark | None:
    """The committed mark of exactly this partition; None: none, or it is of another topic of that name."""
    mark = marks.get(one.tp)
    return mark if mark is not None and mark.topic_id == one.topic_id else None


def _cursor(found: Found, start: Start, state: StreamState, log: Log) -> StreamCursor:
    checksum = 0 if start.skipped else state.checksum
    cursor = StreamCursor(found, start.at, checksum, settled=start.at, end=log.end)
    if start.coverage is not None:
        cursor.begin(start.coverage)
    return cursor
