"""A limit on the time in which no byte of a call moves, however long the whole call takes."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import struct
import termios
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any, Final

import aiohttp

#: Looks at a connection within the limit.
_LOOKS: Final = 10
_INT: Final = struct.Struct("i")


class Moving:
    """Watches one call: bytes that the node takes of the request, and bytes of its answer.

    Bytes that are still on their way are those in the transport and, where the system says how many, those in
    the kernel that the other end has not acknowledged: on a slow line the kernel holds the most.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._moved_s = self._loop.time()
        self._waiting = 0
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
                self._timer = self._loop.call_later(self._limit_s / _LOOKS, self._look, timeout)
                try:
                    yield
                finally:
                    self._timer.cancel()
        finally:
            _OF_CALL.reset(token)

    def moved(self) -> None:
        """Bytes of the answer came."""
        self._moved_s = self._loop.time()
        self.has_moved = True

    def _look(self, timeout: asyncio.Timeout) -> None:
        waiting = 0 if self.transport is None else _unsent(self.transport)
        if waiting != self._waiting:
            self._waiting = waiting
            self.moved()
        if self._loop.time() >= self._moved_s + self._limit_s:
            timeout.reschedule(self._loop.time())
        else:
            self._timer = self._loop.call_later(self._limit_s / _LOOKS, self._look, timeout)


_OF_CALL: Final[ContextVar[Moving | None]] = ContextVar("moving", default=None)


class WatchedConnector(aiohttp.TCPConnector):
    """Shows the `Moving` of a call the connection that the call has."""

    async def connect(self, *how: Any, **options: Any) -> Any:
        """As aiohttp's."""
        connection = await super().connect(*how, **options)
        moving = _OF_CALL.get()
        if moving is not None and connection.transport is not None:
            moving.transport = connection.transport
        return connection


def _unsent(transport: asyncio.Transport) -> int:
    """Bytes that the other end has not taken yet."""
    unsent = transport.get_write_buffer_size()
    raw = transport.get_extra_info("socket")
    with contextlib.suppress(OSError, AttributeError):  # closed, or no such question on this system
        (kernel,) = _INT.unpack(fcntl.ioctl(raw.fileno(), termios.TIOCOUTQ, bytes(_INT.size)))
        unsent += kernel
    return unsent
