"""The journal as a source: a bridge's own queue on each address that it reads."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeVar

from bridge.errors import JournalUnavailable, SourceGap
from bridge.journal.batching import Cutter
from bridge.journal.journal import Journal
from bridge.journal.rules.commands import BeginCommand, LogMissingCommand, SettleCommand
from bridge.journal.shared_queues import SharedQueues
from bridge.journal.sqlite import reader
from bridge.journal.sqlite.history import read_past
from bridge.journal.sqlite.large_bodies import BodyGone, read_whole
from bridge.journal.sqlite.routed import Routed, read_routed
from bridge.journal.values.options import BridgeSelection
from bridge.journal.values.queue_cursor import Interval, common
from bridge.journal.values.stored_block import END
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.message import WHOLE_BODY_BYTES
from bridge.messages.positions import Runs
from bridge.messages.stream_names import journal_stream, source_address
from bridge.relay.divergence import ADVICE, check_past
from bridge.relay.gaps import Gaps
from bridge.relay.ports import Bounds, Receipt, Stream, StreamState
from bridge.relay.stages import Stage
from bridge.relay.stays import NO_STAYS, Remembered, Stays
from bridge.runtime.fault_injection import crash_point
from dedup.verdict import Verdict

P = ParamSpec("P")
T = TypeVar("T")

#: Settlements on their way to the journal before the next one waits.
SETTLEMENTS: Final = 64
#: How long to wait, when opening and closing, for settlements that are on their way, seconds: a full disk
#: holds them. Those that come late are harmless, for the target's word settles the same again.
SETTLING_S: Final = 5.0
#: Streams that are read in advance at a time, one batch's bytes of each.
READ_AT_ONCE: Final = 8
#: Batches that are cut of what was read, where the line takes small ones: dividing a block takes time, and
#: the next ones may be larger.
CUT_AHEAD: Final = 4

#: Stands for the receipts that never came.
_NO_RECEIPT: Final = Receipt("", Verdict.STORED, 0)


@dataclass(slots=True)
class _StreamCursor:
    """The read position in one stream."""

    stream: Stream
    #: The address that is read. The stream's address may be another: the one that replays came from.
    address: str
    address_id: int
    #: Next position to read.
    at: int
    #: From here on the bridge's own queue keeps the messages; below, they may be trimmed at any time.
    kept_from: int
    #: Positions that other stores have: where they are gone here, nothing is lost.
    elsewhere: Runs
    #: Where messages were that could not be read, and that the operator has passed over: ascending.
    lost: Sequence[Interval] = ()
    #: Batches that were read in advance.
    ready: deque[Batch] = field(default_factory=deque)
    #: The limit by which they were cut, bytes.
    cut_bytes: int = 0
    #: Bytes that its turns have taken, by the measure of `JournalSource._turn`.
    taken: int = 0
    #: Set where the end has been reached: done when more has come.
    more: asyncio.Future[None] | None = None
    #: Nothing is read until it is opened again.
    backed_off: bool = False


class JournalSource:
    """Implements `bridge.relay.ports.Source` for one bridge on this node's journal."""

    def __init__(
        self,
        journal: Journal,
        selection: BridgeSelection,
        cutter: Cutter,
        *,
        target_name: str,
        gap_policy: Literal["stop", "continue"] = "stop",
        shared: SharedQueues | None = None,
        filter: Stage | None = None,  # noqa: A002 - the setting's name
    ) -> None:
        """Takes this node's journal, what the bridge reads of it, and how its batches are cut.

        `target_name` is the connector's, for the delivery log. `gap_policy`: what to do about messages that
        are gone: raise SourceGap, or cover and count them. `shared`: the queues that it shares with others.
        `filter`: the bridge's, for lines of what was sent before (`recovered`); with a transformer none.
        """
        self._journal = journal
        self._bridge = selection.bridge
        self._selection = selection
        self._cutter = cutter
        self._target_name = target_name
        self._passes_gaps = gap_policy == "continue"
        self._filter = filter
        #: Positions that were passed over because their messages are gone.
        self.gaps = Gaps(selection.bridge)
        self._shared = shared
        self._store = ""
        #: How many addresses had been made when the streams were last looked at.
        self._made = 0
        #: By stream identity.
        self._cursors: dict[str, _StreamCursor] = {}
        #: Largest batch by the settings; and the most that a read answers, bytes; None: no limit.
        self._batch_most = cutter.batch_bytes
        self._read_most: int | None = None
        #: What the stream whose turn was last had taken before it. A stream that had nothing to send for a
        #: while goes on from here: it comes next, and has no claim to what it left.
        self._turn = 0
        self._settling: deque[asyncio.Future[Any]] = deque()
        #: Done when a settlement may have made room for messages of shared queues.
        self._room: asyncio.Future[None] | None = None

    async def streams(self) -> Sequence[Stream]:
        """Every stream there is now; grows as addresses are made."""
        return [stream for stream, _ in await self._find_streams()]

    async def _find_streams(self) -> list[tuple[Stream, reader.BridgeQueueRow]]:
        rows = await self._read(reader.bridge_queues, self._bridge)
        identity = self._journal.identity
        found: list[tuple[Stream, reader.BridgeQueueRow]] = []
        for row in rows:
            if self._selection.reads(row.address):
                name = journal_stream(identity.incarnation, row.address, row.first)
                address = source_address(row.address)
                stream = self._selection.stream(name, address, identity.session_id, row.routing_type)
                found.append((stream, row))
        return found

    @property
    def waits(self) -> Sequence[str]:
        """As `SharedQueues.waits`."""
        return () if self._shared is None else self._shared.waits

    async def remembered(self) -> Mapping[str, Remembered]:
        """The confirmed position and the target's store, by stream identity."""
        rows = await self._read(reader.read_settled, self._bridge)
        return {
            stream: Remembered(upto, store, Stays.decode(stays))
            for stream, (upto, store, stays) in rows.items()
        }

    async def bounds(self) -> Mapping[str, Bounds]:
        """The bounds that this journal has of each stream, by identity, whichever queue keeps its
        messages.
        """
        return {
            stream.identity: Bounds(min(row.trimmed, row.end), row.end)
            for stream, row in await self._find_streams()
        }

    async def begin(self, stream: str, at: int, store: str, stays: Stays = NO_STAYS) -> None:
        """Move the bridge's queue to `at` and remember `store` (see `bridge.relay.ports.Source.begin`).

        Raises:
            SourceGap: there is no such stream, or it ends before `at`. JournalUnavailable: try again.
        """
        await self._journal.submit(
            BeginCommand,
            bridge=self._bridge,
            address=await self._address_of(stream),
            target=self._target_name,
            stream=stream,
            at=at,
            store=store,
            stays=stays.encode(),
        )

    async def log_missing(self, stream: str, runs: Runs, store: str) -> None:
        """Write lines of what the target lacks (see `bridge.relay.ports.LoggingSource.log_missing`).

        Raises: SourceGap: there is no such stream. JournalUnavailable: try again.
        """
        await self._journal.submit(
            LogMissingCommand,
            bridge=self._bridge,
            address=await self._address_of(stream),
            target=self._target_name,
            stream=stream,
            runs=runs,
            store=store,
        )

    async def _address_of(self, stream: str) -> str:
        found = {known.identity: row.address for known, row in await self._find_streams()}
        if stream not in found:
            raise SourceGap(f"this journal has no stream {stream}", key=stream)
        return found[stream]

    # -- opening ---------------------------------------------------------------------------------------

    async def open(self, resume: Mapping[str, StreamState], store: str) -> None:
        """Go to the target's next of each stream; what it covers already is settled here as `recovered`.

        Raises:
            Diverged: this journal is not the one that sent what the target covers.
            SourceGap: a position is gone or beyond the end. JournalUnavailable: try again.
        """
        await self._settlements_end()
        self._store = store
        made = self._journal.notices.made
        found = {stream.identity: (stream, row) for stream, row in await self._find_streams()}
        for identity, state in resume.items():  # all of them, before the first is settled
            if identity not in found:
                raise SourceGap(f"this journal has no stream {identity}", key=identity)
            await self._check_there(*found[identity], state)
        for identity, state in resume.items():
            stream, row = found[identity]
            start = row.queue_next if state.next is None else state.next
            lost = await self._read(reader.read_lost, row.address_id)
            self._cursors[identity] = _StreamCursor(
                stream, row.address, row.address_id, start, row.queue_next, state.elsewhere, lost
            )
            if start > row.queue_next:
                await self._recover(stream, row, start, state.checksum)
        # An address may have come since `streams` was asked: then the next `read` says so.
        self._made = made if found.keys() <= self._cursors.keys() else -1

    async def _check_there(self, stream: Stream, row: reader.BridgeQueueRow, state: StreamState) -> None:
        """Check that this journal sent what the target covers, and has what comes next."""
        identity = stream.identity
        if state.next is not None:
            past = await self._read(read_past, self._bridge, identity, row, state, stream.run)
            check_past(identity, state, past)
        start = row.queue_next if state.next is None else state.next
        if start > row.end:
            raise SourceGap(
                f"{identity}: the target has covered up to {start}; this journal ends at {row.end}. {ADVICE}",
                key=identity,
                limit=row.end,
                found=start,
            )
        if start < row.trimmed and await self._read(reader.was_trimmed, row, start):
            self._gap(identity, start, row.trimmed, state.elsewhere)

    def _gap(self, identity: str, start: int, trimmed: int, elsewhere: Runs) -> None:
        """Messages below `trimmed` are gone, but for those that other stores have.

        Raises: SourceGap, where `gap-policy` is stop.
        """
        gone = run_arithmetic.without(((start, trimmed - 1),), elsewhere)
        if gone and not self._passes_gaps:
            raise _trimmed(identity, gone[0][0], gone[-1][1] + 1)
        for first, last in gone:
            self.gaps.passed(identity, first, last + 1)

    async def _recover(self, stream: Stream, row: reader.BridgeQueueRow, upto: int, checksum: int) -> None:
        """Settle what the target says it covers: the receipts were lost, not the messages."""
        at = row.queue_next
        cutter = replace(self._cutter, batch_bytes=self._batch_most)  # no line carries these
        while at < upto:
            address, size = (row.address, row.address_id), cutter.batch_bytes
            routed = await self._read(read_routed, self._bridge, address, (at, upto), size)
            batches = [routed.kept(batch) for batch in cutter.cut(stream.identity, routed.blocks, at, upto)]
            for batch in batches or [Batch(stream.identity, at, upto, checksum=checksum)]:
                sent = batch if self._filter is None else self._filter(batch, stream.address)
                await self._settle(sent, row.address, _NO_RECEIPT, recovered=True)
                at = batch.upto
        while self._settling:
            await _answer(self._settling.popleft())

    # -- reading ---------------------------------------------------------------------------------------

    async def read(self) -> Sequence[Batch]:
        """Returns the next batches, at most one a stream; waits until there is one. Empty: there are new
        streams.

        Streams take turns by bytes: the one that has taken least comes first (start-time fair queueing, Goyal
        and others, 1996). So a few messages of one do not wait behind the backlog of another.
        """
        while True:
            arrival = self._journal.notices.anything()
            if await self._has_new_streams():
                return []
            if self._shared is not None and self._is_slow:
                await self._shared.take()  # what has come since would wait for all that was taken before
            chosen: list[_StreamCursor] = []
            while not chosen and (cursors := self._next_in_turn()):
                if unread := [cursor for cursor in cursors if not cursor.ready]:
                    await self._read_ahead(unread)
                chosen = self._chosen(cursors)
            if self._cutter.whole_bodies:
                await self._make_whole(chosen)
            if chosen:
                return [self._taken(cursor) for cursor in chosen]
            if self._shared is not None and await self._shared.take():
                continue
            await self._wait(arrival)

    def fit(self, most_bytes: int) -> None:
        """Implements `SizedSource.fit`. What was read in advance is cut again where it is twice too large or
        too small.
        """
        self._read_most = most_bytes
        size = min(most_bytes, self._batch_most)
        if size == self._cutter.batch_bytes:
            return
        self._cutter = replace(self._cutter, batch_bytes=size)
        for cursor in self._cursors.values():
            misfits = cursor.cut_bytes >= 2 * size or size >= 2 * cursor.cut_bytes
            if cursor.ready and misfits and not cursor.lost:  # what is lost counts as it is read
                cursor.at = cursor.ready[0].from_
                cursor.ready.clear()

    @property
    def _is_slow(self) -> bool:
        """Whether the line carries less than whole batches."""
        return self._cutter.batch_bytes < self._batch_most

    def _next_in_turn(self) -> list[_StreamCursor]:
        """Streams that have a batch ready, or may have new messages, by turns."""
        return nsmallest(
            READ_AT_ONCE,
            (
                cursor
                for cursor in self._cursors.values()
                if cursor.ready or (not cursor.backed_off and (cursor.more is None or cursor.more.done()))
            ),
            key=self._due,
        )

    def _due(self, cursor: _StreamCursor) -> int:
        return max(cursor.taken, self._turn)

    def _chosen(self, cursors: Sequence[_StreamCursor]) -> list[_StreamCursor]:
        """Of these, the ones whose batches are answered together."""
        chosen: list[_StreamCursor] = []
        size = 0
        for cursor in cursors:
            if cursor.ready:
                size += cursor.ready[0].size
                if chosen and self._read_most is not None and size > self._read_most:
                    break
                chosen.append(cursor)
        return chosen

    def _taken(self, cursor: _StreamCursor) -> Batch:
        """The stream's next batch, which is its turn."""
        batch = cursor.ready.popleft()
        self._turn = self._due(cursor)
        cursor.taken = self._turn + max(batch.size, 1)
        return batch

    async def _make_whole(self, cursors: Sequence[_StreamCursor]) -> None:
        """Read large bodies into the messages that come next. Batches keep the checksum of what is stored."""
        for cursor in cursors:
            if (block := cursor.ready[0].block) is not None and block.large is not None:
                whole = await self._read(read_whole, block, WHOLE_BODY_BYTES)
                cursor.ready[0] = replace(cursor.ready[0], block=whole)

    async def _wait(self, arrival: asyncio.Future[None]) -> None:
        """Return when messages or addresses have come, or shared queues may have free messages again."""
        shared = self._shared
        timeout_s, news = (None, ()) if shared is None else (shared.due_in_s, shared.news)
        self._room = asyncio.get_running_loop().create_future()
        # Other callers wait for the same futures, too: none is cancelled with this.
        any_of = (arrival, self._room, *news)
        await asyncio.wait(any_of, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)

    def _make_room(self, _settlement: object) -> None:
        """A settlement has made room in a log of the bridge's own."""
        if self._shared is not None:
            self._shared.room_came()
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    async def _has_new_streams(self) -> bool:
        made = self._journal.notices.made
        if made == self._made:
            return False
        found = any(stream.identity not in self._cursors for stream in await self.streams())
        self._made = made
        return found

    async def _read_ahead(self, cursors: Sequence[_StreamCursor]) -> None:
        """Read on at these cursors, in one transaction."""
        for cursor in cursors:
            cursor.more = self._journal.notices.changed(cursor.address)
        try:
            found = await self._read(_read_cursors, self._bridge, cursors, self._cutter.batch_bytes)
        except BaseException:
            for cursor in cursors:
                cursor.more = None  # nothing was read: not even that the end is reached
            raise
        for cursor, (trimmed, routed) in zip(cursors, found, strict=True):
            if cursor.at < trimmed:
                self._gap(cursor.stream.identity, cursor.at, trimmed, cursor.elsewhere)
            identity = cursor.stream.identity
            most = CUT_AHEAD if self._is_slow else None
            cut = self._cutter.cut(identity, routed.blocks, cursor.at, most=most)
            batches = [routed.kept(batch) for batch in cut]
            if not batches and cursor.lost and cursor.at < cursor.lost[-1][1]:
                batches = [Batch(identity, cursor.at, cursor.lost[-1][1])]  # nothing was stored behind it
            for batch in batches:
                for first, upto in common(cursor.lost, [(batch.from_, batch.upto)]):
                    self.gaps.passed(identity, first, upto)
                cursor.ready.append(batch)
                cursor.at = batch.upto
            if batches:
                cursor.more, cursor.cut_bytes = None, self._cutter.batch_bytes

    def back_off(self, streams: Collection[str]) -> None:
        """Read no more of these streams until they are opened again."""
        for identity in streams:
            cursor = self._cursors.get(identity)
            if cursor is not None:
                cursor.backed_off = True
                cursor.ready.clear()

    async def _read(
        self, function: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        try:
            return await self._journal.read(function, *args, **kwargs)
        except BodyGone as error:
            raise JournalUnavailable(error.detail) from error
        except sqlite3.Error as error:
            raise JournalUnavailable(f"the journal cannot be read ({error})") from error

    # -- settling --------------------------------------------------------------------------------------

    async def settled(self, batch: Batch, receipt: Receipt) -> None:
        """Free what the target covers; waits only where the journal is far behind.

        Raises:
            JournalUnavailable: an earlier settlement failed; the target's word settles it again.
        """
        crash_point("source.before-settle")
        await self._settle(batch, self._cursors[batch.stream].address, receipt, recovered=False)
        crash_point("source.after-settle")

    async def _settle(self, batch: Batch, address: str, receipt: Receipt, *, recovered: bool) -> None:
        while self._settling and (self._settling[0].done() or len(self._settling) >= SETTLEMENTS):
            await _answer(self._settling.popleft())
        if batch.block is not None and not batch.block.ids:
            batch = replace(batch, block=None)  # a line needs the IDs only: let the bodies go
        command = self._journal.send(
            SettleCommand,
            bridge=self._bridge,
            address=address,
            target=self._target_name,
            batch=batch,
            store=self._store,
            committed=receipt.committed,
            duplicates=receipt.duplicates,
            recovered=recovered,
            logged=not (recovered and self._selection.transforms),
            clock_offset=receipt.clock_offset_ms,
        )
        self._settling.append(command.future)
        if self._shared is not None:
            command.future.add_done_callback(self._make_room)

    async def _settlements_end(self) -> None:
        """Wait, for `SETTLING_S` at most, until no settlement is on its way; the next opening repeats a
        failed one.
        """
        if not self._settling:
            return
        done, _ = await asyncio.wait(self._settling, timeout=SETTLING_S)
        self._settling.clear()
        await asyncio.gather(*done, return_exceptions=True)

    async def close(self) -> None:
        """Close; batches that were read and are not settled stay in the queue, in order."""
        if self._shared is not None:
            self._shared.close()
        await self._settlements_end()
        self._cursors.clear()


def _read_cursors(
    connection: sqlite3.Connection, bridge: str, cursors: Sequence[_StreamCursor], most_bytes: int
) -> list[tuple[int, Routed]]:
    """The position below which each cursor's messages are gone (0: kept), and its next blocks."""
    found: list[tuple[int, Routed]] = []
    for cursor in cursors:
        trimmed = 0
        if cursor.at < cursor.kept_from:
            (trimmed,) = connection.execute(
                "SELECT trimmed FROM addresses WHERE address_id = ?", (cursor.address_id,)
            ).fetchone()
        address = (cursor.address, cursor.address_id)
        found.append((trimmed, read_routed(connection, bridge, address, (cursor.at, END), most_bytes)))
    return found


def _trimmed(identity: str, start: int, trimmed: int) -> SourceGap:
    return SourceGap(
        f"{identity}: the target asks for {start}; this journal has nothing below {trimmed}",
        key=identity,
        limit=trimmed,
        found=start,
    )


async def _answer(future: asyncio.Future[Any]) -> None:
    """Wait for a settlement without cancelling it when the caller is cancelled."""
    await asyncio.wait((future,))
    future.result()
