"""The nodes of the cluster's demo: real processes that find each other, and what they say of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bridge.client.node_client import Connection, NodeClient
from bridge.demo.nodes import LOOK_AGAIN_S, NODE_SETTINGS, DemoFailed, NodeProcess
from bridge.demo.ports import HOST

#: An ANYCAST address: each message is for one reader of the whole cluster.
JOBS: Final = "jobs"
#: A MULTICAST address: each message is for each of its queues.
NEWS: Final = "news"
#: The queue of `NEWS` that every node has: the nodes take turns.
ARCHIVE: Final = "archive"
#: The queue of `NEWS` that one node alone has.
BOARD: Final = "board"
#: By queue, its address.
QUEUES: Final[Mapping[str, str]] = {JOBS: JOBS, ARCHIVE: NEWS, BOARD: NEWS}

#: Longest until nodes know each other, and until one is drained, in seconds.
KNOWN_WITHIN_S: Final = 30.0
DRAINED_WITHIN_S: Final = 90.0

_SETTINGS: Final = (
    NODE_SETTINGS
    + """\
[addresses.{jobs}]
routing-type = "ANYCAST"

[addresses.{news}]
queues = [{queues}]

[[cluster-connections]]
name = "demo"
address = "{jobs},{news}"
connector-ref = "{name}"
static-connectors = [{contacts}]
retry-interval = 100
max-retry-interval = 500
"""
)

_CONNECTOR: Final = """
[connectors.{name}]
url = "ws://{host}:{port}"
"""


@dataclass(slots=True)
class ClusterNode(NodeProcess):
    """One node of the cluster."""

    port: int = field(kw_only=True)
    #: Its queues: `JOBS`, and those of `NEWS`.
    queues: Sequence[str] = field(kw_only=True)

    @property
    def connection(self) -> Connection:
        """The connection to its acceptor."""
        return Connection(f"http://{HOST}:{self.port}")

    def configure(self, *, id_cache_size: int, contacts: Sequence[ClusterNode]) -> None:
        """Write the settings file; `contacts` are the nodes that it asks for the others."""
        connectors = {node.name: node.port for node in (*contacts, self)}
        text = _SETTINGS.format(
            name=self.name,
            host=HOST,
            port=self.port,
            operations_port=self.operations_port,
            id_cache_size=id_cache_size,
            jobs=JOBS,
            news=NEWS,
            queues=", ".join(f'"{queue}"' for queue in self.queues if QUEUES[queue] == NEWS),
            contacts=", ".join(f'"{node.name}"' for node in contacts),
        )
        for name, port in connectors.items():
            text += _CONNECTOR.format(name=name, host=HOST, port=port)
        self.settings.write_text(text, encoding="utf-8")


async def node_status(node: ClusterNode) -> dict[str, Any]:
    """The node's status, of itself and of the cluster. Raises: Problem, Unreachable."""
    async with NodeClient(node.operations) as operations:
        status: dict[str, Any] = (await operations.call("GET", "/v1/status")).body
    return status


async def known_to_each_other(nodes: Sequence[ClusterNode]) -> None:
    """Wait until each of these nodes reaches each other one and knows its queues.

    Raises: DemoFailed: not in time.
    """
    try:
        async with asyncio.timeout(KNOWN_WITHIN_S):
            while not all([_knows(await node_status(node), nodes) for node in nodes]):  # noqa: ASYNC110 - of other processes
                await asyncio.sleep(LOOK_AGAIN_S)
    except TimeoutError:
        names = ", ".join(node.name for node in nodes)
        logs = "\n".join(node.log_end() for node in nodes)
        raise DemoFailed(f"{names} do not know each other after {KNOWN_WITHIN_S:g} s", logs) from None


def _knows(status: Mapping[str, Any], nodes: Sequence[ClusterNode]) -> bool:
    """Whether a node reaches all of them, and knows their queues."""
    known = {node["name"]: node for node in status["cluster"]["nodes"]}
    return all(
        node.name in known
        and known[node.name]["reachable"]
        and {place["queue"] for place in known[node.name]["queues"]} >= set(node.queues)
        for node in nodes
    )


async def drained(node: ClusterNode, heir: ClusterNode) -> int:
    """Drain a node; returns the number of messages that were moved, when its heir answers for it.

    Raises: DemoFailed: not in time. Problem, Unreachable.
    """
    path = "/v1/cluster/drain"
    async with NodeClient(node.operations) as operations:
        state = (await operations.call("POST", path, packed={"to": heir.name})).body
        try:
            async with asyncio.timeout(DRAINED_WITHIN_S):
                while state["phase"] != "DONE":
                    await asyncio.sleep(LOOK_AGAIN_S)
                    state = (await operations.call("GET", path)).body
        except TimeoutError:
            waits = f"{state['phase']}: {state['waits']}"
            raise DemoFailed(f"{node.name} is not drained: {waits}", node.log_end()) from None
    moved: int = state["moved"]
    return moved


def backlog_for(status: Mapping[str, Any], name: str) -> int:
    """Copies that wait at a node for the node of this name."""
    bridges = {bridge["name"]: bridge for bridge in status["bridges"]}
    to = [bridges.get(node["bridge"]) for node in status["cluster"]["nodes"] if node["name"] == name]
    return sum(_lag(bridge) for bridge in to if bridge is not None)


def waiting(status: Mapping[str, Any]) -> int:
    """Messages that a node has still to bring to other nodes, or to its readers."""
    lags = [_lag(bridge) for bridge in status["bridges"]]
    for address in status["addresses"]:
        lags += [queue["lag"] for queue in address["queues"]]
    return sum(lags)


def _lag(bridge: Mapping[str, Any]) -> int:
    """The messages that wait for a bridge; 1 where that is not known."""
    return 1 if bridge["lag"] is None else int(bridge["lag"])
