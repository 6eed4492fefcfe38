"""How soon nodes that start together know each other: by their settings, in the time of a simulation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Final
from unittest.mock import patch

import pytest

from bridge.errors import TargetUnavailable
from bridge.link.frames import Hello
from bridge.link.socket import Endpoint
from bridge.settings.model import Settings
from cluster import contacts, extension, peers
from cluster.exchange import Conversation
from cluster.record import Record
from tests.cluster.simulation.link import Link, LinkTarget
from tests.cluster.simulation.node import SHARED, RecordingRouter, SimNode
from tests.fakes.virtual_time import VirtualLoop

#: "Less than 5 s" (docs/cluster.md).
DOCUMENTED_S: Final = 5.0
#: How often links are looked at: so much longer than in no time a frame takes.
STEP_S: Final = 0.01
#: Steps after which all tables are equal, or never will be.
STEPS: Final = 6_000


def settings(name: str, contact: str, directory: Path) -> Settings:
    """A node with one first contact, and with the defaults of everything that takes time."""
    connection = {"name": "c", "address": SHARED, "connector-ref": name, "static-connectors": [contact]}
    return Settings.model_validate(
        {
            "node": {"name": name, "data-directory": str(directory / name)},
            "connectors": {one: {"url": f"ws://{one}:61616"} for one in (name, contact)},
            "cluster-connections": [connection],
        }
    )


class Start:
    """Three nodes that know one contact each, and what carries their frames without delay."""

    def __init__(self, directory: Path) -> None:
        names = ("n0", "n1", "n2")
        self.nodes = {
            name: SimNode(name, directory / name, settings(name, contact, directory))
            for name, contact in zip(names, (*names[1:], names[0]), strict=True)
        }
        self.links: list[Link] = []

    def _at(self, endpoint: Endpoint) -> SimNode:
        return self.nodes[endpoint.url.removeprefix("ws://").partition(":")[0]]

    def peer_target(
        self, _node: str, endpoint: Endpoint, hello: Hello, *, correspondent: Conversation, **_how: object
    ) -> LinkTarget:
        """Stands for `cluster.peers.PeerTarget`."""

        def dial() -> Link:
            self.links.append(self._at(endpoint).accept(hello, correspondent))
            return self.links[-1]

        return LinkTarget(dial)

    def contact_target(self, endpoint: Endpoint, _hello: Hello, **_how: object) -> SimpleNamespace:
        """Stands for `NodeTarget` in `cluster.contacts`: it asks who is there, and closes."""
        node = self._at(endpoint)
        found = SimpleNamespace(welcome=None)

        async def opened(_streams: Sequence[object]) -> None:
            if not node.listens:
                raise TargetUnavailable(f"{node.name} does not listen yet")
            found.welcome = SimpleNamespace(node_id=node.uuid, node_name=node.name)

        async def closed() -> None:
            pass

        found.open, found.close = opened, closed
        return found

    async def carry(self) -> None:
        """Let all that is on its way arrive."""
        for link in list(self.links):
            for notices, conversation in ((link.to_receiver, link.back), (link.to_sender, link.out)):
                while notices:
                    conversation.noticed(notices.popleft())
            while link.frames:
                link.carry()
        await asyncio.sleep(STEP_S)
        for link in self.links:
            while link.bring_back():
                pass

    async def join(self, node: SimNode, after_s: float) -> None:
        """Open the journal at once, as all do, and listen when that has taken so long."""

        def submitted() -> None:
            asyncio.get_running_loop().call_soon(node.journal.turn)

        await node.open(submitted, lambda: 0)
        await asyncio.sleep(after_s)
        await node.join()

    def tables(self) -> list[dict[str, Record]]:
        """Each node's records of the nodes that it reaches, with its own."""
        return [
            {
                uuid: record
                for uuid, record in node.exchange.topology.records.items()
                if uuid == node.uuid or node.exchange.topology.reachable(uuid)
            }
            for node in self.nodes.values()
        ]

    def are_equal(self) -> bool:
        """Whether each node reaches all, and has the same records of them."""
        if not all(node.listens for node in self.nodes.values()):
            return False
        first, *others = self.tables()
        return len(first) == len(self.nodes) and all(other == first for other in others)

    async def run(self, opened_after_s: Sequence[float]) -> float:
        """Start all at once; the seconds from the last one that listens to equal tables."""
        joins = [
            asyncio.create_task(self.join(node, after_s))
            for node, after_s in zip(self.nodes.values(), opened_after_s, strict=True)
        ]
        try:
            for _ in range(STEPS):
                await self.carry()
                if self.are_equal():
                    return asyncio.get_running_loop().time() - max(opened_after_s)
            raise AssertionError(f"after {STEPS} steps: {self.tables()}")
        finally:
            await asyncio.gather(*joins)
            for link in self.links:
                link.cut(TargetUnavailable("the test ends"))
            for node in self.nodes.values():
                node.kill()
                await node.bury()


#: How long each of the three takes to open its journal, in seconds.
OPENINGS: Final = [(0.0, 0.0, 0.0), (0.0, 0.3, 0.9), (1.2, 0.0, 0.4), (0.2, 2.9, 0.0), (30.0, 0.0, 0.0)]


@pytest.mark.parametrize("opened_after_s", OPENINGS)
def test_tables_are_equal_soon_after_the_last_node_listens(
    opened_after_s: Sequence[float], tmp_path: Path
) -> None:
    """Each has one contact, which listens earlier or later than it asks. Within one `retry-interval` the last
    one is found; its word takes one `notification-interval` more at most, should it not come with the link.
    """
    with (
        asyncio.Runner(loop_factory=VirtualLoop) as runner,
        patch.object(extension, "ClusterRouter", RecordingRouter),
    ):

        async def measured() -> float:
            start = Start(tmp_path)
            with (
                patch.object(peers, "PeerTarget", start.peer_target),
                patch.object(contacts, "NodeTarget", start.contact_target),
            ):
                return await start.run(opened_after_s)

        took_s = runner.run(measured())
    (connection,) = settings("n0", "n1", tmp_path).cluster_connections
    bound_ms = connection.max_retry_interval_ms + connection.notification_interval_ms
    assert took_s <= bound_ms / 1000 < DOCUMENTED_S
    print(f"equal tables {took_s:.2f} s after the last node listens")
