"""Both ports in memory, as simple as can be: what every real end must do alike, with faults on request.

`FakeJournal` and `FakeStore` are what outlives a process; `FakeSource` and `FakeTarget` are one bridge's
ends on them and may be made anew at any time.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from bridge.errors import Fenced, OutOfSequence, SourceGap, TargetRefused, TargetStopping, TargetUnavailable
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.block import encode_message, pack
from bridge.messages.message import Message
from bridge.messages.positions import Runs
from bridge.messages.stream_names import source_of
from bridge.relay.divergence import Past, check_past
from bridge.relay.ports import Bounds, Opened, Receipt, Stream, StreamState
from bridge.relay.stays import NO_STAYS, Remembered, Stays
from dedup.coverage import Outcome, judge
from dedup.ids import Stamp
from dedup.verdict import Verdict

#: Numbers of runs: no two openings share one, not even those of copies.
_runs = itertools.count(1)


@dataclass
class FakeLog:
    """An address of a `FakeJournal`: its stream and messages by position."""

    stream: str
    #: They ascend.
    messages: dict[int, Message] = field(default_factory=dict)

    def beginning(self, at: int) -> list[int]:
        """The positions from `at` on, in order; found from the end, where what is read last stands."""
        return [*itertools.takewhile(lambda position: position >= at, reversed(self.messages))][::-1]


class FakeJournal:
    """What a source's node keeps: one sequence, messages by address, what each bridge settled."""

    def __init__(self, incarnation: str = "incarnation-1") -> None:
        self.incarnation = incarnation
        self.sequence = 0
        self.logs: dict[str, FakeLog] = {}
        #: By (bridge, stream).
        self.settled: dict[tuple[str, str], Remembered] = {}
        #: (stream, from, upto) that were settled by the target's word at an opening.
        self.recovered: list[tuple[str, int, int]] = []
        self.arrival = asyncio.Event()
        #: One an opening, in order: its name, and the sequence then.
        self.runs: list[tuple[str, int]] = []
        self.reopen()

    @property
    def run(self) -> str:
        return self.runs[-1][0]

    def reopen(self) -> None:
        """Another process opens it."""
        self.runs.append((f"run-{next(_runs)}", self.sequence))

    def copy(self) -> FakeJournal:
        """The data directory as it is now: a backup, or a second node. Not opened yet."""
        made = copy.copy(self)
        made.logs = {address: FakeLog(log.stream, dict(log.messages)) for address, log in self.logs.items()}
        made.settled, made.recovered, made.runs = dict(self.settled), list(self.recovered), list(self.runs)
        made.arrival = asyncio.Event()
        return made

    def past(self, stream: str, state: StreamState) -> Past:
        """What there is to hold against the target's word."""
        (log,) = (log for log in self.logs.values() if log.stream == stream)
        names = [name for name, _ in self.runs]
        known = state.run in names
        later = self.runs[names.index(state.run) + 1 :] if known else []
        below = [place for place in log.messages if state.next is not None and place < state.next]
        checksum = _checksum(log.messages[below[-1]]) if below else 0
        return Past(self.run, known, later[0][1] if later else None, self.sequence, checksum)

    def make(self, address: str) -> FakeLog:
        if address not in self.logs:
            stream = f"journal:{self.incarnation}:{address}:{self.sequence}"
            self.logs[address] = FakeLog(stream)
        return self.logs[address]

    def put(self, address: str, *messages: Message) -> list[int]:
        log = self.make(address)
        positions = list(range(self.sequence, self.sequence + len(messages)))
        log.messages.update(zip(positions, messages, strict=True))
        self.sequence += len(messages)
        self.arrival.set()
        self.arrival = asyncio.Event()
        return positions

    def start(self, stream: str) -> int:
        return int(stream.rpartition(":")[2])

    def settled_upto(self, bridge: str, stream: str) -> int:
        known = self.settled.get((bridge, stream))
        return known.upto if known is not None else self.start(stream)

    def backlog(self, bridge: str, address: str) -> list[Message]:
        """Messages that are not settled, in order."""
        log = self.logs[address]
        upto = self.settled_upto(bridge, log.stream)
        return [log.messages[position] for position in log.beginning(upto)]


