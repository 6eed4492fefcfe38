"""HTTP over a store in memory and over a journal, in this process, and over a node that is a process.

Every case takes a client of one of them. They share the node, so each case uses addresses of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from typing import Final

import pytest

from bridge.http.acceptor import Acceptor, AcceptorOptions
from bridge.journal.journal import Journal
from bridge.journal.values.options import JournalOptions
from bridge.journal.values.store import Store
from tests.fakes.http_client import Client, http_client
from tests.fakes.store import MemoryStore
from tests.harness.node import Node, made_nodes

#: Serves HTTP; gives its URL.
Serves = Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[str]]

_numbers = count()


@asynccontextmanager
async def listening(store: Store) -> AsyncIterator[str]:
    acceptor = Acceptor(store, AcceptorOptions(url="ws://127.0.0.1:0"))
    bound = await acceptor.start()
    try:
        yield str(bound)
    finally:
        await acceptor.stop(100)


@asynccontextmanager
async def memory(_request: pytest.FixtureRequest) -> AsyncIterator[str]:
    async with listening(MemoryStore()) as url:
        yield url


@asynccontextmanager
async def journal(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    opened = await Journal.open(JournalOptions(directory=request.getfixturevalue("tmp_path")))
    try:
        async with listening(opened) as url:
            yield url
    finally:
        await opened.close()


@asynccontextmanager
async def process(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    node: Node = request.getfixturevalue("node")
    yield node.url


_PROCESS: Final = pytest.param("process", marks=pytest.mark.processes)
#: For cases to which a journal in this process adds nothing, as the node has one: what is refused before a
#: store is asked, and what takes tens of MiB or many rounds.
MEMORY_AND_PROCESS: Final = pytest.mark.parametrize("client", ["memory", _PROCESS], indirect=True)
_SERVES: Final[dict[str, Serves]] = {"memory": memory, "journal": journal, "process": process}


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One node with the defaults for all cases."""
    with made_nodes(tmp_path_factory.mktemp("nodes")) as make:
        node = make().start()
        yield node
        assert node.stop() == 0


@pytest.fixture(params=["memory", "journal", _PROCESS])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    async with _SERVES[request.param](request) as url, http_client(url) as calling:
        yield calling


@pytest.fixture
def address() -> str:
    """An address that no other case uses."""
    return f"orders-{next(_numbers)}"
