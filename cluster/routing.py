"""Routing: the places that clients' messages get, once, in the transaction that stores them. Pure.

`ClusterRouter` implements `bridge.journal.values.routing.Router` over a snapshot of what this node knows of
the others. It runs in the journal's writer; the event loop replaces the snapshot (`ClusterRouter.table`).

A logical queue is all places with one address and queue name. A message gets one place of each: MULTICAST
once per queue name, ANYCAST once. Places take strict turns, in the order in which they became known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import lcm
from typing import Final, Literal, NamedTuple

from bridge.filters import Filter
from bridge.journal.values.options import REPLAYED_QUEUE
from bridge.journal.values.routing import Destination, Placement, Routing, Undo
from bridge.messages.addresses import RoutingType, WantedType
from bridge.messages.message import Message
from bridge.messages.stream_names import forward_log

Balancing = Literal["OFF", "STRICT", "ON_DEMAND", "OFF_WITH_REDISTRIBUTION"]

#: Begins the name of the bridge to another node, which its UUID follows.
BRIDGE_PREFIX: Final = "$cluster."
#: Begins the names of queues that bridges of the settings read.
_BRIDGE_QUEUE: Final = "$bridge."
#: Most nodes that a copy passes, whatever `max-hops` says.
HOPS_MOST: Final = 64
#: How often a copy whose queue is gone gets another place.
REROUTES_MOST: Final = 2


def bridge_to(node: str) -> str:
    """The name of the bridge to the node with this UUID."""
    return BRIDGE_PREFIX + node


class PlaceName(NamedTuple):
    """A place as a copy names it: a queue of the node that gets it, or of one behind that.

    As text: ``billing``, or ``<hops>.<reroutes>/<node>/billing``; no queue's name has a slash.
    """

    queue: str
    #: UUID of the node that has the queue; empty: the one that gets the copy.
    node: str = ""
    #: Nodes that the copy has passed before the one that gets it.
    hops: int = 0
    #: How often its queue was gone.
    reroutes: int = 0

    def __str__(self) -> str:
        """As it stands in blocks and on the wire."""
        return f"{self.hops}.{self.reroutes}/{self.node}/{self.queue}" if self.node else self.queue


def parse_place(name: str) -> PlaceName:
    """The place that a name means. One that is damaged is a queue of this name, which is not there."""
    counts, _, rest = name.partition("/")
    node, slash, queue = rest.partition("/")
    hops, _, reroutes = counts.partition(".")
    if not (slash and node and hops.isdecimal() and reroutes.isdecimal() and len(counts) <= 8):
        return PlaceName(name)
    return PlaceName(queue, node, int(hops), int(reroutes))


@dataclass(frozen=True, slots=True)
class Place:
    """A place of a logical queue, as this node sees it."""

    #: UUID of its node; empty: this node.
    node: str
    #: UUID of the neighbour through which copies go there; empty: this node.
    next_hop: str = ""
    #: Whether the link to that neighbour is up.
    reachable: bool = True
    #: Whether the queue has readers.
    readers: bool = False
    #: Asked for each message; None: the queue takes all.
    filter: Filter | None = None

    @property
    def here(self) -> bool:
        """Whether it is a queue of this node."""
        return not self.node


@dataclass(frozen=True, slots=True)
class SharedAddress:
    """An address of which other nodes have queues."""

    balancing: Balancing
    routing_type: RoutingType
    #: By queue name, its places in the order in which they became known, this node's among them.
    queues: Mapping[str, Sequence[Place]]


class Way(NamedTuple):
    """A way to another node."""

    #: Links on it.
    links: int
    #: UUID of the neighbour by which it begins.
    next_hop: str


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """The addresses and ways by which the router decides: a snapshot that never changes."""

    addresses: Mapping[str, SharedAddress] = field(default_factory=dict)
    #: By node, the ways that copies may take there, the best one first.
    ways: Mapping[str, Sequence[Way]] = field(default_factory=dict)
    #: Nodes whose queues this node has taken over, itself among them.
    own: Collection[str] = ()
    #: By an address's name, the most nodes that a copy of it may pass.
    max_hops: Callable[[str], int] = lambda _address: 1


class CopyTo(NamedTuple):
    """A log that gets a copy of each message that clients send here, whatever else becomes of it."""

    #: The connector whose name the log has.
    connector: str
    #: The bridge that alone reads it.
    bridge: str


#: Says which logs get copies of the messages of an address.
CopiedTo = Callable[[str], Sequence[CopyTo]]

#: The router's counters.
Counter = Literal["routed", "rerouted", "hops_exceeded"]


class ClusterRouter:
    """Implements `bridge.journal.values.routing.Router`."""

    def __init__(self, copied_to: CopiedTo = lambda _address: ()) -> None:
        """`copied_to`: the logs besides, by address."""
        self.table = RoutingTable()
        self._copied_to = copied_to
        #: As `bridge.journal.values.routing.Router.taken_over_at`.
        self.taken_over_at = ""
        #: By address and queue, the node whose turn was last. At most one a logical queue; lost at a restart.
        self._last: dict[tuple[str, str], str] = {}
        #: Messages placed at other nodes, copies that went to another place, and those beyond `max-hops`.
        self.routed = 0
        self.rerouted = 0
        self.hops_exceeded = 0

    def made_as(self, address: str) -> WantedType:
        """As other nodes have it."""
        shared = self.table.addresses.get(address)
        return "" if shared is None else shared.routing_type

    def queue_here(self, name: str) -> str | None:
        """The queue of this node that a place means; None: another node's."""
        place = parse_place(name)
        return place.queue if not place.node or place.node in self.table.own else None

    # -- where clients' messages go ----------------------------------------------------------------------

    def __call__(self, routing: Routing) -> Sequence[Placement] | None:
        """The placements of these messages; None: all of them are stored here."""
        placements = self._placed(routing)
        copied_to = self._copied_to(routing.address)
        if not copied_to:
            return placements
        copies = [
            Placement(Destination(forward_log(connector, routing.address), bridge), routing.indices)
            for connector, bridge in copied_to
        ]
        return [*(placements or [Placement(Destination(routing.address), routing.indices)]), *copies]

    def _placed(self, routing: Routing) -> Sequence[Placement] | None:
        shared = self.table.addresses.get(routing.address)
        if shared is None:
            return None
        queues = {queue: _with_here(queue, places, routing) for queue, places in shared.queues.items()}
        copies = _Copies(routing, shared)
        if any(place.filter is not None for places in queues.values() for place in places):
            for index in routing.indices:
                message = routing.message(index)
                matching = {
                    queue: [place for place in places if _takes(place, message, routing.address)]
                    for queue, places in queues.items()
                }
                copies.add((index,), self._orders(shared, routing, queues, matching, 1))
        else:
            copies.add(routing.indices, self._orders(shared, routing, queues, queues, len(routing.indices)))
        placements = copies.placements()
        routed = sum(len(one.indices) for one in placements or () if one.destination.bridge)
        if routed:
            self._count("routed", routed, routing.undo)
        return placements

    def _count(self, name: Counter, number: int, undo: Undo) -> None:
        setattr(self, name, getattr(self, name) + number)
        undo.append(lambda: setattr(self, name, getattr(self, name) - number))

    def _orders(
        self,
        shared: SharedAddress,
        routing: Routing,
        known: Mapping[str, Sequence[Place]],
        matching: Mapping[str, Sequence[Place]],
        number: int,
    ) -> dict[str, Sequence[Place]]:
        """By queue, the places that take turns over the next `number` messages, the first first."""
        orders: dict[str, Sequence[Place]] = {}
        for queue, places in matching.items():
            pool = _pool(shared, routing, queue, places)
            if pool:
                orders[queue] = self._in_turn(
                    (routing.address, queue), known[queue], pool, number, routing.undo
                )
        return orders

    def _in_turn(
        self, queue: tuple[str, str], known: Sequence[Place], pool: Sequence[Place], number: int, undo: Undo
    ) -> Sequence[Place]:
        """The pool, from the place on whose turn it is; after `number` messages its last turn is remembered.

        A place that is passed over while it is away keeps its turn.
        """
        if len(pool) == 1:
            return pool
        rank = {place.node: index for index, place in enumerate(known)}
        last = self._last.get(queue)
        after = 0 if last is None else rank.get(last, -1) + 1
        start = next((index for index, place in enumerate(pool) if rank[place.node] >= after), 0)
        order = (*pool[start:], *pool[:start])
        self._last[queue] = order[(number - 1) % len(order)].node
        undo.append(lambda: self._last.pop(queue, None) if last is None else self._last.update({queue: last}))
        return order

    # -- where copies go that have come ------------------------------------------------------------------

    def onward(self, address: str, name: str, undo: Undo) -> Destination | str:
        """As `bridge.journal.values.routing.Router.onward`."""
        table, place = self.table, parse_place(name)
        if place.node and place.node not in table.own:
            most = min(table.max_hops(address), HOPS_MOST)
            ways = table.ways.get(place.node, ())
            for way in ways:
                if place.hops + way.links <= most:
                    return _forwarded(address, way.next_hop, place._replace(hops=place.hops + 1))
            if ways:
                self._count("hops_exceeded", 1, undo)
                return (
                    f"TOO_MANY_HOPS: {address}::{place.queue} of {place.node} is more than {most} hops away"
                )
        other = self._other_place(address, place)
        if other is not None:
            self._count("rerouted", 1, undo)
            return other
        return f"QUEUE_GONE: there is no queue {address}::{place.queue} any more"

    def _other_place(self, address: str, place: PlaceName) -> Destination | None:
        """Another place of the name, for a copy whose queue is gone; None: it has had enough, or there is
        none.
        """
        shared = self.table.addresses.get(address)
        if shared is None or place.reroutes >= REROUTES_MOST:
            return None
        others = [
            other
            for other in shared.queues.get(place.queue, ())
            if not other.here and other.node != place.node
        ]
        best = next((other for other in others if other.reachable), others[0] if others else None)
        if best is None:
            return None
        again = PlaceName(place.queue, best.node, 1, place.reroutes + 1)
        return _forwarded(address, best.next_hop, again)


