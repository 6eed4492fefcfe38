"""Nodes that a topology refuses, and why. Pure."""

from __future__ import annotations

from bridge.errors import BridgeError, Malformed, TargetRefused
from cluster.record import NODES, Announcement, Record


class SameNodeTwice(TargetRefused):
    """Two processes run with one node's UUID: a journal was copied, or an older one restored."""

    code = "SAME_NODE_TWICE"


class TooManyNodes(BridgeError):
    """The cluster has more nodes than `NODES`."""

    code, status = "TOO_MANY_NODES", 503


def process_of(record: Record) -> tuple[str, str, int]:
    """Name and address, run and opening of the process that tells the record."""
    return f"{record.name} at {record.url}", record.run, record.version.opening


def same_node_twice(known: Record, other: str, run: str, opening: int) -> SameNodeTwice:
    """`known` is the record of the first process; the rest is of the other."""
    return SameNodeTwice(
        f"two processes run with the UUID {known.node}, from one journal: {known.name} at {known.url}, run"
        f" {known.run}, opening {known.version.opening}; and {other}, run {run}, opening {opening}: one of"
        " them is a copy or an older state",
        "run",
        known.run,
        run,
    )


def too_many_nodes(record: Record) -> TooManyNodes:
    """`record` is that of the node for which there is no room."""
    detail = f"a cluster has at most {NODES} nodes; found one more, {record.name} at {record.url}"
    return TooManyNodes(detail, "nodes", NODES, NODES + 1)


def wrong_teller(said: Announcement, neighbour: str) -> Malformed:
    """`neighbour` has told what another node should tell."""
    by = said.path[-1] if said.path else said.record.node
    return Malformed(
        f"path: ends with the node that tells it, {neighbour}; found {by}", "path", neighbour, by
    )
