"""Bytes that move over a client's connections: what a wait may count on, and what a reason can name.

aiokafka sees an answer only when it has come whole, and sees nothing of a request before. On a slow line
both take longer than any fixed time. So a wait ends here when nothing moves, or less than `LEAST_RATE`: bytes
that the other end's TCP has acknowledged, and bytes that have come, whole answers or not.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import sys
import termios
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

#: Lowest rate at which a line counts as one that works, bytes per second: each byte that moves extends a wait
#: by this part of a second, so that one which takes a byte a minute is given up all the same.
LEAST_RATE: Final = 500
#: How often a wait looks whether something has moved, ms. One that is over before has not looked.
LOOK_INTERVAL_MS: Final = 1_000
#: Where Linux has the acknowledged bytes in the structure of TCP_INFO (tcpi_bytes_acked), and its length up
#: to there.
_ACKNOWLEDGED_AT: Final = 120
_INFO_BYTES: Final = _ACKNOWLEDGED_AT + 8
_TCP_INFO: Final = getattr(socket, "TCP_INFO", None)


class LineStandsStill(TimeoutError):
    """An answer is not there in time, and too little has moved meanwhile; the text has the figures."""


class Patience:
    """How much longer to wait for something that comes over a line. Pure; times in seconds."""

    def __init__(self, now_s: float, patience_s: float) -> None:
        """Begin to wait: `patience_s`, and longer while bytes move."""
        self._patience_s = patience_s
        #: When the wait is over unless something moves.
        self.until_s = now_s + patience_s
        self._moved: int | None = None

    def look(self, now_s: float, moved: int) -> float:
        """Take account of the bytes that have moved in all by now; returns the time that is left."""
        gained = 0 if self._moved is None else max(0, moved - self._moved)  # less: a connection was replaced
        self._moved = moved
        extended = min(self.until_s + gained / LEAST_RATE, now_s + self._patience_s)
        self.until_s = max(self.until_s, extended)
        return self.until_s - now_s


@dataclass(frozen=True, slots=True)
class Waiting:
    """Bytes that wait at this end of one line."""

    #: ``host:port``.
    where: str
    bytes: int


def acknowledged(writer: Any) -> int | None:
    """The bytes that the other end's TCP has acknowledged, of TLS with its own; None: not known, as on
    systems but Linux.
    """
    connection = writer.get_extra_info("socket")
    if _TCP_INFO is None or connection is None or connection.fileno() < 0:
        return None
    try:  # uvloop's sockets have no `getsockopt`
        with socket.socket(fileno=os.dup(connection.fileno())) as copy:
            info = copy.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _INFO_BYTES)
    except OSError:
        return None
    return struct.unpack_from("=Q", info, _ACKNOWLEDGED_AT)[0] if len(info) == _INFO_BYTES else None


def unacknowledged(writer: Any) -> int:
    """The bytes that were written and that the other end has not acknowledged, as far as they are known: TLS
    may hold more.
    """
    buffered = int(writer.transport.get_write_buffer_size())
    connection = writer.get_extra_info("socket")
    if connection is None or connection.fileno() < 0:
        return buffered
    try:
        queued = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
    except OSError:
        return buffered
    return buffered + int.from_bytes(queued, sys.byteorder)


def moved(client: Any, group: int | None = None) -> int:
    """The bytes that have moved over the client's connections in both directions; None: of every group."""
    return sum(one.moved for one in _connections(client, group))


def written(client: Any, group: int) -> int:
    """The bytes that were written to the client's connections of this group."""
    return sum(one.written for one in _connections(client, group))


def waiting(client: Any, group: int | None = None) -> Waiting | None:
    """Where most bytes wait at this end; None: all that was written is at the other end."""
    found = [Waiting(f"{one.host}:{one.port}", one.waiting) for one in _connections(client, group)]
    most = max(found, key=lambda one: one.bytes, default=None)
    return most if most is not None and most.bytes > 0 else None


def waits_ms(client: Any, group: int) -> float:
    """How long the oldest request over the client's connections of this group has waited for its answer."""
    return max((one.waits_ms for one in _connections(client, group)), default=0.0)


def round_trip_ms(client: Any) -> float:
    """The shortest time of a request and its answer over any of the client's connections; 0: not known."""
    return min((one.round_trip_ms for one in _connections(client, None)), default=0.0)


def _connections(client: Any, group: int | None) -> Iterable[Any]:
    return [one for (_node, its), one in client._conns.items() if group is None or its == group]  # noqa: SLF001


@asynccontextmanager
async def while_moving(client: Any, timeout_ms: float) -> AsyncIterator[None]:
    """Limit the time of what is asked of `client`; bytes that move extend it. Raises: TimeoutError."""
    loop = asyncio.get_running_loop()
    patience = Patience(loop.time(), timeout_ms / 1000)
    timers: list[asyncio.TimerHandle] = []
    async with asyncio.timeout_at(patience.until_s) as limit:

        def look() -> None:
            if not limit.expired():
                patience.look(loop.time(), moved(client))
                limit.reschedule(patience.until_s)
                timers[:] = [loop.call_later(LOOK_INTERVAL_MS / 1000, look)]

        timers.append(loop.call_later(min(LOOK_INTERVAL_MS, timeout_ms / 2) / 1000, look))
        try:
            yield
        finally:
            for timer in timers:
                timer.cancel()
