"""Lines as they are, in user space: slow, far, lossy, cut, reset, swallowing. A TCP forwarder in a thread.

    with Line(hub.port, rate=8_000, delay_ms=100) as line:
        edge = make_node("edge", bridge_to(hub, connector__url=f'"ws://127.0.0.1:{line.port}"'))

The model, in the order in which a byte meets it:

- **Connecting** takes a round trip before the first byte passes, and waits for the end of a cut. The kernel
  answers `connect` at once: only the first answer is late.
- **The queue** of each direction holds `queue` bytes of all connections together, as a modem does, first in,
  first out. When it is full nothing is read: TCP pushes back on the sender. The line's sockets have small
  buffers and segments, so that little is hidden beside the queue. The sender's own buffer is not the line's:
  Linux lets it grow to some 300 KiB at 8 kB/s and 600 KiB at 125 kB/s, unless the sender limits it.
- **The rate**, in bytes of TCP payload a second, is that of each direction; all connections share it. Bytes
  leave in pieces of a fiftieth of a second. A busy line makes up for at most `LATE_S` in which the machine
  did not run it; an idle line makes up for nothing.
- **Loss** is what TCP makes of it. A lost segment of `SEGMENT` bytes takes the wire once more, and holds back
  the bytes behind it on its connection until its retransmission has come: `max(200 ms, 2 * RTT)`, doubled for
  each further loss of the same segment. The bytes behind it go on using the wire. TCP's congestion window is
  not modelled: `rate` is what the line carries.
- **The delay** is one way: a segment comes so much later than it has left.
- **A cut** stops both directions; connections stay, and go on where they were. What was on its way arrives.
  The back-off of TCP's retransmissions is not modelled: bytes pass again at once.
- **A reset** ends all connections with RST at both sides. The bytes that the line still holds are gone.
- **A black hole** swallows the bytes of every connection. They stay, and stay dead after it; a connection
  that is made during it reaches nobody.

An end of file passes behind the bytes before it, and so does a reset that an end sends.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import Final, Self

from tests.harness.api import HOST

#: Bytes of a segment that is lost as a whole; also the largest that the kernel makes (TCP_MAXSEG).
SEGMENT: Final = 1448
#: Least and most bytes that leave at a time.
PIECE_LEAST: Final = 100
PIECE_MOST: Final = 16 * 1024
#: Pieces a second.
PIECES: Final = 50
#: Least bytes of a queue; it holds a second of the rate where that is more.
QUEUE_LEAST: Final = 64 * 1024
#: Most bytes that a line without a rate holds of one connection in one direction, on their way included.
WINDOW_MOST: Final = 32 * 1024 * 1024
#: Most seconds that a busy line makes up for.
LATE_S: Final = 0.25
#: Least wait for a retransmission, in seconds.
RETRANSMISSION_LEAST_S: Final = 0.2
#: Bytes of the kernel's buffers of each socket of a line; the kernel doubles them.
SOCKET_LEAST: Final = 4 * 1024
SOCKET_MOST: Final = 256 * 1024
#: Longest that a line's thread may take to start or end, in seconds.
_THREAD_S: Final = 10.0
#: SO_LINGER that turns `close` into RST.
_RESET: Final = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class Passed:
    """The bytes of one direction so far. Read it from any thread."""

    #: Taken from senders.
    taken: int = 0
    #: That used the wire, retransmissions included.
    carried: int = 0
    #: Of these: that the line sent again for a segment that was lost.
    again: int = 0
    #: Written to their receivers.
    delivered: int = 0


@dataclass(frozen=True, slots=True)
class Reset:
    """One reset of all connections: the bytes delivered since the reset before, or since the start."""

    connections: int
    up: int
    down: int


class _Ending(Enum):
    """An end of a connection's direction, in the order of its bytes."""

    FILE = "end of file"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class _Piece:
    """Bytes of a connection that wait for the wire, or how its direction ends."""

    flow: _Flow
    data: bytes
    ending: _Ending | None = None


