"""Workers without processes: a channel in memory, a process that a test plays, a bridge that obeys."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import cast

from bridge.relay.counts import Counts
from bridge.relay.lag import PartitionStatus
from bridge.relay.lifecycle import Command, State, after
from bridge.relay.line import LineStatus
from bridge.workers.channel import (
    MOST_LINE_BYTES,
    MOST_ORDER_BYTES,
    Channel,
    FromWorker,
    Ready,
    Report,
    ToWorker,
)


class _Writer:
    """The part of `asyncio.StreamWriter` that a channel uses, into the other end's reader."""

    def __init__(self, other: asyncio.StreamReader) -> None:
        self._other = other
        self._closed = False

    def write(self, data: bytes) -> None:
        if not self._closed:
            self._other.feed_data(data)

    async def drain(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._other.feed_eof()

    async def wait_closed(self) -> None:
        pass


def channels() -> tuple[Channel[FromWorker], Channel[ToWorker]]:
    """The supervisor's end and the worker's; call it in a running loop."""
    to_supervisor = asyncio.StreamReader(limit=MOST_LINE_BYTES)
    to_worker = asyncio.StreamReader(limit=MOST_ORDER_BYTES)
    ours = cast(asyncio.StreamWriter, _Writer(to_worker))
    theirs = cast(asyncio.StreamWriter, _Writer(to_supervisor))
    return Channel(to_supervisor, ours, FromWorker), Channel(to_worker, theirs, ToWorker)  # type: ignore[arg-type]


class PlayedProcess:
    """`bridge.workers.process.WorkerProcess` whose worker is the test."""

    def __init__(self, worker: int, pid: int) -> None:
        self.worker = worker
        self.pid = pid
        self.channel, self.inside = channels()
        #: Signals that came, in order. SIGKILL always ends it.
        self.signals: list[int] = []
        #: Whether SIGTERM ends it.
        self.obeys_sigterm = True
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def end(self, code: int) -> None:
        """It exits, which closes its end of the channel."""
        await self.inside.close()
        if not self._ended.done():
            self._ended.set_result(code)

    async def hears(self) -> ToWorker:
        """The next thing that it is told."""
        message = await self.inside.receive()
        assert message is not None, "the supervisor closed the channel"
        return message

    def says(self, *messages: FromWorker) -> None:
        for message in messages:
            self.inside.send(message)

    # -- as its supervisor sees it -----------------------------------------------------------------------

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        self.signals.append(number)
        if (number == signal.SIGKILL or self.obeys_sigterm) and not self._ended.done():
            self._ended.set_result(-number)
            self._closing = asyncio.ensure_future(self.inside.close())


class PlayedStart:
    """`bridge.workers.process.StartWorker`: every process it makes is the test's to play."""

    def __init__(self) -> None:
        #: Every process there was, in the order of their starts.
        self.made: list[PlayedProcess] = []
        #: Raised instead of making one.
        self.fails: OSError | None = None
        self._started: asyncio.Queue[PlayedProcess] = asyncio.Queue()

    async def __call__(self, worker: int) -> PlayedProcess:
        if self.fails is not None:
            raise self.fails
        process = PlayedProcess(worker, pid=1000 + len(self.made))
        self.made.append(process)
        self._started.put_nowait(process)
        return process

    async def next(self) -> PlayedProcess:
        """The next process that is started, before it has said anything."""
        return await self._started.get()

    async def next_ready(self) -> PlayedProcess:
        """The same, once it has said that it takes orders."""
        process = await self.next()
        process.says(Ready())
        return process


class ObedientBridge:
    """`bridge.relay.operated.Operated` that does as it is told, and what a test sets."""

    def __init__(self, counts: Counts | None = None) -> None:
        self.state = State.STOPPED
        self.reason = ""
        self.counts = counts or Counts()
        self.in_flight = 0
        self.line: LineStatus | None = None
        self.store = ""
        self.connector = ""
        self.lag: tuple[int, int | None] | None = (0, None)
        self.lanes_known = True
        self.rows: list[PartitionStatus] = []
        self.owned_lanes: list[int] | None = []
        #: What it was told, in order.
        self.commands: list[Command] = []
        #: Stop and pause wait for it.
        self.receipts = asyncio.Event()
        self.receipts.set()

    @property
    def connected(self) -> bool:
        return self.state is State.RUNNING

    async def partitions(self) -> Sequence[PartitionStatus]:
        return self.rows

    async def command(self, command: Command) -> None:
        self.commands.append(command)
        self.state = after(self.state, command)
        if self.state is State.STARTING:
            self.state = State.RUNNING
        ended = {State.STOPPING: State.STOPPED, State.PAUSING: State.PAUSED}.get(self.state)
        if ended is not None:
            ending = self.state
            await self.receipts.wait()
            if self.state is ending:
                self.state = ended


def report(
    bridge: str = "orders", state: State = State.RUNNING, *, order: int = 1, **fields: object
) -> Report:
    """A report, with `fields` of it or of its counts."""
    own = {
        "reason": "",
        "store": "",
        "connected": state is State.RUNNING,
        "in_flight": 0,
        "lag": (0, None),
        "lanes_known": True,
        "owned_lanes": (),
    }
    of_report = {name: fields.pop(name) for name in list(fields) if name in own}
    counts = Counts(**fields)  # type: ignore[arg-type]
    return Report(bridge=bridge, order=order, state=state, counts=counts, **{**own, **of_report})  # type: ignore[arg-type]
