"""docs/kafka.md says which rights a bridge needs: it runs with exactly these, and tells which is missing."""

from __future__ import annotations

import asyncio
import contextlib
import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import confluent_kafka
import pytest

from bridge.assembly.bridges import Assembly
from bridge.assembly.context import node_context
from bridge.journal.journal import Journal
from bridge.journal.values.store import Sent, Transaction
from bridge.messages.message import Message
from bridge.node.wiring import journal_options
from bridge.relay.lifecycle import Command, State
from bridge.relay.operated import Operated
from bridge.runtime.clock import SystemClock
from bridge.settings import load
from tests.harness.api import HOST
from tests.harness.commands import command
from tests.harness.eventually import eventually, until
from tests.harness.node import Node
from tests.kafka.bridges import bridge_table, connector_tables
from tests.kafka.cluster.brokers import Cluster
from tests.kafka.cluster.secured import PASSWORD, USER, Right, allowed, secured_cluster
from tests.kafka.exactly_once.rig import Arrivals
from tests.kafka.traffic.checker import Report, check, stamps_of
from tests.kafka.traffic.traffic import Traffic, produce

DOCUMENT: Final = Path(__file__).parents[3] / "docs" / "kafka.md"
#: The user of the target's connector; `USER` is the source's.
HOLDER: Final = "CN=client"
#: A first start, with the journal topic and all, on a busy machine.
WITHIN_S: Final = 30.0
LOOK_AGAIN_S: Final = 0.05

_ROW: Final = re.compile(r"^\| ([\w ]+) \| ([a-z ]+) \| `([^`]+)` \| (\w+) \| ([^|]+) \|$", re.MULTILINE)


class Row(NamedTuple):
    """One right in the document."""

    bridge: str
    kind: str
    name: str
    operation: str
    needed: str

    @property
    def first_start(self) -> bool:
        """Whether a bridge that has never run needs it to deliver a message."""
        return self.needed.startswith(("always", "with `create-topics`", "at the first start"))

    def right(self, bridge: str, topic: str) -> Right:
        name = self.name.replace("NAME", bridge).replace("orders", topic)
        return self.kind, name, self.operation


def rows(side: str) -> list[Row]:
    """What the document asks for at one side: source, target."""
    section = DOCUMENT.read_text("utf-8").split(f"### At the {side} cluster")[1].split("\n#")[0]
    return [Row(*found) for found in _ROW.findall(section)]


def needed(side: str, bridge: str) -> list[Row]:
    return [row for row in rows(side) if row.bridge in ("all", bridge) and row.first_start]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rights")


@pytest.fixture(scope="module")
def secured(directory: Path) -> Iterator[Cluster]:
    with secured_cluster(directory) as cluster:
        yield cluster


