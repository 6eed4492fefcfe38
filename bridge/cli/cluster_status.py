"""`core-bridge status --cluster`: a node's view of its cluster, by its status, as JSON or tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

#: Columns of the nodes, and of the counts of the bridge to each.
_NODE_COLUMNS: Final = ("node", "state", "reachable", "hops", "version", "url", "bridge")
_COUNTS: Final = ("sent", "acknowledged", "in-flight", "lag")
_QUEUE_COLUMNS: Final = ("queue", "node", "routing-type", "readers", "filter")
#: Written where there is no value.
_NOTHING: Final = "-"


def cluster_of(status: Mapping[str, Any]) -> dict[str, Any]:
    """The cluster's part of ``GET /v1/status``; each node's `bridge` is the status of the bridge to it.

    Of a node without cluster connections: no nodes and no connections.
    """
    cluster = status.get("cluster") or {"connections": [], "nodes": [], "disagreements": []}
    bridges = {bridge["name"]: bridge for bridge in status.get("bridges", ())}
    nodes = [{**node, "bridge": bridges.get(node.get("bridge"))} for node in cluster["nodes"]]
    return {**cluster, "node": status.get("node-id", ""), "name": status.get("node", ""), "nodes": nodes}


def describe_cluster(cluster: Mapping[str, Any]) -> Iterator[str]:
    """The cluster as lines; `cluster` is as `cluster_of` makes it."""
    if not cluster["connections"]:
        yield f"node {cluster['name']} has no cluster connections"
        return
    for connection in cluster["connections"]:
        yield _connection(connection)
    names = {node["node"]: node["name"] for node in cluster["nodes"]}
    yield ""
    yield from _table((*_NODE_COLUMNS, *_COUNTS), (_node(node) for node in cluster["nodes"]))
    queues = [_queue(node, queue) for node in cluster["nodes"] for queue in node["queues"]]
    if queues:
        yield ""
        yield from _table(_QUEUE_COLUMNS, sorted(queues))
    for node in cluster["nodes"]:
        if (node["bridge"] or {}).get("reason"):
            yield f"bridge to {node['name']}: {node['bridge']['reason']}"
        if node.get("heir"):
            yield f"heir of {node['name']}: {names.get(node['heir'], node['heir'])}"
    for one in cluster["disagreements"]:
        name = names.get(one["node"], one["node"])
        yield f"address {one['address']} is {one['here']} here, {one['there']} at {name}: not shared with it"


def _connection(connection: Mapping[str, Any]) -> str:
    addresses = connection["address"] or "all"
    reason = f" ({connection['reason']})" if connection["reason"] else ""
    return (
        f"connection {connection['name']} {connection['state']} {connection['message-load-balancing']}"
        f" addresses {addresses} max-hops {connection['max-hops']}{reason}"
    )


def _count(count: int | None) -> str:
    return "unknown" if count is None else str(count)


def _node(node: Mapping[str, Any]) -> tuple[str, ...]:
    bridge = node["bridge"]
    reachable = "here" if node["hops"] == 0 else "yes" if node["reachable"] else "no"
    hops = _NOTHING if node["hops"] is None else str(node["hops"])
    version = ".".join(map(str, node["version"]))
    state = _NOTHING if bridge is None else bridge["state"]
    counts = [_NOTHING if bridge is None else _count(bridge[count]) for count in _COUNTS]
    return (node["name"], node["state"], reachable, hops, version, node["url"], state, *counts)


def _queue(node: Mapping[str, Any], queue: Mapping[str, Any]) -> tuple[str, ...]:
    name = f"{queue['address']}/{queue['queue']}"
    readers, condition = str(queue["readers"]), queue["filter"] or _NOTHING
    return (name, node["name"], queue["routing-type"], readers, condition)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines with the columns below each other."""
    lines = [columns, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
