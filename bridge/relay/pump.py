"""The one loop between a source and a target: read, send within the window, settle in order.

A pump runs on one connection: from the moment both ends are open until a failure or a command ends it.
Messages that were sent and not confirmed then stay at the source; the target's word at the next opening
decides about them. A stream of which a batch was not taken is opened again alone, at once or later; the
others go on.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from bridge.errors import TargetUnavailable
from bridge.messages.batch import Batch
from bridge.relay.dead_letters import DeadLetterFailed
from bridge.relay.dead_letters_ahead import LETTERS_AHEAD, ahead, divided
from bridge.relay.pacing import Pacer
from bridge.relay.ports import MeasuringTarget, Receipt, SizedSource, Target
from bridge.relay.session import Session
from bridge.relay.stream_retries import BackedOff
from bridge.transformers.parts import Part
from dedup.verdict import Verdict

#: Coverage without messages waits for the stream's next batch, but not longer than this (design rule 1).
COVERAGE_INTERVAL_MS: Final = 10_000
#: Nor longer than until filter and transformer have left out messages of so many bytes: they fill their
#: address until they are covered.
COVERAGE_BYTES: Final = 1024 * 1024


@dataclass(slots=True, eq=False)
class _InFlight:
    batch: Batch
    delivery: asyncio.Task[Sequence[Receipt]]

    @property
    def is_large(self) -> bool:
        """Whether the batch's message has a large body."""
        return self.batch.block is not None and self.batch.block.large is not None