class _Wire:
    """One direction of the line: its queue and its rate. Used in the line's thread alone."""

    def __init__(self, line: Line, rate: float | None, chance: random.Random) -> None:
        self.rate = rate
        self.passed = Passed()
        self._line = line
        self._chance = chance
        self._queue: deque[_Piece] = deque()
        self._queued = 0
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        #: The time at which the wire is free again; in the past while it is idle.
        self._free_s = 0.0

    @property
    def piece(self) -> int:
        """Bytes that leave at a time."""
        if self.rate is None:
            return PIECE_MOST
        return int(min(PIECE_MOST, max(PIECE_LEAST, self.rate / PIECES)))

    @property
    def capacity(self) -> int:
        """Bytes that the queue holds."""
        if self._line.queue is not None:
            return self._line.queue
        return int(max(QUEUE_LEAST, self.rate or 0))

    @property
    def window(self) -> int:
        """Bytes that one connection may have in the line: the queue's, and those on their way."""
        if self.rate is None:
            return WINDOW_MOST
        late_s = self._line.round_trip_s
        if self._line.loss:
            late_s += 2 * self._line.retransmission_s
        return int(self.capacity + self.rate * late_s)

    async def room(self) -> int:
        """The bytes that the queue has room for, at most a piece; waits until there is some."""
        while (left := self.capacity - self._queued) <= 0:
            self._room.clear()
            await self._room.wait()
        return min(left, self.piece)

    def put(self, piece: _Piece) -> None:
        """Queue it."""
        self._queue.append(piece)
        self._queued += len(piece.data)
        self.passed.taken += len(piece.data)
        self._filled.set()

    async def carry(self) -> None:
        """Carry what is queued, for ever."""
        clock = asyncio.get_running_loop().time
        while True:
            if not self._queue:
                self._filled.clear()
                await self._filled.wait()
                self._free_s = max(self._free_s, clock())
            if not self._line.passing.is_set():
                await self._line.passing.wait()
                self._free_s = clock()
            piece = self._queue.popleft()
            lost_s = 0.0 if piece.flow.ended else await self._use(len(piece.data))
            self._queued -= len(piece.data)
            self._room.set()
            piece.flow.arrive(piece, clock() + self._line.delay_s, lost_s)

    async def _use(self, count: int) -> float:
        """Use the wire for so many bytes; returns the seconds that retransmissions hold them back."""
        clock = asyncio.get_running_loop().time
        losses = self._losses(count)
        again = min(count, SEGMENT) * losses
        self.passed.carried += count + again
        self.passed.again += again
        if self.rate is not None and count:
            self._free_s = max(self._free_s, clock() - LATE_S) + (count + again) / self.rate
            wait_s = self._free_s - clock()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
        return float(self._line.retransmission_s * (2**losses - 1))

    def _losses(self, count: int) -> int:
        """How often in a row the piece's segment is lost."""
        if not self._line.loss or not count:
            return 0
        losses, chance = 0, 1 - (1 - self._line.loss) ** (count / SEGMENT)
        while self._chance.random() < chance:
            losses, chance = losses + 1, self._line.loss
        return losses


class _Flow:
    """One direction of one connection."""

    def __init__(self, pair: _Pair, wire: _Wire, source: socket.socket, target: socket.socket) -> None:
        self._pair = pair
        self._wire = wire
        self._source = source
        self._target = target
        self._held = 0
        self._room = asyncio.Event()
        self._arriving: asyncio.Queue[tuple[float, _Piece]] = asyncio.Queue()
        self._last_s = 0.0

    @property
    def ended(self) -> bool:
        """Whether its connection has ended: what the line holds of it is gone."""
        return self._pair.ended

    async def read(self) -> None:
        """Take the sender's bytes for as long as it sends."""
        loop = asyncio.get_running_loop()
        while True:
            while self._held >= self._wire.window:
                self._room.clear()
                await self._room.wait()
            count = await self._wire.room()
            data, ending = b"", _Ending.FILE
            try:
                data = await loop.sock_recv(self._source, count)
            except OSError:
                ending = _Ending.RESET
            if not self._pair.swallowed:
                self._held += len(data)
                self._wire.put(_Piece(self, data) if data else _Piece(self, data, ending))
            if not data:
                return

    def arrive(self, piece: _Piece, at_s: float, held_back_s: float) -> None:
        """What has left the wire comes in order, however long the bytes before it were held back."""
        self._last_s = max(self._last_s, at_s + held_back_s)
        self._arriving.put_nowait((self._last_s, piece))

    async def deliver(self) -> None:
        """Hand over what arrives, until the end."""
        loop = asyncio.get_running_loop()
        while True:
            at_s, piece = await self._arriving.get()
            if (wait_s := at_s - loop.time()) > 0:
                await asyncio.sleep(wait_s)
            if self._pair.swallowed:
                return
            try:
                if piece.ending is _Ending.FILE:
                    self._target.shutdown(socket.SHUT_WR)
                    self._pair.finished(self)
                elif piece.ending is _Ending.RESET:
                    self._pair.reset()
                else:
                    await loop.sock_sendall(self._target, piece.data)
            except OSError:
                self._pair.reset()
                return
            if piece.ending is not None:
                return
            self._wire.passed.delivered += len(piece.data)
            self._held -= len(piece.data)
            self._room.set()


