"""The link between the demo's nodes: a TCP proxy that can be cut, and can swallow the target's answers."""

from __future__ import annotations

import asyncio
import contextlib
from enum import Enum
from typing import Final, Self

from bridge.demo.ports import HOST

_CHUNK_BYTES: Final = 64 * 1024


class Link(Enum):
    """States of the link."""

    #: Bytes pass both ways.
    OPEN = "open"
    #: After `swallow_answers_after` bytes the target receives everything, and no answer comes back.
    ONE_WAY = "one-way"
    #: Connections are reset, and new ones too.
    CUT = "cut"


class LinkProxy:
    """Listens on a free port and forwards to the target's. Use as an async context manager."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._server: asyncio.Server | None = None
        self._state = Link.OPEN
        self._quiet_after_bytes = 0
        self._sent_bytes = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        #: Times that the link was cut.
        self.cuts = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, HOST, 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self._reset_connections()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        """The port on which it listens."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def sent_bytes(self) -> int:
        """Bytes that the source has sent, since the last `swallow_answers_after`."""
        return self._sent_bytes

    def cut(self) -> None:
        """Reset every connection, and every new one, until `heal`."""
        self.cuts += 1
        self._state = Link.CUT
        self._reset_connections()

    def heal(self) -> None:
        """Let bytes pass again; connections of the one-way time are reset."""
        if self._state is Link.ONE_WAY:
            self._reset_connections()
        self._state = Link.OPEN

    def swallow_answers_after(self, sent_bytes: int) -> None:
        """Open the link, but once the source has sent this many bytes no answer comes back until `heal`."""
        self._state = Link.ONE_WAY
        self._quiet_after_bytes = sent_bytes
        self._sent_bytes = 0

    def _reset_connections(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            if self._state is not Link.CUT:
                await self._relay(reader, writer)
        except asyncio.CancelledError:  # closing; start_server would log it
            pass
        finally:
            self._forget(writer)
            self._tasks.discard(task)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target_reader, target_writer = await asyncio.open_connection(HOST, self._target_port)
        except OSError:
            return
        self._writers.add(target_writer)
        try:
            if self._state is Link.CUT:  # the link was cut while the connection was being made
                return
            async with asyncio.TaskGroup() as both:
                both.create_task(self._forward(reader, target_writer, writer))
                both.create_task(self._answer(target_reader, writer, target_writer))
        finally:
            self._forget(target_writer)

    async def _forward(
        self, reader: asyncio.StreamReader, to: asyncio.StreamWriter, back: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_CHUNK_BYTES):
                self._sent_bytes += len(chunk)
                to.write(chunk)
                await to.drain()
        to.transport.abort()
        back.transport.abort()

    async def _answer(
        self, reader: asyncio.StreamReader, to: asyncio.StreamWriter, back: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_CHUNK_BYTES):
                if self._state is Link.ONE_WAY and self._sent_bytes >= self._quiet_after_bytes:
                    continue
                to.write(chunk)
                await to.drain()
        # The end of a dead target is hidden as well: in the one-way time the source learns nothing.
        if self._state is not Link.ONE_WAY:
            to.transport.abort()
        back.transport.abort()

    def _forget(self, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()
        self._writers.discard(writer)
