"""This node's journal as a kind of end: what a bridge calls ``journal``."""

from __future__ import annotations

from typing import Final

from bridge.end_kind import EndKind, EndsOf, NodeContext, NodeEnds


class JournalKind(EndKind):
    """The journal of the node that runs the bridge."""

    is_own = True

    def in_process(self, node: NodeContext, others: EndsOf) -> NodeEnds:  # noqa: ARG002 - it needs no other
        """Ends of the open journal."""
        from bridge.journal.node_ends import JournalEnds

        return JournalEnds(node)


KIND: Final = JournalKind()
