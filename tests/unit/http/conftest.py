"""A listening acceptor over a store in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from bridge.http import connection, listener
from bridge.http.acceptor import Acceptor, AcceptorOptions
from tests.fakes.http_client import Client, http_client
from tests.fakes.store import MemoryStore

#: Starts an acceptor with these arguments and gives a client of it.
Start = Callable[..., Awaitable[Client]]


@pytest.fixture(autouse=True)
def _cuts_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that a stopping node cuts, and connections that it refuses, have no second to end in."""
    monkeypatch.setattr(listener, "_CUT_AFTER_S", 0.05)
    monkeypatch.setattr(connection, "LINGER_S", 0.05)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def start(store: MemoryStore) -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def listen(**how: Any) -> Client:
            links = how.pop("links", None)
            options = AcceptorOptions(**{"url": "ws://127.0.0.1:0", **how})
            acceptor = Acceptor(store, options, links=links)
            bound = await acceptor.start()
            stack.push_async_callback(acceptor.stop, 100)
            return await stack.enter_async_context(http_client(str(bound)))

        yield listen


@pytest.fixture
async def client(start: Start) -> Client:
    return await start()
