"""A node as a target: implements the port `Target` at the other end of a link."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

import msgspec

from bridge.errors import TargetUnavailable
from bridge.link.body_pace import BodyPace
from bridge.link.codec import check
from bridge.link.compressor import Compressor
from bridge.link.correspondent import Correspondence, Correspondent
from bridge.link.driver import Driver, Socket, named, now
from bridge.link.frames import CloseCode, Hello, Welcome
from bridge.link.machine import LinkState, Noticed
from bridge.link.pending_requests import GREETING
from bridge.link.sender import Sender
from bridge.link.sending import ChunkWanted
from bridge.link.socket import Endpoint, connect
from bridge.messages.batch import Batch
from bridge.messages.block import KeptBody
from bridge.relay.counts import Traffic
from bridge.relay.ports import Opened, Receipt, Stream
from bridge.runtime.clock import Clock, SystemClock

#: Reads a chunk of a large body from where its batch comes from, by its number from 0. Raises: BridgeError.
ReadChunk = Callable[[KeptBody, int], Awaitable[bytes]]


class NodeTarget:
    """Delivers to the node at `endpoint`, for the bridge that `hello` names.

    `open` makes one attempt to connect where there is no live link, and never tries again by itself: the pump
    decides when to. A link that died fails the calls that wait, and every call until the next `open`; the
    streams must then be opened again. `correspondent` exchanges notices over each connection with the other
    node's extension; None: notices that come are ignored. `read_chunk` reads large bodies; None: no batch has
    one. `traffic` counts the bytes that leave.

    Raises:
        BrokenFrame: a field of `hello` is beyond its limit.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        hello: Hello,
        *,
        call_timeout_ms: int,
        clock: Clock | None = None,
        correspondent: Correspondent | None = None,
        read_chunk: ReadChunk | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        hello = msgspec.structs.replace(hello, compression=Compressor(endpoint.compression).offered)
        check(hello)
        self._read_chunk = read_chunk
        self._endpoint = endpoint
        self._hello = hello
        self._call_timeout_ms = call_timeout_ms
        self._clock = clock or SystemClock()
        self._correspondent = correspondent
        self._traffic = traffic
        self._link: _Link | None = None
        self._pace = BodyPace()
        self._connecting = asyncio.Lock()
        #: Counts calls of `close`: a connection made meanwhile is not kept.
        self._closes = 0

    @property
    def welcome(self) -> Welcome | None:
        """The identity of the node at the other end of the last link; None: none has answered yet."""
        return self._link.welcome if self._link else None

    @property
    def clock_offset_ms(self) -> float | None:
        """The other node's clock less this node's, by the last ping; None: not known yet."""
        return self._link.machine.clock_offset_ms if self._link else None

    @property
    def round_trip_ms(self) -> int | None:
        """Implements `MeasuringTarget.round_trip_ms`, by the pings that compare the clocks."""
        return self._link.machine.round_trip_ms if self._link else None

    @property
    def lacks_credit(self) -> bool:
        """Implements `MeasuringTarget.lacks_credit`."""
        return self._link is not None and self._link.machine.lacks_credit

    async def open(self, streams: Sequence[Stream]) -> Opened:
        """Connect where needed and open these streams on the link.

        Raises:
            TargetUnavailable: no answer, or one that may be different later.
            TargetRefused: credentials, version or the bridge itself were refused.
        """
        async with self._connecting:
            if self._link is None or self._link.ended:
                await self._connect()
            link = self._link
        if link is None:
            raise TargetUnavailable("closed while connecting")
        assert link.welcome is not None
        inherited = link.welcome.inherited
        if not streams:
            return Opened(link.welcome.store, inherited=inherited)
        return replace(await link.open(streams), inherited=inherited)

    async def deliver(self, batches: Sequence[Batch]) -> Sequence[Receipt]:
        """A receipt for each batch, in order. Calls may overlap; those of one stream take effect in call
        order. A large body lets batches of other streams pass.

        Raises:
            TargetUnavailable: the link is dead, or the stream is not open on it; also as OutOfSequence
                and Fenced.
            TargetRefused: a batch can never be sent to this node.
        """
        if self._link is None:
            raise TargetUnavailable("not connected: open first")
        return await self._link.deliver(batches) if batches else ()

    async def lost(self) -> None:
        """Wait for the end of the present link, and raise it; a later link is not waited for.

        Raises:
            TargetUnavailable: the link is dead, or there is none; also as OutOfSequence and Fenced.
            TargetRefused: the other node ended it for good.
        """
        if self._link is None:
            raise TargetUnavailable("not connected: open first")
        await self._link.lost()

    async def close(self) -> None:
        """End the link. Never raises; calls that wait fail with TargetUnavailable."""
        self._closes += 1
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _connect(self) -> None:
        if self._link is not None:
            # Its connection is released before the next one is made.
            await self._link.close()
            self._link = None
        closes = self._closes
        socket = await connect(self._endpoint, self._call_timeout_ms)
        sender = Sender(
            self._hello,
            call_timeout_ms=self._call_timeout_ms,
            now=now(self._clock),
            pace=self._pace,
            compressor=Compressor(self._endpoint.compression, self._traffic),
        )
        link = _Link(socket, sender, self._clock, self._hello.bridge, self._correspondent, self._read_chunk)
        try:
            await link.greeted()
        except BaseException:
            await link.close()
            raise
        if closes != self._closes:
            await link.close()
            raise TargetUnavailable("closed while connecting")
        self._link = link