class _Pair:
    """A connection of the line: the client's socket and the target's."""

    def __init__(self, line: Line, client: socket.socket) -> None:
        self._line = line
        self._client = client
        self._target: socket.socket | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._unfinished: set[_Flow] = set()
        self.swallowed = False
        self.ended = False

    def start(self) -> None:
        """Connect, and pass bytes on in both directions until both have ended."""
        self._tasks = [self._line.do(self._connect())]

    async def _connect(self) -> None:
        await asyncio.sleep(self._line.round_trip_s)
        await self._line.passing.wait()
        if self.swallowed:
            return
        self._target = self._line.small(socket.socket())
        try:
            await asyncio.get_running_loop().sock_connect(self._target, (HOST, self._line.target_port))
        except OSError:
            self.reset()
            return
        up, down = self._line.wires
        flows = _Flow(self, up, self._client, self._target), _Flow(self, down, self._target, self._client)
        self._unfinished = set(flows)
        self._tasks += [self._line.do(work()) for flow in flows for work in (flow.read, flow.deliver)]

    def finished(self, flow: _Flow) -> None:
        """A direction has passed its end of file; with the second one the connection has ended."""
        self._unfinished.discard(flow)
        if not self._unfinished:
            self._close()

    def reset(self) -> None:
        """End it with RST at both sides. What the line holds of it is gone."""
        for end in self._ends():
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._close()

    def _close(self) -> None:
        if self.ended:
            return
        self.ended = True
        self._line.pairs.discard(self)
        for task in self._tasks:
            task.cancel()
        for end in self._ends():
            # Behind what the cancelled tasks still do: the loop may not watch a descriptor that is another's.
            asyncio.get_running_loop().call_soon(end.close)

    def _ends(self) -> list[socket.socket]:
        return [end for end in (self._client, self._target) if end is not None]


