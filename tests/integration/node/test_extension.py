"""What an extension adds to a running node, and bridges that come and go while it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bridge import ends
from bridge.assembly.credentials import Credentials
from bridge.demo.ports import free_ports
from bridge.errors import Conflict, NotFound
from bridge.http.answers import Answer, answer
from bridge.http.authentication import Principal
from bridge.http.router import Addition
from bridge.journal.values.store import Sent, Transaction
from bridge.link.correspondent import LinkEnd
from bridge.link.frames import Hello
from bridge.messages.message import Message
from bridge.node.extension import Extension, NodeServices
from bridge.node.node import Node
from bridge.node.wiring import made_node
from bridge.relay.lifecycle import State
from bridge.runtime.metrics import Metric, Sample
from bridge.settings import SettingsFile, load
from bridge.settings.bridges import Bridge
from tests.fakes.ends import FakeJournal, FakeStore, FakeTarget
from tests.fakes.http_client import Client, http_client
from tests.fakes.memory_end import JOURNALS, STORES
from tests.harness.eventually import until
from tests.unit.link.fakes import FakeCorrespondent

ANSWERED = Metric("census_answered_total", "counter", ("kind",), "Calls that the census has answered.")


class Census(Extension):
    """An extension that uses every hook."""

    name = "census"

    def __init__(self) -> None:
        self.store = FakeStore("census:1")
        self.services: NodeServices | None = None
        #: What the node has called, in order.
        self.calls: list[str] = []
        self.answered = 0
        self.missing = ""
        self.correspondent = FakeCorrespondent()

    def operations_routes(self) -> Iterable[Addition]:
        yield Addition("POST", "/v1/census/{name}", self._count, changes=True)

    def acceptor_routes(self) -> Iterable[Addition]:
        yield Addition("GET", "/v1/census/{name}", self._count)

    async def _count(self, _request: web.Request, principal: Principal, name: str) -> Answer:
        self.answered += 1
        return answer({"name": name, "user": principal.name})

    async def start(self, node: NodeServices) -> None:
        self.calls.append("start")
        self.services = node

    async def stop(self) -> None:
        assert self.services is not None
        states = {name: relay.state.value for name, (relay, _) in self.services.bridges.items()}
        self.calls.append(f"stop, bridges: {states}")

    def link_end(self, hello: Hello, principal: Principal) -> LinkEnd | None:
        if not hello.bridge.startswith("census"):
            return None
        return LinkEnd(FakeTarget(self.store, hello.bridge), self.correspondent)

    def unready(self) -> Iterable[str]:
        if self.missing:
            yield f"the census misses {self.missing}"

    def status(self) -> Mapping[str, Any]:
        return {"answered": self.answered}

    def samples(self) -> Iterable[Sample]:
        yield Sample(ANSWERED, self.answered, {"kind": "calls"})


@pytest.fixture
def census() -> Census:
    return Census()


@pytest.fixture
def memory() -> Iterator[None]:
    ends.register("memory", "tests.fakes.memory_end:KIND", "memory://name")
    JOURNALS["there"], STORES["there"] = FakeJournal(), FakeStore("memory:1")
    yield
    ends.forget("memory")
    JOURNALS.clear()
    STORES.clear()


@pytest.fixture
def ports() -> tuple[int, int]:
    acceptor, operations = free_ports(2)
    return acceptor, operations


def hub_settings(ports: tuple[int, int]) -> str:
    return (
        '[node]\nname = "hub"\ndata-directory = "hub"\n'
        f'[acceptor]\nurl = "ws://127.0.0.1:{ports[0]}"\n[operations]\nurl = "http://127.0.0.1:{ports[1]}"\n'
    )


def node_of(file: Path, text: str, *extensions: Extension) -> Node:
    file.write_text(text)
    settings = load(file, {})
    return made_node(settings, SettingsFile(file, {}), Credentials(settings), extensions)


@pytest.fixture
async def hub(tmp_path: Path, ports: tuple[int, int], census: Census, memory: None) -> AsyncIterator[Node]:
    text = hub_settings(ports) + '[connectors.there]\nurl = "memory://there"\n'
    node = node_of(tmp_path / "hub.toml", text, census)
    await node.start()
    yield node
    await node.stop()


@pytest.fixture
async def acceptor(hub: Node, ports: tuple[int, int]) -> AsyncIterator[Client]:
    async with http_client(f"http://127.0.0.1:{ports[0]}") as client:
        yield client


@pytest.fixture
async def operations(hub: Node, ports: tuple[int, int]) -> AsyncIterator[Client]:
    async with http_client(f"http://127.0.0.1:{ports[1]}") as client:
        yield client


async def test_its_routes_are_answered_by_both_listeners(
    acceptor: Client, operations: Client, census: Census
) -> None:
    assert (await acceptor.call("GET", "/v1/census/a%20b")).value["name"] == "a b"
    assert (await operations.call("POST", "/v1/census/c")).value["name"] == "c"
    assert (await operations.call("GET", "/v1/census/c")).problem == (405, "METHOD_NOT_ALLOWED")
    assert census.answered == 2


async def test_readiness_status_and_metrics_show_it(operations: Client, census: Census) -> None:
    assert (await operations.call("GET", "/ready")).status == 200
    census.missing = "a row"
    not_ready = await operations.call("GET", "/ready")
    assert (not_ready.status, not_ready.value["reasons"]) == (503, ["the census misses a row"])
    await operations.call("POST", "/v1/census/c")
    assert (await operations.call("GET", "/v1/status")).value["census"] == {"answered": 1}
    metrics = (await operations.call("GET", "/metrics")).content.decode()
    assert 'census_answered_total{kind="calls"} 1.0' in metrics.splitlines()


async def test_it_starts_before_the_listener_and_stops_behind_the_bridges(
    tmp_path: Path, ports: tuple[int, int], census: Census, memory: None
) -> None:
    text = hub_settings(ports) + (
        '[connectors.there]\nurl = "memory://there"\n'
        '[[bridges]]\nname = "out"\nqueue-name = "orders"\nstatic-connectors = ["there"]\n'
    )
    node = node_of(tmp_path / "hub.toml", text, census)
    await node.start()
    assert census.calls == ["start"]
    await node.stop()
    assert census.calls == ["start", "stop, bridges: {'out': 'STOPPED'}"]


async def test_it_takes_the_links_that_are_its_own(
    hub: Node, tmp_path: Path, ports: tuple[int, int], census: Census
) -> None:
    bridges = "".join(
        f'[[bridges]]\nname = "{name}"\nqueue-name = "orders"\nstatic-connectors = ["hub"]\n'
        for name in ("census", "plain")
    )
    edge = node_of(
        tmp_path / "edge.toml",
        '[node]\nname = "edge"\ndata-directory = "edge"\n'
        f'[connectors.hub]\nurl = "ws://127.0.0.1:{ports[0]}"\n{bridges}',
    )
    await edge.start()
    assert edge.journal is not None
    assert hub.journal is not None
    await edge.journal.commit(Transaction([Sent.of("orders", Message(b"m"))]))

    async def arrived() -> bool:
        assert hub.journal is not None
        there = {status.address: status.messages for status in await hub.journal.addresses()}
        return census.store.bodies("orders") == [b"m"] and there.get("orders") == 1

    await until(arrived, "it has arrived")
    (peer,) = census.correspondent.peers
    assert (peer.node_name, peer.node_id) == ("edge", edge.journal.identity.node_id)
    assert census.correspondent.notify(b"to a bridge of the settings, which ignores it")
    await edge.stop()
    await until(lambda: census.correspondent.calls == ["connected", "disconnected"], "the link has ended")


def bridge_from_memory() -> Bridge:
    return Bridge.model_validate(
        {
            "name": "later",
            "source-connector": "there",
            "queue-name": "orders",
            "static-connectors": ["journal"],
        }
    )


def bridge_to_memory() -> Bridge:
    return Bridge.model_validate(
        {"name": "added", "queue-name": "/orders.*/", "static-connectors": ["there"]}
    )


async def test_bridges_come_and_go_while_the_node_runs(hub: Node, operations: Client, census: Census) -> None:
    assert census.services is not None
    services = census.services
    added = bridge_from_memory()
    JOURNALS["there"].put("orders", Message(b"m"))
    await services.add_bridge(added)
    with pytest.raises(Conflict, match="there is a bridge later already"):
        await services.add_bridge(added)

    async def arrived() -> bool:
        return [status.messages for status in await services.journal.addresses()] == [1]

    await until(arrived, "it has arrived")
    assert (await operations.call("GET", "/ready")).value["bridges"] == {"later": "RUNNING"}
    (shown,) = (await operations.call("GET", "/v1/status")).value["bridges"]
    assert (shown["name"], shown["state"]) == ("later", "RUNNING")
    assert (
        'core_bridge_connected{bridge="later"} 1.0'
        in (await operations.call("GET", "/metrics")).content.decode()
    )
    relay, _ = services.bridges["later"]
    await services.remove_bridge(added)
    assert relay.state is State.STOPPED
    assert (await operations.call("GET", "/v1/status")).value["bridges"] == []
    assert 'bridge="later"' not in (await operations.call("GET", "/metrics")).content.decode()
    with pytest.raises(NotFound, match="no bridge later"):
        await services.remove_bridge(added)


async def test_a_bridge_that_is_added_reads_the_journal_and_leaves_what_waits(
    hub: Node, operations: Client, census: Census
) -> None:
    """Its queue is made with it: messages that were there before go too, and its lag is counted."""
    assert census.services is not None
    services = census.services
    journal = services.journal

    async def send(body: bytes, address: str = "orders") -> None:
        await journal.commit(Transaction([Sent.of(address, Message(body))]))

    await send(b"before the queue")
    await journal.create_queue("orders", "keeps", "latest")
    await send(b"0")
    added = bridge_to_memory()
    await services.add_bridge(added)
    await until(lambda: STORES["there"].bodies("orders") != [], "the first has arrived")
    for number in (1, 2):
        await send(b"%d" % number)
    await send(b"new address", "orders.eu")
    await until(lambda: STORES["there"].bodies("orders.eu") == [b"new address"], "a new address is read")
    await until(lambda: STORES["there"].bodies("orders")[-2:] == [b"1", b"2"], "the others have arrived")
    await services.remove_bridge(added)
    await send(b"3")
    lags = {(lag.bridge, lag.address): lag.messages for lag in await journal.bridge_lags()}
    assert lags["added", "orders"] == 1
    assert [orphan.bridge for orphan in await journal.orphans()] == ["added", "added"]
    await services.add_bridge(added)
    await until(lambda: STORES["there"].bodies("orders")[-1] == b"3", "it goes on where it was")
    assert STORES["there"].bodies("orders").count(b"2") == 1
