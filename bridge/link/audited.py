"""Another node as an audit reads it."""

from __future__ import annotations

from dataclasses import replace

from bridge.client.audited_node import NodeAddresses, NodeEnd
from bridge.client.node_client import Connection
from bridge.end_kind import AuditSource
from bridge.settings.bridges import Bridge
from bridge.settings.connectors import Connector
from dedup.reconcile.audit.plan import Stream


def node_at(name: str, connector: Connector) -> NodeEnd:
    """The node that a connector leads to."""
    ca, certificate, key = (str(path or "") for path in (connector.ca, connector.certificate, connector.key))
    proxy = connector.proxy_to(connector.url)
    return NodeEnd(name, Connection(connector.url, connector.token or "", ca, certificate, key, proxy=proxy))


class LinkAuditTarget(NodeAddresses):
    """Implements `bridge.end_kind.AuditTarget`."""

    async def confirmed(self, bridge: Bridge, streams: list[Stream], source: AuditSource) -> list[Stream]:
        """Implements `AuditTarget.confirmed`: the positions that the source has settled."""
        settled = await source.confirmed(bridge, streams)
        return [replace(one, confirmed=settled.get(one.identity)) for one in streams]
