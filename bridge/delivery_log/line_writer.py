"""The writer of a line of the delivery log: the node, and the lane of a bridge to one target. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LineWriter:
    """The node that writes, and the lane and target of its lines."""

    node: str
    node_id: str
    bridge: str
    lane: int
    #: Name of the target's connector.
    target: str
    #: The target's store identity.
    store: str = ""
