"""Clusters of real node processes: made, started, stopped, and asked what they know."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.harness.eventually import eventually
from tests.harness.node import Node

#: "Topology: 5 s" (contract), on a machine that others use, too.
TABLES_WITHIN_S: Final = 15.0
#: How long a reader counts as one here.
READER_TIMEOUT: Final = "1s"


@dataclass
class Cluster:
    """Nodes `n0`, `n1`, … whose first contacts are each other's addresses, or those of `contacts`."""

    directory: Path
    count: int
    #: Further keys of [[cluster-connections]].
    connection: str = ""
    #: TOML that every node has, and that single nodes have, by index.
    rest: str = ""
    own: Mapping[int, str] = field(default_factory=dict)
    #: By node, the nodes of its static-connectors; None: all others.
    contacts: Mapping[int, Sequence[int]] | None = None
    nodes: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.nodes = [Node(f"n{index}", self.directory) for index in range(self.count)]
        for index in range(self.count):
            self.configure(index)

    def configure(self, index: int) -> None:
        """Give a node its settings."""
        node = self.nodes[index]
        others = [one for one in range(self.count) if one != index]
        static = others if self.contacts is None else self.contacts[index]
        connectors = "".join(f'[connectors.{other.name}]\nurl = "{other.url}"\n' for other in self.nodes)
        names = json.dumps([f"n{one}" for one in (static or [index])])
        node.rest = (
            f"{self.rest}\n{self.own.get(index, '')}\n{connectors}"
            f'[[cluster-connections]]\nname = "my-cluster"\nconnector-ref = "{node.name}"\n'
            f"static-connectors = {names}\nretry-interval = 200\nmax-retry-interval = 200\n"
            f'reader-timeout = "{READER_TIMEOUT}"\n{self.connection}\n'
        )

    def start(self, *indices: int) -> Cluster:
        """Start these nodes, or all, side by side."""
        chosen = [self.nodes[index] for index in indices] if indices else self.nodes
        for node in chosen:
            node.start_without_waiting()
        for node in chosen:
            node.await_ready()
        return self

    def __getitem__(self, index: int) -> Node:
        return self.nodes[index]

    # -- what they know ----------------------------------------------------------------------------------

    def table(self, index: int) -> dict[str, Any]:
        """By name, the nodes as one node knows them."""
        found = self.nodes[index].ops.get("/v1/cluster").json
        return {one["name"]: one for one in found["nodes"]}

    def await_members(self, *indices: int, hops: int | None = 1) -> None:
        """Wait until these nodes, or all, know and reach each other, each with the same queues."""
        chosen = list(indices) or list(range(self.count))
        names = {f"n{index}" for index in chosen}

        def agree() -> bool:
            tables = [self.table(index) for index in chosen]
            for table in tables:
                if not all(name in table and table[name]["reachable"] for name in names):
                    return False
            return all(
                table[name]["version"] == tables[0][name]["version"] for table in tables for name in names
            )

        del hops
        eventually(agree, f"{sorted(names)} know each other", TABLES_WITHIN_S)

    def await_unreachable(self, seen_by: int, at: int) -> None:
        """Wait until one node has noticed that another is down."""

        def is_down() -> bool:
            return not self.table(seen_by)[f"n{at}"]["reachable"]

        eventually(is_down, f"n{seen_by} notices that n{at} is down", TABLES_WITHIN_S)

    def await_place(
        self, seen_by: int, at: int, address: str, queue: str, readers: int | None = None
    ) -> None:
        """Wait until one node knows a queue of another, with or without readers."""

        def there() -> bool:
            for one in self.table(seen_by).get(f"n{at}", {}).get("queues", ()):
                if (one["address"], one["queue"]) == (address, queue):
                    return readers is None or one["readers"] == readers
            return False

        eventually(there, f"n{seen_by} knows {address}::{queue} at n{at}", TABLES_WITHIN_S)

    def await_no_place(self, seen_by: int, at: int, address: str, queue: str) -> None:
        """Wait until one node knows that another has no such queue any more."""

        def gone() -> bool:
            queues = self.table(seen_by).get(f"n{at}", {}).get("queues", ())
            return all((one["address"], one["queue"]) != (address, queue) for one in queues)

        eventually(gone, f"n{seen_by} knows that {address}::{queue} is gone from n{at}", TABLES_WITHIN_S)


def send(node: Node, address: str, bodies: Iterable[str], **headers: str) -> None:
    """Send messages one by one."""
    for body in bodies:
        reply = node.api.call("POST", f"/v1/addresses/{address}/messages", body.encode(), headers)
        assert reply.status == 200, reply.body
        assert reply.json["verdict"] == "stored", reply.body


def numbers(count: int, start: int = 0) -> list[str]:
    return [str(number) for number in range(start, start + count)]


def make_queue(node: Node, address: str, queue: str, **how: Any) -> None:
    reply = node.api.call("PUT", f"/v1/addresses/{address}/queues/{queue}", **how)
    assert reply.status in (200, 201), reply.body


def delete_queue(node: Node, address: str, queue: str) -> None:
    reply = node.api.call("DELETE", f"/v1/addresses/{address}/queues/{queue}")
    assert reply.status == 204, reply.body


def waiting(node: Node, address: str, queue: str) -> int:
    """Messages that a queue's readers have still to settle; 0 where there is no such queue."""
    reply = node.api.get(f"/v1/addresses/{address}")
    if reply.status == 404:
        return 0
    return sum(one["lag"] for one in reply.json["queues"] if one["name"] == queue)


def read(node: Node, address: str, queue: str, most: int = 1000, wait_ms: int = 0) -> list[str]:
    """Take and settle what waits in a queue."""
    found: list[str] = []
    while len(found) < most:
        path = f"/v1/addresses/{address}/queues/{queue}/messages"
        reply = node.api.get(f"{path}?max={min(most - len(found), 1000)}&wait={wait_ms}")
        if reply.status == 404:
            break
        page = reply.json
        if page["lease"] is None:
            break
        found += [_body(message) for message in page["messages"]]
        done = node.api.call(
            "POST", f"/v1/addresses/{address}/queues/{queue}/acknowledge", lease=page["lease"]
        )
        assert done.status in (200, 204), done.body
    return found


def _body(message: Mapping[str, Any]) -> str:
    if "body" in message:
        return str(message["body"])
    return base64.b64decode(message["body-base64"]).decode()


def await_waiting(node: Node, address: str, queue: str, count: int) -> None:
    """Wait until so many messages wait in a queue."""
    eventually(
        lambda: waiting(node, address, queue) == count,
        f"{count} messages wait in {address}::{queue} of {node.name}; found {waiting(node, address, queue)}",
    )