@dataclass(slots=True)
class Pump:
    """Moves the messages of one connection; `run` is called once."""

    session: Session
    #: In the order of sending.
    _in_flight: deque[_InFlight] = field(default_factory=deque)
    #: How many of these have a large body: those behind one may be answered before it.
    _large: int = 0
    #: How many of these each stream has.
    _in_flight_of: Counter[str] = field(default_factory=Counter)
    #: Coverage without messages that waits, by stream.
    _pending_coverage: dict[str, Batch] = field(default_factory=dict)
    _covering: asyncio.Task[None] | None = None
    #: Bytes of messages that filter and transformer left out since coverage without messages was last sent.
    _passed_over_bytes: int = 0
    #: Set when a batch came into flight or left it, or the connection ended.
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _backed_off: BackedOff = field(init=False)
    #: Ends the read that is under way when a stream is to be opened again; None: none is.
    _reading: asyncio.Timeout | None = None
    #: Nothing more is sent.
    _ending: bool = False

    #: The source, where its batches can be made to fit; and the target, where it measures the round trip.
    _sized: SizedSource | None = field(init=False)
    _measuring: MeasuringTarget | None = field(init=False)

    def __post_init__(self) -> None:
        source, target = self.session.source, self.session.target
        self._backed_off = BackedOff(self.session.backoff)
        self._sized = source if isinstance(source, SizedSource) else None
        self._measuring = target if isinstance(target, MeasuringTarget) else None

    async def run(self, stop: asyncio.Event, pending_ack_timeout_ms: int) -> None:
        """Relay until `stop` is set or an end fails.

        However it ends, it waits for the receipts of the batches in flight, up to `pending_ack_timeout_ms`
        (-1: without limit); only a target that fails ends it at once. A target that is lost while nothing is
        in flight ends it, too: the operator sees the loss then, not with the next message.

        Raises:
            TargetUnavailable, TargetRefused, SourceGap, Diverged: from the ends, as they are.
        """
        self.session.line.connected(_now_s(), sized=self._sized is not None)
        settling = asyncio.create_task(self._settle())
        sending = asyncio.create_task(self._send())
        stopping = asyncio.create_task(stop.wait())
        losing = asyncio.create_task(self.session.target.lost())
        try:
            await asyncio.wait((settling, sending, stopping, losing), return_when=asyncio.FIRST_COMPLETED)
            source_failed = sending.done()
            target_lost = losing.done() and not stop.is_set()
            await _cancel(sending)
            if stop.is_set():
                self._send_pending_coverage()
            self._ending = True
            self._changed.set()
            timeout = pending_ack_timeout_ms / 1000 if pending_ack_timeout_ms >= 0 else None
            await asyncio.wait((settling,), timeout=timeout)
            _raise_error(settling)
            if source_failed:
                _raise_error(sending)
            if target_lost:
                _raise_error(losing)
        finally:
            await _cancel(settling, sending, stopping, losing, *self._let_go(), self._covering)
            # An error refers to this frame, and its task to the error: neither may keep the other or batches.
            del settling, sending, stopping, losing

    def _let_go(self) -> Sequence[asyncio.Task[Sequence[Receipt]]]:
        """Drop the batches in flight; answers their deliveries, which the caller ends."""
        deliveries = [entry.delivery for entry in self._in_flight]
        self.session.line.ended()
        for entry in self._in_flight:
            self.session.left(entry.batch)
            if entry.batch.block is None:
                self.session.coverage_due_s = _now_s()  # once more, as soon as there is a connection
        self._in_flight.clear()
        self._large = 0
        self._in_flight_of.clear()
        self._pending_coverage.clear()
        return deliveries

    # -- sending ---------------------------------------------------------------------------------------

    async def _send(self) -> None:
        while True:
            await self._open_due()
            if not self.session.may_read and not await self._room_to_read():
                continue
            await self._pass_all_on(await self._read())  # bound to no name: nothing is kept while it reads on

    async def _pass_all_on(self, batches: Sequence[Batch] | None) -> None:
        if batches is None:
            return
        if not batches:
            await self.session.open_new()
        for read in batches:
            await self._pass_on(read)

    async def _room_to_read(self) -> bool:
        """Wait until a batch may be read; False: a stream has to be opened again first."""
        while not self.session.may_read:
            self.session.hold(1)
            try:
                async with asyncio.timeout_at(self._backed_off.due_s):
                    await self._change()
            except TimeoutError:
                return False
        return True

    async def _read(self) -> Sequence[Batch] | None:
        """Returns the next batches; None: a stream has to be opened again first."""
        if self._sized is not None:
            self._sized.fit(self.session.batch_bytes)
        self.session.limit = "source"
        if unannounced := self._backed_off.unannounced():
            self.session.source.back_off(unannounced)
        reading = asyncio.timeout_at(self._backed_off.due_s)
        try:
            async with reading:
                self._reading = reading
                return await self.session.source.read()
        except TimeoutError:
            if not reading.expired():
                raise
            return None
        finally:
            self._reading = None
            del reading  # it refers to the task, and that by its cancellation to this frame: see `run`

    async def _pass_on(self, read: Batch) -> None:
        """Send the batch, or keep coverage alone; batches of streams that back off are read again later."""
        rest: Batch | None = self._staged(read)
        while rest is not None and read.stream not in self._backed_off:
            part = await self.session.transformed(rest)
            self._count_dropped(rest, part)
            for batch in part.made:
                await self._pass_on_transformed(batch)
            if part.not_now and read.stream not in self._backed_off:
                self._wait(read.stream, part.not_now)
            rest = part.rest

    async def _pass_on_transformed(self, read: Batch) -> None:
        if not read.refusals and not self.session.refused.get(read.stream):
            await self._pass_on_part(read)
            return
        refused = self.session.refused.setdefault(read.stream, set())
        for part in divided(read, refused):
            while self._is_in_flight(read.stream) and ahead(part, refused) > LETTERS_AHEAD:
                await self._change()
            await self._pass_on_part(part)

    def _staged(self, read: Batch) -> Batch:
        made = self.session.staged(read)
        if made.filtered:
            self._passed_over_bytes += read.size - made.size
        return made

    def _count_dropped(self, before: Batch, part: Part) -> None:
        """Count the bytes of messages that the transformer dropped."""
        if any(batch.dropped for batch in part.made):
            made = sum(batch.size for batch in part.made)
            left = 0 if part.rest is None else part.rest.size
            self._passed_over_bytes += max(before.size - left - made, 0)

    async def _pass_on_part(self, read: Batch) -> None:
        if read.stream not in self._backed_off and read.refusals:
            await self._store_refusals(read)
        if read.stream in self._backed_off:
            return
        batch = self._with_pending_coverage(self._without_refused(read))
        if batch.stream in self.session.unrecorded:
            await self.session.record_start(batch)
        if batch.block is None and not batch.refused and batch.from_ < batch.upto:
            self._keep_coverage(batch)
        elif await self._room_for(batch):
            self._send_now(batch)

    async def _room_for(self, batch: Batch) -> bool:
        """Wait until the batch may be sent; False: its stream was backed off instead."""
        while batch.stream not in self._backed_off:
            if self._may_send(batch):
                return self.session.pacer is None or await self._paced(batch, self.session.pacer)
            self.session.hold(batch.window_size)
            await self._change()
        return False

    async def _paced(self, batch: Batch, pacer: Pacer) -> bool:
        """Wait as `max-rate` says; False: its stream was backed off instead. A large body that is beside the
        batch waits where its chunks are read.
        """
        size = 0 if batch.block is None else batch.block.size
        self.session.counts.limited = pacer.text
        try:
            await pacer.passed(size)
        finally:
            self.session.counts.limited = ""
        if batch.stream in self._backed_off:
            pacer.give_back(size)
            return False
        return True

    def _may_send(self, batch: Batch) -> bool:
        """Whether there is room, and the target knows where the stream begins."""
        if batch.stream in self.session.unseen and self._is_in_flight(batch.stream):
            return False
        return self.session.has_room(batch.window_size)

    def _is_in_flight(self, stream: str) -> bool:
        return self._in_flight_of[stream] > 0

    def _send_now(self, batch: Batch) -> None:
        self.session.window.sent(batch.window_size, batch.count)
        self.session.counts.sent += batch.count
        # Tasks begin in the order in which they are made: the target's calls are in order.
        entry = _InFlight(batch, asyncio.create_task(_deliver(self.session.target, batch)))
        # A large body goes in pieces, which have a pace of their own.
        self.session.line.sent(0 if entry.is_large else batch.size, _now_s())
        self._large += entry.is_large
        if self._large:
            entry.delivery.add_done_callback(lambda _: self._changed.set())
        self._in_flight.append(entry)
        self._in_flight_of[batch.stream] += 1
        if self._backed_off.sent(batch.stream, self._in_flight_of[batch.stream], _now_s()):
            self._pending_coverage.pop(batch.stream, None)  # its positions will be read again
        self._changed.set()

    async def _store_refusals(self, batch: Batch) -> None:
        """Make dead letters of messages that the sending side refuses, as if the target had refused them."""
        refused = self.session.refused.setdefault(batch.stream, set())
        for position, reason in batch.refusals:
            if position not in refused:
                receipt = Receipt(batch.stream, Verdict.REFUSED, batch.from_, position, reason)
                if not await self._store_letter(batch, receipt):
                    return

    async def _store_letter(self, batch: Batch, receipt: Receipt) -> bool:
        """Whether the dead letter is durable; its stream waits where it cannot be now."""
        return await self._stored(batch.stream, self.session.store_letter(batch, receipt))

    async def _stored(self, stream: str, storing: Coroutine[Any, Any, None]) -> bool:
        try:
            await storing
        except DeadLetterFailed as error:
            self._wait(stream, f"DEAD_LETTER_FAILED: {error}")
            return False
        return True

    def _without_refused(self, batch: Batch) -> Batch:
        """The batch with positions that have a dead letter covered and empty."""
        refused = self.session.refused.get(batch.stream)
        return batch.without(refused) if refused else batch

    # -- coverage without messages ---------------------------------------------------------------------

    def _keep_coverage(self, batch: Batch) -> None:
        """Keep coverage for the stream's next batch; from the first on, it is sent in time."""
        self._pending_coverage[batch.stream] = batch
        if self.session.coverage_due_s is None:
            self.session.coverage_due_s = _coverage_due_s()
        if self._passed_over_bytes >= COVERAGE_BYTES:
            self._send_pending_coverage()
        if self._covering is None or self._covering.done():
            self._covering = asyncio.create_task(self._cover_in_time())

    def _with_pending_coverage(self, batch: Batch) -> Batch:
        pending = self._pending_coverage.pop(batch.stream, None)
        if pending is None:
            return batch
        assert pending.upto == batch.from_, (
            f"{batch.stream}: read up to {pending.upto}, then from {batch.from_}"
        )
        return replace(
            batch,
            from_=pending.from_,
            filtered=pending.filtered + batch.filtered,
            not_evaluated=pending.not_evaluated + batch.not_evaluated,
            dropped=pending.dropped + batch.dropped,
        )

    async def _cover_in_time(self) -> None:
        while self._pending_coverage:
            await asyncio.sleep((self.session.coverage_due_s or 0) - _now_s())
            self._send_pending_coverage()

    def _send_pending_coverage(self) -> None:
        self._passed_over_bytes = 0
        for batch in list(self._pending_coverage.values()):
            if self._may_send(batch):
                del self._pending_coverage[batch.stream]
                self._send_now(batch)
        self.session.coverage_due_s = _coverage_due_s() if self._pending_coverage else None

    # -- settling --------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Take receipts in the order of sending; returns when the connection has ended and all are there.

        While a large body is on its way, those of other streams do not wait for it.
        """
        while not self._ending or self._in_flight:
            if not self._in_flight:
                await self._change()
                continue
            entry = self._in_flight[0]
            if entry.is_large and (answered := self._answered()) is not None:
                entry = answered
            elif entry.is_large:
                await self._change()
                continue
            (receipt,) = await entry.delivery  # bound to no name: its error refers to this frame
            self._see_line(receipt)
            await self._take(entry.batch, receipt)
            self._large -= entry.is_large
            self._in_flight.remove(entry)  # of many it is the first, except behind a large body
            self._in_flight_of[entry.batch.stream] -= 1
            self.session.window.confirmed(entry.batch.window_size, entry.batch.count)
            if entry.batch.stream in self._backed_off:
                self._backed_off.answered(entry.batch.stream, _now_s())
                self._look_at_due()
            self._changed.set()

    def _see_line(self, receipt: Receipt) -> None:
        """Take note of what a receipt shows of the line."""
        if self._measuring is not None:
            round_trip_ms = self._measuring.round_trip_ms
            self.session.line.round_trip_s = None if round_trip_ms is None else round_trip_ms / 1000
        stored = receipt.verdict in (Verdict.STORED, Verdict.DUPLICATE)
        self.session.line.answered(_now_s(), stored=stored)

    def _answered(self) -> _InFlight | None:
        """The batch that was answered, and is the first of its stream in flight; None: there is none."""
        streams = set[str]()
        for entry in self._in_flight:
            if entry.batch.stream not in streams and entry.delivery.done():
                return entry
            streams.add(entry.batch.stream)
        return None

    async def _take(self, batch: Batch, receipt: Receipt) -> None:
        session, counts = self.session, self.session.counts
        match receipt.verdict:
            case Verdict.STORED | Verdict.DUPLICATE:
                if receipt.dead_lettered:
                    batch = batch.without(receipt.dead_lettered)
                    counts.refused += len(receipt.dead_lettered)
                assert receipt.next >= batch.upto, f"{receipt} does not cover what it confirms"
                counts.acknowledged += batch.count
                counts.passed_over(batch)
                counts.replayed += receipt.duplicates - receipt.repeated
                counts.repeated += receipt.repeated
                counts.last_progress_ms = session.clock.wall_ms()
                self._backed_off.moved(batch.stream)
                counts.trouble = self._backed_off.trouble
                if session.waiting:
                    session.waiting = self._backed_off.waiting
                session.covered(batch)
                await session.source.settled(batch, receipt)
            case Verdict.REFUSED:
                counts.resent_in_vain(batch)
                self._back_off_now(batch.stream)
                await self._stored(batch.stream, session.refuse(batch, receipt))
            case Verdict.NOT_NOW:
                counts.resent_in_vain(batch)
                if batch.stream not in self._backed_off or self._backed_off.probes(batch.stream):
                    self._wait(batch.stream, session.at_target(receipt.reason))
                # Else it is behind the batch that backed it off.

    # -- streams that wait -----------------------------------------------------------------------------

    def _back_off_now(self, stream: str) -> None:
        """Send no more of the stream until it is opened again, once all of its batches are answered."""
        self._backed_off.add(stream, self._in_flight_of[stream], _now_s())
        self._pending_coverage.pop(stream, None)  # its positions will be read again
        self._look_at_due()
        self._changed.set()

    def _wait(self, stream: str, reason: str) -> None:
        """Back the stream off: the target cannot go on with it now, and it is opened again after a while."""
        self._back_off_now(stream)
        delay_ms = self._backed_off.wait(stream, reason, _now_s())
        if delay_ms is not None:
            self.session.counts.trouble = self._backed_off.trouble
            self.session.log_wait(reason, delay_ms)
            self.session.waiting = self._backed_off.waiting
            self._look_at_due()

    def _look_at_due(self) -> None:
        """Let a read that is under way end when the first stream has to be opened again."""
        if self._reading is not None and not self._reading.expired():
            self._reading.reschedule(self._backed_off.due_s)

    async def _open_due(self) -> None:
        """Open again the streams whose time has come; the other streams go on meanwhile."""
        due = self._backed_off.due(_now_s())
        if not due:
            return
        there = await self.session.open_again(due)
        for stream in due:
            if stream in there:
                self._backed_off.opened(stream)
            else:
                self._backed_off.absent(stream, _now_s())
        self.session.counts.trouble = self._backed_off.trouble
        self.session.waiting = self._backed_off.waiting

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


def _coverage_due_s() -> float:
    """When coverage that begins to wait now is to be sent."""
    return _now_s() + COVERAGE_INTERVAL_MS / 1000


def _now_s() -> float:
    """The time by the clock of the timers, in seconds."""
    return asyncio.get_running_loop().time()


async def _deliver(target: Target, batch: Batch) -> Sequence[Receipt]:
    return await target.deliver([batch])


async def _cancel(*tasks: asyncio.Task[Any] | None) -> None:
    """End tasks and wait until they have ended; their errors go to the callers that ask for their results."""
    there = [task for task in tasks if task is not None]
    for task in there:
        task.cancel()
    await asyncio.gather(*there, return_exceptions=True)


def _raise_error(task: asyncio.Task[Any]) -> None:
    """Raise the error of a task; a task that an end cancelled by itself counts as the loss of that end."""
    if not task.done():
        return
    if task.cancelled():
        raise TargetUnavailable("an end gave up its work without a reason")
    try:
        task.result()
    finally:
        del task  # as in `run`
