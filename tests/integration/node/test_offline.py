"""`positions` and `forget` on a stopped node: the commands as they are typed, on a real journal."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bridge import ends
from bridge.assembly.bridges import Assembly
from bridge.assembly.context import node_context
from bridge.cli import main
from bridge.errors import TargetRefused
from bridge.journal.journal import Journal
from bridge.journal.values.store import Sent, Transaction
from bridge.messages.message import Message
from bridge.node.wiring import journal_options
from bridge.relay import divergence
from bridge.runtime.clock import SystemClock
from bridge.settings import load
from tests.fakes.ends import FakeStore
from tests.fakes.memory_end import STORES

SETTINGS = """
[node]
name = "node"
data-directory = "data"

[[bridges]]
name = "copies"
queue-name = "orders"
forwarding-address = "copy"
static-connectors = ["journal"]
"""


class Stopped:
    """A node that does not run."""

    def __init__(self, directory: Path, settings: str = SETTINGS) -> None:
        self.path = directory / "settings.toml"
        self.path.write_text(settings, "utf-8")
        self.data = directory / "data"

    def command(self, *arguments: str) -> int:
        return main([*arguments, "--settings", str(self.path)])

    def in_journal(self, work: Any) -> Any:
        """`await work(journal)`, as a node would have it open."""

        async def run() -> Any:
            journal = await Journal.open(journal_options(load(self.path, os.environ)))
            try:
                return await work(journal)
            finally:
                await journal.close()

        return asyncio.run(run())

    def put(self, *bodies: bytes) -> None:
        def send(journal: Journal) -> Coroutine[Any, Any, Any]:
            return journal.commit(Transaction([Sent.of("orders", Message(body)) for body in bodies]))

        self.in_journal(send)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self.data / "journal.sqlite")
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()


@pytest.fixture
def node(tmp_path: Path) -> Stopped:
    made = Stopped(tmp_path)
    made.put(b"a", b"b", b"c")
    return made


def test_a_bridge_that_never_ran_begins_behind_what_is_there(
    node: Stopped, capsys: pytest.CaptureFixture[str]
) -> None:
    assert node.command("positions", "copies", "--from", "latest") == 0
    out = capsys.readouterr().out
    assert "unknown to the target" in out
    assert "positions 0 to 2 are passed over and not delivered" in out
    assert out.splitlines()[-1] == "done"
    assert node.rows("SELECT bridge, next FROM positions") == [("copies", 3)]
    assert node.rows("SELECT next FROM queues WHERE bridge = 'copies'") == [(3,)]
    ((upto, store),) = node.rows("SELECT upto, store FROM settled")
    assert upto == 3
    assert store == ":".join(value for (value,) in node.rows(
        "SELECT value FROM meta WHERE key IN ('node-id', 'incarnation') ORDER BY key DESC"
    ))  # fmt: skip
    lines = [json.loads(line) for (line,) in node.rows("SELECT line FROM outbox")]
    sent = [(line["from"], line["upto"], line["count"]) for line in lines if line["side"] == "sent"]
    assert sent == [(0, 3, 0)], "passed over: covered and empty"


def test_a_dry_run_changes_nothing(node: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    assert node.command("positions", "copies", "--from", "latest", "--dry-run") == 0
    assert "goes on at 3" in capsys.readouterr().out
    assert node.rows("SELECT next FROM positions") == [(None,)]
    assert node.rows("SELECT next FROM queues WHERE bridge = 'copies'") == [(0,)]
    assert node.rows("SELECT upto FROM settled") == []


@pytest.mark.parametrize(("start", "at"), [("group", 3), ("earliest", 0), ("target", 0), ("latest", 4)])
def test_a_target_that_has_forgotten_gets_what_it_is_told_to_get(node: Stopped, start: str, at: int) -> None:
    """The bridge's queue goes back with it: what is to be sent again must not be trimmed meanwhile."""
    node.in_journal(lambda journal: journal.create_queue("orders", "keeps", "earliest"))
    assert node.command("positions", "copies", "--from", "latest") == 0
    connection = sqlite3.connect(node.data / "journal.sqlite")
    connection.execute("DELETE FROM positions")
    connection.commit()
    connection.close()
    node.put(b"d")
    assert node.command("positions", "copies", "--from", start) == 0
    assert node.rows("SELECT next FROM positions") == [(at,)]
    assert node.rows("SELECT next FROM queues WHERE bridge = 'copies'") == [(at,)]
    assert node.rows("SELECT upto FROM settled") == [(at,)]