class Rig:
    """One bridge with a name and a topic of its own."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.name = f"b{uuid.uuid4().hex[:8]}"
        self.topic = f"t{uuid.uuid4().hex[:8]}"
        self.password = PASSWORD

    def text(self, source: str, target: str, hub: int = 1) -> str:
        return f"""
            [node]
            data-directory = "{self.name}"
            [connectors.eu]
            url = "kafka://{self.cluster.bootstrap_of("SASL_PLAINTEXT")}"
            [connectors.eu.kafka]
            security-protocol = "SASL_PLAINTEXT"
            sasl-plain-username = "{USER}"
            sasl-plain-password = "{self.password}"
            [connectors.us]
            url = "kafka://{self.cluster.bootstrap_of("MUTUAL")}"
            [connectors.us.kafka]
            security-protocol = "SSL"
            ssl-cafile = "authority.pem"
            ssl-certfile = "client.pem"
            ssl-keyfile = "client.key"
            [connectors.hub]
            url = "ws://127.0.0.1:{hub}"
            [[bridges]]
            name = "{self.name}"
            source-connector = "{source}"
            queue-name = "{self.topic}"
            forwarding-address = "us.{{address}}"
            static-connectors = ["{target}"]
            retry-interval = 100
            max-retry-interval = 100
        """

    @asynccontextmanager
    async def started(self, source: str, target: str, hub: int = 1) -> AsyncIterator[Operated]:
        """The bridge, started, with a message to deliver."""
        path = self.directory / f"{self.name}.toml"
        path.write_text(self.text(source, target, hub))
        settings = load(path, {})
        journal = await Journal.open(journal_options(settings))
        try:
            bridge = Assembly(node_context(settings, SystemClock(), journal)).operated(settings.bridges[0])
            await self.put(source, journal)
            await bridge.command(Command.START)
            try:
                yield bridge
            finally:
                await bridge.command(Command.STOP)
        finally:
            await journal.close()

    async def put(self, source: str, journal: Journal) -> None:
        if source == "journal":
            await journal.commit(Transaction([Sent.of(self.topic, Message(b"kept"))]))
            return
        self.cluster.create_topic(self.topic)
        producer = confluent_kafka.Producer({"bootstrap.servers": self.cluster.bootstrap})
        producer.produce(self.topic, b"kept")
        assert await asyncio.to_thread(producer.flush, WITHIN_S) == 0

    def rights(self, rows: Sequence[Row]) -> list[Right]:
        return [row.right(self.name, self.topic) for row in rows]


@pytest.fixture
def rig(secured: Cluster, directory: Path) -> Rig:
    return Rig(secured, directory)


async def settled(bridge: Operated) -> tuple[int, str]:
    """Messages delivered, and the reason if the bridge is FAILED; whichever comes first."""
    await until(
        lambda: bridge.counts.acknowledged or bridge.state is State.FAILED,
        "the bridge has delivered or failed",
        WITHIN_S,
    )
    return bridge.counts.acknowledged, bridge.reason


@pytest.fixture
def hub(directory: Path) -> Iterator[int]:
    """A node of another process; the port that it listens at."""
    node = Node("hub", directory).start()
    yield node.port
    node.stop()


def test_the_document_s_tables_are_read() -> None:
    assert len(rows("source")) == 6
    assert len(rows("target")) == 14
    assert {row.kind for row in rows("target")} == {"topic", "transactional id", "group"}


@pytest.mark.parametrize(
    ("kind", "source", "target"),
    [
        ("Kafka to Kafka", "eu", "us"),
        ("Kafka to node", "eu", "hub"),
        ("Kafka to journal", "eu", "journal"),
        ("Journal to Kafka", "journal", "us"),
    ],
)
async def test_the_rights_in_the_document_are_enough(
    rig: Rig, hub: int, kind: str, source: str, target: str
) -> None:
    given = rig.rights(needed("source", kind)) if source == "eu" else []
    taken = rig.rights(needed("target", kind)) if target == "us" else []
    with ExitStack() as stack:
        stack.enter_context(allowed(rig.cluster, *given))
        stack.enter_context(allowed(rig.cluster, *taken, user=HOLDER))
        async with rig.started(source, target, hub) as bridge:
            assert await settled(bridge) == (1, "")


def each_missing() -> Iterator[tuple[str, int]]:
    for side in ("source", "target"):
        for index, _ in enumerate(needed(side, "Kafka to Kafka")):
            yield side, index


@pytest.mark.parametrize(("side", "index"), list(each_missing()))
async def test_a_right_that_is_missing_is_named(rig: Rig, side: str, index: int) -> None:
    """Each of them is needed, and the reason says which: resource, operation and connector."""
    left = {one: needed(one, "Kafka to Kafka") for one in ("source", "target")}
    missing = left[side].pop(index)
    kind, name, operation = missing.right(rig.name, rig.topic)
    with ExitStack() as stack:
        stack.enter_context(allowed(rig.cluster, *rig.rights(left["source"])))
        stack.enter_context(allowed(rig.cluster, *rig.rights(left["target"]), user=HOLDER))
        async with rig.started("eu", "us") as bridge:
            delivered, reason = await settled(bridge)
    assert delivered == 0
    assert f"connector {'eu' if side == 'source' else 'us'}: " in reason
    # Write includes Describe, which is asked for first.
    assert re.search(rf"needs the ACL ({operation}|Describe) on {kind} {re.escape(name.rstrip('*'))}", reason)
    assert PASSWORD not in reason


async def test_a_wrong_password_fails_the_bridge_and_is_not_tried_for_ever(rig: Rig) -> None:
    rig.password = "wr0ng-s3cret"
    with allowed(rig.cluster, *rig.rights(needed("target", "Kafka to Kafka")), user=HOLDER):
        async with rig.started("eu", "us") as bridge:
            delivered, reason = await settled(bridge)
    assert delivered == 0
    assert "connector eu: " in reason
    assert "SASL_AUTHENTICATION_FAILED (58)" in reason
    assert reason.endswith("see sasl-mechanism, sasl-plain-username and sasl-plain-password")
    assert rig.password not in reason


# -- one node of two loses a right -----------------------------------------------------------------------

LANES: Final = 4


class Pair:
    """Two nodes that share a bridge; only the first one's user needs rights. The second has two workers."""

    def __init__(self, cluster: Cluster, make_node: Callable[..., Node]) -> None:
        self.cluster = cluster
        self.bridge = f"b{uuid.uuid4().hex[:8]}"
        self.topic = f"t{uuid.uuid4().hex[:8]}"
        self.traffic = Traffic(seed=13, count=4_000, partitions=LANES)
        self._records = self.traffic.records()
        cluster.create_topic(self.topic, LANES)
        user = {
            "security-protocol": "SASL_PLAINTEXT",
            "sasl-plain-username": USER,
            "sasl-plain-password": PASSWORD,
        }
        listener = cluster.bootstrap_of("SASL_PLAINTEXT")
        self.first = make_node("node-1", self._settings(listener, user))
        self.second = make_node("node-2", self._settings(cluster.bootstrap, {}), node="workers = 2")

    def _settings(self, listener: str, options: dict[str, str]) -> str:
        connectors = {"eu": listener, "us": self.cluster.bootstrap}
        bridge = bridge_table(
            self.bridge,
            queue_name=self.topic,
            forwarding_address="us.{address}",
            source_connector="eu",
            static_connectors=["us"],
            concurrency=LANES,
        )
        return connector_tables(connectors, {"eu": options}) + "\n" + bridge

    def rights(self) -> list[Right]:
        return [row.right(self.bridge, self.topic) for row in needed("source", "Kafka to Kafka")]

    def send(self, count: int) -> None:
        produce(self.cluster, self.topic, [next(self._records) for _ in range(count)])

    def arrived(self) -> Report:
        stamps = stamps_of(self.cluster, self.topic, self.traffic)
        return check(self.cluster, f"us.{self.topic}", self.traffic, stamps=stamps)

    def await_arrived(self, count: int) -> None:
        with contextlib.closing(Arrivals(self.cluster, f"us.{self.topic}", LANES)) as arrivals:
            arrivals.await_count(count, WITHIN_S)

    def await_shared(self) -> None:
        """Return when both nodes say of themselves that they have lanes, together all."""

        def shared() -> bool:
            first, second = (node.status(self.bridge)["lanes"]["here"] for node in (self.first, self.second))
            return bool(first and second) and sorted([*first, *second]) == [*range(LANES)]

        eventually(shared, "the nodes share the lanes", WITHIN_S)

    def divided(self, node: Node) -> dict[str, list[int]]:
        """Which member has which lanes, as one of the nodes shows it."""

        def known() -> dict[str, list[int]] | None:
            lanes = node.status(self.bridge)["lanes"]
            return lanes["members"] and {member["name"]: member["lanes"] for member in lanes["members"]}

        return eventually(known, f"{node.name} knows who has which lane", WITHIN_S)

    def await_members(self, *names: str) -> None:
        """Return when both nodes show these, and the same lanes: what each shows may be two seconds old."""

        def shown() -> bool:
            first, second = map(self.divided, (self.first, self.second))
            return first == second and first.keys() == {*names}

        eventually(shown, f"the nodes show {names}", WITHIN_S)

    def await_left(self, name: str, node: Node) -> None:
        """Return when one of the nodes shows no member of this name."""
        eventually(lambda: name not in self.divided(node), f"{name} has left", WITHIN_S)

    def shown(self, node: Node) -> list[str]:
        """The lines of lanes of ``core-bridge status``."""
        ended = command("status", "--operations", f"http://{HOST}:{node.operations_port}", "--url", node.url)
        return [line for line in ended.out.splitlines() if line.startswith("lanes ")]


