"""An HTTP client for tests that hides nothing: status, headers and bytes as they came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

MSGPACK = {"Accept": "application/msgpack"}


@dataclass
class Reply:
    status: int
    headers: CIMultiDictProxy[str]
    content: bytes

    @property
    def value(self) -> Any:
        if self.headers.get("Content-Type") == "application/msgpack":
            return msgspec.msgpack.decode(self.content)
        return msgspec.json.decode(self.content)

    @property
    def problem(self) -> tuple[int, str]:
        """Status and title, after checking that it is a problem through and through."""
        assert self.headers["Content-Type"] == "application/problem+json"
        value = self.value
        assert value["type"] == "about:blank"
        assert value["status"] == self.status
        assert value["detail"]
        if self.status == 503:
            assert int(self.headers["Retry-After"]) > 0
        return self.status, value["title"]


class Client:
    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self.session = session
        self.base = base.replace("ws", "http", 1)

    async def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        json: Any = None,
        packed: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        sent = CIMultiDict(headers or {})
        if json is not None:
            body = msgspec.json.encode(json)
            sent.setdefault("Content-Type", "application/json")
        if packed is not None:
            body = msgspec.msgpack.encode(packed)
            sent.setdefault("Content-Type", "application/msgpack")
        skip = () if "Content-Type" in sent else ("Content-Type",)
        url = URL(self.base + path, encoded=True)
        async with self.session.request(
            method, url, data=body, headers=sent, skip_auto_headers=skip
        ) as response:
            return Reply(response.status, response.headers, await response.read())

    async def send(self, address: str, body: bytes, **headers: str) -> Reply:
        """A single message; ``Message_Key=`` stands for ``Message-Key:``."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.call("POST", f"/v1/addresses/{address}/messages", body, headers=named)

    async def commit(self, *messages: dict[str, Any], **rest: Any) -> Reply:
        return await self.call("POST", "/v1/transactions", json={"messages": list(messages), **rest})


@asynccontextmanager
async def http_client(base: str) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        yield Client(session, base)


async def raw_exchange(port: int, sent: bytes) -> bytes:
    """Everything that comes back for these bytes until the node closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        await writer.drain()
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()
