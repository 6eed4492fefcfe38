"""This node's journal as an audit reads it: the node runs, and is asked like any other."""

from __future__ import annotations

from dataclasses import replace

from bridge.client.audited_node import NodeAddresses, NodeEnd
from bridge.client.node_client import Connection
from bridge.end_kind import AuditSource
from bridge.ends import JOURNAL
from bridge.errors import BridgeError
from bridge.settings.bridges import Bridge
from bridge.settings.model import Settings
from dedup.reconcile.audit.plan import Stream


def own_node(settings: Settings) -> NodeEnd:
    """The node that these settings describe. Raises: BridgeError: it does not listen."""
    if settings.acceptor is None:
        raise BridgeError("an audit of this node's journal needs an [acceptor] to ask", key="acceptor")
    token = settings.acceptor.tokens[0] if settings.acceptor.tokens else ""
    return NodeEnd(JOURNAL, Connection(settings.acceptor.url, token))


class JournalAuditTarget(NodeAddresses):
    """Implements `bridge.end_kind.AuditTarget`."""

    async def confirmed(self, bridge: Bridge, streams: list[Stream], source: AuditSource) -> list[Stream]:
        """Implements `AuditTarget.confirmed`: what the source has settled for this journal, as it is now."""
        settled = await source.confirmed(bridge, streams, await self.store(bridge))
        return [replace(one, confirmed=settled.get(one.identity)) for one in streams]
