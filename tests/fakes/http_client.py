"""An HTTP client for tests that hides nothing: status, headers and bytes as they came."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

MSGPACK = {"Accept": "application/msgpack"}
#: Most that aiohttp takes as bytes.
AIOHTTP_BODY_BYTES = 2**20


@dataclass
class Reply:
    status: int
    headers: CIMultiDictProxy[str]
    content: bytes

    @property
    def value(self) -> Any:
        media_type = self.headers["Content-Type"]
        if media_type == "application/msgpack":
            return msgspec.msgpack.decode(self.content)
        assert media_type in ("application/json", "application/problem+json"), self
        return msgspec.json.decode(self.content)

    @property
    def positions(self) -> Any:
        """Those of what was stored."""
        value = self.value
        assert (self.status, value.get("verdict")) == (200, "stored"), self
        return value["positions"]

    @property
    def problem(self) -> tuple[int, str]:
        """Status and title, after a look at its form (RFC 9457)."""
        assert self.headers["Content-Type"] == "application/problem+json", self
        value = self.value
        assert (value["type"], value["status"]) == ("about:blank", self.status)
        assert value["detail"]
        assert value.keys() <= {
            *("type", "title", "status", "detail", "key", "limit", "found"),
            *("duplicates", "line", "column"),
        }
        assert (int(self.headers.get("Retry-After", 0)) > 0) == (self.status == 503)
        return self.status, value["title"]

    def is_problem(self, status: int, title: str) -> dict[str, Any]:
        """The problem, which must have this status and title."""
        assert self.problem == (status, title)
        problem: dict[str, Any] = self.value
        return problem


class Client:
    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self.session = session
        self.base = base.replace("ws", "http", 1)

    @property
    def port(self) -> int:
        port = URL(self.base).port
        assert port is not None
        return port

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
        # aiohttp warns of large bodies that are bytes: they keep its loop busy.
        data = io.BytesIO(body) if body is not None and len(body) > AIOHTTP_BODY_BYTES else body
        async with self.session.request(
            method, url, data=data, headers=sent, skip_auto_headers=skip
        ) as response:
            return Reply(response.status, response.headers, await response.read())

    async def get(self, path: str, **headers: str) -> Reply:
        """A header is written ``Message_Key=`` for ``Message-Key:``, here and below."""
        return await self.call("GET", path, headers=_named(headers))

    async def send(self, address: str, body: bytes, **headers: str) -> Reply:
        """A single message."""
        path = f"/v1/addresses/{address}/messages"
        return await self.call("POST", path, body, headers=_named(headers))

    async def commit(self, *messages: dict[str, Any], **rest: Any) -> Reply:
        """A transaction; its ``duplicate-id`` may be written ``duplicate_id``."""
        return await self.call("POST", "/v1/transactions", json={"messages": list(messages), **_named(rest)})

    async def browse(self, address: str, query: str = "max=1000", **headers: str) -> list[dict[str, Any]]:
        """The messages of an address; none where it is not there."""
        reply = await self.get(f"/v1/addresses/{address}/messages?{query}", **headers)
        if reply.status == 404:
            return []
        messages: list[dict[str, Any]] = reply.value["messages"]
        return messages

    async def bodies(self, address: str) -> list[Any]:
        return [message.get("body", message.get("body-base64")) for message in await self.browse(address)]

    async def lease(
        self, address: str, queue: str, query: str = ""
    ) -> tuple[str | None, list[dict[str, Any]]]:
        reply = await self.get(f"/v1/addresses/{address}/queues/{queue}/messages?{query}")
        value = reply.value
        assert (reply.status, value.keys()) == (200, {"lease", "messages"}), value
        return value["lease"], value["messages"]

    async def settle(self, verb: str, address: str, queue: str, **lease: Any) -> Reply:
        return await self.call("POST", f"/v1/addresses/{address}/queues/{queue}/{verb}", json=lease)

    async def make_queue(self, address: str, queue: str, **wanted: Any) -> int:
        """The status: whether it was made."""
        path = f"/v1/addresses/{address}/queues/{queue}"
        return (await self.call("PUT", path, json=wanted or None)).status


def _named(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "-"): value for name, value in values.items()}


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