class FakeSource:
    """`bridge.relay.ports.Source` on a `FakeJournal`."""

    def __init__(self, journal: FakeJournal, bridge: str = "orders-to-hub", *, most: int = 3) -> None:
        self.journal = journal
        self.bridge = bridge
        #: Messages in a batch; asked anew for each.
        self.most: Callable[[], int] = lambda: most
        #: The address at the target.
        self.forward: Callable[[str], str] = lambda address: address
        #: What no message of goes on: covered, and carried by no batch.
        self.filtered: Callable[[Message], bool] = lambda message: False
        #: Raised by the next `read`.
        self.read_fails: Exception | None = None
        #: Where each opening went, by stream.
        self.opened: list[dict[str, int | None]] = []
        #: What was logged as missing at a store: (stream, store, runs).
        self.missing: list[tuple[str, str, Runs]] = []
        self._store = ""
        self._at: dict[str, int] = {}
        self._confirmed: dict[str, int] = {}
        self._backed_off: set[str] = set()
        self._reading = False

    async def streams(self) -> Sequence[Stream]:
        return [
            Stream(log.stream, address, self.forward(address), self.journal.run)
            for address, log in sorted(self.journal.logs.items())
        ]

    async def remembered(self) -> Mapping[str, Remembered]:
        return {
            stream: known for (bridge, stream), known in self.journal.settled.items() if bridge == self.bridge
        }

    async def bounds(self) -> Mapping[str, Bounds]:
        return {
            log.stream: Bounds(min(log.messages, default=self.journal.sequence), self.journal.sequence)
            for log in self.journal.logs.values()
        }

    async def begin(self, stream: str, at: int, store: str, stays: Stays = NO_STAYS) -> None:
        if at > self.journal.sequence:
            raise SourceGap(f"{stream}: {at} is beyond the end", limit=self.journal.sequence, found=at)
        self.journal.settled[self.bridge, stream] = Remembered(at, store, stays)

    async def log_missing(self, stream: str, runs: Runs, store: str) -> None:
        self.missing.append((stream, store, runs))

    async def open(self, resume: Mapping[str, StreamState], store: str) -> None:
        self.opened.append({stream: state.next for stream, state in resume.items()})
        self._store = store
        for stream, state in resume.items():
            check_past(stream, state, self.journal.past(stream, state))
            if state.next is not None and state.next > self.journal.sequence:
                raise SourceGap(
                    f"{stream}: {state.next} is beyond the end", limit=self.journal.sequence, found=state.next
                )
        for stream, state in resume.items():
            settled = self.journal.settled_upto(self.bridge, stream)
            start = settled if state.next is None else state.next
            if start > settled:
                self.journal.recovered.append((stream, settled, start))
                self._settle(stream, start)
            self._at[stream] = self._confirmed[stream] = start
            self._backed_off.discard(stream)

    async def read(self) -> Sequence[Batch]:
        assert not self._reading, "read is called by one at a time"
        self._reading = True
        try:
            return await self._read()
        finally:
            self._reading = False

    async def _read(self) -> Sequence[Batch]:
        while True:
            arrival = self.journal.arrival
            await asyncio.sleep(0)
            if self.read_fails is not None:
                error, self.read_fails = self.read_fails, None
                raise error
            if any(log.stream not in self._at for log in self.journal.logs.values()):
                return []
            logs = [log for log in self.journal.logs.values() if log.stream not in self._backed_off]
            batches = [batch for log in logs if (batch := self._next(log)) is not None]
            if batches:
                return batches
            await arrival.wait()

    def back_off(self, streams: Collection[str]) -> None:
        assert not self._reading, "backed off while a read is under way"
        self._backed_off.update(streams)

    def _next(self, log: FakeLog) -> Batch | None:
        at = self._at[log.stream]
        covered = log.beginning(at)[: self.most()]
        if not covered:
            return None
        carried = [position for position in covered if not self.filtered(log.messages[position])]
        upto = self._at[log.stream] = covered[-1] + 1
        checksum = _checksum(log.messages[covered[-1]])
        if not carried:
            return Batch(log.stream, at, upto, checksum=checksum)
        runs = run_arithmetic.join((position, position) for position in carried)
        block = pack([encode_message(log.messages[position]) for position in carried])
        return Batch(log.stream, at, upto, runs, block.stamped(log.stream, runs), checksum)

    async def settled(self, batch: Batch, receipt: Receipt) -> None:
        expected = self._confirmed[batch.stream]
        assert batch.from_ == expected, f"settled out of order: {batch.from_}; expected {expected}"
        self._confirmed[batch.stream] = batch.upto
        if batch.upto > self.journal.settled_upto(self.bridge, batch.stream):
            self._settle(batch.stream, batch.upto)

    def _settle(self, stream: str, upto: int) -> None:
        known = self.journal.settled.get((self.bridge, stream))
        stays = NO_STAYS if known is None else known.stays
        self.journal.settled[self.bridge, stream] = Remembered(upto, self._store, stays)

    async def close(self) -> None:
        self._at.clear()
        self._backed_off.clear()


def _checksum(message: Message) -> int:
    return zlib.crc32(encode_message(message))


@dataclass(frozen=True)
class Arrived:
    """A message at a `FakeStore`, and where it came from."""

    stream: str
    position: int
    message: Message
    #: The stamped ID as text; empty: the message came without an origin.
    duplicate_id: str


