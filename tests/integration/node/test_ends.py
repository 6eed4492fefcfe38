"""An end that one registration has added: from the settings to what a running node shows of it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from bridge import ends
from bridge.assembly.credentials import Credentials
from bridge.cli import main
from bridge.errors import Conflict
from bridge.journal.values.store import Sent, Transaction
from bridge.messages.message import Message
from bridge.node.node import Node
from bridge.node.operations import Control
from bridge.node.replays import Replays
from bridge.node.wiring import made_node
from bridge.replay.sending import Wanted
from bridge.settings import SettingsFile, SettingsInvalid, load
from tests.fakes.ends import FakeJournal, FakeStore
from tests.fakes.memory_end import JOURNALS, LAG, STORES
from tests.harness.eventually import until
from tests.harness.lossy import install

DOCUMENT = Path(__file__).parents[3] / "docs" / "ends.md"

SETTINGS = """
[node]
name = "edge"
data-directory = "data"

[connectors.there]
url = "memory://there"

[[bridges]]
name = "out"
queue-name = "orders"
forwarding-address = "from.{address}"
static-connectors = ["there"]
retry-interval = 20
max-retry-interval = 20

[[bridges]]
name = "in"
source-connector = "there"
queue-name = "invoices"
static-connectors = ["journal"]
"""


KEEPING = """
[node]
name = "edge"
data-directory = "data"

[connectors.there]
url = "keeping://anything"

