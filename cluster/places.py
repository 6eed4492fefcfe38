"""The places of a cluster, in the order in which one node came to know them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from bridge.messages.addresses import RoutingType
from cluster.record import Place


class Located(NamedTuple):
    """A place and its node."""

    node: str
    place: Place


class Disagreement(NamedTuple):
    """A node whose routing type of an address differs from this node's: its places there are ignored."""

    node: str
    address: str
    ours: RoutingType
    theirs: RoutingType


#: Places of an address by queue name, in rotation order: the order in which they became known.
Names = Mapping[str, tuple[Located, ...]]
_NO_NAMES: Final[Names] = MappingProxyType({})


class Places:
    """Every node's places, in the order in which they became known; and by address what the router sees.

    A node's places keep their order while it is down; one that leaves and returns comes last.
    """

    def __init__(
        self, own: str, routable: Callable[[str], bool], leaving: Callable[[str], bool] = lambda _node: False
    ) -> None:
        """`own` is this node's UUID; `routable` tells whether a node may be given messages at all.

        `leaving` tells whether it may be given those that no other node has a queue for: what a leaver gets
        goes on to its heir, and no message misses a queue that is on its way there.
        """
        self._own = own
        self._routable = routable
        self._leaving = leaving
        #: By address, queue and node.
        self._all: dict[str, dict[str, dict[str, Place]]] = {}
        self._names: dict[str, Names] = {}
        self._disagreements: dict[str, tuple[Disagreement, ...]] = {}
        #: Addresses whose entries in the two above are to be made anew.
        self._touched: set[str] = set()

    def replace(self, node: str, before: Iterable[Place], after: Iterable[Place]) -> None:
        """Replace a node's places. Those that it has in both keep their turn."""
        gone = {(place.address, place.queue): place for place in before}
        for place in after:
            if gone.pop((place.address, place.queue), None) != place:
                self._all.setdefault(place.address, {}).setdefault(place.queue, {})[node] = place
                self._touched.add(place.address)
        for address, queue in gone:
            queues = self._all[address]
            del queues[queue][node]
            if not queues[queue]:
                del queues[queue]
            if not queues:
                del self._all[address]
            self._touched.add(address)

    def touch(self, places: Iterable[Place]) -> None:
        """Make the entries of these places' addresses anew: whether their node is routable has changed."""
        self._touched.update(place.address for place in places)

    def names(self, address: str) -> Names:
        """The places of an address that the router sees."""
        if address in self._touched:
            self._renew(address)
        return self._names.get(address, _NO_NAMES)

    def everything(self) -> Mapping[str, Names]:
        """The places of all addresses, as `names` has them; the mapping does not change."""
        self._renew_all()
        return MappingProxyType(self._names.copy())

    def disagreements(self) -> tuple[Disagreement, ...]:
        """The nodes that disagree with this one on a routing type."""
        self._renew_all()
        return tuple(one for address in sorted(self._disagreements) for one in self._disagreements[address])

    def _renew_all(self) -> None:
        for address in list(self._touched):
            self._renew(address)

    def _renew(self, address: str) -> None:
        self._touched.discard(address)
        self._names.pop(address, None)
        self._disagreements.pop(address, None)
        queues = self._all.get(address, {})
        ours = next((nodes[self._own].routing_type for nodes in queues.values() if self._own in nodes), None)
        names: dict[str, tuple[Located, ...]] = {}
        others: set[Disagreement] = set()
        for queue, nodes in queues.items():
            seen: list[Located] = []
            leaving: list[Located] = []
            for node, place in nodes.items():
                if ours is not None and place.routing_type != ours:
                    others.add(Disagreement(node, address, ours, place.routing_type))
                elif self._routable(node):
                    seen.append(Located(node, place))
                elif self._leaving(node):
                    leaving.append(Located(node, place))
            if seen or leaving:
                names[queue] = tuple(seen or leaving)
        if names:
            self._names[address] = MappingProxyType(names)
        if others:
            self._disagreements[address] = tuple(sorted(others))
