"""Drives one end of a link: reads for its machine, writes for it, and wakes it at its deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

import structlog

from bridge.errors import BridgeError
from bridge.link.codec import encode
from bridge.link.frames import AnyFrame, BatchFrame, BodyFrame, CloseCode, OpenStream, ReceiptFrame
from bridge.link.machine import LinkState, Machine, Now
from bridge.runtime.clock import Clock
from bridge.runtime.fault_injection import crash_point

_log: Final = structlog.get_logger(__name__)

#: Time for the last frames of a link, its CLOSE above all, to leave. Seconds.
FLUSH_S: Final = 1.0
#: The longest sleep of a timer; for a later deadline it is set again.
_LONGEST_SLEEP_S: Final = 3600.0


def now(clock: Clock) -> Now:
    """The current moment, by both of its clocks."""
    return Now(clock.monotonic_ms(), clock.wall_ms())


class _Unforeseen(BridgeError):
    """An error that no port names. Its text stays at this node, in the log."""

    code = CloseCode.INTERNAL


def named(error: Exception, bridge: str, end: str) -> BridgeError:
    """The error as the other end may see it. `end` is this one: receiving or sending."""
    if isinstance(error, BridgeError):
        # It is kept until its batch's turn comes, and must not keep the batch alive by the frames it
        # passed.
        return error.with_traceback(None)
    _log.error("link-failed", bridge=bridge, exc_info=error)
    return _Unforeseen(f"{type(error).__name__}; see the log of the {end} node")


def _nothing() -> None:
    """Does nothing: the link has ended, and there is nothing to act on."""


class Socket(Protocol):
    """A connection that carries whole messages."""

    def watch(self, on_bytes: Callable[[bytes], None]) -> None:
        """Call `on_bytes` from now on with bytes of the connection as they come, before any message is
        made of them.
        """

    def hold(self, held: bool) -> None:
        """Read no bytes from the connection, or read on. Messages that have come are still received."""

    async def send(self, data: bytes) -> None:
        """Send one message; waits while too much is on its way. Raises: ConnectionError."""

    async def receive(self) -> bytes:
        """The next message. Raises: ConnectionError, with the reason, when there will be none."""

    async def close(self) -> None:
        """Release the connection. Never raises."""

    def cut(self) -> None:
        """Break the connection at once; unsent bytes are lost."""


class Driver:
    """One end of one connection. `run` returns when the link has ended and nothing of it is left."""

    def __init__(
        self, machine: Machine[Any], socket: Socket, clock: Clock, on_change: Callable[[], None]
    ) -> None:
        """`on_change` is called when the machine may have events, and once it has ended."""
        self._machine = machine
        self._socket = socket
        self._clock = clock
        self._on_change = on_change
        self._work = asyncio.Event()
        self._ended = asyncio.Event()
        #: Set when the answer to whether to read on may have changed.
        self._moved = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        #: The time to which the timer is set, ms; it may be earlier than needed, never later.
        self._timer_ms = 0
        #: The connection is not read.
        self._held = False
        socket.watch(self._arrived)

    async def run(self) -> None:
        """Read and write until the machine is CLOSED or the connection gone; then let go of it."""
        reader = asyncio.create_task(self._guarded(self._read()))
        writer = asyncio.create_task(self._guarded(self._write()))
        try:
            self.wake()
            await self._ended.wait()
            await asyncio.wait({writer}, timeout=FLUSH_S)
        finally:
            drained = writer.done()
            if self._timer is not None:
                self._timer.cancel()
            self._machine.lost("the link was let go")
            reader.cancel()
            writer.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)
            self._on_change()
            self._on_change = _nothing  # it belongs to this driver's holder
            if not drained:
                # Unsent frames would keep the connection open for as long as the other end is stuck.
                self._socket.cut()
            await self._socket.close()

    def _arrived(self, data: bytes) -> None:
        """Bytes came in. A frame that begins may bring a deadline before the timer's."""
        now_ms = self._clock.monotonic_ms()
        if self._machine.arrived(data, now_ms) is not self._held:
            self._hold()
        if self._timer is None or self._timer_ms > now_ms + self._machine.unfinished_period_ms:
            self._set_timer()

    def _hold(self) -> None:
        self._held = self._machine.is_held
        self._socket.hold(self._held)

    def wake(self) -> None:
        """Look at the machine again after a call to it."""
        if self._machine.is_held is not self._held:
            self._hold()
        self._on_change()
        self._work.set()
        self._moved.set()
        if self._machine.state is LinkState.CLOSED:
            self._ended.set()
        else:
            self._set_timer()

    def send_soon(self) -> None:
        """Send what the machine has: nothing else has changed. Unlike `wake` it acts on no event."""
        self._work.set()

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Read or write; however it ends, the machine is told, so that no caller is left waiting."""
        try:
            await work
        except ConnectionError as error:
            self._machine.lost(str(error) or type(error).__name__)
        except Exception as error:  # noqa: BLE001 - a fault of this node: callers that wait must not hang
            _log.error("link-failed", exc_info=error)
            self._machine.lost(f"{type(error).__name__}; see this node's log")
        self.wake()

    async def _read(self) -> None:
        """Read as long as the machine takes frames: unread ones stay with the other end, by TCP."""
        while self._machine.state is not LinkState.CLOSED:
            if self._machine.may_read:
                # The frame is bound to no name: aiohttp keeps the error that ends the loop, and by it this
                # frame of the stack.
                self._machine.receive(await self._message(), now(self._clock))
                self.wake()
            else:
                await self._until_moved()

    async def _message(self) -> bytes:
        """The next message, once the machine takes it: it is small while it waits to be unpacked."""
        data = await self._socket.receive()
        while (
            not self._machine.may_take(data, self._moved.set) and self._machine.state is not LinkState.CLOSED
        ):
            await self._until_moved()
        return data

    async def _until_moved(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    async def _write(self) -> None:
        while True:
            self._work.clear()
            while (frame := self._machine.next_frame()) is not None:
                self._moved.set()
                await self._send(frame)
            self._on_change()
            if self._machine.state is LinkState.CLOSED:
                return
            await self._work.wait()

    async def _send(self, frame: AnyFrame) -> None:
        data = encode(frame)
        most = self._machine.largest_sent
        if len(data) > most:
            detail = f"{len(data)} bytes, where the other end takes {most}: lower producer-window-size"
            self._machine.close(CloseCode.FRAME_TOO_LARGE, detail, permanent=True)
            return
        data = self._machine.packed(frame, data, now(self._clock))
        match frame:
            case BatchFrame():
                crash_point("link.before-batch")
                await self._socket.send(data)
                crash_point("link.after-batch")
            case BodyFrame():
                crash_point("link.before-chunk")
                await self._socket.send(data)
            case ReceiptFrame():
                crash_point("link.before-receipt")
                await self._socket.send(data)
                crash_point("link.after-receipt")
            case OpenStream():
                crash_point("link.before-open")
                await self._socket.send(data)
            case _:
                await self._socket.send(data)

    def _set_timer(self) -> None:
        """Set the timer to the machine's deadline, unless it is set to an earlier moment.

        A frame only moves the deadline away: the timer is left alone then, and set again as it fires.
        """
        deadline_ms = self._machine.deadline_ms()
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        delay_s = min(max(deadline_ms - self._clock.monotonic_ms(), 0) / 1000, _LONGEST_SLEEP_S)
        self._timer_ms = deadline_ms
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._machine.tick(now(self._clock))
        self.wake()
