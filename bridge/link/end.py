"""Another node as a kind of end: connectors with ``ws://`` and ``wss://``. Bridges deliver there."""

from __future__ import annotations

from typing import Final

from bridge.end_kind import EndKind, EndsOf, NodeContext, NodeEnds


class LinkKind(EndKind):
    """A node at the other end of a link."""

    def in_process(self, node: NodeContext, others: EndsOf) -> NodeEnds:  # noqa: ARG002 - it needs no other
        """Targets at the other end of links."""
        from bridge.link.node_ends import LinkEnds

        return LinkEnds(node)


KIND: Final = LinkKind()