@dataclass(eq=False)
class Line:
    """A line to a port of this machine, with a port of its own: see the module's text for the model.

    `up` is the direction to the target, `down` the one back. It runs between `__enter__` and `__exit__`.
    """

    target_port: int
    _: KW_ONLY
    #: Bytes a second in each direction; None: as fast as the machine.
    rate: float | None = None
    #: Of the direction back, where it differs.
    rate_down: float | None = None
    #: One way.
    delay_ms: float = 0.0
    #: Share of the segments that are lost, 0 to 1.
    loss: float = 0.0
    #: A cut of so many seconds at the end of each `cut_every_s`; 0: none.
    cut_s: float = 0.0
    cut_every_s: float = 60.0
    #: Seconds between resets of all connections; 0: none.
    reset_every_s: float = 0.0
    #: Bytes that the queue of each direction holds; None: `QUEUE_LEAST`, or a second of the rate.
    queue: int | None = None
    #: Port to listen on; 0: a free one.
    port: int = 0
    #: Of the losses.
    seed: int = 0
    #: Connections that have come.
    connections: int = field(default=0, init=False)
    #: Cuts that have begun.
    cuts: int = field(default=0, init=False)
    resets: list[Reset] = field(default_factory=list, init=False)
    wires: tuple[_Wire, _Wire] = field(init=False, repr=False)
    pairs: set[_Pair] = field(default_factory=set, init=False, repr=False)
    #: Cleared: a cut.
    passing: asyncio.Event = field(init=False, repr=False)
    _swallowing: bool = field(default=False, init=False, repr=False)
    _at_reset: tuple[int, int] = field(default=(0, 0), init=False, repr=False)
    _loop: asyncio.AbstractEventLoop = field(init=False, repr=False)
    _thread: threading.Thread = field(init=False, repr=False)
    _ended: asyncio.Event = field(init=False, repr=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False, repr=False)
    _errors: list[BaseException] = field(default_factory=list, init=False, repr=False)

    def __enter__(self) -> Self:
        self._loop = asyncio.SelectorEventLoop()
        self._ended, self.passing = asyncio.Event(), asyncio.Event()
        self.passing.set()
        up, down = self.rate, self.rate if self.rate_down is None else self.rate_down
        self.wires = (
            _Wire(self, up, random.Random(f"up:{self.seed}")),
            _Wire(self, down, random.Random(f"down:{self.seed}")),
        )
        listener = self.small(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, self.port))
        listener.listen(socket.SOMAXCONN)
        self.port = listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, args=(listener,), name="line", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._ended.set)
        self._thread.join(_THREAD_S)
        assert not self._thread.is_alive(), "the line's thread has not ended"
        for error in self._errors:
            raise error

    @property
    def up(self) -> Passed:
        return self.wires[0].passed

    @property
    def down(self) -> Passed:
        return self.wires[1].passed

    @property
    def delay_s(self) -> float:
        return self.delay_ms / 1000

    @property
    def round_trip_s(self) -> float:
        return 2 * self.delay_s

    @property
    def retransmission_s(self) -> float:
        return max(RETRANSMISSION_LEAST_S, 2 * self.round_trip_s)

    def set_rate(self, rate: float | None) -> None:
        """From the next piece on, in both directions."""
        for wire in self.wires:
            wire.rate = rate

    def cut(self) -> None:
        """Let nothing pass; connections stay."""
        self._call(self._cut)

    def swallow(self) -> None:
        """Be a black hole for all connections that are there, and for those that come."""

        def swallow() -> None:
            self._swallowing = True
            for pair in self.pairs:
                pair.swallowed = True

        self._call(swallow)

    def heal(self) -> None:
        """End a cut; a black hole is none for further connections."""

        def heal() -> None:
            self._swallowing = False
            self.passing.set()

        self._call(heal)

    def reset(self) -> None:
        """End all connections with RST at both sides."""
        self._call(self._reset)

    # -- in the line's thread -----------------------------------------------------------------------------

    def small(self, end: socket.socket) -> socket.socket:
        """Set what keeps the kernel's buffers of a socket small, and make it one of the loop."""
        rates = [wire.rate for wire in self.wires if wire.rate is not None]
        size = int(min(SOCKET_MOST, max(SOCKET_LEAST, max(rates) / 100))) if rates else SOCKET_MOST
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            end.setsockopt(socket.SOL_SOCKET, option, size)
        if rates:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT)
        end.setblocking(False)
        return end

    def do(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run a task; what it raises fails the test."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._errors.append(error)

    def _call(self, work: Callable[[], None]) -> None:
        """Run it in the line's thread, and return when it has run."""
        ran = threading.Event()

        def run() -> None:
            work()
            ran.set()

        self._loop.call_soon_threadsafe(run)
        assert ran.wait(_THREAD_S), "the line's thread does not answer"

    def _run(self, listener: socket.socket) -> None:
        with listener:
            try:
                self._loop.run_until_complete(self._serve(listener))
            finally:
                self._loop.close()

    async def _serve(self, listener: socket.socket) -> None:
        for work in (self._accept(listener), *(wire.carry() for wire in self.wires)):
            self.do(work)
        if self.cut_s:
            self.do(self._cuts())
        if self.reset_every_s:
            self.do(self._resets())
        await self._ended.wait()
        for pair in list(self.pairs):
            pair.reset()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            client, _ = await self._loop.sock_accept(listener)
            client.setblocking(False)
            self.connections += 1
            pair = _Pair(self, client)
            pair.swallowed = self._swallowing
            self.pairs.add(pair)
            pair.start()

    async def _cuts(self) -> None:
        while True:
            await asyncio.sleep(self.cut_every_s - self.cut_s)
            self._cut()
            await asyncio.sleep(self.cut_s)
            self.passing.set()

    def _cut(self) -> None:
        self.cuts += 1
        self.passing.clear()

    async def _resets(self) -> None:
        while True:
            await asyncio.sleep(self.reset_every_s)
            self._reset()

    def _reset(self) -> None:
        passed = (self.up.delivered, self.down.delivered)
        since = [now - then for now, then in zip(passed, self._at_reset, strict=True)]
        self._at_reset = passed
        self.resets.append(Reset(len(self.pairs), *since))
        for pair in list(self.pairs):
            pair.reset()
