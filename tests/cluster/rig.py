"""Clusters of real node processes: made, started, stopped, and asked what they know."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.harness.eventually import PATIENCE_S, eventually
from tests.harness.forked import MEASURED
from tests.harness.node import Node

#: "Topology: 5 s" (contract), on a machine that others use, too.
TABLES_WITHIN_S: Final = 15.0
#: How long a reader counts as one here.
READER_TIMEOUT: Final = "1s"
#: The clusters that this run has made and not ended yet, in their order (`conftest.py`).
MADE: Final[list[Cluster]] = []


@dataclass
class Cluster:
    """Nodes `n0`, `n1`, … whose first contacts are each other's addresses, or those of `contacts`."""

    directory: Path
    count: int
    #: Further keys of [[cluster-connections]], and the whole of them by name where there are several.
    connection: str = ""
    connections: Mapping[str, str] = field(default_factory=dict)
    #: By node, keys that replace those of `connection`.
    connection_of: Mapping[int, str] = field(default_factory=dict)
    #: Instead of contacts.
    discovery: str = ""
    #: TOML that every node has, and that single nodes have, by index.
    rest: str = ""
    own: Mapping[int, str] = field(default_factory=dict)
    #: By node, the nodes of its static-connectors; None: all others.
    contacts: Mapping[int, Sequence[int]] | None = None
    #: Further connectors of static-connectors, which `rest` describes.
    further: Sequence[str] = ()
    nodes: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        MADE.append(self)
        self.nodes = [Node(f"n{index}", self.directory) for index in range(self.count)]
        for index in range(self.count):
            self.configure(index)

    def configure(self, index: int) -> None:
        """Give a node its settings."""
        node = self.nodes[index]
        others = [one for one in range(self.count) if one != index]
        static = others if self.contacts is None else self.contacts[index]
        connectors = "".join(f'[connectors.{other.name}]\nurl = "{other.url}"\n' for other in self.nodes)
        names = json.dumps([*(f"n{one}" for one in (static or [index])), *self.further])
        first = f'discovery = "{self.discovery}"' if self.discovery else f"static-connectors = {names}"
        single = {"my-cluster": self.connection_of.get(index, self.connection)}
        connections = "".join(
            f'[[cluster-connections]]\nname = "{name}"\nconnector-ref = "{node.name}"\n{first}\n'
            f"retry-interval = 200\nmax-retry-interval = 200\n"
            f'reader-timeout = "{READER_TIMEOUT}"\n{keys}\n'
            for name, keys in (self.connections or single).items()
        )
        node.rest = f"{self.rest}\n{self.own.get(index, '')}\n{connectors}{connections}"

    def end(self) -> None:
        """Leave no process; what the nodes have logged is printed. No node may have logged a trace.

        Where nodes are measured they are stopped: of one that SIGKILL ends there is no measurement.
        """
        if MEASURED in os.environ:
            running = [node for node in self.nodes if node.process is not None]
            for node in running:
                node.signal()
            for node in running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    node.wait()
        for node in self.nodes:
            node.destroy()
        logs = {node.name: node.log.read_text("utf-8") for node in self.nodes if node.log.exists()}
        for name, log in logs.items():
            print(f"--- {name}\n{log}")
        assert not [name for name, log in logs.items() if "Traceback" in log], (
            "an error that was not foreseen"
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

    def uuid(self, index: int) -> str:
        """A node's UUID."""
        return str(self.nodes[index].ops.get("/v1/status").json["node-id"])

    def await_members(self, *indices: int) -> None:
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

        eventually(agree, f"{sorted(names)} know each other", TABLES_WITHIN_S)

    def await_unreachable(self, seen_by: int, at: int) -> None:
        """Wait until one node has noticed that another is down."""

        def is_down() -> bool:
            return not self.table(seen_by)[f"n{at}"]["reachable"]

        eventually(is_down, f"n{seen_by} notices that n{at} is down", TABLES_WITHIN_S)

    def await_reachable(self, seen_by: int, at: int) -> None:
        """Wait until one node reaches another by a link of its own: by way of a third it is no heir."""
        name = f"n{at}"

        def is_near() -> bool:
            found = self.table(seen_by).get(name, {})
            return bool(found.get("reachable") and found["hops"] == 1)

        eventually(
            is_near,
            f"n{seen_by} has a link to {name}",
            TABLES_WITHIN_S,
        )

    def await_place(
        self, seen_by: int, at: int, address: str, queue: str, readers: int | None = None
    ) -> None:
        """Wait until one node gives messages to a queue of another, with or without readers.

        A node that has just returned may first be reached by a longer way: it is passed over then.
        """

        def there() -> bool:
            known = self.nodes[seen_by].ops.get("/v1/cluster").json
            node = next((one for one in known["nodes"] if one["name"] == f"n{at}"), None)
            if node is None or not node["reachable"]:
                return False
            if node["hops"] > max(one["max-hops"] for one in known["connections"]):
                return False
            found = [one for one in node["queues"] if (one["address"], one["queue"]) == (address, queue)]
            return bool(found and readers in (None, found[0]["readers"]))

        eventually(there, f"n{seen_by} knows {address}::{queue} at n{at}", TABLES_WITHIN_S)

    def make_queues(self, address: str, queue: str, *at: int, seen_by: int = 0, **how: Any) -> None:
        """Make a queue at these nodes, one after the other: so they become known in this order."""
        for index in at:
            make_queue(self.nodes[index], address, queue, **how)
            self.await_place(seen_by, index, address, queue)

    def await_filter(self, seen_by: int, at: int, address: str, queue: str, condition: str) -> None:
        """Wait until one node knows that a queue of another has this filter."""

        def known() -> bool:
            queues = self.table(seen_by)[f"n{at}"]["queues"]
            return any(
                (one["address"], one["queue"], one["filter"]) == (address, queue, condition) for one in queues
            )

        eventually(known, f"n{seen_by} knows the filter {condition} at n{at}", TABLES_WITHIN_S)

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


def sent(node: Node, peer: str) -> tuple[int, int]:
    """Messages that a node's bridge to another, by its UUID, has sent, and that were acknowledged."""
    found = node.status(f"$cluster.{peer}")
    return found["sent"], found["acknowledged"]


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


def read(
    node: Node, address: str, queue: str, most: int = 1000, wait_ms: int = 0, pages: int = 1000
) -> list[str]:
    """Take and settle what waits in a queue, with so many requests at most."""
    found: list[str] = []
    for _ in range(pages):
        if len(found) >= most:
            break
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
    found: set[int] = set()

    def there() -> bool:
        found.clear()
        found.add(waiting(node, address, queue))
        return found == {count}

    try:
        eventually(there, f"{count} messages wait in {address}::{queue} of {node.name}")
    except AssertionError as error:
        raise AssertionError(f"{error}, with {found} there") from None


class Reader(threading.Thread):
    """Reads a queue as messages come, and so is its reader for the cluster, until `stop`."""

    def __init__(self, node: Node, address: str, queue: str) -> None:
        super().__init__(name=f"reader of {address}::{queue}", daemon=True)
        self._where = (node, address, queue)
        self._stopped = threading.Event()
        #: What it has read and settled.
        self.found: list[str] = []
        self.start()

    def run(self) -> None:
        while not self._stopped.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.found += read(*self._where, wait_ms=500, most=1000, pages=1)

    def await_found(self, count: int) -> list[str]:
        eventually(lambda: len(self.found) >= count, f"{count} messages are read of {self._where[1:]}")
        return self.found

    def stop(self) -> list[str]:
        """What it has read, once it has ended."""
        self._stopped.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()
        return self.found


@contextlib.contextmanager
def reading(node: Node, address: str, queue: str) -> Iterator[Reader]:
    """A reader, while the block lasts."""
    reader = Reader(node, address, queue)
    try:
        yield reader
    finally:
        reader.stop()
