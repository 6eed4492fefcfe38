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
        return f"{self.kind} of {self.nodes}, max-hops {self.max_hops}"

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
    def reaches_all(self) -> bool:
        """Whether copies of each node may go to every other one."""
        longest = {"mesh": 1, "chain": self.nodes - 1, "ring": self.nodes // 2}
        return longest[self.kind] <= self.max_hops


#: Those in which copies pass other nodes. In the first ring the way round is always too long, in the second it
#: is not for nodes two links apart; in the last chain the ends do not reach each other.
FAR: Final = (
    Shape("chain", 4, 3),
    Shape("ring", 5, 2),
    Shape("ring", 5, 3),
    Shape("chain", 3, 2),
    Shape("chain", 4, 2),
)
