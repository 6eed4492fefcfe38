"""A cluster next to one plain bridge in the same run: a live stream of transactions, to the last arrival."""

from __future__ import annotations

import os
import random
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.nodes import Node, running
from tests.harness.api import HOST
from tests.harness.eventually import eventually

#: Least share of a plain bridge's rate that ANYCAST reaches over all nodes together, that deliveries of
#: MULTICAST to three nodes reach, and of a node's rate without a cluster connection.
ANYCAST_AIM: Final = 0.7
MULTICAST_AIM: Final = 1.2
IDLE_AIM: Final = 0.97
#: Most time between the last send and the last arrival, in seconds.
ARRIVES_WITHIN_S: Final = 300.0
#: Pause between two looks at what has arrived, in seconds.
LOOK_EVERY_S: Final = 0.02
#: Turns of each node in a round of the comparison with an idle cluster connection.
SLICES: Final = 4
PLAIN: Final = "plain bridge"

#: Sends the messages of a run to a node, and returns what `benchmarks.clients` prints.
Send = Callable[[Node], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Case:
    """Where the queues are that get what clients send to the entry node, which has none."""

    name: str
    routing_type: str
    #: By node, the name of its queue.
    queues: Sequence[str]
    #: How many copies of each message arrive.
    copies: int
    #: Least ratio to the plain bridge.
    aim: float


CASES: Final = (
    *(Case(f"ANYCAST, {n} of {n + 1} nodes", "ANYCAST", ["orders"] * n, 1, ANYCAST_AIM) for n in (1, 2, 3)),
    Case("MULTICAST, 3 of 4 nodes", "MULTICAST", ["q1", "q2", "q3"], 3, MULTICAST_AIM),
)


@dataclass(frozen=True, slots=True)
class Found:
    """The measurements of one run of one case."""

    #: Copies that arrived, a second, over all nodes.
    deliveries_per_s: float
    #: Processor time a delivery: of the entry node, and of all others together.
    entry_cpu_us: float
    others_cpu_us: float
    #: Most resident memory: of the entry node, and of the largest other.
    entry_mib: float
    others_mib: float

    def __str__(self) -> str:
        """As a line of the report has it."""
        return (
            f"{self.deliveries_per_s:,.0f} deliveries/s; CPU us/delivery {self.entry_cpu_us:.1f} at the entry"
            f" node, {self.others_cpu_us:.1f} at the others; {self.entry_mib:.0f} and {self.others_mib:.0f}"
            " MiB at most"
        )


def deliveries(directory: Path, messages: int, send: Send, rounds: int) -> None:
    """Measure the plain bridge and each case in turns, so that other load affects all; the medians count."""
    found: dict[str, list[Found]] = {name: [] for name in (PLAIN, *(case.name for case in CASES))}
    for number in range(rounds):
        found[PLAIN].append(_plain(directory, messages, send))
        for case in CASES:
            found[case.name].append(_clustered(directory, messages, send, case))
        for name, runs in found.items():
            ratio = runs[-1].deliveries_per_s / found[PLAIN][-1].deliveries_per_s
            print(f"cluster, {name}, round {number + 1}: {ratio:.2f} of the plain bridge; {runs[-1]}")
        print(f"cluster, load after round {number + 1}: {_load()}", flush=True)
    for case in CASES:
        ratios = [
            run.deliveries_per_s / plain.deliveries_per_s
            for run, plain in zip(found[case.name], found[PLAIN], strict=True)
        ]
        print(
            f"cluster, {case.name}, median of {rounds}: {statistics.median(ratios):.2f} of the plain bridge"
            f" ({_median(found[PLAIN]):,.0f}/s), {_median(found[case.name]):,.0f} deliveries/s"
            f" [aim >= {case.aim:.2f}]",
            flush=True,
        )


def idle_connection(directory: Path, slice_messages: int, send: Send, rounds: int) -> None:
    """Compare a node without a cluster connection with nodes that route nothing through theirs.

    All run side by side and get `slice_messages` in turns, in random order: other load affects all, and what
    two nodes alike differ by is no difference. The medians count.
    """
    none = {"none": None, "none, again": None}
    kinds = {**none, "that excludes the address": "!orders", "that shares it with no other node": ""}
    turns = random.Random(1)
    rates: dict[str, list[float]] = {kind: [] for kind in kinds}
    costs: dict[str, list[float]] = {kind: [] for kind in kinds}
    pairs = {kind: _pair(directory / str(index), kinds[kind]) for index, kind in enumerate(kinds)}
    try:
        with running(*(node for pair in pairs.values() for node in pair)):
            for kind, pair in pairs.items():
                if kinds[kind] is not None:
                    eventually(lambda node=pair[0]: _reachable(node) == 1, "the nodes know each other")
            for _ in range(rounds * SLICES):
                for kind in turns.sample(list(kinds), len(kinds)):
                    node = pairs[kind][0]
                    before = node.cpu_seconds()
                    rates[kind].append(send(node)["messages/s"])
                    costs[kind].append((node.cpu_seconds() - before) / slice_messages * 1e6)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(f"cluster, load after {rounds * SLICES} slices: {_load()}")
    for kind in kinds:
        share = statistics.median(one / none for one, none in zip(rates[kind], rates["none"], strict=True))
        cost = statistics.median(one / none for one, none in zip(costs[kind], costs["none"], strict=True))
        print(
            f"cluster connection {kind}: {statistics.median(rates[kind]):,.0f} messages/s,"
            f" {share:.3f} of the throughput without one;"
            f" {statistics.median(costs[kind]):.1f} CPU us/message, {cost:.3f} of that without one"
            f" [aim >= {IDLE_AIM:.2f}]",
            flush=True,
        )


def _plain(directory: Path, messages: int, send: Send) -> Found:
    hub = Node("hub", directory / "hub")
    edge = Node("edge", directory / "edge", hub_port=hub.port)
    try:
        with running(hub, edge):
            return _run(edge, {"q": [hub]}, messages, send)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _clustered(directory: Path, messages: int, send: Send, case: Case) -> Found:
    entry, *others = nodes = [
        Node(f"n{index}", directory / f"n{index}") for index in range(len(case.queues) + 1)
    ]
    entry.rest = _settings(entry, nodes)
    for node, queue in zip(others, case.queues, strict=True):
        queues = "" if case.routing_type == "ANYCAST" else f'queues = ["{queue}"]\n'
        address = f'[addresses.orders]\nrouting-type = "{case.routing_type}"\n{queues}'
        node.rest = address + _settings(node, nodes)
    holders: dict[str, list[Node]] = {}
    for node, queue in zip(others, case.queues, strict=True):
        holders.setdefault(queue, []).append(node)
    try:
        with running(*nodes):
            eventually(lambda: _known(entry) == len(others), "the entry node knows all queues")
            return _run(entry, holders, messages * case.copies, send)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _pair(directory: Path, shared: str | None) -> list[Node]:
    """A node with a queue, and a second that idles; None: without cluster connections."""
    nodes = [Node(f"n{index}", directory / f"n{index}") for index in range(2)]
    for node in nodes:
        connection = "" if shared is None else _connection(node, nodes, f'address = "{shared}"\n')
        node.rest = _LIMITS + connection
    nodes[0].rest += '[addresses.orders]\nqueues = ["q"]\n'
    return nodes


_LIMITS: Final = '[address-settings."#"]\nmax-size-bytes = "8GiB"\n'


def _settings(node: Node, nodes: Sequence[Node]) -> str:
    return _LIMITS + _connection(node, nodes, 'message-load-balancing = "STRICT"\n')


def _connection(node: Node, nodes: Sequence[Node], keys: str) -> str:
    others = ", ".join(f'"{other.name}"' for other in nodes if other is not node)
    return (
        "".join(f'[connectors.{one.name}]\nurl = "ws://{HOST}:{one.port}"\n' for one in nodes)
        + f'[[cluster-connections]]\nname = "bench"\nconnector-ref = "{node.name}"\n'
        + f"static-connectors = [{others}]\n{keys}"
    )


def _run(entry: Node, holders: Mapping[str, Sequence[Node]], copies: int, send: Send) -> Found:
    """Send, and wait until all copies are in the queues; from the first send to the last arrival."""
    others = [node for nodes in holders.values() for node in nodes]
    cpu = {node.name: node.cpu_seconds() for node in (entry, *others)}
    sent = send(entry)
    by_queue = copies // len(holders)
    deadline = time.perf_counter() + ARRIVES_WITHIN_S
    for queue, nodes in holders.items():
        while (there := sum(_waiting(node, queue) for node in nodes)) < by_queue:
            if time.perf_counter() > deadline:
                raise SystemExit(f"{there} of {by_queue} messages have arrived in {queue}")
            time.sleep(LOOK_EVERY_S)
        assert there == by_queue, f"{there} messages are in {queue}, of {by_queue} that were sent"
    seconds = time.perf_counter() - sent["began"]
    spent = {node.name: (node.cpu_seconds() - cpu[node.name]) / copies * 1e6 for node in (entry, *others)}
    return Found(
        copies / seconds,
        spent.pop(entry.name),
        sum(spent.values()),
        entry.peak_mib(),
        max(node.peak_mib() for node in others),
    )


def _waiting(node: Node, queue: str) -> int:
    """Messages in a queue, which has no reader."""
    found = node.api.get("/v1/addresses/orders").json["queues"]
    return sum(one["lag"] for one in found if one["name"] == queue)


def _known(node: Node) -> int:
    """Queues of the address at other nodes that this node knows and reaches."""
    nodes = node.ops.get("/v1/cluster").json["nodes"]
    return sum(
        queue["address"] == "orders"
        for one in nodes
        if one["name"] != node.name and one["reachable"]
        for queue in one["queues"]
    )


def _reachable(node: Node) -> int:
    """Other nodes that this node reaches."""
    nodes = node.ops.get("/v1/cluster").json["nodes"]
    return sum(one["reachable"] and one["name"] != node.name for one in nodes)


def _median(runs: Sequence[Found]) -> float:
    return statistics.median(run.deliveries_per_s for run in runs)


def _load() -> str:
    """The machine's load of the last minute, of all processes."""
    return f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
