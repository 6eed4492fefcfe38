"""The cost of the delivery log: the same backlog with it and without it, in turns, in one run."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.nodes import Node, running

#: Most throughput that it may cost.
AIM: Final = 0.10
OFF: Final = "[delivery-log]\nenabled = false\n"

#: Relays a backlog with this in its settings; messages/s, and CPU us a message of all processes.
Round = Callable[[str], tuple[float, float]]
#: Seconds from a bridge's first batch to its last receipt of so many messages.
Wait = Callable[[Node, int], float]


def compare(what: str, once: Round, rounds: int) -> None:
    """Measure with and without it in turns, so that other load affects both; the medians count."""
    ratios, costs = [], []
    for number in range(rounds):
        order = ("", OFF) if number % 2 else (OFF, "")
        found = {settings: once(settings) for settings in order}
        (on, on_cpu), (off, off_cpu) = found[""], found[OFF]
        ratios.append(on / off)
        costs.append(on_cpu / off_cpu)
        print(
            f"delivery log, {what}, round {number + 1}: {on:,.0f} messages/s with it, {off:,.0f} without,"
            f" {on_cpu:.1f} and {off_cpu:.1f} CPU us/message",
            flush=True,
        )
    print(
        f"delivery log, {what}, median of {rounds}: {statistics.median(ratios):.3f} of the throughput,"
        f" {statistics.median(costs):.3f} of the CPU [aim >= {1 - AIM:.2f}]",
        flush=True,
    )


def node_to_node(directory: Path, messages: int, fill: Callable[[Node], None], wait: Wait) -> Round:
    """A backlog of a node's journal, sent to another node."""
    with running(edge := Node("edge", directory / "edge", hub_port=1)):
        fill(edge)

    def once(settings: str) -> tuple[float, float]:
        hub = Node("hub", directory / "hub", extra=settings)
        copy = directory / "copy"
        shutil.copytree(directory / "edge", copy)
        sender = Node("edge", copy, hub_port=hub.port, extra=settings)
        with running(hub, sender):
            seconds = wait(sender, messages)
            cpu = (sender.cpu_seconds() + hub.cpu_seconds()) / messages * 1e6
        for used in (copy, hub.directory):
            shutil.rmtree(used)
        return messages / seconds, cpu

    return once


def between_clusters(
    directory: Path, messages: int, source: str, target: str, topic: str, wait: Wait
) -> Round:
    """A backlog of a topic of one cluster, relayed to another by one lane; a new bridge each time."""
    runs = iter(range(1_000_000))

    def once(settings: str) -> tuple[float, float]:
        name = f"log-{next(runs)}"
        node = Node(
            "bench",
            directory / name,
            extra=f"""{settings}
[connectors.eu]
url = "kafka://{source}"
[connectors.us]
url = "kafka://{target}"
[[bridges]]
name = "{name}"
source-connector = "eu"
queue-name = "{topic}"
static-connectors = ["us"]
""",
        )
        with running(node):
            seconds = wait(node, messages)
            cpu = node.cpu_seconds() / messages * 1e6
        shutil.rmtree(node.directory)
        return messages / seconds, cpu

    return once
