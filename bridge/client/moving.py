"""A limit on the time in which no byte of a call moves, however long the whole call takes."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import struct
import termios
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

import aiohttp

if TYPE_CHECKING:
    from aiohttp.connector import Connection

#: Looks at a connection within the limit.
_LOOKS: Final = 10
_INT: Final = struct.Struct("i")


class Moving:
    """Watches one call: bytes that the node takes of the request, and bytes of its answer.

    Bytes that are still on their way are those in the transport and, where the system says how many, those in
    the kernel that the other end has not acknowledged: on a slow line the kernel holds the most.
    """

    def __init__(self, limit_s: float | None) -> None:
        """`limit_s`: None: no limit."""
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._moved_s = self._loop.time()
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None
        #: Of the call's connection; None: it has none yet.
        self.transport: asyncio.Transport | None = None
        #: Whether any byte was seen to move.
        self.has_moved = False

    @contextlib.asynccontextmanager
    async def limit(self) -> AsyncIterator[None]:
        """Raises: TimeoutError: no byte moved for the limit."""
        token = _OF_CALL.set(self)
        try:
            async with asyncio.timeout(None) as timeout:
                self._look(timeout)
                try:
                    yield
                finally:
                    if self._timer is not None:
                        self._timer.cancel()
        finally:
            _OF_CALL.reset(token)

    async def whole(self, response: aiohttp.ClientResponse) -> bytes:
        """The body of the call's answer."""
        parts = []
        async for part in response.content.iter_any():
            self._move()
            parts.append(part)
        return b"".join(parts)

    def _move(self) -> None:
        self._moved_s = self._loop.time()
        self.has_moved = True

    def _look(self, timeout: asyncio.Timeout) -> None:
        waiting = 0 if self.transport is None else _unsent(self.transport)
        if waiting != self._waiting:
            self._waiting = waiting
            self._move()
        if self._limit_s is None:
            return
        if self._loop.time() >= self._moved_s + self._limit_s:
            timeout.reschedule(self._loop.time())
        else:
            self._timer = self._loop.call_later(self._limit_s / _LOOKS, self._look, timeout)


_OF_CALL: Final[ContextVar[Moving | None]] = ContextVar("moving", default=None)


class WatchedRequest(aiohttp.ClientRequest):
    """Shows the `Moving` of a call the connection that the call has."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        """As aiohttp's."""
        moving = _OF_CALL.get()
        if moving is not None:
            moving.transport = conn.transport
        return await super().send(conn)


def _unsent(transport: asyncio.Transport) -> int:
    """Bytes that the other end has not taken yet."""
    unsent = transport.get_write_buffer_size()
    raw = transport.get_extra_info("socket")
    with contextlib.suppress(OSError, AttributeError):  # closed, or no such question on this system
        (kernel,) = _INT.unpack(fcntl.ioctl(raw.fileno(), termios.TIOCOUTQ, bytes(_INT.size)))
        unsent += kernel
    return unsent