[[bridges]]
name = "out"
queue-name = "orders"
static-connectors = ["there"]
"""


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    ends.register("memory", "tests.fakes.memory_end:KIND", "memory://name")
    JOURNALS["there"], STORES["there"] = FakeJournal(), FakeStore("memory:1")
    yield
    ends.forget("memory")
    JOURNALS.clear()
    STORES.clear()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "settings.toml"
    path.write_text(SETTINGS)
    return path


@pytest.fixture
async def node(file: Path) -> AsyncIterator[Node]:
    settings = load(file, {})
    made = made_node(settings, SettingsFile(file, {}), Credentials(settings))
    await made.start()
    yield made
    await made.stop()


def test_validate_takes_it_by_its_scheme(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--settings", str(file)]) == 0
    told = capsys.readouterr().out
    assert told.endswith(
        "out: journal:orders -> there: exactly-once\nin: there:invoices -> journal: exactly-once\n"
    )


def test_its_urls_are_its_own_matter_and_the_rule_of_all_urls_names_it(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for url, rule in (
        ("memory://no/name", "must be memory://name"),
        ("amqp://x", ends.url_rule()),
    ):
        file.write_text(SETTINGS.replace("memory://there", url))
        assert main(["validate", "--settings", str(file)]) == 2
        assert f'connectors.there.url: {rule}; found "{url}"' in capsys.readouterr().err
    assert ends.url_rule().endswith(" or memory://name")


def test_keys_that_it_makes_no_use_of_are_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """B28: above 1 for Kafka sources and the journal only."""
    settings = SETTINGS.replace('url = "memory://there"', 'url = "memory://there"\ntoken = "s3cret"')
    file.write_text(settings + 'concurrency = 2\nstart-position = "latest"\njournal-topic = "t"\n')
    assert main(["validate", "--settings", str(file), "--format", "json"]) == 2
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert [(one["key"].rpartition("connectors.there.")[2], one["rule"]) for one in problems] == [
        ("token", "needs a ws:// or wss:// URL"),
        ("bridges[1].concurrency (in)", "must be at most 1, because only Kafka sources have lanes"),
        ("bridges[1].start-position (in)", "needs a Kafka source"),
        ("bridges[1].journal-topic (in)", "needs a Kafka target"),
    ]


async def test_a_node_relays_through_it_in_both_directions(node: Node) -> None:
    assert node.journal is not None
    journal, store = node.journal, STORES["there"]
    bodies = [b"m%d" % number for number in range(20)]
    await journal.commit(Transaction([Sent.of("orders", Message(body)) for body in bodies]))
    JOURNALS["there"].put("invoices", *(Message(body) for body in bodies))

    async def arrived() -> bool:
        there = {status.address: status.messages for status in await journal.addresses()}
        return store.bodies("from.orders") == bodies and there.get("invoices") == len(bodies)

    await until(arrived, "it has arrived")
    browsed = await journal.browse("invoices", after=-1, most=100, most_bytes=1 << 20)
    assert [delivered.message.body for delivered in browsed] == bodies

    async def settled() -> bool:
        return all(bridge["acknowledged"] == 20 for bridge in (await Control(node).status())["bridges"])

    await until(settled, "it is settled")
    status = await Control(node).status()
    shown = {bridge["name"]: bridge for bridge in status["bridges"]}
    assert {name: (one["state"], one["source"], one["target"]) for name, one in shown.items()} == {
        "out": ("RUNNING", "journal:orders", "there"),
        "in": ("RUNNING", "there:invoices", "journal"),
    }
    assert shown["out"]["store"] == "memory:1"
    assert shown["in"]["lag"] == LAG[0]
    assert shown["in"]["lanes"] is None
    assert node.bridges["out"][1].readers == "read=from-memory"


async def test_what_it_refuses_is_a_dead_letter_of_the_node(node: Node) -> None:
    assert node.journal is not None
    journal = node.journal
    STORES["there"].largest = 15
    for body in (b"small", b"larger than it takes", b"small again"):
        await journal.commit(Transaction([Sent.of("orders", Message(body))]))

    async def arrived() -> bool:
        return STORES["there"].bodies("from.orders") == [b"small", b"small again"]

    await until(arrived, "it has arrived")
    (letter,) = await journal.browse("dead-letters", after=-1, most=10, most_bytes=1 << 20)
    assert letter.message.body == b"larger than it takes"


async def test_what_it_cannot_do_is_said(node: Node) -> None:
    (replays,) = (one.service for one in node.parts.extensions if isinstance(one, Replays))
    assert replays is not None
    with pytest.raises(Conflict, match="bridge out cannot replay: there cannot take what is sent again"):
        await replays.send(Wanted("p", "out", "s", "memory:1", ((0, 0),)))
    with pytest.raises(Conflict, match="bridge in cannot replay: there cannot read again what it has sent"):
        await replays.send(Wanted("p", "in", "s", "memory:1", ((0, 0),)))


@pytest.mark.processes
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["lanes", "in", "--set", "2"], "in is not from Kafka to Kafka"),
        (
            ["audit", "in", "--output", "audit"],
            "in reads there: an audit compares a Kafka source with its target",
        ),
    ],
)
def test_commands_that_need_more_than_it_can_say_so(
    file: Path,
    arguments: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(file.parent)
    assert main([*arguments, "--settings", str(file)]) in (1, 2)
    assert told in capsys.readouterr().err


async def test_the_example_of_the_documentation_is_an_end_of_an_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: LogCapture
) -> None:
    blocks = dict(re.findall(r"^```(toml|python)\n(.*?)^```", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE))
    package = tomllib.loads(blocks["toml"])["project"]
    ((scheme, value),) = package["entry-points"][ends.GROUP].items()
    site = install(tmp_path / "site", package["name"], {scheme: value}, package["version"])
    (site / f"{value.partition(':')[0]}.py").write_text(blocks["python"])
    monkeypatch.syspath_prepend(str(site))
    file = tmp_path / "keeping.toml"
    file.write_text(KEEPING)
    try:
        settings = load(file, {})
        node = made_node(settings, SettingsFile(file, {}), Credentials(settings))
        await node.start()
        assert node.journal is not None
        await node.journal.commit(Transaction([Sent.of("orders", Message(b"m%d" % n)) for n in range(5)]))

        async def settled() -> bool:
            (bridge,) = (await Control(node).status())["bridges"]
            return (bridge["acknowledged"], bridge["store"]) == (5, "keeping:1")

        await until(settled, "it is settled")
        await node.stop()
        (started,) = [entry for entry in log.entries if entry["event"] == "bridge-started"]
        assert started["check_producer_ids"] is False, "it has no ID cache"
        file.write_text(KEEPING + 'source-connector = "there"\n')
        with pytest.raises(SettingsInvalid, match="must be a connector to read from; keeping:// keeps"):
            load(file, {})
        for options, rule in (
            ("max-body=none", "must be a size"),
            ("mode=fast", "must have no option but max-body"),
        ):
            file.write_text(KEEPING.replace("//anything", f"//anything?{options}"))
            with pytest.raises(SettingsInvalid, match=rule):
                load(file, {})
        keys = 'previous-name = "before"\ncheck-producer-ids = true\nrouting-type = "ANYCAST"\n'
        spare = '[connectors.spare]\nurl = "keeping://spare"\n'
        file.write_text(KEEPING.replace('["there"]', '["there", "spare"]') + keys + spare)
        with pytest.raises(SettingsInvalid) as raised:
            load(file, {})
        assert [(one.key, one.rule) for one in raised.value.problems] == [
            ("bridges[0].static-connectors[1] (out)", "must not be there: keeping:// has no fail-overs"),
            ("bridges[0].previous-name (out)", "must be left out, because keeping:// does not know it"),
            ("bridges[0].check-producer-ids (out)", "must be false, because keeping:// has no ID cache"),
            ("bridges[0].routing-type (out)", "needs a target that is a node"),
        ]
    finally:
        ends.forget(scheme)
