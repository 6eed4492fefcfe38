from __future__ import annotations

from typing import Any

from bridge.cli.cluster_status import cluster_of, describe_cluster

CONNECTION = {
    "name": "my-cluster", "address": "", "message-load-balancing": "ON_DEMAND", "max-hops": 1,
    "state": "RUNNING", "reason": "",
}  # fmt: skip
BRIDGE = {
    "name": "$cluster.b", "state": "RUNNING", "reason": None, "sent": 812, "acknowledged": 800,
    "in-flight": 12, "lag": 14,
}  # fmt: skip


def node(uuid: str, hops: int | None, **more: Any) -> dict[str, Any]:
    bridge = None if hops == 0 else f"$cluster.{uuid}"
    return {
        "node": uuid, "name": f"node-{uuid}", "url": f"ws://{uuid}:61616", "state": "UP",
        "version": [3, 7], "reachable": True, "hops": hops, "bridge": bridge, "queues": [], **more,
    }  # fmt: skip


def queue(address: str, readers: int, condition: str = "") -> dict[str, Any]:
    return {
        "address": address, "queue": address, "readers": readers, "filter": condition,
        "routing-type": "ANYCAST",
    }  # fmt: skip


def status(*nodes: dict[str, Any], bridges: Any = (), **cluster: Any) -> dict[str, Any]:
    part = {"connections": [CONNECTION], "nodes": [*nodes], "disagreements": [], **cluster}
    return {"node": "node-a", "node-id": "a", "bridges": [*bridges], "cluster": part}


def lines(given: dict[str, Any]) -> list[str]:
    return list(describe_cluster(cluster_of(given)))


def test_each_node_is_shown_with_the_counts_of_the_bridge_to_it() -> None:
    assert lines(status(node("a", 0), node("b", 1), bridges=[BRIDGE])) == [
        "connection my-cluster RUNNING ON_DEMAND addresses all max-hops 1",
        "",
        "node    state  reachable  hops  version  url           bridge   sent  acknowledged  in-flight  lag",
        "node-a  UP     here       0     3.7      ws://a:61616  -        -     -             -          -",
        "node-b  UP     yes        1     3.7      ws://b:61616  RUNNING  812   800           12         14",
    ]


def test_a_node_that_is_away_or_only_heard_of_is_shown_without_what_is_unknown() -> None:
    away = node("b", 1, reachable=False)
    heard_of = node("c", None, reachable=False)
    shown = lines(status(node("a", 0), away, heard_of, bridges=[{**BRIDGE, "state": "CONNECTING"}]))
    assert [line.split()[:4] for line in shown[3:]] == [
        ["node-a", "UP", "here", "0"],
        ["node-b", "UP", "no", "1"],
        ["node-c", "UP", "no", "-"],
    ]
    assert "CONNECTING" in shown[4]
    assert shown[5].split()[-5:] == ["-"] * 5


def test_queues_are_shown_by_name_with_their_nodes_and_readers() -> None:
    first = node("a", 0, queues=[queue("jobs", 0), queue("bills", 0, "x = 1")])
    shown = lines(status(first, node("b", 1, queues=[queue("jobs", 1)]), bridges=[BRIDGE]))
    assert shown[6:] == [
        "queue        node    routing-type  readers  filter",
        "bills/bills  node-a  ANYCAST       0        x = 1",
        "jobs/jobs    node-a  ANYCAST       0        -",
        "jobs/jobs    node-b  ANYCAST       1        -",
    ]


def test_failures_heirs_and_disagreements_are_named_with_their_reasons() -> None:
    failed = {**CONNECTION, "address": "eu", "state": "FAILED", "reason": "SAME_NODE_TWICE: two of them"}
    left = node("c", 1, state="DRAINED", heir="b")
    shown = lines(
        status(
            *(node("a", 0), node("b", 1), left),
            bridges=[{**BRIDGE, "state": "FAILED", "reason": "TARGET_REFUSED: no"}],
            connections=[failed],
            disagreements=[{"node": "b", "address": "jobs", "here": "ANYCAST", "there": "MULTICAST"}],
        )
    )
    assert shown[0] == (
        "connection my-cluster FAILED ON_DEMAND addresses eu max-hops 1 (SAME_NODE_TWICE: two of them)"
    )
    assert shown[-3:] == [
        "bridge to node-b: TARGET_REFUSED: no",
        "heir of node-c: node-b",
        "address jobs is ANYCAST here, MULTICAST at node-b: not shared with it",
    ]


def test_a_node_without_cluster_connections_says_so() -> None:
    given = {"node": "node-a", "node-id": "a", "bridges": []}
    assert lines(given) == ["node node-a has no cluster connections"]
    found = cluster_of(given)
    assert (found["connections"], found["nodes"], found["disagreements"]) == ([], [], [])


def test_as_json_a_node_has_the_whole_status_of_the_bridge_to_it() -> None:
    found = cluster_of(status(node("a", 0), node("b", 1), bridges=[BRIDGE]))
    assert [one["bridge"] for one in found["nodes"]] == [None, BRIDGE]
    assert (found["node"], found["name"]) == ("a", "node-a")
