"""Nodes of a cluster that reload their settings while they relay: what has not changed goes on."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.rig import Cluster, await_waiting, read, reading
from tests.harness.eventually import eventually
from tests.harness.node import Node

pytestmark = pytest.mark.processes

#: Reloads of each node.
ROUNDS: Final = 4
REST: Final = '[addresses.jobs]\nrouting-type = "ANYCAST"\n[address-settings."#"]\nredistribution-delay = 0\n'
#: The queues of the MULTICAST address `news`, by node.
QUEUES: Final = ((1, "audit"), (2, "billing"))
#: The nodes at which `jobs` has readers.
READERS: Final = (1, 2)
#: A bridge within node {0} that is another one after each reload; and an address that each reload makes.
OWN: Final = (
    '[addresses.copied-{0}]\nqueues = ["only-{0}"]\n[addresses.made-{0}-{1}]\n'
    '[[bridges]]\nname = "copies"\nqueue-name = "local-{0}"\nforwarding-address = "copied-{0}"\n'
    'static-connectors = ["journal"]\nmax-hops = {2}\n'
)


class Sender(threading.Thread):
    """Sends numbered messages to the addresses of a cluster by one node, until it is stopped."""

    def __init__(self, node: Node) -> None:
        super().__init__(name=f"sender at {node.name}", daemon=True)
        self.addresses: Final = ("jobs", "news", f"local-{node.name}")
        self.node = node
        self._told = threading.Event()
        #: Bodies that were answered `stored`, in their order.
        self.sent: list[str] = []

    def run(self) -> None:
        while not self._told.is_set():
            body = f"{self.node.name}-{len(self.sent)}"
            for address in self.addresses:
                reply = self.node.api.send(address, body.encode())
                assert (reply.status, reply.json["verdict"]) == (200, "stored"), reply.body
            self.sent.append(body)

    def end(self) -> None:
        self._told.set()
        self.join()


@contextmanager
def sending(nodes: list[Node]) -> Iterator[list[Sender]]:
    """A sender at each of the nodes, while the block lasts."""
    senders = [Sender(node) for node in nodes]
    for sender in senders:
        sender.start()
    try:
        yield senders
    finally:
        for sender in senders:
            sender.end()


def links(node: Node) -> dict[str, str]:
    """Since when the link of each other node is open; first contacts are no links."""
    found = node.ops.get("/v1/status").json["links"]
    return {one["node"]: one["since"] for one in found if one["bridge"].startswith("$cluster.")}


def reload(node: Node, *, refused: str = "") -> None:
    """Reload the file as it is now; `refused`: a key that it must be refused for."""
    node.write()
    reply = node.ops.call("POST", "/v1/reload")
    if refused:
        reply.is_problem(409, "SETTINGS_REFUSED")
        assert f"{refused}: cannot change while the node runs" in reply.body.decode(), reply.body
    else:
        assert reply.status == 200, reply.body


def made(directory: Path) -> Cluster:
    """Three nodes that know each other by a token."""
    own = {index: OWN.format(f"n{index}", 0, 2) for index in range(3)}
    cluster = Cluster(directory, 3, rest=REST, own=own)
    for index, queue in QUEUES:
        cluster.own = {**cluster.own, index: f'{cluster.own[index]}[addresses.news]\nqueues = ["{queue}"]\n'}
    for index, node in enumerate(cluster.nodes):
        cluster.configure(index)
        node.acceptor, node.token = 'tokens = ["one"]', "one"
        node.rest = node.rest.replace("\nurl = ", '\ntoken = "one"\nurl = ')
    cluster.start()
    cluster.await_members()
    for at, queue in QUEUES:
        for seen_by in {0, 1, 2} - {at}:
            cluster.await_place(seen_by, at, "news", queue)
    return cluster


def flows(senders: list[Sender]) -> None:
    """Wait until every node has taken more messages."""
    before = [len(sender.sent) for sender in senders]

    def more() -> bool:
        return all(len(one.sent) > count + 2 for one, count in zip(senders, before, strict=True))

    eventually(more, "messages flow on")


def change(node: Node, turn: int) -> None:
    """One reload that is refused, and one that changes a bridge and makes an address."""
    kept = node.rest
    if turn % 2:
        node.rest = kept.replace("\nreader-timeout", "\nmax-hops = 7\nreader-timeout")
        reload(node, refused="cluster-connections.my-cluster.max-hops")
    else:
        node.rest = kept.replace(node.url, "ws://127.0.0.1:1")
        reload(node, refused=f"connectors.{node.name}.url")
    before, after = (OWN.format(node.name, number, number + 2) for number in (turn - 1, turn))
    assert before in kept
    node.rest = kept.replace(before, after)
    reload(node)


def rotate(nodes: list[Node]) -> None:
    """Let all nodes know each other by another token, one step at all of them after the other."""
    for node in nodes:
        node.acceptor = 'tokens = ["one", "two"]'
        reload(node)
    for node in nodes:
        node.rest = node.rest.replace('token = "one"', 'token = "two"')
        reload(node)


def test_nodes_that_reload_lose_and_double_nothing_and_keep_their_links(tmp_path: Path) -> None:
    """O1. ANYCAST and MULTICAST, with a bridge and addresses that change, and keys that are refused.

    A token that is taken away cuts the links that it opened, and only those.
    """
    cluster = made(tmp_path)
    nodes = cluster.nodes
    opened = [links(node) for node in nodes]
    assert all(len(found) == 2 for found in opened)
    with ExitStack() as stack:
        readers = [stack.enter_context(reading(nodes[at], "jobs", "jobs")) for at in READERS]
        with sending(nodes) as senders:
            for turn in range(1, ROUNDS + 1):
                for node in nodes:
                    change(node, turn)
                flows(senders)
            rotate(nodes)
            flows(senders)
            assert [links(node) for node in nodes] == opened, "no link of the cluster was cut"
            nodes[0].acceptor, nodes[0].token = 'tokens = ["two"]', "two"
            reload(nodes[0])
            eventually(lambda: len(links(nodes[0])) == 2, "it is linked again")
            flows(senders)
        bodies = [body for sender in senders for body in sender.sent]
        eventually(
            lambda: sum(len(reader.found) for reader in readers) >= len(bodies), "every job is processed"
        )
    assert Counter(body for reader in readers for body in reader.found) == Counter(bodies), "jobs"
    for at, queue in QUEUES:
        await_waiting(nodes[at], "news", queue, len(bodies))
        found = read(nodes[at], "news", queue)
        for sender in senders:
            own = [body for body in found if body.startswith(f"{sender.node.name}-")]
            assert own == sender.sent, f"{queue}: what came by {sender.node.name}"
    for sender in senders:
        name = sender.node.name
        await_waiting(sender.node, f"copied-{name}", f"only-{name}", len(sender.sent))
        assert read(sender.node, f"copied-{name}", f"only-{name}") == sender.sent
        assert len(sender.node.events("bridge-started", bridge="copies")) == ROUNDS + 1
        assert len(sender.node.events("settings-not-reloaded")) == ROUNDS
    for before, node in zip(opened[1:], nodes[1:], strict=True):
        assert links(node) == before
    assert not opened[0].items() & links(nodes[0]).items()
