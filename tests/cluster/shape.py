"""Shapes of clusters: which nodes have links to each other, and how far copies go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True)
class Shape:
    """The links of a cluster's nodes, which are numbered from 0."""

    kind: Literal["mesh", "chain", "ring"]
    nodes: int
    max_hops: int = 1

    def __str__(self) -> str:
        """As the name of a test's parameter."""
        return f"{self.kind}-of-{self.nodes}-max-hops-{self.max_hops}"

    def linked(self, one: int, other: int) -> bool:
        """Whether these two nodes have a link."""
        apart = abs(one - other)
        closes = self.kind == "ring" and apart == self.nodes - 1
        return one != other and (self.kind == "mesh" or apart == 1 or closes)

    @property
    def is_direct(self) -> bool:
        """Whether nodes have the links of their settings only."""
        return self.kind != "mesh"

    @property
    def _longest(self) -> int:
        """Links between the nodes that are farthest apart."""
        return {"mesh": 1, "chain": self.nodes - 1, "ring": self.nodes // 2}[self.kind]

    @property
    def reaches_all(self) -> bool:
        """Whether copies of each node may go to every other one."""
        return self._longest <= self.max_hops

    @property
    def has_other_ways(self) -> bool:
        """Whether copies may go the other way round: then they overtake each other where a link fails."""
        return self.kind == "ring" and self.nodes - min(self._longest, self.max_hops) <= self.max_hops


#: Those in which copies pass other nodes; in the last one the ends do not reach each other.
FAR: Final = (
    Shape("chain", 4, 3),
    Shape("ring", 4, 2),
    Shape("ring", 5, 2),
    Shape("ring", 5, 3),
    Shape("chain", 3, 2),
    Shape("chain", 4, 2),
)
