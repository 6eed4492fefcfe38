"""Proxies of HTTP CONNECT and SOCKS5 in the test's own process: they resolve names and refuse as told."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import Mapping
from typing import Final, Literal, Self

#: The chunks in which bytes are passed on.
_CHUNK: Final = 64 * 1024


class FakeProxy:
    """A proxy on a free port of loopback. Use as an async context manager."""

    def __init__(
        self,
        kind: Literal["http", "socks5"] = "http",
        *,
        names: Mapping[str, int] | None = None,
        credentials: tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`names`: the loopback port for a name that only this proxy can resolve."""
        self.kind = kind
        self.names = dict(names or {})
        self.credentials = credentials
        self.tls = tls
        self.port = 0
        #: Given in place of an answer to CONNECT, or of the reply to a SOCKS request.
        self.answer: bytes | None = None
        #: Set: it accepts connections and answers nothing.
        self.mute = False
        #: The hosts and ports that it was asked for, in order.
        self.asked: list[str] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def scheme(self) -> str:
        return "https" if self.tls else self.kind

    @property
    def url(self) -> str:
        return f"{self.scheme}://{'localhost' if self.tls else '127.0.0.1'}:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(asyncio.CancelledError, OSError, asyncio.IncompleteReadError):
            if self.mute:
                await reader.read()
            elif self.kind == "http":
                await self._connect(reader, writer)
            else:
                await self._socks(reader, writer)
        writer.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        method, place, _ = request.split(b"\r\n")[0].split(b" ")
        self.asked.append(place.decode())
        host, _, port = place.decode().rpartition(":")
        if self.answer is not None:
            writer.write(self.answer)
        elif method != b"CONNECT":
            writer.write(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n")
        elif self.credentials is not None and self._basic() not in request:
            writer.write(
                b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=x\r\n\r\n"
            )
        else:
            await self._pass_on(
                reader, writer, host, int(port), b"HTTP/1.1 200 Connection established\r\n\r\n"
            )
        await writer.drain()

    def _basic(self) -> bytes:
        assert self.credentials is not None
        return (
            b"Proxy-Authorization: Basic " + base64.b64encode(":".join(self.credentials).encode()) + b"\r\n"
        )

    async def _socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        version, count = await reader.readexactly(2)
        if version != 5:
            return
        methods = await reader.readexactly(count)
        wanted = 0 if self.credentials is None else 2
        if wanted not in methods:
            writer.write(b"\x05\xff")
            return
        writer.write(bytes((5, wanted)))
        if self.credentials is not None:
            _, length = await reader.readexactly(2)
            user = (await reader.readexactly(length)).decode()
            password = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
            writer.write(b"\x01\x00" if (user, password) == self.credentials else b"\x01\x01")
            if (user, password) != self.credentials:
                return
        _, command, _, kind = await reader.readexactly(4)
        assert command == 1
        if kind == 3:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            host = ".".join(map(str, await reader.readexactly(4)))
        port = int.from_bytes(await reader.readexactly(2))
        self.asked.append(f"{host}:{port}")
        if self.answer is not None:
            writer.write(self.answer)
            return
        await self._pass_on(reader, writer, host, port, b"\x05\x00\x00\x01" + bytes(6))

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int, yes: bytes
    ) -> None:
        place = "127.0.0.1", self.names.get(host, port)
        far_reader, far_writer = await asyncio.open_connection(*place)
        writer.write(yes)
        try:
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        finally:
            far_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    writer.close()