_HERE: Final = Place("")


def _with_here(queue: str, places: Sequence[Place], routing: Routing) -> Sequence[Place]:
    """The places, with this node's as it is in this transaction: the snapshot may be a little older."""
    is_here = queue in routing.queues
    if is_here == any(place.here for place in places):
        return places
    return [*places, _HERE] if is_here else [place for place in places if not place.here]


def _takes(place: Place, message: Message, address: str) -> bool:
    return place.filter is None or place.filter.takes(message, address)


def _pool(shared: SharedAddress, routing: Routing, queue: str, places: Sequence[Place]) -> Sequence[Place]:
    """The places of one logical queue that take turns; none: messages stay where clients have sent them."""
    here = next((place for place in places if place.here), None)
    if here is not None and queue.startswith(_BRIDGE_QUEUE):
        return (here,)  # the same bridge runs here
    if shared.balancing in ("OFF", "OFF_WITH_REDISTRIBUTION"):
        if here is not None:
            return (here,)
        if shared.routing_type == "ANYCAST":
            return ()
    free = [place for place in places if _is_free(place, routing)] or places
    if shared.balancing == "ON_DEMAND":
        read = [place for place in free if place.readers]
        if read:
            return read
        if here in free:
            return [place for place in free if place.here]
    return free


def _is_free(place: Place, routing: Routing) -> bool:
    """Whether copies can go there now."""
    if place.here:
        return routing.has_room(routing.address)
    return place.reachable and routing.has_room(forward_log(place.next_hop, routing.address))


