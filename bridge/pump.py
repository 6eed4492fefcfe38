"""The one loop between a source and a target: read, send within the window, settle in order.

A pump runs one session: from the moment both ends are open until something ends it. What was sent and
not confirmed then stays at the source; the target's word at the next opening decides about it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

from bridge import runs as run_arithmetic
from bridge.batch import Batch
from bridge.clock import Clock
from bridge.errors import TargetUnavailable
from bridge.ports import Receipt, Source, Target
from bridge.window import Window
from dedup.verdict import Verdict

#: Coverage without messages waits for the stream's next batch, but not longer than this (design rule 1).
COVERAGE_INTERVAL_MS: Final = 10_000


class Ended(Enum):
    """Why a session ended without an error."""

    #: It was asked to, and every receipt has come or its time is up.
    ASKED = "asked"
    #: The target cannot take more of a stream now: open again after a while.
    NOT_NOW = "not-now"
    #: A message was refused for good and is dealt with: open again at once.
    REFUSED = "refused"


@dataclass(slots=True)
class Counts:
    """What a bridge has done since the node started; read by metrics and status."""

    sent: int = 0
    acknowledged: int = 0
    refused: int = 0
    #: Messages that the target dropped: covered before, or with a producer's ID that it knows.
    replayed: int = 0
    reconnects: int = 0
    #: Wall clock, ms, of the last receipt that moved something; 0: none yet.
    last_progress_ms: int = 0
    #: Why the last session ended NOT_NOW, or the connection failed; empty: all is well.
    trouble: str = ""


@dataclass(slots=True)
class Memory:
    """What outlives a session, by stream identity."""

    #: Streams that the target knows nothing of. Their first batch decides what came before it, so
    #: nothing may be sent behind it until it is answered (`dedup.coverage.judge`).
    unseen: set[str] = field(default_factory=set)
    #: Positions that were refused and have a dead letter, until the target covers them.
    refused: dict[str, set[int]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _InFlight:
    batch: Batch
    delivery: asyncio.Task[Sequence[Receipt]]


@dataclass(slots=True, kw_only=True)
class Pump:
    """Everything one session needs; `run` is called once."""

    source: Source
    target: Target
    window: Window
    counts: Counts
    clock: Clock
    memory: Memory
    #: Makes a refused message's dead letter durable; returns when it is.
    bury: Callable[[Batch, Receipt], Awaitable[None]]
    #: Opens streams that have appeared since.
    open_new_streams: Callable[[], Awaitable[None]]
    #: In the order of sending.
    _in_flight: deque[_InFlight] = field(default_factory=deque)
    #: Coverage without messages that waits, by stream.
    _held: dict[str, Batch] = field(default_factory=dict)
    _covering: asyncio.Task[None] | None = None
    #: Something came into flight, left it, or ended the session.
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _ended: Ended | None = None

    async def run(self, stop: asyncio.Event, pending_ack_timeout_ms: int) -> Ended:
        """Relay until `stop` is set, a verdict ends the session, or an end fails.

        However it ends, the receipts of what is in flight are waited for, up to `pending_ack_timeout_ms`
        (-1: without limit); only a target that fails ends it at once. One that is lost while nothing is
        in flight ends it too: whoever operates the bridge sees it then, not with the next message.

        Raises:
            TargetUnavailable, TargetRefused, SourceGap, Diverged: from the ends, as they are.
        """
        settling = asyncio.create_task(self._settle())
        sending = asyncio.create_task(self._send())
        stopping = asyncio.create_task(stop.wait())
        losing = asyncio.create_task(self.target.lost())
        try:
            await asyncio.wait((settling, sending, stopping, losing), return_when=asyncio.FIRST_COMPLETED)
            source_failed = sending.done()
            target_lost = losing.done() and not stop.is_set()
            await _cancel(sending)
            if stop.is_set():
                self._send_held()
            self._end(Ended.ASKED)
            timeout = pending_ack_timeout_ms / 1000 if pending_ack_timeout_ms >= 0 else None
            await asyncio.wait((settling,), timeout=timeout)
            _raise_error(settling)
            if source_failed:
                _raise_error(sending)
            if target_lost:
                _raise_error(losing)
            assert self._ended is not None
            return self._ended
        finally:
            for entry in self._in_flight:
                self.window.confirmed(entry.batch.size, entry.batch.count)
            deliveries = [entry.delivery for entry in self._in_flight]
            self._in_flight.clear()
            await _cancel(settling, sending, stopping, losing, *deliveries, self._covering)

    # -- sending ---------------------------------------------------------------------------------------

    async def _send(self) -> None:
        """Returns when a verdict has ended the session."""
        while self._ended is None:
            batches = await self.source.read()
            if not batches:
                await self.open_new_streams()
            for read in batches:
                batch = self._with_held(self._without_refused(read))
                if batch.block is None and not batch.refused:
                    self._hold(batch)
                    continue
                if not await self._room_for(batch):
                    return
                self._send_now(batch)

    async def _room_for(self, batch: Batch) -> bool:
        """Wait until it may be sent; False: the session has ended instead."""
        while self._ended is None:
            if self._may_send(batch):
                return True
            await self._change()
        return False

    def _may_send(self, batch: Batch) -> bool:
        """Whether there is room, and the target knows where the stream begins."""
        if batch.stream in self.memory.unseen and any(
            entry.batch.stream == batch.stream for entry in self._in_flight
        ):
            return False
        return self.window.has_room(batch.size)

    def _send_now(self, batch: Batch) -> None:
        self.window.sent(batch.size, batch.count)
        self.counts.sent += batch.count
        # Tasks begin in the order in which they are made: the target's calls are in order.
        self._in_flight.append(_InFlight(batch, asyncio.create_task(_deliver(self.target, batch))))
        self._changed.set()

    def _without_refused(self, batch: Batch) -> Batch:
        """The batch with positions that have a dead letter covered and empty."""
        refused = self.memory.refused.get(batch.stream)
        if not refused or batch.block is None:
            return batch
        places = list(run_arithmetic.positions(batch.runs))
        dropped = [index for index, place in enumerate(places) if place in refused]
        if not dropped:
            return batch
        return replace(
            batch,
            runs=run_arithmetic.join((place, place) for place in places if place not in refused),
            block=batch.block.without(dropped),
            refused=tuple(places[index] for index in dropped),
        )

    # -- coverage without messages ---------------------------------------------------------------------

    def _hold(self, batch: Batch) -> None:
        """Keep coverage for the stream's next batch; from the first on, it is sent in time."""
        self._held[batch.stream] = batch
        if self._covering is None or self._covering.done():
            self._covering = asyncio.create_task(self._cover_in_time())

    def _with_held(self, batch: Batch) -> Batch:
        held = self._held.pop(batch.stream, None)
        if held is None:
            return batch
        assert held.upto == batch.from_, f"{batch.stream}: read up to {held.upto}, then from {batch.from_}"
        return replace(batch, from_=held.from_)

    async def _cover_in_time(self) -> None:
        while self._held:
            await asyncio.sleep(COVERAGE_INTERVAL_MS / 1000)
            self._send_held()

    def _send_held(self) -> None:
        for batch in list(self._held.values()):
            if self._may_send(batch):
                del self._held[batch.stream]
                self._send_now(batch)

    # -- settling --------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Take receipts in the order of sending; returns when the session has ended and all are there."""
        while self._ended is None or self._in_flight:
            if not self._in_flight:
                await self._change()
                continue
            entry = self._in_flight[0]
            (receipt,) = await entry.delivery
            await self._take(entry.batch, receipt)
            self._in_flight.popleft()
            self.window.confirmed(entry.batch.size, entry.batch.count)
            self._changed.set()

    async def _take(self, batch: Batch, receipt: Receipt) -> None:
        match receipt.verdict:
            case Verdict.STORED | Verdict.DUPLICATE:
                assert receipt.next >= batch.upto, f"{receipt} does not cover what it confirms"
                self.counts.acknowledged += batch.count
                self.counts.replayed += receipt.duplicates
                self.counts.last_progress_ms = self.clock.wall_ms()
                self.counts.trouble = ""
                self._forget(batch)
                await self.source.settled(batch, receipt)
            case Verdict.REFUSED:
                self._end(Ended.REFUSED)
                await self.bury(batch, receipt)
                assert receipt.position is not None
                self.memory.refused.setdefault(batch.stream, set()).add(receipt.position)
                self.counts.refused += 1
            case Verdict.NOT_NOW:
                if self._end(Ended.NOT_NOW):
                    self.counts.trouble = receipt.reason

    def _forget(self, batch: Batch) -> None:
        """What the target's word has made history."""
        self.memory.unseen.discard(batch.stream)
        refused = self.memory.refused.get(batch.stream)
        if refused is not None:
            refused.difference_update(batch.refused)

    # -- the end ---------------------------------------------------------------------------------------

    def _end(self, ended: Ended) -> bool:
        """End the session, for the first reason given; True if this is the one."""
        self._changed.set()
        if self._ended is not None:
            return False
        self._ended = ended
        return True

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


async def _deliver(target: Target, batch: Batch) -> Sequence[Receipt]:
    return await target.deliver([batch])


async def _cancel(*tasks: asyncio.Task[Any] | None) -> None:
    """End tasks and wait until they have; their errors belong to whoever asks for their results."""
    there = [task for task in tasks if task is not None]
    for task in there:
        task.cancel()
    await asyncio.gather(*there, return_exceptions=True)


def _raise_error(task: asyncio.Task[Any]) -> None:
    """Raise what a task failed with; one that an end cancelled on its own has lost that end."""
    if not task.done():
        return
    if task.cancelled():
        raise TargetUnavailable("an end gave up its work without a reason")
    task.result()
