"""`core-bridge status --cluster` on real nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.rig import Cluster, await_waiting, make_queue, numbers, read, send
from tests.harness.commands import command
from tests.harness.eventually import eventually
from tests.harness.node import Node

pytestmark = pytest.mark.processes


def view(node: Node) -> dict[str, Any]:
    ended = command("status", "--cluster", "--operations", f"http://127.0.0.1:{node.operations_port}",
                    "--format", "json")  # fmt: skip
    assert ended.code == 0, ended.err
    found: dict[str, Any] = json.loads(ended.out)
    return found


def test_nodes_queues_readers_and_counts_are_shown_and_a_dead_node_with_what_waits_for_it(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path, 2, connection='message-load-balancing = "STRICT"').start()
    cluster.await_members()
    make_queue(cluster[1], "news", "there")
    cluster.await_place(0, 1, "news", "there")
    send(cluster[0], "news", numbers(10))
    await_waiting(cluster[1], "news", "there", 10)
    assert read(cluster[1], "news", "there") == numbers(10)
    cluster.await_place(0, 1, "news", "there", readers=1)

    def settled() -> bool:
        other = view(cluster[0])["nodes"][1]
        counts = [other["bridge"][count] for count in ("sent", "acknowledged", "in-flight", "lag")]
        return counts == [10, 10, 0, 0]

    eventually(settled, "all ten are acknowledged")
    where = ("--operations", f"http://127.0.0.1:{cluster[0].operations_port}")
    ended = command("status", "--cluster", *where)
    assert (ended.code, ended.err) == (0, "")
    lines = [line.split() for line in ended.out.splitlines()]
    assert ended.out.splitlines()[0] == "connection my-cluster RUNNING STRICT addresses all max-hops 1"
    own, other = lines[3], lines[4]
    assert own[:4] == ["n0", "UP", "here", "0"]
    assert other[:4] == ["n1", "UP", "yes", "1"]
    assert other[5:] == [cluster[1].url, "RUNNING", "10", "10", "0", "0"]
    assert lines[7][:3] == ["news/there", "n1", "MULTICAST"]

    cluster[1].kill()
    send(cluster[0], "news", numbers(3))
    eventually(lambda: not view(cluster[0])["nodes"][1]["reachable"], "n1 is unreachable")
    gone = view(cluster[0])["nodes"][1]
    assert gone["bridge"]["lag"] == 3
    assert gone["bridge"]["state"] == "CONNECTING"
    shown = [line.split() for line in command("status", "--cluster", *where).out.splitlines()]
    assert next(line[2] for line in shown if line[:1] == ["n1"]) == "no"


def test_nodes_that_disagree_on_a_routing_type_are_named(tmp_path: Path) -> None:
    own = {0: '[addresses.jobs]\nrouting-type = "ANYCAST"', 1: '[addresses.jobs]\nqueues = ["jobs"]'}
    cluster = Cluster(tmp_path, 2, own=own).start()
    cluster.await_members()
    where = ("--operations", f"http://127.0.0.1:{cluster[0].operations_port}")
    expected = "address jobs is ANYCAST here, MULTICAST at n1: not shared with it"
    eventually(
        lambda: expected in command("status", "--cluster", *where).out.splitlines(), "n1's type is named"
    )


def test_a_node_without_a_cluster_says_so_and_ends_with_0(tmp_path: Path) -> None:
    node = Node("alone", tmp_path).start()
    try:
        where = ("--operations", f"http://127.0.0.1:{node.operations_port}")
        ended = command("status", "--cluster", *where)
        assert (ended.code, ended.out, ended.err) == (0, "node alone has no cluster connections\n", "")
        found = view(node)
    finally:
        node.stop()
    assert (found["connections"], found["nodes"], found["disagreements"]) == ([], [], [])
