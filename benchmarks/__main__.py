"""`make bench`: every figure next to its aim and to raw SQLite in the same run."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import machine, raw_sqlite
from benchmarks.clients import MESSAGE_BYTES, TRANSACTION
from benchmarks.nodes import Node, running


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
    """Single sends, transactions, reading."""
    node = Node(directory / "clients", "clients")
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
    edge = Node(directory / "edge", "edge", hub_port=1)
    with running(edge):
        client("transaction", edge, messages, 4)
    rates, ratios = [], []
    for number in range(rounds):
        hub = Node(directory / f"hub-{number}", "hub")
        copy = directory / f"edge-{number}"
        shutil.copytree(directory / "edge", copy)
        sender = Node(copy, "edge", hub_port=hub.port)
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
    """Seconds from the first batch on its way to the last receipt; looked at every 10 ms."""
    began = 0.0
    while True:
        status = sender.bridge()
        now = time.perf_counter()
        if status["sent"] and not began:
            began = now
        if status["acknowledged"] >= messages:
            return now - began
        time.sleep(0.01)


def kafka_to_kafka(directory: Path, scale: float) -> None:
    """Beside MirrorMaker 2; needs Java, Maven and the packages of the tests."""
    from benchmarks.kafka.run import run

    run((directory / "kafka").resolve(), scale)


def main() -> None:
    """Everything, or one part."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("part", nargs="?", choices=["clients", "nodes", "kafka", "all"], default="all")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the messages (1.0)")
    parser.add_argument("--rounds", type=int, default=5, help="of node to node (5)")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="core-bridge-bench-", dir="."))
    try:
        print(machine.describe(directory), flush=True)
        if arguments.part in ("clients", "all"):
            clients(directory, arguments.scale)
        if arguments.part in ("nodes", "all"):
            node_to_node(directory, arguments.scale, arguments.rounds)
        if arguments.part in ("kafka", "all"):
            kafka_to_kafka(directory, arguments.scale)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
