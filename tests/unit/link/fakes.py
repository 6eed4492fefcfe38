"""A connection in memory, and a target that does as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bridge.errors import OutOfSequence, TargetUnavailable
from bridge.link.frames import Hello, Welcome
from bridge.messages.batch import Batch
from bridge.relay.ports import Opened, Receipt, Stream, StreamState
from dedup.verdict import Verdict


class FakeSocket:
    """The driver's `Socket`: the test plays the other end."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[bytes] = asyncio.Queue()
        self.incoming: asyncio.Queue[bytes | Exception] = asyncio.Queue()
        #: Cleared: the other end reads nothing, and `send` waits.
        self.writable = asyncio.Event()
        self.writable.set()
        self.closed = False
        self.was_cut = False
        #: Whether the driver reads no bytes.
        self.held = False
        #: Shows the driver bytes that have come.
        self.arrive: Callable[[bytes], None] = lambda _: None

    def watch(self, on_bytes: Callable[[bytes], None]) -> None:
        self.arrive = on_bytes

    def hold(self, held: bool) -> None:
        self.held = held

    async def send(self, data: bytes) -> None:
        await self.writable.wait()
        self.sent.put_nowait(data)

    async def receive(self) -> bytes:
        item = await self.incoming.get()
        if isinstance(item, Exception):
            raise item
        return item

    async def close(self) -> None:
        self.closed = True

    def cut(self) -> None:
        self.was_cut = True


@dataclass
class FakeTarget:
    """Remembers next by rule 1, in memory; a test may hold its answers back or replace them."""

    store: str = "hub-store"
    #: What a restarted receiver would still know.
    next: dict[str, int] = field(default_factory=dict)
    #: Every batch handed over, in order, stored or not.
    handed: list[Batch] = field(default_factory=list)
    #: Positions stored, by stream, in the order they were.
    stored: dict[str, list[int]] = field(default_factory=dict)
    bodies: dict[int, bytes | None] = field(default_factory=dict)
    #: Cleared: deliveries wait.
    free: asyncio.Event = field(default_factory=asyncio.Event)
    #: Set whenever a batch has been handed over; tests clear it.
    came: asyncio.Event = field(default_factory=asyncio.Event)
    #: What the next deliveries answer instead: a receipt, or an error to raise.
    instead: list[Receipt | Exception | None] = field(default_factory=list)
    open_error: Exception | None = None
    closes: int = 0
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.free.set()

    async def open(self, streams: Sequence[Stream]) -> Opened:
        if self.open_error is not None:
            raise self.open_error
        return Opened(
            self.store, {stream.identity: StreamState(self.next.get(stream.identity)) for stream in streams}
        )

    async def deliver(self, batches: Sequence[Batch]) -> Sequence[Receipt]:
        receipts = []
        for batch in batches:
            self.handed.append(batch)
            self.came.set()
            planned = self.instead.pop(0) if self.instead else None
            await self.free.wait()
            if isinstance(planned, Exception):
                raise planned
            receipts.append(planned or self._store(batch))
        return receipts

    def _store(self, batch: Batch) -> Receipt:
        next_ = self.next.get(batch.stream, batch.from_)
        if batch.from_ > next_:
            raise OutOfSequence(f"from {batch.from_} beyond next {next_}", limit=next_, found=batch.from_)
        if batch.upto <= next_ and batch.count:
            return Receipt(batch.stream, Verdict.DUPLICATE, next_)
        kept = batch.after(next_)
        positions = [position for first, last in kept.runs for position in range(first, last + 1)]
        self.stored.setdefault(batch.stream, []).extend(positions)
        if kept.block is not None:
            bodies = [message.whole for message in kept.block.messages()]
            self.bodies.update(zip(positions, bodies, strict=True))
        self.next[batch.stream] = batch.upto
        return Receipt(batch.stream, Verdict.STORED, batch.upto, committed=1)

    async def lost(self) -> None:
        await self.closed.wait()
        raise TargetUnavailable("closed")

    async def close(self) -> None:
        self.closes += 1
        self.closed.set()


@dataclass
class FakeCorrespondent:
    """Remembers what it is told; a test may have it answer or fail."""

    #: The other end of each link, in order.
    peers: list[Hello | Welcome] = field(default_factory=list)
    #: What the link has called since: `connected`, the bodies that came, `disconnected`.
    calls: list[str | bytes] = field(default_factory=list)
    #: Said at once when a link is open.
    greeting: bytes | None = None
    #: Each notice is answered by itself.
    echoes: bool = False
    #: Answers that the link did not take.
    untaken: int = 0
    error: Exception | None = None
    connect_error: Exception | None = None
    #: Of the last link; still there when it has ended.
    notify: Callable[[bytes], bool] = lambda _: False

    def connected(self, notify: Callable[[bytes], bool], peer: Hello | Welcome) -> None:
        self.calls.append("connected")
        self.peers.append(peer)
        self.notify = notify
        if self.connect_error is not None:
            raise self.connect_error
        if self.greeting is not None:
            assert notify(self.greeting)

    def noticed(self, body: bytes) -> None:
        self.calls.append(body)
        if self.error is not None:
            raise self.error
        if self.echoes:
            self.untaken += not self.notify(body)

    def disconnected(self) -> None:
        self.calls.append("disconnected")

    @property
    def noticed_bodies(self) -> list[bytes]:
        """Every notice that came, over all links."""
        return [call for call in self.calls if isinstance(call, bytes)]
