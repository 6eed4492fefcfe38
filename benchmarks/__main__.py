"""`make bench`: every figure next to its aim and to raw SQLite in the same run."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks import machine, raw_sqlite
from benchmarks.clients import MESSAGE_BYTES, TRANSACTION
from benchmarks.nodes import Node, running

#: Of directories with what a run needs; then comes the process id.
PREFIX: Final = "core-bridge-bench-"
PARTS: Final = ("clients", "nodes", "kafka", "delivery-log", "cluster", "lines", "all")


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """A directory here, removed at the end; those of runs that were killed are removed now."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    for left in Path().glob(f"{PREFIX}*"):
        pid = left.name.removeprefix(PREFIX).partition("-")[0]
        if not Path("/proc", pid).exists():
            shutil.rmtree(left, ignore_errors=True)
    directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir="."))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def client(kind: str, node: Node, count: int, connections: int) -> dict[str, Any]:
    """One run of a client process."""
    command = [sys.executable, "-m", "benchmarks.clients", kind, str(node.port), str(count), str(connections)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def report(what: str, found: dict[str, Any], node: Node, cpu: float, raw: float | None, aim: str) -> None:
    """One line of the report."""
    rate = found["messages/s"]
    count = rate * found["seconds"]
    ratio = f", {rate / raw:.2f} of raw SQLite ({raw:,.0f}/s)" if raw else ""
    print(
        f"{what}: {rate:,.0f} messages/s{ratio};"
        f" p50 {found['p50']:.2f} p90 {found['p90']:.2f} p99 {found['p99']:.2f} ms;"
        f" node {cpu / count * 1e6:.1f} CPU us/message, {node.peak_mib():.0f} MiB at most [aim {aim}]",
        flush=True,
    )


def clients(directory: Path, scale: float) -> None:
    """Measure single sends, transactions, and reading."""
    node = Node("clients", directory / "clients")
    with running(node):
        time.sleep(0.5)
        idle = f"idle: {node.rss_mib():.0f} MiB resident [aim <= 70]"
        print(f"{idle}; ready after {node.ready_seconds:.2f} s [aim <= 1]", flush=True)
        for what, kind, number, connections, block, aim in (
            ("single sends, 64 connections", "single", 100_000, 64, 64, ">= 8,000/s, p99 <= 25 ms"),
            ("transactions of 500", "transaction", 500_000, 4, TRANSACTION, ">= 100,000/s"),
            ("pages of 100 with acknowledgement, 4 readers", "read", 300_000, 4, 0, ">= 40,000/s"),
        ):
            count = int(number * scale)
            raw = None
            if block:
                raw = raw_sqlite.appends_per_second(
                    directory, messages=count, block_messages=block, message_bytes=MESSAGE_BYTES
                )
            before = node.cpu_seconds()
            found = client(kind, node, count, connections)
            report(what, found, node, node.cpu_seconds() - before, raw, aim)


def node_to_node(directory: Path, scale: float, rounds: int) -> None:
    """A backlog that is there already, first frame to last receipt."""
    messages = int(1_000_000 * scale)
    edge = Node("edge", directory / "edge", hub_port=1)
    with running(edge):
        client("transaction", edge, messages, 4)
    rates, ratios = [], []
    for number in range(rounds):
        hub = Node("hub", directory / f"hub-{number}")
        copy = directory / f"edge-{number}"
        shutil.copytree(directory / "edge", copy)
        sender = Node("edge", copy, hub_port=hub.port)
        raw = raw_sqlite.appends_per_second(
            directory, messages=messages // 4, block_messages=1000, message_bytes=MESSAGE_BYTES
        )
        with running(hub, sender):
            seconds = wait_for(sender, messages)
            rates.append(messages / seconds)
            ratios.append(messages / seconds / raw)
            print(
                f"node to node, round {number + 1}: {rates[-1]:,.0f} messages/s,"
                f" {ratios[-1]:.2f} of raw ({raw:,.0f}/s); sender {cpu_us(sender, messages):.1f},"
                f" receiver {cpu_us(hub, messages):.1f} CPU us/message;"
                f" {sender.peak_mib():.0f} and {hub.peak_mib():.0f} MiB at most [aim <= 200]",
                flush=True,
            )
        for used in (copy, hub.directory):
            shutil.rmtree(used)
    print(
        f"node to node, median of {rounds}: {statistics.median(rates):,.0f} messages/s,"
        f" {statistics.median(ratios):.2f} of raw [aim >= 100,000/s and 0.40]"
    )


def cpu_us(node: Node, messages: int) -> float:
    """CPU time of a node's process, in us for each message."""
    return node.cpu_seconds() / messages * 1e6


def wait_for(sender: Node, messages: int) -> float:
    """Seconds from the first batch in flight to the last receipt; checked every 10 ms."""
    began = 0.0
    while True:
        status = sender.bridge()
        now = time.perf_counter()
        if status["sent"] and not began:
            began = now
        if status["acknowledged"] >= messages:
            return now - began
        time.sleep(0.01)


def kafka_to_kafka(directory: Path, scale: float, *, exactly_once: bool) -> None:
    """Compare with MirrorMaker 2; needs Java, Maven and the packages of the tests."""
    from benchmarks.kafka.run import run

    run((directory / "kafka").resolve(), scale, exactly_once=exactly_once)


def delivery_log(directory: Path, scale: float, rounds: int) -> None:
    """Compare with and without it: between nodes, and between clusters where the packages and Java are."""
    from benchmarks import delivery_log as parts

    messages = int(500_000 * scale)

    def fill(node: Node) -> None:
        client("transaction", node, messages, 4)

    between_nodes = parts.node_to_node(directory / "log-nodes", messages, fill, wait_for)
    parts.compare("node to node", between_nodes, rounds)
    from benchmarks.kafka import load
    from benchmarks.kafka.run import BROKER, loader
    from tests.kafka.cluster.brokers import Cluster

    place = (directory / "log-kafka").resolve()
    with (
        Cluster(name="eu", directory=place / "eu", **BROKER) as eu,  # type: ignore[arg-type]
        Cluster(name="us", directory=place / "us", **BROKER) as us,  # type: ignore[arg-type]
    ):
        load.make_topic(eu.bootstrap, "orders")
        loader("backlog", eu.bootstrap, "orders", messages)
        once = parts.between_clusters(place, messages, eu.bootstrap, us.bootstrap, "orders", wait_for)
        parts.compare("Kafka to Kafka", once, rounds)


def cluster(directory: Path, scale: float, rounds: int) -> None:
    """Compare clusters with one plain bridge, and a node with an idle cluster connection with one without."""
    from benchmarks import cluster as parts

    messages = int(200_000 * scale) // TRANSACTION * TRANSACTION

    part = messages // parts.SLICES // TRANSACTION * TRANSACTION

    def sending(count: int) -> parts.Send:
        return lambda node: client("transaction", node, count, 4)

    parts.deliveries(directory / "cluster", messages, sending(messages), rounds)
    parts.idle_connection(directory / "cluster", part, sending(part), rounds)


def lines(directory: Path, pattern: str, at_once: int) -> None:
    """Print the table of slow, far and breaking lines."""
    from benchmarks import lines as parts

    parts.print_table(directory / "lines", pattern, at_once)


def main() -> None:
    """Run everything, or one part."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("part", nargs="?", choices=PARTS, default="all")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the messages (1.0)")
    parser.add_argument(
        "--rounds",
        type=int,
        default=5,
        help="of node to node, with and without the delivery log, and of each cluster (5)",
    )
    parser.add_argument(
        "--at-least-once",
        action="store_true",
        help="of kafka: MirrorMaker 2 as it comes, and a bridge with use-duplicate-detection = false",
    )
    parser.add_argument("--rows", default="", help="of lines: an expression of their names; all without")
    parser.add_argument("--at-once", type=int, default=6, help="of lines: rows that run side by side (6)")
    arguments = parser.parse_args()
    with workplace() as directory:
        print(machine.describe(directory), flush=True)
        if arguments.part in ("clients", "all"):
            clients(directory, arguments.scale)
        if arguments.part in ("nodes", "all"):
            node_to_node(directory, arguments.scale, arguments.rounds)
        if arguments.part in ("kafka", "all"):
            kafka_to_kafka(directory, arguments.scale, exactly_once=not arguments.at_least_once)
        if arguments.part in ("delivery-log", "all"):
            delivery_log(directory, arguments.scale, arguments.rounds)
        if arguments.part in ("cluster", "all"):
            cluster(directory, arguments.scale, arguments.rounds)
        # Not with all: it takes hours, and no machine makes it faster.
        if arguments.part == "lines":
            lines(directory, arguments.rows, arguments.at_once)


if __name__ == "__main__":
    main()
