"""The origin of a bridge's messages, as its journal topic records it.

Workers of two sources under one bridge name would share the lanes, and half of each source would be read by
no worker. So the first worker records its source, and a worker of another is refused (`repartitioning`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.errors import explaining
from bridge.kafka.client.metadata import ClusterClient
from bridge.kafka.records import identity

#: Returns the source's identity. Raises: SourceUnavailable, SourceRefused.
Origin = Callable[[], Awaitable[str]]

#: The one identity of all journals: sidecars share a journal topic on purpose, each with its own records.
JOURNAL: Final = "journal"


async def journal_origin() -> str:
    """The identity of a journal, the same for all nodes."""
    return JOURNAL


def cluster_origin(connection: KafkaConnection) -> Origin:
    """The identity of a source cluster: its `identity`, or else its cluster id, asked for at each call.

    The id is not cached: another cluster may come to be at an address.
    """

    async def ask() -> str:
        if connection.identity:
            return identity.store_identity(connection.identity)
        with explaining(connection.name, "Describe", "the cluster"):
            async with ClusterClient(connection) as client:
                return identity.store_identity((await client.cluster()).id)

    return ask
