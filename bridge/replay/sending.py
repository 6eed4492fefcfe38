"""Sends a replay plan's part of one stream again: reads it, sends one batch at a time, finds present
messages.

The plan's part of a stream is a stream of its own at the target (`bridge.messages.stream_names`), with the
positions of the original; positions between two of the plan are covered and empty. The target's `next` of it
says how far the plan has come, and moves in the transaction that stores the messages. So a run that was cut
short goes on there, one that is repeated sends nothing, and two at a time send each message once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from bridge.errors import Conflict, TargetUnavailable
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.block import Origin
from bridge.messages.positions import Run, Runs
from bridge.messages.stream_names import plan_stream
from bridge.relay.ports import Receipt, Stream, Target
from bridge.relay.stages import Stage, staged
from bridge.relay.transforming import Transforming
from bridge.replay.copies import Judged
from dedup.verdict import Verdict

#: Pause between two attempts at a target that cannot take a batch now.
RETRY_MS: Final = 500


@dataclass(frozen=True, slots=True)
class Part:
    """The messages that a source has at some wanted positions."""

    #: Of the original stream, ascending, with origins as its bridge would send them.
    batches: Sequence[Batch]
    #: Wanted positions below are in `batches`, or the source no longer has them.
    upto: int
    #: Positions of messages that the source has and the bridge's filter or transformer leaves out.
    filtered: Runs = ()

    async def passed(self, stages: Sequence[Stage], transforming: Transforming | None, address: str) -> Part:
        """The part after the bridge's stages and transformer; `address` is the stream's at the source.

        Raises: TransformerRefused; TargetUnavailable: the transformer cannot take it now.
        """
        made = [staged(batch, stages, address) for batch in self.batches]
        if transforming is not None:
            made = [one for batch in made for one in await _transformed(transforming, batch, address)]
        filtered = without(self.runs, [run for batch in made for run in batch.runs])
        return Part([batch for batch in made if batch.count], self.upto, filtered)

    @property
    def runs(self) -> Runs:
        """The positions of its messages."""
        return tuple(run for batch in self.batches for run in batch.runs)


async def _transformed(transforming: Transforming, batch: Batch, address: str) -> list[Batch]:
    made: list[Batch] = []
    rest: Batch | None = batch
    while rest is not None:
        part = await transforming.part(rest, address)
        if part.not_now:
            raise TargetUnavailable(part.not_now)
        made += part.made
        rest = part.rest
    return made


@dataclass(frozen=True, slots=True)
class Sibling:
    """A stream whose messages go to the same place at the target, and the positions that the source has of
    it.
    """

    stream: Stream
    #: The stored messages lie in ``[first, end)``.
    first: int
    end: int
    #: Whether it has all messages that it ever had.
    is_whole: bool


class PlanSource(Protocol):
    """The source from which messages that were sent before are read again, by position."""

    @property
    def store(self) -> str:
        """Its store identity, once a stream was asked for."""

    async def stream(self, identity: str) -> Stream | None:
        """The stream as its bridge sends it; None: it is not here.

        Raises: SourceUnavailable, SourceRefused, JournalUnavailable.
        """

    async def siblings(self, stream: Stream) -> Sequence[Sibling]:
        """The bridge's streams with the target address of `stream`, itself among them.

        Raises: SourceUnavailable, SourceRefused, JournalUnavailable.
        """

    async def copies(self, stream: Stream, origins: Sequence[Origin]) -> Sequence[tuple[Origin, int]]:
        """The messages of a stream that were first stored at these coordinates of other streams.

        As parts of `origins`, each with the position of its first message; once for each message.

        Raises: JournalUnavailable.
        """

    async def read(self, stream: Stream, wanted: Runs) -> Part:
        """The first of these positions, as many as fit a few batches, and one at least.

        Raises: SourceUnavailable, SourceRefused, JournalUnavailable.
        """

    async def close(self) -> None:
        """Release the source."""


class Presence(Protocol):
    """The knowledge of which of a plan's messages a target has, for one call."""

    async def plan_state(self, planned: Stream) -> PlanState:
        """The store's identity, and how far the plan has come; changes nothing there.

        Raises: TargetUnavailable, TargetRefused, JournalUnavailable.
        """

    async def prepare(self, stream: Stream, part: Part, deadline_s: float) -> bool:
        """Ask for the data that `judge` needs about a part of the original stream. False: not done by the
        deadline.

        Raises: TargetUnavailable, TargetRefused, and the source's errors.
        """

    def judge(self, batch: Batch) -> Judged:
        """The standing of a batch's messages, of a part that `prepare` has seen.

        `Target.deliver` stores those that are neither known nor unknown.
        """

    def stored(self, batch: Batch, judged: Judged) -> None:
        """Record that the batch, without the messages of unknown standing, was stored, or would be."""


