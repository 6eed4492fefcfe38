"""Clients that leave, and a node that goes down."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from bridge.http.acceptor import Acceptor, AcceptorOptions
from tests.fakes.http_client import Client, http_client
from tests.fakes.store import MemoryStore
from tests.harness.eventually import until

QUEUE = "/v1/addresses/orders/queues/q"


async def opened(client: Client, request: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    port = urlsplit(client.base).port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {request} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return reader, writer


async def test_a_reader_that_leaves_takes_its_poll_along(client: Client, store: MemoryStore) -> None:
    await client.call("PUT", QUEUE)
    _, writer = await opened(client, f"{QUEUE}/messages?wait=60000")
    await until(lambda: store.polls == 1, "a poll waits")
    writer.close()
    await writer.wait_closed()
    async with asyncio.timeout(5):
        await until(lambda: store.polls == 0, "no poll waits")
    await client.send("orders", b"x")
    reply = await client.call("GET", f"{QUEUE}/messages")
    assert [message["body"] for message in reply.value["messages"]] == ["x"]


async def test_a_page_that_nobody_waits_for_any_more_is_returned(client: Client, store: MemoryStore) -> None:
    await client.call("PUT", QUEUE)
    await client.send("orders", b"x")
    granted, gone = asyncio.Event(), asyncio.Event()
    lease = store.lease

    async def slow_lease(*place: str, **how: Any) -> object:
        page = await lease(*place, **how)
        granted.set()
        await gone.wait()
        return page

    store.lease = slow_lease  # type: ignore[method-assign, assignment]
    _, writer = await opened(client, f"{QUEUE}/messages")
    await granted.wait()
    writer.transport.abort()
    await asyncio.sleep(0.02)  # the node's side of the cut has no event of its own to wait for
    gone.set()
    async with asyncio.timeout(5):
        await until(lambda: store.released == ["lease-1"], "the lease is released")


async def test_a_stopping_node_lets_requests_end_and_refuses_new_ones(store: MemoryStore) -> None:
    acceptor = Acceptor(store, AcceptorOptions(url="ws://127.0.0.1:0"))
    bound = await acceptor.start()
    async with http_client(str(bound)) as client:
        await client.call("PUT", QUEUE)
        reader, writer = await opened(client, "/v1/addresses")
        await reader.readuntil(b"]}]}")
        store.room.clear()
        held = asyncio.create_task(client.send("orders", b"x"))
        poll = asyncio.create_task(client.call("GET", f"{QUEUE}/messages?wait=60000"))
        await until(lambda: store.held == store.polls == 1, "the poll holds a lease")
        stopping = asyncio.create_task(acceptor.stop(60_000))
        assert (await poll).content == b'{"lease":null,"messages":[]}'
        writer.write(b"GET /v1/addresses HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"STOPPING" in answer
        assert b"Retry-After: " in answer
        assert not stopping.done()
        store.room.set()
        assert (await held).value["verdict"] == "stored"
        await stopping
        writer.close()
        await writer.wait_closed()
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.call("GET", "/v1/addresses")


async def test_stopping_takes_no_longer_than_it_may(store: MemoryStore) -> None:
    acceptor = Acceptor(store, AcceptorOptions(url="ws://127.0.0.1:0"))
    bound = await acceptor.start()
    async with http_client(str(bound)) as client:
        store.room.clear()
        held = asyncio.create_task(client.send("orders", b"x"))
        await until(lambda: store.held == 1, "one lease is held")
        async with asyncio.timeout(3):
            await acceptor.stop(10)
        with pytest.raises(aiohttp.ClientError):
            await held


async def test_stopping_twice_or_before_the_start_does_nothing(store: MemoryStore) -> None:
    acceptor = Acceptor(store, AcceptorOptions(url="ws://127.0.0.1:0"))
    await acceptor.stop()
    await acceptor.start()
    await acceptor.stop()
    await acceptor.stop()


async def test_an_address_in_use_cannot_be_had(store: MemoryStore) -> None:
    first = Acceptor(store, AcceptorOptions(url="ws://127.0.0.1:0"))
    bound = await first.start()
    second = Acceptor(store, AcceptorOptions(url=f"ws://127.0.0.1:{bound.port}"))
    with pytest.raises(OSError, match="in use"):
        await second.start()
    await second.stop()
    await first.stop()


async def test_the_process_can_be_made_to_die_right_before_a_stored_verdict(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a verdict "stored" has something behind it that a lost answer could put in doubt."""
    reached: list[str] = []
    monkeypatch.setattr("bridge.http.messages.crash_point", reached.append)
    monkeypatch.setattr("bridge.http.transactions.crash_point", reached.append)
    for _ in range(2):
        await client.send("orders", b"x", Duplicate_Id="a")
    assert reached == ["http.before-answer"]
    for _ in range(2):
        await client.commit({"address": "orders", "body": "x"}, **{"duplicate-id": "t"})
    assert reached == ["http.before-answer"] * 2
