"""Where a bridge's messages come from, as its journal topic records it.

Workers of two sources under one bridge name would share the lanes, and each would leave half of what the
other reads to nobody. So the first one writes its source down, and another is refused (`repartitioning`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.errors import explaining
from bridge.kafka.client.metadata import ClusterClient
from bridge.kafka.records import identity

#: Tells the source's identity. Raises: SourceUnavailable, SourceRefused.
Origin = Callable[[], Awaitable[str]]

#: The one identity of all journals: sidecars share a journal topic on purpose, each with its own records.
JOURNAL: Final = "journal"


async def journal_origin() -> str:
    """A journal's, whatever node's."""
    return JOURNAL


def cluster_origin(connection: KafkaConnection) -> Origin:
    """A source cluster's: its `identity`, or else its cluster id, for which it is asked at each call.

    Not asked once and for all: another cluster may come to stand behind an address.
    """

    async def ask() -> str:
        if connection.identity:
            return identity.store_identity(connection.identity)
        with explaining(connection.name, "Describe", "the cluster"):
            async with ClusterClient(connection) as client:
                return identity.store_identity((await client.cluster()).id)

    return ask