@dataclass(frozen=True, slots=True)
class PlanState:
    """The state of a plan's stream at a target."""

    #: Its store identity.
    store: str
    #: The plan's `next` of the stream; None: it has not been begun.
    next: int | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Positions of one stream that one call sends again."""

    #: The plan's name, the bridge's, and the identity of the original stream.
    plan: str
    bridge: str
    stream: str
    #: Store identity of the target that the plan was made for.
    store: str
    positions: Runs
    #: Whether messages that the target has are sent, too.
    force: bool = False

    def other_store(self, found: str) -> Conflict:
        """The error where the bridge delivers to another store by now: `found`."""
        return Conflict(
            f"the plan was made for the store {self.store}; bridge {self.bridge} delivers to {found} now."
            " Reconcile what it has for another plan",
            key="store",
            limit=self.store,
            found=found,
        )


@dataclass(slots=True)
class Resent:
    """The outcome of wanted positions, in messages or positions."""

    sent: int = 0
    #: The target had them.
    known: int = 0
    #: It cannot be decided whether the target has them: not sent.
    unknown: list[Run] = field(default_factory=list)
    #: Covered by an earlier run of the same plan.
    earlier: int = 0
    #: The bridge's filter does not take them, or its transformer drops them: not sent.
    filtered: list[Run] = field(default_factory=list)
    #: The source no longer has them.
    gone: list[Run] = field(default_factory=list)
    #: Position and rule of those that the target will not store.
    refused: list[tuple[int, str]] = field(default_factory=list)
    #: Positions from here on were not processed, for the time was up; None: all were.
    rest: int | None = None


class Resending:
    """The work of one call on one stream; `run` is called once."""

    def __init__(
        self,
        source: PlanSource,
        target: Target,
        wanted: Wanted,
        *,
        deadline_s: float,
        presence: Presence | None = None,
        stages: Sequence[Stage] = (),
        transforming: Transforming | None = None,
    ) -> None:
        """Takes both ends; the caller that made them closes them.

        Args:
            source: messages are read again from it.
            target: messages are delivered to it.
            wanted: the positions.
            deadline_s: of the running loop's clock.
            presence: the messages that the target has; None: it is not asked (`--force`).
            stages: of the bridge.
            transforming: the bridge's transformer; None: it has none.
        """
        self._transforming = transforming
        self._stages = stages
        self._source = source
        self._target = target
        self._presence = presence
        self._wanted = wanted
        self._deadline_s = deadline_s
        self._outcome = Resent()
        self._planned: Stream
        #: The target's next of the plan's stream; None: it does not know the stream.
        self._next: int | None = None

    async def run(self, stream: Stream) -> Resent:
        """Send the rest of the plan's part of `stream`, which the source has.

        Raises:
            Conflict: the target is another store than the plan was made for. TargetUnavailable,
                TargetRefused, and the source's errors: run it again later.
        """
        identity = plan_stream(stream.identity, self._wanted.plan, force=self._wanted.force)
        self._planned = replace(stream, identity=identity)
        await self._open()
        left = self._still_wanted(self._wanted.positions)
        self._outcome.earlier = run_arithmetic.count(self._wanted.positions) - run_arithmetic.count(left)
        while left:
            read = await self._source.read(stream, left)
            part = await read.passed(self._stages, self._transforming, stream.address)
            if self._presence and not await self._presence.prepare(stream, part, self._deadline_s):
                self._outcome.rest = left[0][0]
                break
            await self._send_part(part, run_arithmetic.below(left, part.upto))
            left = run_arithmetic.from_position(left, part.upto)
            if left and self._time_is_up():
                self._outcome.rest = left[0][0]
                break
        return self._outcome

    async def _open(self) -> None:
        opened = await self._target.open([self._planned])
        if opened.store != self._wanted.store:
            raise self._wanted.other_store(opened.store)
        self._next = opened.streams[self._planned.identity].next

    def _still_wanted(self, positions: Runs) -> Runs:
        return positions if self._next is None else run_arithmetic.from_position(positions, self._next)

    def _time_is_up(self) -> bool:
        return asyncio.get_running_loop().time() >= self._deadline_s

    async def _send_part(self, part: Part, looked_at: Runs) -> None:
        found = part.runs
        for batch in part.batches:
            await self._send(self._without_refusals(batch))
        self._outcome.filtered += part.filtered
        rest = without(looked_at, found)
        self._outcome.gone += without(rest, part.filtered)
        if rest and (self._next is None or self._next < part.upto):
            # Positions at the end that are not sent are covered, too: the next run does not look for them
            # again.
            await self._send(Batch(self._planned.identity, part.upto, part.upto))

    def _without_refusals(self, batch: Batch) -> Batch:
        """The batch without the messages that this side refuses itself (a loop): they cannot be sent
        again.
        """
        for position, reason in batch.refusals:
            batch = self._refused(batch, position, reason)
        return replace(batch, refusals=())

    def _refused(self, batch: Batch, position: int, reason: str) -> Batch:
        self._outcome.refused.append((position, reason))
        return less(batch, [position])

    async def _send(self, batch: Batch) -> None:
        """Send the batch, with the positions before it, until it is taken or the time is up."""
        while True:
            start = self._next if self._next is not None else self._wanted.positions[0][0]
            if batch.upto <= start:
                self._outcome.earlier += batch.count
                return
            fresh = batch.after(start)
            judged = self._presence.judge(fresh) if self._presence else Judged()
            sent = less(fresh, judged.unknown)
            # With the positions before it that the plan does not name.
            sent = replace(sent, stream=self._planned.identity, from_=start, copies=judged.copies)
            (receipt,) = await self._target.deliver([sent])
            match receipt.verdict:
                case Verdict.STORED:
                    self._took(batch, fresh, judged, receipt)
                    return
                case Verdict.DUPLICATE:
                    self._next = receipt.next
                case Verdict.REFUSED:
                    assert receipt.position is not None
                    batch = self._refused(batch, receipt.position, receipt.reason)
                    await self._open()
                case Verdict.NOT_NOW:
                    await self._wait(receipt)

    def _took(self, batch: Batch, fresh: Batch, judged: Judged, receipt: Receipt) -> None:
        outcome = self._outcome
        outcome.known += receipt.duplicates
        outcome.unknown += run_arithmetic.join((place, place) for place in judged.unknown)
        outcome.sent += fresh.count - len(judged.unknown) - receipt.duplicates
        outcome.earlier += batch.count - fresh.count
        self._next = receipt.next
        if self._presence:
            self._presence.stored(fresh, judged)

    async def _wait(self, receipt: Receipt) -> None:
        """Wait before the next attempt. Raises: TargetUnavailable: it could not be taken before the
        deadline.
        """
        if self._time_is_up():
            raise TargetUnavailable(f"the target cannot take it now: {receipt.reason}")
        await asyncio.sleep(RETRY_MS / 1000)
        await self._open()


def less(batch: Batch, places: Sequence[int]) -> Batch:
    """The batch without its messages at these positions; the positions are covered."""
    if not places:
        return batch
    assert batch.block is not None
    block = batch.block.without([run_arithmetic.index(batch.runs, place) for place in places])
    return replace(batch, block=block, runs=without(batch.runs, [(place, place) for place in places]))


def without(runs: Runs, taken: Sequence[Run]) -> Runs:
    """The positions of `runs` that are in none of the ascending runs `taken`."""
    left: list[Run] = []
    removed = iter((*taken, (1 << 62, 1 << 62)))
    low, high = next(removed)
    for first, last in runs:
        at = first
        while at <= last:
            while high < at:
                low, high = next(removed)
            if low > last:
                left.append((at, last))
                break
            if at < low:
                left.append((at, low - 1))
            at = high + 1
    return tuple(left)
