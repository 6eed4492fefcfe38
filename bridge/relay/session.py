"""A session: everything that a relay and its pump share about one lane, from its ends to its dead letters.

As in MQTT, a session outlives connections: at the next opening the target's word decides about the messages
that were in flight.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from bridge.errors import TargetRefused
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.positions import Runs
from bridge.relay import divergence
from bridge.relay.backoff import Backoff
from bridge.relay.counts import Counts
from bridge.relay.dead_letters import DeadLetterFailed, DeadLetterSink
from bridge.relay.filtering import FilterStage
from bridge.relay.line import LEAST_BATCH, Limit, Line, LineStatus
from bridge.relay.pacing import Pacer
from bridge.relay.ports import MeasuringTarget, Opened, Receipt, Source, Stream, StreamState, Target
from bridge.relay.reposition import set_at_target
from bridge.relay.shared_lines import SharedLines
from bridge.relay.stages import Stage, staged
from bridge.relay.stays import Remembered
from bridge.relay.store_change import Changing, OtherStore, change_store, note_missing
from bridge.relay.transforming import Transforming
from bridge.relay.window import Window
from bridge.runtime.clock import Clock
from bridge.transformers.parts import Part

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


#: The priority of a bridge that says nothing else: that of a message in JMS.
DEFAULT_PRIORITY: Final = 4
#: Largest batch where the bridge says nothing else: the default `producer-window-size`.
BATCH_BYTES: Final = 1024 * 1024


class _Unconfirmed(NamedTuple):
    """A batch that was in flight when its connection ended: without its messages, and their bytes."""

    batch: Batch
    size: int


@dataclass(slots=True, kw_only=True)
class Session:
    """One lane's source, target and streams, and the state of what was sent between them."""

    bridge: str
    source: Source
    target: Target
    clock: Clock
    window: Window
    #: What the line has shown, and so how much is on its way.
    line: Line = field(default_factory=lambda: Line(BATCH_BYTES))
    #: The lanes that it shares lines with, and its place among them; None: it is alone.
    shared: SharedLines | None = None
    priority: int = DEFAULT_PRIORITY
    #: What keeps it from sending more, as far as this end knows.
    limit: Limit = "source"
    #: Whether it goes on at another store than last time (`failover`).
    changes_store: bool = False
    #: Whether both ends record where a stream begins before its first message is sent: the next connection
    #: may lead to another store, which must not take it for new.
    records_start: bool = False
    #: The delays of a stream with which the target cannot go on now.
    backoff: Backoff
    #: The sink of refused messages; None: there is none, and a refused message ends the bridge.
    dead_letters: DeadLetterSink | None
    counts: Counts = field(default_factory=Counts)
    #: What happens to each batch between read and send.
    stages: Sequence[Stage] = ()
    #: The bridge's transformer, behind the stages; None: it has none.
    transforming: Transforming | None = None
    #: `max-rate` of the bridge; None: it has none.
    pacer: Pacer | None = None
    #: The target's connector, where the bridge has several; empty: it has one.
    connector: str = ""
    #: Name of the target's connector; empty: it has none.
    target_name: str = ""
    #: Store identity of the target, once it has answered.
    store: str = ""
    #: Streams that the target knows nothing of. The target takes the start of their first batch as the
    #: stream's start, so no batch may be sent behind it until it is answered (`dedup.coverage.judge`).
    unseen: set[str] = field(default_factory=set)
    #: Streams of which that is not recorded yet.
    unrecorded: set[str] = field(default_factory=set)
    #: By stream, the positions that were refused and have a dead letter, until the target covers them.
    refused: dict[str, set[int]] = field(default_factory=dict)
    #: By stream, the positions whose transformed message the target has refused, with the rule. They are read
    #: again, so that the dead letter holds the message as it was.
    _rejected: dict[str, dict[int, str]] = field(default_factory=dict)
    #: By the loop's clock, s, when coverage without messages is to be sent; None: none waits. It counts over
    #: connections, else one that ends sooner each time would never cover anything.
    coverage_due_s: float | None = None
    #: Streams that wait for the target now.
    waiting: frozenset[str] = frozenset()
    #: By stream, the batches without their messages that were in flight when a connection ended: the next
    #: opening says whether they were stored. At most a window of them.
    _unconfirmed: dict[str, list[_Unconfirmed]] = field(default_factory=dict)
    #: By stream, positions not covered yet that other stores of the bridge have: this one does not get them.
    _elsewhere: dict[str, Runs] = field(default_factory=dict)
    #: By identity, every stream that was opened.
    _streams: dict[str, Stream] = field(default_factory=dict)
    #: By stream, one beyond the last position that a target has confirmed.
    _confirmed: dict[str, int] = field(default_factory=dict)
    #: Identities of the streams that the source had when it was last asked.
    _there: frozenset[str] = frozenset()
    #: Rules by which the target took no more of a stream and that were logged on this connection.
    _rules_logged: set[str] = field(default_factory=set)
    #: Whether it was logged that the filter could not be evaluated for messages.
    _not_evaluated_logged: bool = False
    _log: FilteringBoundLogger = field(init=False)

    def __post_init__(self) -> None:
        self._log = structlog.get_logger().bind(bridge=self.bridge)

    @property
    def stalled(self) -> bool:
        """Whether no stream can go on: all that the source has wait for the target."""
        return bool(self.waiting) and self._there <= self.waiting

    # -- opening -----------------------------------------------------------------------------------------

    async def connect(self, *, may_change: bool = True) -> None:
        """Open both ends with every stream.

        `may_change`: also where the target is another store than the one that confirmed last.

        Raises: the ends' errors; Diverged. OtherStore: it is, and `may_change` is False.
        """
        try:
            await self._connect(may_change=may_change)
        finally:
            self.counts.opening = ""

    async def _connect(self, *, may_change: bool) -> None:
        streams = await self._look()
        opened = await self.target.open(streams)
        remembered = await self.source.remembered()
        changed = [
            one for one in streams if divergence.is_another_store(remembered.get(one.identity), opened)
        ]
        if changed and not may_change:
            raise OtherStore(opened.store)
        if self.changes_store or not changed:
            ends = Changing(self.source, self.target, opened, self._log)
            noted = await note_missing(ends, streams, remembered, moves=self.changes_store)
            if changed:
                for one in changed:
                    divergence.check_not_forgotten(
                        one, remembered[one.identity], opened, self.bridge, self.connector
                    )
                opened = await change_store(ends, changed, sent_upto=self._sent_upto)
            if noted or changed:
                remembered = await self.source.remembered()
        await self._go_on(streams, opened, remembered)
        self.counts.trouble = ""
        self.waiting = frozenset()
        self._rules_logged.clear()

    async def open_new(self) -> None:
        """Open the streams that have appeared since."""
        await self._open([one for one in await self._look() if one.identity not in self._streams])

    async def open_again(self, identities: Collection[str]) -> Collection[str]:
        """Open again streams of which a batch was not taken; answers which of them the source has."""
        wanted = [stream for stream in await self._look() if stream.identity in identities]
        if wanted:
            await self._open(wanted)
        return {stream.identity for stream in wanted}

    async def _look(self) -> Sequence[Stream]:
        """Every stream that the source has now."""
        streams = await self.source.streams()
        self._there = frozenset(stream.identity for stream in streams if not stream.empty)
        return streams

    async def _open(self, streams: Sequence[Stream]) -> None:
        """Open streams: ask for the target's record, and go on where it says."""
        try:
            opened = await self.target.open(streams)
            await self._go_on(streams, opened, await self.source.remembered())
        finally:
            self.counts.opening = ""

    async def _go_on(
        self, streams: Sequence[Stream], opened: Opened, remembered: Mapping[str, Remembered]
    ) -> None:
        """Run the divergence check on the target's answer, and move the source to the target's next."""
        for stream in streams:
            divergence.check(stream, remembered.get(stream.identity), opened, self.bridge, self.connector)
        self.store = opened.store
        resume = {
            stream.identity: _with_elsewhere(
                opened.streams[stream.identity], remembered.get(stream.identity), opened
            )
            for stream in streams
        }
        await self.source.open(resume, opened.store)
        for stream in streams:
            identity = stream.identity
            self._streams[identity] = stream
            self._elsewhere.pop(identity, None)
            if resume[identity].elsewhere:
                self._elsewhere[identity] = resume[identity].elsewhere
            self._count_unconfirmed(identity, resume[identity].next)
            if self.records_start and not stream.empty and identity not in remembered:
                self.unrecorded.add(identity)
            next_ = resume[identity].next
            if next_ is None:
                self.unseen.add(identity)
            else:
                self.unseen.discard(identity)
                # The source may not know it yet, and another process may have sent it.
                self._confirmed[identity] = next_

    def _sent_upto(self, stream: str) -> int | None:
        """One beyond what was sent of a stream; None: it was not opened here, and that is not known."""
        if stream not in self._streams:
            return None
        in_flight = [sent.batch.upto for sent in self._unconfirmed.get(stream, ())]
        return max([self._confirmed.get(stream, 0), *in_flight])

    async def record_start(self, batch: Batch) -> None:
        """Have both ends record where the stream of `batch` begins, before it is sent.

        Raises: TargetUnavailable, TargetRefused, and the errors of `Source.begin`.
        """
        if batch.stream in self.unseen:
            await set_at_target(self.target, Batch(batch.stream, batch.from_, batch.from_))
            self.unseen.discard(batch.stream)
        await self.source.begin(batch.stream, batch.from_, self.store)
        self.unrecorded.discard(batch.stream)

    def at_target(self, reason: str) -> str:
        """A reason that the target gave, with the target's name."""
        return f"{reason} (at {self.target_name})" if self.target_name else reason

    # -- messages that were read -------------------------------------------------------------------------

    def staged(self, batch: Batch) -> Batch:
        """A batch that the source has read, without what other stores have, after all stages."""
        if self._elsewhere and batch.stream in self._elsewhere:
            batch = self._without_elsewhere(batch)
        if not self.stages:
            return batch
        address = self._streams[batch.stream].address
        made = staged(batch, self.stages, address)
        if made.not_evaluated and not self._not_evaluated_logged:
            self._not_evaluated_logged = True  # the rest is counted: a condition may fail for every message
            self._log.warning(
                "filter-not-evaluated", stream=batch.stream, address=address, count=made.not_evaluated,
                positions=[made.from_, made.upto], reason="taken for no match; more are counted, not logged",
            )  # fmt: skip
        self._log_filter_doubt()
        return made

    def _log_filter_doubt(self) -> None:
        """Log, once a bridge, that its filter is probably mistyped: the bridge passes what it leaves out."""
        for stage in self.stages:
            if isinstance(stage, FilterStage) and (doubt := stage.record.first_doubt()):
                self._log.warning(
                    "filter-doubtful", examined=stage.record.examined, taken=stage.record.taken,
                    missing=sorted(stage.record.shown_missing()), reason=doubt,
                )  # fmt: skip

    def _without_elsewhere(self, batch: Batch) -> Batch:
        elsewhere = self._elsewhere[batch.stream]
        if elsewhere[-1][1] < batch.from_:
            del self._elsewhere[batch.stream]
        return batch.leaving_out(elsewhere)

    async def transformed(self, batch: Batch) -> Part:
        """The first messages of a staged batch, transformed, and the rest. Raises: TransformerRefused."""
        if self.transforming is None:
            return Part((batch,), None)
        rejected = self._rejected.get(batch.stream)
        if rejected:
            found = {
                place: why for place, why in rejected.items() if run_arithmetic.index(batch.runs, place) >= 0
            }
            batch = replace(batch, refusals=tuple(sorted({**dict(batch.refusals), **found}.items())))
        return await self.transforming.part(batch, self._streams[batch.stream].address)

    @property
    def gives_way(self) -> bool:
        """Whether a bridge with a higher priority sends over the same connector: one small batch after the
        other goes, so that none waits for ever.
        """
        return self.shared is not None and self.shared.gives_way(self)

    @property
    def batch_bytes(self) -> int:
        """The limit of a batch that is read now."""
        return min(LEAST_BATCH, self.line.batch_most) if self.gives_way else self.line.batch_bytes

    @property
    def may_read(self) -> bool:
        """Whether there is room for a batch: one that is read early waits in front of those that come."""
        if self.gives_way and self.window.batches:
            return False
        return self.window.has_room(1) and self.line.has_room(self.line.batch_bytes)

    def has_room(self, size: int) -> bool:
        """Whether a batch of `size` bytes may be sent now, by window, line, and those that share it."""
        if self.gives_way and self.window.batches:
            return False
        return self.window.has_room(size) and self.line.has_room(size)

    def hold(self, size: int) -> None:
        """A batch of `size` bytes has to wait until there is room."""
        if self.gives_way:
            self.limit = "priority"
            return
        self.limit = "line" if self.window.has_room(size) else "window"
        self.line.held()

    def line_status(self, now_s: float, *, connected: bool) -> LineStatus:
        """The line as operators see it; `now_s`: by the clock of the timers."""
        line, target = self.line, self.target
        round_trip_ms = target.round_trip_ms if isinstance(target, MeasuringTarget) else None
        limit = self._present_limit if connected else ""
        reconnects = line.reconnects(now_s)
        wanted = min(line.wanted, self.window.limit)
        return LineStatus(round_trip_ms, round(line.rate), line.in_flight, wanted, limit, reconnects)

    @property
    def _present_limit(self) -> Limit:
        if self.stalled:
            return "target"
        if isinstance(self.target, MeasuringTarget) and self.target.lacks_credit:
            return "credit"
        return self.limit

    # -- messages that were sent -------------------------------------------------------------------------

    def left(self, batch: Batch) -> None:
        """The connection ended while this batch was in flight."""
        self.window.confirmed(batch.window_size, batch.count)
        self._unconfirmed.setdefault(batch.stream, []).append(
            _Unconfirmed(replace(batch, block=None), batch.size)
        )

    def _count_unconfirmed(self, stream: str, next_: int | None) -> None:
        """Count the messages that were in flight: the target has those below `next_`; None: it has none."""
        for sent, size in self._unconfirmed.pop(stream, ()):
            confirmed = run_arithmetic.count(run_arithmetic.below(sent.runs, next_ or 0))
            count = run_arithmetic.count(sent.runs)
            self.counts.acknowledged += confirmed
            self.counts.resent += count - confirmed
            if count:
                self.counts.resent_bytes += size * (count - confirmed) // count
            if sent.upto <= (next_ or 0):
                self.counts.passed_over(sent)

    async def refuse(self, batch: Batch, receipt: Receipt) -> None:
        """Take the target's refusal: store the dead letter, or have it stored when the message is read again,
        where what was sent is not what was read.

        Raises: as `store_letter`.
        """
        if self.transforming is None or receipt.position is None:
            await self.store_letter(batch, receipt)
        else:
            self._rejected.setdefault(batch.stream, {})[receipt.position] = receipt.reason

    async def store_letter(self, batch: Batch, receipt: Receipt) -> None:
        """Store a refused message's dead letter; returns when it is durable.

        Raises: DeadLetterFailed: there is no room for it now. TargetRefused, TargetUnavailable.
        """
        assert receipt.position is not None
        where = f"{batch.stream} position {receipt.position}"
        if self.dead_letters is None:
            raise TargetRefused(
                f"{where} was refused ({receipt.reason}), and dead-letter-address is empty",
                key="dead-letter-address",
                found=receipt.position,
            )
        try:
            await self.dead_letters.store_letter(batch, receipt, self._streams[batch.stream].address)
        except DeadLetterFailed as error:
            detail = f"the dead letter of {where} ({receipt.reason}) was not stored: {error}"
            if error.for_good:
                raise TargetRefused(detail) from error
            raise DeadLetterFailed(detail, for_good=False) from error
        self._log.warning(
            "dead-letter", stream=batch.stream, position=receipt.position, reason=receipt.reason
        )
        self.refused.setdefault(batch.stream, set()).add(receipt.position)
        self._rejected.get(batch.stream, {}).pop(receipt.position, None)
        self.counts.refused += 1

    def covered(self, batch: Batch) -> None:
        """The target covers the batch: forget the state of its positions."""
        self.unseen.discard(batch.stream)
        self._confirmed[batch.stream] = batch.upto
        refused = self.refused.get(batch.stream)
        if refused is not None:
            refused.difference_update(batch.refused)

    # -- the log -----------------------------------------------------------------------------------------

    def log_wait(self, reason: str, delay_ms: int) -> None:
        """Log why a stream waits for the target: each rule once on a connection."""
        rule, _, _ = reason.partition(":")  # its numbers differ each time
        if rule not in self._rules_logged:
            self._rules_logged.add(rule)
            self._log.warning("bridge-waits", reason=reason, **{"retry-in-ms": delay_ms})


def _with_elsewhere(state: StreamState, known: Remembered | None, opened: Opened) -> StreamState:
    """The target's record, with what other stores of the bridge have of the stream from there on."""
    if known is None or state.next is None:
        return state
    elsewhere = known.elsewhere((opened.store, *opened.inherited), state.next)
    return replace(state, elsewhere=elsewhere) if elsewhere else state
