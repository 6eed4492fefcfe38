"""This node's own places: the queues of its shared addresses, and which of them have readers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bridge.journal.measures import read_queues
from bridge.journal.values.options import REPLAYED_QUEUE, bridge_queue_name
from bridge.messages.addresses import is_own
from bridge.node.extension import NodeServices
from bridge.relay.lifecycle import State
from bridge.settings.bridges import Bridge
from cluster.connections import Connections
from cluster.record import Place
from cluster.routing import BRIDGE_PREFIX

#: Begins the names of queues that the bridges to other nodes read.
_FORWARD_QUEUES = bridge_queue_name(BRIDGE_PREFIX)


class OwnPlaces:
    """Reads them again and again. Places are made only where a queue, or the set of queues with readers, has
    changed.
    """

    def __init__(self, services: NodeServices, connections: Connections) -> None:
        self._services = services
        self._connections = connections
        #: `Views.names` when the queues were last read; -1: not yet.
        self._names = -1
        #: The places, without readers.
        self._queues: list[Place] = []
        #: The running bridges of the settings for which `_by_bridges` was found.
        self._running: tuple[Bridge, ...] = ()
        #: By address and queue, the places that those bridges read.
        self._by_bridges: frozenset[tuple[str, str]] = frozenset()
        #: The places of the last reading, and those of them with readers.
        self._places: tuple[Place, ...] = ()
        self._read: set[tuple[str, str]] | None = None

    def read(self) -> tuple[Place, ...]:
        """The places now: the same tuple as before where none has changed."""
        journal = self._services.journal
        running = tuple(self._running_bridges())
        if self._names != journal.views.names:
            self._queues = list(self._read_queues())
        if self._names != journal.views.names or self._running != running:
            self._by_bridges = self._read_by_bridges(running)
            self._read = None
        self._names, self._running = journal.views.names, running
        timeout_ms = max(one.reader_timeout_ms for one in self._connections.all)
        read = read_queues(journal.views, journal.presence, journal.lease_now_ms, timeout_ms)
        if read != self._read:
            self._read = read
            self._places = tuple(
                Place(one.address, one.queue, 1, one.filter, one.routing_type)
                if (one.address, one.queue) in read or (one.address, one.queue) in self._by_bridges
                else one
                for one in self._queues
            )
        return self._places

    def _read_queues(self) -> Iterator[Place]:
        views = self._services.journal.views
        for address in views.addresses:
            if is_own(address.name) or self._connections.of(address.name) is None:
                continue
            for queue in views.queues(address.name):
                if queue.name != REPLAYED_QUEUE and not queue.name.startswith(_FORWARD_QUEUES):
                    yield Place(address.name, queue.name, 0, queue.condition, address.routing_type)

    def _running_bridges(self) -> Iterator[Bridge]:
        for bridge in self._services.settings.bridges:
            running = self._services.bridges.get(bridge.name)
            if running is not None and running.relay.state not in (State.STOPPED, State.FAILED):
                yield bridge

    def _read_by_bridges(self, running: Iterable[Bridge]) -> frozenset[tuple[str, str]]:
        """The queues that these bridges read."""
        found: set[tuple[str, str]] = set()
        for bridge in running:
            found |= {(name.address, name.queue) for name in bridge.shared_queues}
            for place in self._queues:
                own = place.queue == bridge_queue_name(bridge.name)
                shared = place.queue == place.address and bridge.selects(place.address)
                if own or (shared and place.routing_type == "ANYCAST"):
                    found.add((place.address, place.queue))
        return frozenset(found)