def test_a_node_whose_rights_are_taken_leaves_its_lanes_to_the_other(
    secured: Cluster, make_node: Callable[..., Node]
) -> None:
    pair = Pair(secured, make_node)
    with allowed(secured, *pair.rights()):
        pair.first.start()
        pair.second.start()
        pair.await_shared()
        pair.send(2_000)
        pair.await_arrived(2_000)
        pair.await_members("node-1", "node-2 worker 1", "node-2 worker 2")
    pair.send(1_000)
    reason = pair.first.await_failed(pair.bridge)
    # With Read went Describe, which it implies: the lane's reading or its watch is refused first.
    assert re.search(rf"needs the ACL (Read|Describe) on topic {pair.topic}\b", reason), reason
    pair.await_arrived(3_000)
    for node in (pair.first, pair.second):
        pair.await_left("node-1", node)
        assert sorted(lane for lanes in pair.divided(node).values() for lane in lanes) == [*range(LANES)]
    assert pair.first.status(pair.bridge)["lanes"]["here"] == []
    assert pair.first.ops.get("/ready").status == 503
    assert pair.second.ops.get("/ready").status == 200
    workers = pair.divided(pair.second)
    assert pair.shown(pair.first) == [
        f"lanes {pair.bridge} {','.join(map(str, lanes))} {name} 127.0.0.1"
        for name, lanes in sorted(workers.items())
    ]
    with allowed(secured, *pair.rights()):
        assert pair.first.ops.call("POST", f"/v1/bridges/{pair.bridge}/start").status == 200
        pair.await_shared()
        pair.first.await_state(pair.bridge, "RUNNING")
        pair.send(1_000)
        pair.await_arrived(4_000)
        report = pair.arrived()
        assert report.ok, str(report)