@dataclass
class _Position:
    next: int | None = None
    run: str = ""
    checksum: int = 0
    epoch: int = 0
    #: The epoch in which a batch was not taken.
    blocked: int = 0
    #: The bridge that adopted it.
    moved_to: str = ""


class FakeStore:
    """What a target's node keeps, and the faults of the way there."""

    def __init__(self, identity: str = "store-1") -> None:
        self.identity = identity
        self.addresses: dict[str, list[Arrived]] = {}
        #: By (bridge, stream).
        self.positions: dict[tuple[str, str], _Position] = {}
        #: Every batch that came, in order.
        self.batches: list[Batch] = []
        #: Every `open` that was tried.
        self.opens = 0
        self.links: set[FakeTarget] = set()
        #: Cannot be reached.
        self.down = False
        #: Hands its messages over to another one.
        self.stopping = False
        #: The stores that it answers for besides.
        self.inherited: tuple[str, ...] = ()
        #: Never answers an `open`.
        self.hangs = False
        #: Answers an `open` once it is set; None: at once.
        self.opening: asyncio.Event | None = None
        #: Addresses that take no message now.
        self.full: set[str] = set()
        #: Largest body that is ever taken, bytes.
        self.largest = 1 << 30
        self.receipts_are_dropped = False
        self.receipts_take_s = 0.0
        self._refused: set[int] = set()
        self._not_now = 0
        self._cut_after: int | None = None

    # -- faults ----------------------------------------------------------------------------------------

    def drop_receipts(self, dropped: bool = True) -> None:
        """Batches are stored; no receipt comes back."""
        self.receipts_are_dropped = dropped

    def delay_receipts(self, seconds: float) -> None:
        self.receipts_take_s = seconds

    def cut_after(self, batches: int) -> None:
        """Cut every link once so many more batches have been stored, before the last one's receipt."""
        self._cut_after = batches

    def not_now(self, batches: int) -> None:
        """So many batches, of any stream, are not taken now."""
        self._not_now = batches

    def refuse(self, *positions: int) -> None:
        self._refused.update(positions)

    def cut(self) -> None:
        for link in list(self.links):
            link.cut()

    # -- what is there ---------------------------------------------------------------------------------

    def bodies(self, address: str) -> list[bytes | None]:
        return [arrived.message.whole for arrived in self.addresses.get(address, [])]

    def places(self, address: str) -> list[int]:
        return [arrived.position for arrived in self.addresses.get(address, [])]

    def next(self, bridge: str, stream: str) -> int | None:
        position = self.positions.get((bridge, stream))
        return position.next if position is not None else None

    def backup(self) -> FakeStore:
        """What is stored now, for `restore`."""
        made = FakeStore(self.identity)
        made.restore(self)
        return made

    def restore(self, saved: FakeStore) -> None:
        """Every link is cut, and what is stored is what it was then."""
        self.cut()
        self.addresses = {address: list(arrived) for address, arrived in saved.addresses.items()}
        self.positions = {key: copy.copy(position) for key, position in saved.positions.items()}

    # -- the rules -------------------------------------------------------------------------------------

    def open(self, bridge: str, stream: Stream, previous: str = "") -> StreamState:
        position = self.positions.setdefault((bridge, stream.identity), _Position())
        before = self.positions.get((previous, stream.identity))
        if before is not None and position.next is None and before.moved_to != bridge:
            if before.moved_to:
                raise TargetRefused(f"{before.moved_to} has adopted what {previous} delivered")
            epoch = max(position.epoch, before.epoch)
            position = _Position(before.next, before.run, before.checksum, epoch)
            self.positions[bridge, stream.identity] = position
            self.positions[previous, stream.identity] = _Position(epoch=before.epoch + 1, moved_to=bridge)
        if position.moved_to:
            raise TargetRefused(f"{position.moved_to} has adopted what {bridge} delivered")
        position.epoch += 1
        has_run = position.next is None and self._has_run(stream, bridge, previous)
        return StreamState(position.next, position.run, position.checksum, position.epoch, has_run)

    def _has_run(self, stream: Stream, *bridges: str) -> bool:
        """Whether a bridge of that name has brought anything from the stream's source."""
        source = source_of(stream.identity)
        return any(
            position.next is not None and name in bridges and source_of(identity) == source
            for (name, identity), position in self.positions.items()
        )

    def take(self, bridge: str, stream: Stream, epoch: int, batch: Batch) -> Receipt:
        self.batches.append(batch)
        position = self.positions[bridge, batch.stream]
        if position.epoch != epoch:
            raise Fenced(f"epoch {position.epoch}; this link has {epoch}")
        if position.blocked == epoch:
            return Receipt(
                batch.stream, Verdict.NOT_NOW, position.next or 0, reason="NOT_NOW: behind another"
            )
        judged = judge(position.next, batch.from_, batch.upto)
        if judged.outcome is Outcome.OUT_OF_SEQUENCE:
            raise OutOfSequence(f"begins at {batch.from_}; expected at most {position.next}")
        if judged.outcome is Outcome.DUPLICATE:
            return Receipt(batch.stream, Verdict.DUPLICATE, judged.next, duplicates=batch.count)
        fresh = batch.after(judged.start)
        answer = self._not_taken(stream, fresh, position.next or 0)
        if answer is not None:
            position.blocked = epoch
            return answer
        if fresh.block is not None:
            self._store(stream.target_address, fresh)
        position.next, position.run, position.checksum = batch.upto, stream.run, batch.checksum
        return Receipt(batch.stream, Verdict.STORED, batch.upto, duplicates=batch.count - fresh.count)

    def _not_taken(self, stream: Stream, batch: Batch, next_position: int) -> Receipt | None:
        """Why nothing of the batch is stored, if so."""
        messages = batch.block.messages() if batch.block is not None else []
        for place, message in zip(run_arithmetic.positions(batch.runs), messages, strict=True):
            if place in self._refused or len(message.body or b"") > self.largest:
                reason = "MESSAGE_TOO_LARGE: it is"
                return Receipt(batch.stream, Verdict.REFUSED, next_position, place, reason)
        if self._not_now > 0 or (messages and stream.target_address in self.full):
            self._not_now = max(self._not_now - 1, 0)
            return Receipt(batch.stream, Verdict.NOT_NOW, next_position, reason="ADDRESS_FULL: for now")
        return None

    def _store(self, address: str, batch: Batch) -> None:
        assert batch.block is not None
        texts = [
            text for origin, first, last in batch.block.origins for text in Stamp(origin).texts(first, last)
        ]
        places = list(run_arithmetic.positions(batch.runs))
        for index, message in enumerate(batch.block.messages()):
            duplicate_id = texts[index] if texts else ""
            self.addresses.setdefault(address, []).append(
                Arrived(batch.stream, places[index], message, duplicate_id)
            )

    def count_down_to_cut(self) -> None:
        if self._cut_after is not None:
            self._cut_after -= 1
            if self._cut_after <= 0:
                self._cut_after = None
                self.cut()