def test_while_the_node_runs_it_is_refused(node: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    async def typed(_: Journal) -> int:
        return await asyncio.to_thread(node.command, "positions", "copies", "--from", "latest")

    assert node.in_journal(typed) == 1
    assert "in use by another process" in capsys.readouterr().err


def test_a_bridge_that_is_not_there_is_named_with_those_that_are(
    node: Stopped, capsys: pytest.CaptureFixture[str]
) -> None:
    assert node.command("positions", "none", "--from", "group") == 1
    assert "no bridge none; the settings have: copies" in capsys.readouterr().err


def test_lanes_are_for_bridges_between_kafka_clusters(
    node: Stopped, capsys: pytest.CaptureFixture[str]
) -> None:
    assert node.command("lanes", "copies", "--set", "4") == 1
    assert "not from Kafka to Kafka" in capsys.readouterr().err


def test_what_a_bridge_left_is_dropped_once_it_is_out_of_the_settings(
    node: Stopped, capsys: pytest.CaptureFixture[str]
) -> None:
    assert node.command("positions", "copies", "--from", "group") == 0
    assert node.command("forget", "--bridge", "copies") == 1
    assert "is in the settings: take it out first" in capsys.readouterr().err
    node.path.write_text(SETTINGS.replace('"copies"', '"others"'), "utf-8")
    assert node.command("forget", "--bridge", "copies", "--dry-run") == 0
    assert "orders: drops the queue of copies, which holds 3 messages" in capsys.readouterr().out
    assert len(node.rows("SELECT * FROM queues WHERE bridge = 'copies'")) == 1
    assert node.command("forget", "--bridge", "copies") == 0
    assert node.rows("SELECT * FROM queues WHERE bridge = 'copies'") == []
    assert node.rows("SELECT * FROM settled WHERE bridge = 'copies'") == []
    assert len(node.rows("SELECT * FROM positions WHERE bridge = 'copies'")) == 1, (
        "what came here stays known"
    )
    assert node.command("forget", "--bridge", "copies") == 1
    assert "nothing is left of a bridge copies" in capsys.readouterr().err


def test_an_address_that_a_bridge_leaves_out_is_dropped_by_itself(
    node: Stopped, capsys: pytest.CaptureFixture[str]
) -> None:
    forget = ("forget", "--bridge", "copies", "--address", "orders")
    assert node.command("positions", "copies", "--from", "group") == 0
    assert node.command(*forget) == 1
    assert "reads orders: take it out of its queue-name first" in capsys.readouterr().err
    node.path.write_text(SETTINGS.replace('"orders"', '"others"'), "utf-8")
    assert node.command(*forget[:3]) == 1
    assert "or name an address" in capsys.readouterr().err
    assert node.command(*forget) == 0
    assert "orders: drops the queue of copies, which holds 3 messages" in capsys.readouterr().out
    queues = "SELECT a.name FROM queues q JOIN addresses a USING (address_id) WHERE q.bridge = 'copies'"
    assert node.rows(queues) == [("others",)]
    assert node.rows("SELECT stream FROM settled WHERE bridge = 'copies' AND stream LIKE '%:orders:%'") == []
    assert node.command(*forget) == 1
    assert "nothing is left of a bridge copies at orders" in capsys.readouterr().err


def test_a_readers_queue_is_dropped_with_what_it_holds(
    node: Stopped, capsys: pytest.CaptureFixture[str]
) -> None:
    node.in_journal(lambda journal: journal.create_queue("orders", "billing", "earliest"))
    assert node.command("forget", "--queue", "orders", "billing") == 0
    assert "orders: drops the queue billing, which holds 3 messages" in capsys.readouterr().out
    assert node.rows("SELECT * FROM queues WHERE name = 'billing'") == []
    assert node.command("forget", "--queue", "orders", "billing") == 1


def test_under_a_new_incarnation_each_bridge_goes_on_where_its_target_is(
    node: Stopped, capsys: pytest.CaptureFixture[str]
) -> None:
    """B13: streams and store have new identities, and what was delivered is not sent again."""
    assert node.command("positions", "copies", "--from", "latest") == 0
    node.put(b"d", b"e")
    (before,) = node.rows("SELECT value FROM meta WHERE key = 'incarnation'")
    assert node.command("journal", "new-incarnation", "--dry-run") == 0
    assert node.rows("SELECT value FROM meta WHERE key = 'incarnation'") == [before]
    assert node.command("journal", "new-incarnation") == 0
    assert "copies: orders goes on at 3" in capsys.readouterr().out
    ((node_id,), (now,)) = node.rows(
        "SELECT value FROM meta WHERE key IN ('node-id', 'incarnation') ORDER BY key DESC"
    )
    assert (now,) != before
    stream = f"journal:{now}:orders:0"
    assert node.rows(f"SELECT next FROM positions WHERE stream = '{stream}'") == [(3,)]
    assert node.rows(f"SELECT upto, store FROM settled WHERE stream = '{stream}'") == [
        (3, f"{node_id}:{now}")
    ]
    assert node.rows("SELECT next FROM queues WHERE bridge = 'copies'") == [(3,)]
    ((record,),) = node.rows(f"SELECT value FROM meta WHERE key = 'branched:{now}'")
    assert json.loads(record)["from"] == before[0]


def test_cut_short_the_bridge_refuses_and_positions_completes_it(
    node: Stopped, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert node.command("positions", "copies", "--from", "latest") == 0

    async def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("bridge.node.offline.decide_positions", killed)
        assert node.command("journal", "new-incarnation") == 130

    async def refused(journal: Journal) -> str:
        settings = load(node.path, os.environ)
        assembly = Assembly(node_context(settings, SystemClock(), journal))
        ((source, target),) = assembly.ends(settings.bridges[0])
        opened = await target.open(await source.streams())
        known = await source.remembered()
        (stream,) = await source.streams()
        with pytest.raises(TargetRefused, match="knows nothing of") as raised:
            divergence.check(stream, known.get(stream.identity), opened, "copies")
        return raised.value.detail

    assert "core-bridge positions copies --from group" in node.in_journal(refused)
    assert node.command("positions", "copies", "--from", "group") == 0
    ((now,),) = node.rows("SELECT value FROM meta WHERE key = 'incarnation'")
    assert node.rows(f"SELECT next FROM positions WHERE stream = 'journal:{now}:orders:0'") == [(3,)]
    capsys.readouterr()


def test_a_bridge_that_is_not_in_the_settings_cannot_be_asked_for(
    node: Stopped, capsys: pytest.CaptureFixture[str]
) -> None:
    node.path.write_text(SETTINGS.replace('"copies"', '"others"'), "utf-8")
    assert node.command("journal", "new-incarnation") == 1
    assert "the bridge copies has a queue on orders" in capsys.readouterr().err


SEVERAL = """
[node]
name = "node"
data-directory = "data"

[connectors.one]
url = "memory://one"
[connectors.two]
url = "memory://two"

[[bridges]]
name = "to-stores"
queue-name = "orders"
static-connectors = ["one", "two"]
"""


@pytest.fixture
def stores() -> Iterator[Mapping[str, FakeStore]]:
    """Two stores that `several` has connectors to."""
    ends.register("memory", "tests.fakes.memory_end:KIND", "memory://name")
    STORES.update(one=FakeStore("store-1"), two=FakeStore("store-2"))
    yield STORES
    ends.forget("memory")
    STORES.clear()


@pytest.fixture
def several(tmp_path: Path) -> Stopped:
    """A node whose bridge has a connector to each of the stores."""
    made = Stopped(tmp_path, SEVERAL)
    made.put(b"a", b"b", b"c")
    return made


def test_positions_means_the_store_where_the_bridge_was_last(
    stores: Mapping[str, FakeStore], several: Stopped, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*more: str, code: int = 0) -> str:
        assert several.command("positions", "to-stores", "--from", "latest", *more) == code
        shown = capsys.readouterr()
        return shown.out + shown.err

    assert said("--dry-run").startswith("at one: orders ("), "it has never run: the first that answers"
    stores["one"].down = True
    assert said("--dry-run").startswith("at two: orders (")
    stores["one"].down = False
    assert said("--connector", "two").endswith("done\n")
    assert [store for (store,) in several.rows("SELECT store FROM settled")] == ["store-2"]

    assert "at two: orders (" in said("--dry-run")
    stores["one"].down = True
    assert "stays at 3; nothing to do" in said("--dry-run"), "the others need not answer"
    stores["one"].down, stores["two"].down = False, True
    lines = said(code=1)
    assert (
        "was last at store-2, and no connector is known to lead there: one leads to store-1; two: " in lines
    )
    assert "TARGET_UNAVAILABLE: connection refused. Name the one to go on at" in lines
    assert said("--connector", "one", "--dry-run").startswith("at one: orders (")
    assert "no connector three; its static-connectors: one, two" in said("--connector", "three", code=1)
    assert [store for (store,) in several.rows("SELECT store FROM settled")] == ["store-2"]


def test_a_new_incarnation_asks_the_store_where_each_bridge_was_last(
    stores: Mapping[str, FakeStore], several: Stopped, capsys: pytest.CaptureFixture[str]
) -> None:
    assert several.command("positions", "to-stores", "--from", "latest", "--connector", "two") == 0
    stores["two"].down = True
    assert several.command("journal", "new-incarnation") == 1
    assert "was last at store-2, and no connector is known to lead there" in capsys.readouterr().err
    stores["two"].down = False
    assert several.command("journal", "new-incarnation") == 0
    assert "to-stores: orders goes on at 3, at store-2" in capsys.readouterr().out
    ((now,),) = several.rows("SELECT value FROM meta WHERE key = 'incarnation'")
    assert stores["two"].next("to-stores", f"journal:{now}:orders:0") == 3
    assert stores["one"].next("to-stores", f"journal:{now}:orders:0") is None
