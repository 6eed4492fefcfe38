"""This node's own places: the queues of its shared addresses, and which of them have readers."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.journal.measures import read_queues
from bridge.journal.values.options import REPLAYED_QUEUE, bridge_queue_name
from bridge.messages.addresses import is_own
from bridge.node.extension import NodeServices
from bridge.relay.lifecycle import State
from cluster.connections import Connections
from cluster.record import Place
from cluster.routing import BRIDGE_PREFIX

#: Begins the names of queues that the bridges to other nodes read.
_FORWARD_QUEUES = bridge_queue_name(BRIDGE_PREFIX)


class OwnPlaces:
    """Reads them again and again: the queues where they have changed, the readers each time."""

    def __init__(self, services: NodeServices, connections: Connections) -> None:
        self._services = services
        self._connections = connections
        #: `Notices.named` when the queues were last read.
        self._named = -1
        #: The places, without readers.
        self._queues: list[Place] = []

    def read(self) -> tuple[Place, ...]:
        """The places now."""
        journal = self._services.journal
        if self._named != journal.notices.named:
            self._named = journal.notices.named
            self._queues = list(self._read_queues())
        timeout_ms = max(one.reader_timeout_ms for one in self._connections.all)
        read = read_queues(journal.state, journal.presence, journal.lease_now_ms, timeout_ms)
        read |= self._read_by_bridges()
        return tuple(
            Place(one.address, one.queue, 1, one.filter, one.routing_type)
            if (one.address, one.queue) in read
            else one
            for one in self._queues
        )

    def _read_queues(self) -> Iterator[Place]:
        for address in self._services.journal.address_states():
            if is_own(address.name) or self._connections.of(address.name) is None:
                continue
            for queue in list(address.queues.values()):
                if queue.name != REPLAYED_QUEUE and not queue.name.startswith(_FORWARD_QUEUES):
                    yield Place(address.name, queue.name, 0, queue.condition, address.routing_type)

    def _read_by_bridges(self) -> set[tuple[str, str]]:
        """The queues that running bridges of the settings read."""
        found: set[tuple[str, str]] = set()
        for bridge in self._services.settings.bridges:
            running = self._services.bridges.get(bridge.name)
            if running is None or running.relay.state in (State.STOPPED, State.FAILED):
                continue
            found |= {(name.address, name.queue) for name in bridge.shared_queues}
            for place in self._queues:
                own = place.queue == bridge_queue_name(bridge.name)
                shared = place.queue == place.address and bridge.selects(place.address)
                if own or (shared and place.routing_type == "ANYCAST"):
                    found.add((place.address, place.queue))
        return found