class FakeTarget:
    """`bridge.relay.ports.Target` on a `FakeStore`: one bridge's link."""

    def __init__(self, store: FakeStore, bridge: str = "orders-to-hub", previous: str = "") -> None:
        self.store = store
        self.bridge = bridge
        self.previous = previous
        self._streams: dict[str, tuple[Stream, int]] = {}
        self._broken = asyncio.Event()

    async def open(self, streams: Sequence[Stream]) -> Opened:
        self.store.opens += 1
        if self.store.hangs:
            await asyncio.Event().wait()
        if self.store.opening is not None:
            await self.store.opening.wait()
        await asyncio.sleep(0)
        if self.store.down:
            raise TargetUnavailable("connection refused")
        if self.store.stopping:
            raise TargetStopping("this node hands its messages over to another one")
        if self not in self.store.links:
            self.store.links.add(self)
            self._streams.clear()
            self._broken = asyncio.Event()
        states = {stream.identity: self.store.open(self.bridge, stream, self.previous) for stream in streams}
        self._streams.update((stream.identity, (stream, states[stream.identity].epoch)) for stream in streams)
        return Opened(self.store.identity, states, inherited=self.store.inherited)

    async def deliver(self, batches: Sequence[Batch]) -> Sequence[Receipt]:
        broken = self._broken
        receipts = [self._take(batch) for batch in batches]
        wait_s = None if self.store.receipts_are_dropped else self.store.receipts_take_s
        try:
            await asyncio.wait_for(broken.wait(), wait_s)
        except TimeoutError:
            if not broken.is_set():
                return receipts
        raise TargetUnavailable("the link was cut")

    async def lost(self) -> None:
        if self in self.store.links:
            await self._broken.wait()
        raise TargetUnavailable("the link was cut")

    def opened(self, batch: Batch) -> tuple[Stream, int]:
        """The batch's stream and epoch on this link."""
        if self not in self.store.links:
            raise TargetUnavailable("the link was cut")
        if batch.stream not in self._streams:
            raise TargetUnavailable(f"{batch.stream} is not open")
        return self._streams[batch.stream]

    def _take(self, batch: Batch) -> Receipt:
        receipt = self.store.take(self.bridge, *self.opened(batch), batch)
        self.store.count_down_to_cut()
        return receipt

    def cut(self) -> None:
        """The connection goes; what was stored stays."""
        self.store.links.discard(self)
        self._broken.set()

    async def close(self) -> None:
        self.cut()
