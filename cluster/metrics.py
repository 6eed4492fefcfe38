"""The metrics of a cluster: `core_bridge_cluster_…`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from bridge.runtime.metrics import Metric, Sample
from cluster.record import GONE
from cluster.routing import ClusterRouter
from cluster.view import View

_PREFIX: Final = "core_bridge_cluster_"
#: The states of nodes as metrics have them.
_STATES: Final = ("joined", "unreachable", "left")

NODES: Final = Metric(f"{_PREFIX}nodes", "gauge", ("state",), "Other nodes that this node knows.")
PLACES: Final = Metric(f"{_PREFIX}places", "gauge", (), "Queues of other nodes that this node knows.")
ROUTED: Final = Metric(f"{_PREFIX}routed_total", "counter", (), "Copies placed at other nodes.")
REROUTED: Final = Metric(
    f"{_PREFIX}rerouted_total", "counter", (), "Copies whose queue was gone, and that got another place."
)
MOVED: Final = Metric(
    f"{_PREFIX}moved_total", "counter", ("peer",), "Messages redistributed to a node that has readers."
)
HOPS_EXCEEDED: Final = Metric(
    f"{_PREFIX}hops_exceeded_total", "counter", (), "Copies that became dead letters because of max-hops."
)
DISAGREEMENTS: Final = Metric(
    f"{_PREFIX}disagreements", "gauge", (), "Addresses whose routing type another node has differently."
)


def samples(view: View, router: ClusterRouter, moved: Mapping[str, int]) -> Iterator[Sample]:
    """The samples of one scrape."""
    states: Counter[str] = Counter()
    places = 0
    for node, record in view.records.items():
        if node == view.node:
            continue
        gone = record.state in GONE
        states["left" if gone else "joined" if view.reachable[node] else "unreachable"] += 1
        places += 0 if gone else len(record.places)
    for state in _STATES:
        yield Sample(NODES, states[state], {"state": state})
    yield Sample(PLACES, places, {})
    yield Sample(ROUTED, router.routed, {})
    yield Sample(REROUTED, router.rerouted, {})
    for node, record in view.records.items():
        if node != view.node:
            yield Sample(MOVED, moved.get(node, 0), {"peer": record.name})
    yield Sample(HOPS_EXCEEDED, router.hops_exceeded, {})
    yield Sample(DISAGREEMENTS, len(view.disagreements), {})
