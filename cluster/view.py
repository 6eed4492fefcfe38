"""The cluster as a node knows it, for operators: as it was when the router got its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.places import Disagreement
from cluster.record import Record
from cluster.routing import bridge_to
from cluster.topology import Topology


@dataclass(frozen=True, slots=True)
class View:
    """The records, and the ways to their nodes. By node, this one first."""

    node: str
    records: Mapping[str, Record]
    reachable: Mapping[str, bool]
    #: Links to the node; None: there was no way yet.
    distance: Mapping[str, int | None]
    next_hop: Mapping[str, str | None]
    disagreements: Sequence[Disagreement]

    @classmethod
    def of(cls, topology: Topology) -> View:
        """The present view."""
        records = dict(topology.records)
        return cls(
            topology.node,
            records,
            {node: topology.reachable(node) for node in records},
            {node: topology.distance(node) for node in records},
            {node: topology.next_hop(node) for node in records},
            topology.disagreements(),
        )

    def described(self, record: Record) -> Mapping[str, Any]:
        """One node, as ``GET /v1/cluster`` shows it."""
        node = record.node
        return {
            "node": node,
            "name": record.name,
            "url": record.url,
            "state": record.state.value,
            "version": [record.version.opening, record.version.counter],
            "reachable": self.reachable[node],
            "hops": self.distance[node],
            "via": None if node == self.node else self.next_hop[node],
            "heir": record.heir or None,
            "inherited": list(record.inherited),
            "bridge": None if node == self.node else bridge_to(node),
            "queues": [
                {
                    "address": place.address,
                    "queue": place.queue,
                    "readers": place.readers,
                    "filter": place.filter,
                    "routing-type": place.routing_type,
                }
                for place in record.places
            ],
        }
