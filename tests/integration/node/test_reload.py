"""A node whose bridges come and go by reloads, in this process: their objects, and failures."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge import ends
from bridge.assembly.credentials import Credentials
from bridge.demo.ports import free_ports
from bridge.errors import BridgeError, Conflict, JournalUnavailable, Stopping
from bridge.journal.rules.commands import BridgeCommand
from bridge.journal.values.store import Sent, Transaction
from bridge.messages.message import Message
from bridge.node.extension import Extension, NodeServices
from bridge.node.node import Node
from bridge.node.wiring import made_node
from bridge.relay.lifecycle import State
from bridge.settings import SettingsFile, load
from bridge.transformers import Message as TransformedMessage
from tests.fakes.ends import FakeStore
from tests.fakes.memory_end import STORES
from tests.harness.eventually import PATIENCE_S, until


class Watching(Extension):
    """An extension that notes the settings that it was told of."""

    def __init__(self) -> None:
        self.node: NodeServices | None = None
        self.told: list[list[str]] = []

    async def start(self, node: NodeServices) -> None:
        self.node = node

    def reloaded(self) -> None:
        assert self.node is not None
        self.told.append([bridge.name for bridge in self.node.settings.bridges])


@pytest.fixture
def store() -> Iterator[FakeStore]:
    ends.register("memory", "tests.fakes.memory_end:KIND", "memory://name")
    made = STORES["there"] = FakeStore("memory:1")
    yield made
    ends.forget("memory")
    STORES.clear()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (port,) = free_ports(1)
    path = tmp_path / "settings.toml"
    path.write_text(
        f'[node]\nname = "edge"\n[acceptor]\nurl = "ws://127.0.0.1:{port}"\n'
        '[connectors.there]\nurl = "memory://there"\n'
    )
    return path


def write(file: Path, *names: str, queue: str = "", **keys: str) -> None:
    """Bridges of these names, each from an address of its name; the last from `queue`, where it is given."""
    queues = [*names[:-1], queue or names[-1]]
    head = file.read_text().split("[[bridges]]")[0]
    file.write_text(
        head
        + "".join(
            f'[[bridges]]\nname = "{name}"\nqueue-name = "{source}"\nstatic-connectors = ["there"]\n'
            f"{keys.get(name, '')}\n"
            for name, source in zip(names, queues, strict=True)
        )
    )


@pytest.fixture
def watching() -> Watching:
    return Watching()


@pytest.fixture
async def node(file: Path, store: FakeStore, watching: Watching) -> AsyncIterator[Node]:
    write(file, "a", "b")
    settings = load(file, {})
    made = made_node(settings, SettingsFile(file, {}), Credentials(settings), [watching])
    with pytest.raises(Conflict, match="the node is still starting"):
        await made.reloads.reload()
    await made.start()
    yield made
    await made.stop()
    with pytest.raises(Stopping):
        await made.reloads.reload()


async def send(node: Node, address: str, body: bytes) -> None:
    assert node.journal is not None
    await node.journal.commit(Transaction([Sent.of(address, Message(body))]))


async def test_a_bridge_that_has_not_changed_is_the_same_object(
    node: Node, file: Path, watching: Watching
) -> None:
    before = dict(node.bridges)
    write(file, "c", "b", "a", b="max-hops = 3")
    outcome = await node.reloads.reload()
    assert (outcome.added, outcome.restarted, outcome.removed) == (["c"], ["b"], [])
    assert node.bridges["a"] is before["a"]
    assert node.bridges["b"].relay is not before["b"].relay
    assert before["b"].relay.state is State.STOPPED
    assert watching.told == [["c", "b", "a"]]


async def test_a_bridge_that_the_journal_could_not_take_is_named_and_tried_again(
    node: Node, file: Path, store: FakeStore, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = node.journal
    assert journal is not None
    submit, failing = journal.submit, {"b", "c"}

    async def fails(make: Any, **fields: Any) -> Any:
        if make is BridgeCommand and fields["bridge"].bridge in failing:
            raise JournalUnavailable("the journal failed")
        return await submit(make, **fields)

    monkeypatch.setattr(journal, "submit", fails)
    write(file, "a", "b", "c", "d", b="max-hops = 3")
    with pytest.raises(
        BridgeError, match=r"but for bridges: b: JOURNAL_UNAVAILABLE.*; c: JOURNAL_UNAVAILABLE"
    ):
        await node.reloads.reload()
    assert {name: one.relay.state.value for name, one in node.bridges.items() if name != "a"} == {
        "b": "STOPPED",
        "d": node.bridges["d"].relay.state.value,
    }
    assert watching.told == [["a", "d"]]
    failing.clear()
    outcome = await node.reloads.reload()
    assert (outcome.added, outcome.restarted) == (["b", "c"], [])
    for name in ("a", "b", "c", "d"):
        await send(node, name, b"1")
        await until(lambda name=name: store.bodies(name) == [b"1"], f"{name} relays")  # type: ignore[misc]


async def test_a_bridge_of_an_extension_is_not_taken_for_one_of_the_settings(
    node: Node, file: Path, watching: Watching
) -> None:
    assert watching.node is not None
    await watching.node.add("own", *node.bridges["a"])
    write(file, "a", "b", "own")
    with pytest.raises(Conflict, match="there is a bridge own already"):
        await node.reloads.reload()
    write(file, "a", "b")
    await node.reloads.reload()
    assert "own" in node.bridges


async def test_a_reload_that_changes_a_bridge_makes_no_second_call_while_one_runs(
    node: Node, file: Path, store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, inside, most = threading.Event(), 0, 0

    def call(message: TransformedMessage, _properties: object) -> TransformedMessage:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        go_on.wait(PATIENCE_S)
        inside -= 1
        return message

    monkeypatch.setattr("tests.harness.transformers.stamp", call)
    keys = 'transformer = "tests.harness.transformers:stamp"\ncall-timeout = 30\n'
    await send(node, "c", b"1")
    write(file, "a", "b", "c", c=keys)
    await node.reloads.reload()
    await until(lambda: inside == 1, "it is called")
    write(file, "a", "b", "c", c=keys + "max-hops = 3\n")
    assert (await node.reloads.reload()).restarted == ["c"]
    write(file, "a", "b", "renamed", queue="c", renamed=f'{keys}previous-name = "c"\n')
    assert (await node.reloads.reload()).added == ["renamed"]
    await until(lambda: "has not returned" in node.bridges["renamed"].relay.counts.trouble, "it waits")
    go_on.set()
    await until(lambda: store.bodies("c") == [b"1"], "it relays")
    assert (most, inside) == (1, 0)


def test_a_connector_that_a_reload_takes_away_shows_no_token_any_more(tmp_path: Path) -> None:
    """A bridge that is about to stop may connect once more."""
    path = tmp_path / "settings.toml"
    path.write_text('[node]\nname = "edge"\n[connectors.hub]\nurl = "ws://hub:1"\ntoken = "secret"\n')
    credentials = Credentials(load(path, {}))
    assert credentials.token("hub") == "secret"
    path.write_text('[node]\nname = "edge"\n')
    credentials.take(Credentials(load(path, {})))
    assert credentials.token("hub") == ""
