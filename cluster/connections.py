"""The cluster connections of a node's settings: which addresses each shares, and how. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from bridge.messages.addresses import is_own
from bridge.settings.clusters import ClusterConnection
from bridge.settings.prefixes import Prefixes

_ADDRESSES_REMEMBERED = 8192


class Connections:
    """All connections of one node. An address belongs to at most one of them."""

    def __init__(self, connections: Sequence[ClusterConnection]) -> None:
        self.all = tuple(connections)
        self._prefixes = [(Prefixes.of(one.address), one) for one in connections]
        self.of = lru_cache(_ADDRESSES_REMEMBERED)(self._of)

    def _of(self, address: str) -> ClusterConnection | None:
        """The connection that shares an address; None: none does."""
        if is_own(address):
            return None
        return next((one for prefixes, one in self._prefixes if prefixes.covers(address)), None)

    def max_hops_of(self, address: str) -> int:
        """The most nodes that a message of this address may pass; of one that is not shared here: the most of
        any, since it comes from a node that shares it.
        """
        connection = self.of(address)
        return self.max_hops if connection is None else connection.max_hops

    @property
    def max_hops(self) -> int:
        """The most nodes that a message may pass, over all of them."""
        return max((one.max_hops for one in self.all), default=1)
