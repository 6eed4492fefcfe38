"""The router's table, made from the topology and the settings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import structlog

from bridge.errors import FilterRefused
from bridge.filters import Filter, parse
from cluster.connections import Connections
from cluster.places import Located
from cluster.routing import Place, RoutingTable, SharedAddress, Way
from cluster.snapshot import Snapshot


class TableMaker:
    """Makes tables, and keeps the filters of other nodes' queues parsed."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        #: By condition; None: it is no condition here. Those that the present table uses.
        self._filters: dict[str, Filter | None] = {}
        self._log = structlog.get_logger()

    async def table(self, snapshot: Snapshot, inherited: Sequence[str] = ()) -> RoutingTable:
        """The table of a snapshot. Conditions that are new are parsed in a thread.

        `inherited`: the nodes that this one answers for.
        """
        conditions = {one.place.filter for _, places in _shared(snapshot) for one in places} - {""}
        self._filters = {text: known for text, known in self._filters.items() if text in conditions}
        for text in conditions - self._filters.keys():
            try:
                self._filters[text] = await asyncio.to_thread(parse, text)
            except FilterRefused as error:
                self._filters[text] = None
                self._log.warning("filter-refused", filter=text, reason=error.detail)
        addresses = {}
        for address, names in snapshot.places.items():
            connection = self._connections.of(address)
            located = [one for places in names.values() for one in places]
            if connection is None or all(one.node == snapshot.node for one in located):
                continue
            queues = {
                queue: [
                    place
                    for one in places
                    if (place := self._place(snapshot, one, connection.max_hops)) is not None
                ]
                for queue, places in names.items()
            }
            addresses[address] = SharedAddress(
                connection.message_load_balancing, located[0].place.routing_type, queues
            )
        own = (snapshot.node, *inherited)
        return RoutingTable(addresses, _ways(snapshot), own, self._connections.max_hops_of)

    def _place(self, snapshot: Snapshot, located: Located, max_hops: int) -> Place | None:
        """The place as the router sees it; None: it is too far away, or its filter is none here."""
        node, place = located
        condition = self._filters[place.filter] if place.filter else None
        if place.filter and condition is None:
            return None
        if node == snapshot.node:
            return Place("", readers=place.readers > 0, filter=condition)
        if snapshot.distances[node] <= max_hops:
            next_hop, reachable = snapshot.next_hops[node], node in snapshot.reachable
        else:
            shortest = snapshot.shortest[node]
            if shortest.links > max_hops:
                return None
            next_hop, reachable = shortest.next_hop, False
        return Place(node, next_hop, reachable, place.readers > 0, condition)


def _ways(snapshot: Snapshot) -> dict[str, list[Way]]:
    """By node, the present way and the shortest there ever was: a copy that has come too far for the present
    one waits for that.
    """
    return {
        node: [Way(snapshot.distances[node], next_hop), Way(*snapshot.shortest[node])]
        for node, next_hop in snapshot.next_hops.items()
        if node != snapshot.node
    }


def _shared(snapshot: Snapshot) -> Iterator[tuple[str, list[Located]]]:
    for address, names in snapshot.places.items():
        yield address, [one for places in names.values() for one in places]