class _Link:
    """One connection of a `NodeTarget`, and the calls that wait for answers on it."""

    def __init__(
        self,
        socket: Socket,
        machine: Sender,
        clock: Clock,
        bridge: str,
        correspondent: Correspondent | None,
        read_chunk: ReadChunk | None,
    ) -> None:
        self._bridge = bridge
        self._read_chunk = read_chunk
        self._reading: asyncio.Task[None] | None = None
        self.machine = machine
        self.welcome: Welcome | None = None
        self._clock = clock
        self._waiting: dict[int, asyncio.Future[Welcome | Opened | tuple[Receipt, ...]]] = {}
        self._waiting[GREETING] = asyncio.get_running_loop().create_future()
        self._gone = asyncio.Event()
        self._driver = Driver(machine, socket, clock, self._on_change)
        self._correspondent = correspondent
        self._correspondence = Correspondence(
            machine, self._driver.send_soon, partial(named, bridge=bridge, end="sending")
        )
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._driver.run()
        finally:
            if self._reading is not None:
                self._reading.cancel()
                await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self, wanted: ChunkWanted) -> None:
        try:
            assert self._read_chunk is not None, f"{self._bridge}: no source of large bodies"
            chunk = await self._read_chunk(wanted.kept, wanted.chunk)
        except Exception as error:  # noqa: BLE001 - whatever it is, the batch must not wait for it
            self.machine.chunk_lost(wanted.body, named(error, self._bridge, "sending"))
        else:
            self.machine.chunk_read(wanted.body, chunk)
        self._driver.wake()

    @property
    def ended(self) -> bool:
        return self.machine.state is LinkState.CLOSED

    async def greeted(self) -> None:
        answer = await self._answer_of(GREETING)
        assert isinstance(answer, Welcome)
        self.welcome = answer

    async def open(self, streams: Sequence[Stream]) -> Opened:
        ticket = self.machine.open(streams, now(self._clock))
        answer = await self._answer(ticket)
        assert isinstance(answer, Opened)
        return answer

    async def deliver(self, batches: Sequence[Batch]) -> tuple[Receipt, ...]:
        ticket = self.machine.deliver(batches)
        answer = await self._answer(ticket)
        assert isinstance(answer, tuple)
        return answer

    async def lost(self) -> None:
        await self._gone.wait()
        raise self.machine.error()

    async def close(self) -> None:
        self.machine.close(CloseCode.GOODBYE, "")
        self._driver.wake()
        # Even when the caller of `close` is cancelled, the connection is released in the end.
        await asyncio.shield(self._task)

    async def _answer(self, ticket: int) -> Welcome | Opened | tuple[Receipt, ...]:
        self._waiting[ticket] = asyncio.get_running_loop().create_future()
        self._driver.wake()
        return await self._answer_of(ticket)

    async def _answer_of(self, ticket: int) -> Welcome | Opened | tuple[Receipt, ...]:
        future = self._waiting[ticket]
        try:
            return await future
        finally:
            # The error in it refers to this frame, and so to the caller's batches: they must not keep each
            # other alive.
            del future

    def _on_change(self) -> None:
        for event in self.machine.take_events():
            if isinstance(event, Noticed):
                self._correspondence.noticed(event.body)
                continue
            if isinstance(event, ChunkWanted):
                self._reading = asyncio.create_task(self._read(event))
                continue
            future = self._waiting.pop(event.ticket)
            if not future.done():
                future.set_result(event.answer)
            if isinstance(event.answer, Welcome):
                self._correspondence.begin(self._correspondent, event.answer)
        if self.ended:
            self._correspondence.end()
            self._gone.set()
            waiting, self._waiting = self._waiting, {}
            for future in waiting.values():
                if not future.done():
                    future.set_exception(self.machine.error())
