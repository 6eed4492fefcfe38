"""Fan-out: a copy of each message that clients send to this node goes to each Kafka cluster of a connection.

The copies of one address wait in a log of their own for each cluster, so that one that is down holds back
none of the others until its log is full. Copies that come from other nodes are not copied again: each message
reaches each cluster once, however many nodes have the connector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from bridge.end_kind import kind_of
from bridge.journal.values.options import BridgeQueue
from bridge.node.extension import NodeServices
from bridge.settings.bridges import Bridge
from bridge.settings.clusters import ClusterConnection
from bridge.settings.model import Settings
from cluster.connections import Connections
from cluster.routing import CopyTo

#: A `queue-name` that is no address's: the bridge reads its logs, and nothing else.
_NOTHING = r"/[^\s\S]/"
_ADDRESSES_REMEMBERED = 8192


class FanOut:
    """The bridges to the connectors of `static-connectors` that lead to no node."""

    def __init__(self, settings: Settings, connections: Connections) -> None:
        self._settings = settings
        self._connections = connections
        self.copied_to = lru_cache(_ADDRESSES_REMEMBERED)(self._copied_to)

    def _copied_to(self, address: str) -> Sequence[CopyTo]:
        connection = self._connections.of(address)
        if connection is None:
            return ()
        return [CopyTo(connector, _name(connection, connector)) for connector in self._connectors(connection)]

    def _connectors(self, connection: ClusterConnection) -> Iterator[str]:
        for connector in connection.static_connectors:
            if not kind_of(self._settings, connector).is_node:
                yield connector

    async def start(self, services: NodeServices) -> None:
        """Add the bridges to the node, and start them."""
        for connection in self._connections.all:
            for connector in self._connectors(connection):
                bridge = _bridge(connection, connector)
                relay, summary = services.assembly.operated(bridge), services.assembly.summary(bridge)
                queue = BridgeQueue(bridge.name, (), lambda _address: False)
                await services.add(bridge.name, relay, summary, queue)


def _name(connection: ClusterConnection, connector: str) -> str:
    return f"{connection.name}.{connector}"


def _bridge(connection: ClusterConnection, connector: str) -> Bridge:
    """The bridge, with what the connection says of its links."""
    return Bridge.model_validate(
        {
            "name": _name(connection, connector),
            "queue-name": _NOTHING,
            "static-connectors": (connector,),
            "use-duplicate-detection": connection.use_duplicate_detection,
            "retry-interval": connection.retry_interval_ms,
            "retry-interval-multiplier": connection.retry_interval_multiplier,
            "max-retry-interval": connection.max_retry_interval_ms,
            "initial-connect-attempts": connection.initial_connect_attempts,
            "reconnect-attempts": connection.reconnect_attempts,
            "confirmation-window-size": connection.confirmation_window_size_bytes,
            "producer-window-size": connection.producer_window_size_bytes,
        }
    )
