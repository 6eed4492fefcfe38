"""A call over a slow line: it is given up once nothing moves, not while something does."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from bridge.client import node_client
from bridge.client.node_client import Connection, NodeClient, Problem, Unreachable
from bridge.client.retry import persistently
from bridge.errors import BridgeError

BODY = bytes(1_000_000)
LIMIT_S = 1.0


@contextlib.asynccontextmanager
async def serving(serve: Callable[[socket.socket], Awaitable[None]]) -> AsyncIterator[str]:
    """The URL of a server that takes one connection, with a small buffer, and reads as it is told."""
    loop = asyncio.get_running_loop()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)

        async def run() -> None:
            connection, _ = await loop.sock_accept(listener)
            with connection:
                await serve(connection)

        task = asyncio.create_task(run())
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_body_that_the_node_takes_slowly_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not once all of it is in the kernel, which holds more than the node takes within the limit."""
    monkeypatch.setattr(node_client, "ANSWER_TIMEOUT_S", LIMIT_S)
    loop = asyncio.get_running_loop()

    async def slowly(connection: socket.socket) -> None:
        came = 0
        while came < len(BODY):
            came += len(await loop.sock_recv(connection, 12 * 1024))
            await asyncio.sleep(0.02)  # time is the subject: longer than the limit in all
        await loop.sock_sendall(connection, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
        await loop.sock_sendall(connection, b"ok")

    async with serving(slowly) as url, NodeClient(Connection(url)) as client:
        began_s = loop.time()
        assert (await client.call("POST", "/v1/x", body=BODY)).body == b"ok"
        assert loop.time() > began_s + LIMIT_S


async def test_a_node_that_takes_nothing_more_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_client, "ANSWER_TIMEOUT_S", 0.2)

    async def stuck(_: socket.socket) -> None:
        await asyncio.Event().wait()

    async with serving(stuck) as url, NodeClient(Connection(url)) as client:
        with pytest.raises(Unreachable, match=r"no byte moved for 0\.2 s"):
            await client.call("POST", "/v1/x", body=BODY)


@pytest.mark.parametrize("moved", [True, False])
async def test_time_in_which_bytes_moved_does_not_count_towards_giving_up(moved: bool) -> None:
    calls = 0

    async def call() -> str:
        nonlocal calls
        calls += 1
        if calls == 2:
            return "stored"
        await asyncio.sleep(0.05)  # longer than there is for the tries in vain
        error = Unreachable("reset")
        error.has_moved = moved
        raise error

    retried: list[BridgeError] = []
    trying = persistently(call, on_retry=retried.append, give_up_after_s=0.02)
    if moved:
        assert await trying == "stored"
        assert len(retried) == 1
    else:
        with pytest.raises(Unreachable):
            await trying


async def test_a_body_that_was_too_slow_is_sent_again() -> None:
    calls = 0

    async def call() -> str:
        nonlocal calls
        calls += 1
        if calls == 2:
            return "stored"
        raise Problem(408, "BODY_TOO_SLOW", "the body came too slowly")

    assert await persistently(call, on_retry=lambda _: None) == "stored"
