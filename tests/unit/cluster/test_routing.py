"""The router of a cluster: the place that each message gets, by a table that tests make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.filters import parse
from bridge.journal.values.options import REPLAYED_QUEUE
from bridge.journal.values.routing import Destination, Placement, Routing
from bridge.messages.addresses import RoutingType
from bridge.messages.message import Message
from bridge.messages.stream_names import forward_log
from cluster.routing import (
    REROUTES_MOST,
    Balancing,
    ClusterRouter,
    Place,
    PlaceName,
    RoutingTable,
    SharedAddress,
    Way,
    bridge_to,
    parse_place,
)
from tests.unit.cluster.rig import B, C, D

ADDRESS: Final = "orders"
HERE: Final = Place("")
MODES: Final[tuple[Balancing, ...]] = get_args(Balancing)


def at(node: str, **how: object) -> Place:
    """A place of a neighbour."""
    return Place(node, **{"next_hop": node, **how})  # type: ignore[arg-type]


def router(
    queues: Mapping[str, Sequence[Place]],
    balancing: Balancing = "STRICT",
    routing_type: RoutingType = "ANYCAST",
    max_hops: int = 1,
) -> ClusterRouter:
    made = ClusterRouter()
    made.table = table(queues, balancing, routing_type, max_hops)
    return made


def table(
    queues: Mapping[str, Sequence[Place]],
    balancing: Balancing = "STRICT",
    routing_type: RoutingType = "ANYCAST",
    max_hops: int = 1,
) -> RoutingTable:
    ways = {
        place.node: [Way(1, place.next_hop)] for places in queues.values() for place in places if place.node
    }
    shared = SharedAddress(balancing, routing_type, queues)
    return RoutingTable({ADDRESS: shared}, ways, ("own",), lambda _address: max_hops)


def routing(
    count: int,
    queues: Collection[str] = (),
    *,
    full: Collection[str] = (),
    message: Callable[[int], Message] = lambda _index: Message(b""),
) -> Routing:
    """What the router is asked about `count` messages; `queues`: those of this node."""
    return Routing(ADDRESS, range(count), message, lambda address: address not in full, queues)


def placed(
    placements: Sequence[Placement] | None, count: int, here: Collection[str], *, anycast: bool
) -> list[dict[str, list[str]]]:
    """By message and queue, the nodes that get it; this node: empty."""
    found: list[dict[str, list[str]]] = [{} for _ in range(count)]
    if placements is None:
        placements = [Placement(Destination(ADDRESS), range(count))]
    for (address, bridge, only, besides), indices in (
        (
            (one.destination.address, one.destination.bridge, one.destination.only, one.destination.besides),
            one.indices,
        )
        for one in placements
    ):
        assert list(indices) == sorted(set(indices))
        for index in indices:
            if bridge is None:
                assert address == ADDRESS
                for queue in set(here) - set(besides):
                    found[index].setdefault(queue, []).append("")
                if anycast and not here:
                    found[index].setdefault(ADDRESS, []).append("")
                continue
            next_hop = bridge.removeprefix("$cluster.")
            assert address == forward_log(next_hop, ADDRESS)
            for name in only:
                place = parse_place(name)
                found[index].setdefault(place.queue, []).append(place.node or next_hop)
    return found


def turns(
    of: ClusterRouter, count: int, here: Collection[str] = (), queue: str = ADDRESS, **how: object
) -> list[str]:
    """The node of each of `count` messages of one transaction."""
    asked = routing(count, here, **how)  # type: ignore[arg-type]
    anycast = of.table.addresses[ADDRESS].routing_type == "ANYCAST"
    each = placed(of(asked), count, here, anycast=anycast)
    assert all(len(one[queue]) == 1 for one in each), each
    return [one[queue][0] for one in each]


# -- the pools -----------------------------------------------------------------------------------------------


def test_addresses_that_no_other_node_has_stay() -> None:
    assert ClusterRouter()(routing(3, ["orders"])) is None
    assert ClusterRouter().made_as("orders") == ""


def test_c1_c2_places_take_turns_in_their_order_over_several_sends() -> None:
    """C1, C2: also where the transactions have other sizes than there are places."""
    of = router({ADDRESS: [at(C), HERE, at(B)]})
    assert of.made_as(ADDRESS) == "ANYCAST"
    found = [node for count in (1, 2, 5, 1, 1) for node in turns(of, count, [ADDRESS])]
    assert found == [C, "", B, C, "", B, C, "", B, C]
    assert of.routed == 7


@pytest.mark.parametrize(
    ("balancing", "places", "expected"),
    [
        ("STRICT", [HERE, at(B), at(C, readers=True)], ["", B, C]),
        ("ON_DEMAND", [HERE, at(B), at(C)], ["", "", ""]),
        ("ON_DEMAND", [Place("", readers=True), at(B), at(C)], ["", "", ""]),
        ("ON_DEMAND", [HERE, at(B, readers=True), at(C)], [B, B, B]),
        ("ON_DEMAND", [Place("", readers=True), at(B, readers=True), at(C)], ["", B, ""]),
        ("ON_DEMAND", [at(B), at(C)], [B, C, B]),
        ("ON_DEMAND", [at(B), at(C, readers=True)], [C, C, C]),
        ("OFF", [HERE, at(B, readers=True)], ["", "", ""]),
        ("OFF", [at(B, readers=True)], ["", "", ""]),
        ("OFF_WITH_REDISTRIBUTION", [HERE, at(B, readers=True)], ["", "", ""]),
        ("OFF_WITH_REDISTRIBUTION", [at(B)], ["", "", ""]),
    ],
)
def test_c9_to_c13_the_pool_of_a_work_queue(
    balancing: Balancing, places: list[Place], expected: list[str]
) -> None:
    """C9, C10, C11, C12, C13: ANYCAST."""
    here = [ADDRESS] if any(place.here for place in places) else []
    assert turns(router({ADDRESS: places}, balancing), 3, here) == expected


@pytest.mark.parametrize("balancing", ["OFF", "OFF_WITH_REDISTRIBUTION"])
def test_c12_off_gives_a_name_that_only_others_have_to_them(balancing: Balancing) -> None:
    """C12: MULTICAST: a remote subscription gets all; a name that is here stays."""
    of = router({"there": [at(B), at(C)], "both": [at(B), HERE]}, balancing, "MULTICAST")
    each = placed(of(routing(4, ["both", "mine"])), 4, ["both", "mine"], anycast=False)
    assert [one["there"] for one in each] == [[B], [C], [B], [C]]
    assert all(one["both"] == one["mine"] == [""] for one in each)


def test_a_bridges_queue_is_taken_here_where_this_node_has_the_bridge() -> None:
    queue = "$bridge.to-hub"
    of = router({queue: [at(B, readers=True), HERE]}, "ON_DEMAND", "MULTICAST")
    assert turns(of, 2, [queue], queue) == ["", ""]
    assert turns(router({queue: [at(B), at(C)]}, "STRICT", "MULTICAST"), 2, queue=queue) == [B, C]


# -- places that come and go ---------------------------------------------------------------------------------


def test_c38_a_place_that_is_passed_over_keeps_its_turn() -> None:
    """C38: down: the others go on; back: its old place in the order. The only one: copies wait for it."""
    of = router({ADDRESS: [HERE, at(B), at(C)]})
    assert turns(of, 4, [ADDRESS]) == ["", B, C, ""]
    of.table = table({ADDRESS: [HERE, at(B, reachable=False), at(C)]})
    assert turns(of, 3, [ADDRESS]) == [C, "", C]
    of.table = table({ADDRESS: [HERE, at(B), at(C)]})
    assert turns(of, 3, [ADDRESS]) == ["", B, C]
    of.table = table({ADDRESS: [at(B, reachable=False)]})
    assert turns(of, 2) == [B, B]


def test_c36_a_place_that_left_is_last_when_it_is_back() -> None:
    """C36: the turn goes on behind the one that had it, though that one is gone."""
    of = router({ADDRESS: [HERE, at(B), at(C)]})
    assert turns(of, 2, [ADDRESS]) == ["", B]
    of.table = table({ADDRESS: [HERE, at(C)]})
    assert turns(of, 2, [ADDRESS]) == ["", C], "the one with the last turn is gone: from the first on"
    of.table = table({ADDRESS: [HERE, at(C), at(B)]})
    assert turns(of, 3, [ADDRESS]) == [B, "", C]


def test_the_queues_of_this_transaction_count_not_those_of_the_snapshot() -> None:
    """The table may be a little older than the journal."""
    of = router({ADDRESS: [HERE, at(B)]})
    assert turns(of, 2) == [B, B], "deleted here since"
    of = router({ADDRESS: [at(B)]})
    assert turns(of, 2, [ADDRESS]) == [B, ""], "made here since, so it comes last"


def test_full_places_drop_out_while_another_is_left() -> None:
    of = router({ADDRESS: [HERE, at(B), at(C)]})
    assert turns(of, 3, [ADDRESS], full=[forward_log(B, ADDRESS)]) == ["", C, ""]
    assert turns(of, 2, [ADDRESS], full=[ADDRESS]) == [B, C]
    alone = router({ADDRESS: [at(B)]})
    assert turns(alone, 2, full=[forward_log(B, ADDRESS)]) == [B, B], "that log's policy holds them"


def test_c3_each_name_turns_by_itself_and_one_copy_serves_several() -> None:
    """C3, C4, C5: on one link there is one copy of a message, whatever it is for."""
    of = router(
        {"one": [HERE, at(B)], "two": [at(B), HERE], "three": [at(B)], "four": [at(C)]}, "STRICT", "MULTICAST"
    )
    here = ["one", "two", "mine"]
    placements = of(routing(4, here))
    assert placements is not None
    assert len({(one.destination.address, index) for one in placements for index in one.indices}) == 4 * 3
    each = placed(placements, 4, here, anycast=False)
    assert each[0] == {"one": [""], "two": [B], "mine": [""], "three": [B], "four": [C]}
    assert each[1] == {"one": [B], "two": [""], "mine": [""], "three": [B], "four": [C]}
    assert each[2:] == each[:2]


def test_the_replay_queue_is_nobodys_name() -> None:
    of = router({"there": [at(B)]}, "STRICT", "MULTICAST")
    placements = of(routing(1, [REPLAYED_QUEUE]))
    assert placements is not None
    assert [one.destination.bridge for one in placements] == [bridge_to(B)], "nothing stays for it"


# -- filters -------------------------------------------------------------------------------------------------


def kinds(text: str) -> Callable[[int], Message]:
    return lambda index: Message(b"", None, (("kind", text[index].encode()),))


def test_c7_each_message_goes_where_it_is_taken() -> None:
    """C7, C8: filters of places; what no place takes stays here, for the filters here."""
    of = router({ADDRESS: [Place("", filter=parse("kind = 'x'")), at(B, filter=parse("kind <> 'x'")), at(C)]})
    found = turns(of, 6, [ADDRESS], message=kinds("xyxyxy"))
    assert found == ["", B, C, B, C, B], "the next one behind the last that takes it, as Artemis does"
    strict = router({ADDRESS: [at(B, filter=parse("kind = 'x'"))]}, "STRICT", "MULTICAST")
    placements = strict(routing(3, message=kinds("xyx")))
    assert placements is not None
    assert {one.destination.bridge: list(one.indices) for one in placements} == {
        None: [1],
        bridge_to(B): [0, 2],
    }
    assert strict(routing(2, message=kinds("yy"))) is None


def test_c8_readers_whose_filter_takes_nothing_do_not_count() -> None:
    """C8: ON_DEMAND: a reader there takes x only: y stays here without a reader."""
    of = router({ADDRESS: [HERE, at(B, readers=True, filter=parse("kind = 'x'"))]}, "ON_DEMAND")
    assert turns(of, 4, [ADDRESS], message=kinds("xyxy")) == [B, "", B, ""]


# -- beyond the neighbours -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place", [PlaceName("billing"), PlaceName("billing", C, 1), PlaceName("b", D, 64, 2)]
)
def test_a_place_is_read_from_its_name(place: PlaceName) -> None:
    assert parse_place(str(place)) == place


@pytest.mark.parametrize(
    "name", ["", "/", "1.0/", "1.0/node", "1.0/node/", "x.0/node/q", "-1.0/node/q", "²/n/q"]
)
def test_a_damaged_place_is_a_queue_that_is_not_there(name: str) -> None:
    found = parse_place(name)
    assert found.node == "" or found.queue == ""
    assert ClusterRouter().queue_here(name) in (name, None)


def test_c17_a_place_behind_a_neighbour_is_named_and_passed_on() -> None:
    """C17: the entry node names the far place; each node on the way counts itself."""
    of = router({"q": [Place(D, next_hop=B)]}, "STRICT", "MULTICAST", max_hops=3)
    (only,) = of(routing(2)) or ()
    assert only.destination == Destination(forward_log(B, ADDRESS), bridge_to(B), only=(f"1.0/{D}/q",))
    assert of.queue_here(f"1.0/{D}/q") is None
    of.table = table({"q": [Place(D, next_hop=C)]}, "STRICT", "MULTICAST", 3)
    onward = of.onward(ADDRESS, f"1.0/{D}/q", [])
    assert onward == Destination(forward_log(C, ADDRESS), bridge_to(C), only=(f"2.0/{D}/q",))
    assert of.queue_here("1.0/own/q") == "q"
    assert of.queue_here("q") == "q"


def test_c22_a_copy_that_has_passed_too_many_nodes_goes_no_farther() -> None:
    """C22: a text is the reason of its dead letter; it is counted."""
    of = router({"q": [Place(D, next_hop=C)]}, max_hops=2)
    assert isinstance(of.onward(ADDRESS, f"1.0/{D}/q", []), Destination)
    assert of.onward(ADDRESS, f"2.0/{D}/q", []) == (
        f"TOO_MANY_HOPS: {ADDRESS}::q of {D} is more than 2 hops away"
    )
    assert of.hops_exceeded == 1


def test_c22_a_copy_whose_way_has_become_too_long_waits_where_it_went_on_before() -> None:
    """C22: a link of a ring is down: the way round has too many links for a copy that is half-way already."""
    of = ClusterRouter()
    round_the_ring = [Way(4, B), Way(1, D)]
    of.table = RoutingTable(ways={D: round_the_ring}, own=("own",), max_hops=lambda _address: 2)
    half_way = f"1.0/{D}/q"
    assert of.onward(ADDRESS, half_way, []) == Destination(
        forward_log(D, ADDRESS), bridge_to(D), only=(f"2.0/{D}/q",)
    )
    of.table = RoutingTable(ways={D: round_the_ring}, own=("own",), max_hops=lambda _address: 5)
    assert of.onward(ADDRESS, half_way, []) == Destination(
        forward_log(B, ADDRESS), bridge_to(B), only=(f"2.0/{D}/q",)
    )
    assert of.hops_exceeded == 0


def test_c46_a_copy_whose_queue_is_gone_goes_to_another_place_at_most_twice() -> None:
    """C46: one that can be reached first; then none is left but a dead letter."""
    of = router({"q": [at(B, reachable=False), at(C)]}, "STRICT", "MULTICAST")
    first = of.onward(ADDRESS, "q", [])
    assert first == Destination(forward_log(C, ADDRESS), bridge_to(C), only=(f"1.1/{C}/q",))
    of.table = table({"q": [at(B, reachable=False)]})
    second = of.onward(ADDRESS, "1.1/own/q", [])
    assert isinstance(second, Destination)
    assert second.only == (f"1.2/{B}/q",)
    assert of.rerouted == REROUTES_MOST
    gone = f"QUEUE_GONE: there is no queue {ADDRESS}::q any more"
    assert of.onward(ADDRESS, "1.2/own/q", []) == gone
    assert of.onward("elsewhere", "q", []) == "QUEUE_GONE: there is no queue elsewhere::q any more"
    assert of.rerouted == REROUTES_MOST


# -- always --------------------------------------------------------------------------------------------------

NODES: Final = ("", B, C, D)


@st.composite
def places(draw: st.DrawFn, queue: str) -> list[Place]:
    nodes = draw(st.permutations(NODES))[: draw(st.integers(1, 4))]
    return [
        Place(
            node,
            next_hop="" if not node else draw(st.sampled_from([node, B])),
            reachable=not node or draw(st.booleans()),
            readers=draw(st.booleans()),
        )
        for node in nodes
    ]


@st.composite
def tables(draw: st.DrawFn) -> RoutingTable:
    anycast = draw(st.booleans())
    names = [ADDRESS] if anycast else draw(st.lists(st.sampled_from("pqrs"), unique=True, max_size=3))
    return table(
        {name: draw(places(name)) for name in names},
        draw(st.sampled_from(MODES)),
        "ANYCAST" if anycast else "MULTICAST",
        4,
    )


@given(st.data(), st.lists(tables(), min_size=1, max_size=3))
def test_every_message_gets_one_place_of_each_logical_queue(
    data: st.DataObject, several: list[RoutingTable]
) -> None:
    """Whatever the tables, the sizes of transactions and the room: MULTICAST once a name, ANYCAST once."""
    of = ClusterRouter()
    for now in several:
        of.table = now
        shared = now.addresses[ADDRESS]
        anycast = shared.routing_type == "ANYCAST"
        mine = {name for name, all_places in shared.queues.items() if any(place.here for place in all_places)}
        here = mine | (set() if anycast else data.draw(st.sets(st.sampled_from("mn"), max_size=1)))
        logs = [ADDRESS, *(forward_log(node, ADDRESS) for node in NODES[1:])]
        full = data.draw(st.sets(st.sampled_from(logs)))
        count = data.draw(st.integers(1, 13))
        asked = routing(count, here, full=full)
        placements = of(asked)
        each = placed(placements, count, here, anycast=anycast)
        expected = {ADDRESS} if anycast else {*shared.queues, *here}
        for one in each:
            assert {queue: len(nodes) for queue, nodes in one.items()} == dict.fromkeys(expected, 1)
        for name, all_places in shared.queues.items():
            known = {place.node for place in all_places}
            used = Counter(one[name][0] for one in each)
            assert set(used) <= known | ({""} if anycast else set())
            shares = sorted(used.values())
            assert shares[-1] - shares[0] <= 1, "turns are strict"


def test_what_is_taken_back_leaves_turns_and_counts_as_they_were() -> None:
    """A refused transaction costs no node its turn, and is not counted."""
    of = ClusterRouter()
    of.table = table({"q": [Place(""), Place("b", next_hop="b"), Place("c", next_hop="c")]})
    first = of(routing(1, ["q"]))
    refused = routing(2, ["q"])
    of(refused)
    counted = of.routed
    while refused.undo:
        refused.undo.pop()()
    assert of.routed < counted
    second, third = of(routing(1, ["q"])), of(routing(1, ["q"]))
    assert [one and one[0].destination.bridge for one in (first, second, third)] == [
        None,
        "$cluster.b",
        "$cluster.c",
    ]
