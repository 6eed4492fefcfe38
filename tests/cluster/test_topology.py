"""The table of a cluster on real nodes: contacts, discovery, restarts, and one journal in two places."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.rig import Cluster, make_queue, numbers, send, waiting
from tests.cluster.test_first_contacts import DOCUMENTED_S
from tests.harness.eventually import eventually

pytestmark = pytest.mark.processes


def tables(cluster: Cluster) -> list[list[dict[str, Any]]]:
    """Each node's table without what depends on where one looks from."""
    seen_from = ("reachable", "hops", "via", "bridge")
    return [
        [
            {key: value for key, value in entry.items() if key not in seen_from}
            for _, entry in sorted(cluster.table(index).items())
        ]
        for index in range(cluster.count)
    ]


def await_equal(cluster: Cluster, queues: int) -> list[dict[str, Any]]:
    """Wait until all tables are equal, with so many queues, and each node reaches all; returns the table."""

    def equal() -> list[dict[str, Any]] | None:
        first, *others = tables(cluster)
        count = sum(len(entry["queues"]) for entry in first)
        reached = all(
            one["reachable"] for node in range(cluster.count) for one in cluster.table(node).values()
        )
        whole = len(first) == cluster.count and count == queues and reached
        return first if whole and all(other == first for other in others) else None

    return eventually(equal, f"equal tables with {queues} queues")


def seconds_to_join(cluster: Cluster) -> float:
    """From the last node that listens until the last has joined all others, by the nodes' own logs."""
    listening, joined = (
        max(
            datetime.fromisoformat(event["timestamp"])
            for node in cluster.nodes
            for event in node.events(name)
        )
        for name in ("listening", "node-joined")
    )
    return (joined - listening).total_seconds()


def test_tables_become_equal_after_the_start_and_after_each_change(tmp_path: Path) -> None:
    """Three processes, started at once, of which each has one contact: equal tables within the time that is
    documented. `test_first_contacts.py` shows which time their settings imply.
    """
    cluster = Cluster(tmp_path, 3, contacts={0: [1], 1: [2], 2: [0]}).start()
    await_equal(cluster, 0)
    assert seconds_to_join(cluster) < DOCUMENTED_S
    for node in range(3):
        make_queue(cluster[node], "news", f"q{node}", filter=f"kind = '{node}'")
    table = await_equal(cluster, 3)
    assert [[one["queue"] for one in entry["queues"]] for entry in table] == [["q0"], ["q1"], ["q2"]]
    assert table[2]["queues"][0]["filter"] == "kind = '2'"
    shown = cluster[0].ops.get("/v1/cluster").json["connections"]
    assert [(one["name"], one["state"], one["reason"]) for one in shown] == [("my-cluster", "RUNNING", "")]
    assert cluster[0].metrics()['core_bridge_cluster_nodes{state="joined"}'] == 2


def test_a_restarted_node_is_the_same_one_and_its_old_word_is_replaced(tmp_path: Path) -> None:
    """A node dies and comes back with its journal under another address: its record counts from the new
    opening, whatever the others remember, and a queue that it no longer has is gone everywhere.
    """
    cluster = Cluster(tmp_path, 3).start()
    cluster.await_members()
    for name in ("kept", "gone"):
        make_queue(cluster[1], "news", name)
    before = await_equal(cluster, 2)
    cluster[1].kill()
    cluster.await_unreachable(0, 1)
    cluster.await_unreachable(2, 1)
    lone = cluster[1].rest
    cluster[1].rest = ""  # without the cluster
    cluster[1].start()
    assert cluster[1].api.call("DELETE", "/v1/addresses/news/queues/gone").status == 204
    cluster[1].stop()
    cluster[1].rest = lone
    cluster[1].start()
    after = await_equal(cluster, 1)
    assert after[1]["node"] == before[1]["node"]
    assert after[1]["version"][0] == before[1]["version"][0] + 2, "one opening each"
    assert [one["queue"] for one in after[1]["queues"]] == ["kept"]


def test_a_node_with_a_new_journal_is_another_node(tmp_path: Path) -> None:
    """The address leads to another node by now: the others link with that one, and know that the first is
    not there.
    """
    cluster = Cluster(tmp_path, 2).start()
    cluster.await_members()
    old = cluster.uuid(1)
    cluster[1].kill()
    shutil.rmtree(cluster[1].data)
    cluster[1].start()
    make_queue(cluster[1], "news", "q")
    new = cluster.uuid(1)
    assert new != old

    def linked() -> bool:
        nodes = {one["node"]: one for one in cluster[0].ops.get("/v1/cluster").json["nodes"]}
        return (
            new in nodes and nodes[new]["reachable"] and not nodes[old]["reachable"] and nodes[new]["queues"]
        )

    eventually(linked, "n0 knows both, and reaches the new one")
    send(cluster[0], "news", numbers(3))
    eventually(lambda: waiting(cluster[1], "news", "q") == 3, "messages go to the new one")


def test_a_copied_journal_is_refused_where_it_comes(tmp_path: Path) -> None:
    """The same UUID twice: the newcomer takes no part and says so, naming both runs; the others go on."""
    cluster = Cluster(tmp_path, 3, contacts={0: [1], 1: [0], 2: [0]}).start(0, 1)
    cluster.await_members(0, 1)
    uuid = cluster.uuid(1)
    cluster[1].stop()
    shutil.copytree(cluster[1].data, cluster[2].data)
    cluster.start(1)
    cluster.await_members(0, 1)
    twin = cluster[2].start_without_waiting()

    def refused() -> str:
        shown = twin.ops.get("/v1/cluster").json["connections"]
        return "".join(str(one["reason"]) for one in shown if one["state"] == "FAILED")

    reason = eventually(refused, "the newcomer's cluster connection is FAILED")
    assert "SAME_NODE_TWICE" in reason
    assert uuid in reason
    assert cluster[1].url in reason
    ready = twin.ops.get("/ready")
    assert ready.status == 503
    assert [one for one in ready.json["reasons"] if "my-cluster" in one and "SAME_NODE_TWICE" in one]
    assert twin.event("same-node-twice")["level"] == "error"
    (first,) = cluster[0].ops.get("/v1/cluster").json["connections"]
    assert first["state"] == "RUNNING"
    assert not twin.ops.get("/v1/status").json["bridges"], "it has sent nothing"
    make_queue(cluster[1], "news", "q")
    cluster.await_place(0, 1, "news", "q")
    send(cluster[0], "news", numbers(3))
    eventually(lambda: waiting(cluster[1], "news", "q") == 3, "the cluster goes on without it")
    assert cluster.table(0)["n1"]["url"] == cluster[1].url


def test_nodes_find_each_other_by_a_name(tmp_path: Path) -> None:
    """`discovery`: each asks for a name, behind which one of them answers, itself perhaps."""
    cluster = Cluster(tmp_path, 3)
    cluster.discovery = f"dns://localhost:{cluster[0].port}"
    for index in range(3):
        cluster.configure(index)
    cluster.start()
    table = await_equal(cluster, 0)
    assert [entry["name"] for entry in table] == ["n0", "n1", "n2"]
    assert not cluster[0].events("discovery-failed")
