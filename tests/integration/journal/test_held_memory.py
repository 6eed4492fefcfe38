"""Requests that wait for room: what they hold in memory is what is counted of them, and little more."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from pathlib import Path
from typing import Final

import msgspec
import pytest

from bridge.http.acceptor import Acceptor, AcceptorOptions
from bridge.journal.values.options import AddressPolicy
from tests.harness.eventually import until
from tests.integration.journal.helpers import opened, options, policies, send

REQUESTS: Final = 20
BYTES: Final = 50_000
#: Most that is held for each byte that is counted.
MOST: Final = 1.3


def transaction(number: int) -> dict[str, object]:
    """So many messages, `BYTES` in all."""
    message = {"address": "orders", "body": "x" * (BYTES // number), "headers": {"kind": "k"}}
    return {"messages": [message] * number}


def request(path: str, body: bytes, content_type: str) -> bytes:
    head = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Type: {content_type}"]
    return "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body


def form(kind: str, number: int) -> bytes:
    """A request of one kind, in one form."""
    if kind == "post":
        return request("/v1/addresses/orders/messages", b"x" * BYTES, "text/plain")
    if kind == "json":
        body = msgspec.json.encode(transaction(number))
    else:
        body = msgspec.msgpack.encode(transaction(number))
    return request("/v1/transactions", body, f"application/{kind}")


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("post", 1),
        ("json", 1),
        ("json", 50),
        ("json", 500),
        ("msgpack", 1),
        ("msgpack", 50),
        ("msgpack", 500),
    ],
)
async def test_what_waits_for_room_holds_what_is_counted(tmp_path: Path, kind: str, number: int) -> None:
    small = policies(AddressPolicy(), orders=AddressPolicy(max_size_bytes=100_000))
    async with opened(options(tmp_path, small)) as journal:
        while "orders" not in journal.full_addresses():
            await send(journal, "." * 40_000)
        acceptor = Acceptor(journal, AcceptorOptions(url="ws://127.0.0.1:0"))
        bound = await acceptor.start()
        clients = [await asyncio.open_connection(bound.host, bound.port) for _ in range(REQUESTS)]
        for reader, writer in clients:  # each connection has answered before
            writer.write(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
        content = form(kind, number)
        tracemalloc.start()
        try:
            gc.collect()
            before, _ = tracemalloc.get_traced_memory()
            for _, writer in clients:
                writer.write(content)

            def counted() -> int:
                return journal._writer.blocked_bytes

            await until(lambda: counted() >= REQUESTS * BYTES, "all of them wait")
            gc.collect()
            held = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert held <= MOST * counted(), f"{held / counted():.2f}"
        for _, writer in clients:
            writer.close()
        await acceptor.stop(100)