class _Copies:
    """The copies of one transaction's messages at one address, collected by where they go."""

    def __init__(self, routing: Routing, shared: SharedAddress) -> None:
        self._address = routing.address
        self._copies = shared.routing_type != "ANYCAST"
        #: Whether a queue here gets every message, because no other node has one of its name.
        self._always_here = self._copies and bool(
            set(routing.queues) - shared.queues.keys() - {REPLAYED_QUEUE}
        )
        #: Indices of the messages that stay, by the names of queues that they are not for here.
        self._here: dict[tuple[str, ...], list[int]] = {}
        #: Indices of the others, by neighbour and the names of their places.
        self._elsewhere: dict[tuple[str, tuple[str, ...]], list[int]] = {}

    def add(self, indices: Sequence[int], orders: Mapping[str, Sequence[Place]]) -> None:
        """Place these messages, each queue's in turns.

        The turns of all queues together repeat: they are placed by strides, not one by one.
        """
        period = min(lcm(*map(len, orders.values())), len(indices))
        for turn in range(period):
            chosen = indices[turn::period]
            names: dict[str, list[str]] = {}
            besides: list[str] = []
            stays = self._always_here
            for queue, order in orders.items():
                place = order[turn % len(order)]
                if place.here:
                    stays = True
                    continue
                besides.append(queue)
                name = queue if place.next_hop == place.node else str(PlaceName(queue, place.node, 1))
                names.setdefault(place.next_hop, []).append(name)
            for next_hop, some in names.items():
                self._elsewhere.setdefault((next_hop, tuple(some)), []).extend(chosen)
            if stays or not names:
                self._here.setdefault(tuple(besides), []).extend(chosen)

    def placements(self) -> Sequence[Placement] | None:
        """Where all of them go; None: all stay, for every queue."""
        if not self._elsewhere:
            return None
        stay = [
            Placement(Destination(self._address, besides=besides if self._copies else ()), sorted(indices))
            for besides, indices in self._here.items()
        ]
        leave = [
            Placement(
                Destination(forward_log(next_hop, self._address), bridge_to(next_hop), only=names),
                sorted(indices),
            )
            for (next_hop, names), indices in self._elsewhere.items()
        ]
        return [*stay, *leave]


def _forwarded(address: str, next_hop: str, place: PlaceName) -> Destination:
    return Destination(forward_log(next_hop, address), bridge_to(next_hop), only=(str(place),))
