"""The topology of one node: records, ways, and the order of places."""

from __future__ import annotations

import msgspec
import pytest

from bridge.errors import Malformed
from cluster.places import Disagreement
from cluster.record import (
    ANY_VERSION,
    NODES,
    QUEUES_A_NODE,
    Announcement,
    Known,
    KnownNode,
    NodeState,
    Place,
    Version,
)
from cluster.refusals import SameNodeTwice, TooManyNodes
from cluster.topology import Heard
from tests.unit.cluster.rig import A, B, C, D, hear, orders, record, run_of, topology, turns, uuid

FIRST = Version(1, 1)

# -- this node's record --------------------------------------------------------------------------------------


def test_the_own_records_counter_grows_with_its_content_only() -> None:
    table = topology(A, orders())
    assert table.records[A].version == Version(1, 1)
    assert not table.own(record(A, orders(), counter=7))
    assert table.own(record(A, orders(readers=1)))
    assert table.records[A].version == Version(1, 2)
    assert table.changes == 1


def test_the_order_in_which_places_are_given_is_no_change() -> None:
    first, second = Place("a", "a"), Place("b", "b")
    table = topology(A, first, second)
    assert not table.own(msgspec.structs.replace(record(A), places=(second, first)))


def test_a_node_that_leaves_says_so_in_its_last_record_and_has_no_places() -> None:
    table = topology(A, orders())
    assert table.own(record(A, orders(), state=NodeState.LEFT))
    assert table.records[A].places == ()
    assert turns(table) == []


def test_a_node_that_drains_keeps_its_turn_and_gets_nothing() -> None:
    table = topology(A, orders())
    table.linked(B)
    hear(table, record(B, orders()))
    assert table.own(record(A, orders(), state=NodeState.DRAINING))
    assert turns(table) == [B]
    assert table.own(record(A, orders()))
    assert turns(table) == [A, B]


def test_more_queues_than_a_node_may_have_are_refused_with_both_numbers() -> None:
    table = topology()
    places = [Place("orders", f"q{number}") for number in range(QUEUES_A_NODE + 1)]
    with pytest.raises(Malformed, match="places: at most 10000; found 10001") as refused:
        table.own(record(A, *places))
    assert (refused.value.key, refused.value.limit, refused.value.found) == ("places", 10_000, 10_001)
    assert table.records[A].version == Version(1, 1)


@pytest.mark.parametrize(
    ("places", "says"),
    [
        ([Place("orders", "q"), Place("orders", "q", 1)], "no queue twice"),
        ([Place("orders", "q"), Place("orders", "r", routing_type="ANYCAST")], "one an address"),
        ([Place("$sf.x", "q")], "the node's own"),
        ([Place("a" * 250, "q")], "at most 249 characters; found 250"),
        ([Place("orders", "")], "1 to 255 characters; found 0"),
        ([Place("orders", "q" * 256)], "1 to 255 characters; found 256"),
        ([Place("orders", "q", -1)], "readers: 0 to"),
        ([Place("orders", "q", 0, "x" * 4097)], "filter: at most 4096; found 4097"),
    ],
)
def test_places_that_no_record_may_have(places: list[Place], says: str) -> None:
    with pytest.raises(Malformed, match=says):
        topology().own(record(A, *places))


# -- versions ------------------------------------------------------------------------------------------------


def test_a_record_replaces_an_older_one_as_a_whole() -> None:
    table = topology()
    table.linked(B)
    assert hear(table, record(B, orders(), counter=2)) is Heard.APPLIED
    assert hear(table, record(B, Place("news", "eu"), counter=3)) is Heard.APPLIED
    assert turns(table) == []
    assert hear(table, record(B, orders(), counter=2)) is Heard.KNOWN
    assert table.records[B].places == (Place("news", "eu"),)


def test_a_restarted_node_counts_anew_under_a_higher_opening() -> None:
    table = topology()
    table.linked(B)
    hear(table, record(B, orders(), counter=9))
    assert hear(table, record(B, opening=2, counter=1)) is Heard.APPLIED
    assert hear(table, record(B, orders(), counter=9), C) is Heard.KNOWN
    assert table.records[B].version == Version(2, 1)


def test_a_newer_version_counts_whichever_way_it_comes_and_the_way_stays() -> None:
    table = topology()
    table.linked(B)
    table.linked(C)
    hear(table, record(B, orders()))
    assert hear(table, record(B, orders(readers=3), counter=2), D, C) is Heard.APPLIED
    assert table.records[B].places == (orders(readers=3),)
    assert (table.distance(B), table.next_hop(B)) == (1, B)


# -- the same UUID twice -------------------------------------------------------------------------------------


@pytest.mark.parametrize("opening", [1, 2])
def test_a_second_process_of_a_known_node_is_refused_where_it_connects(opening: int) -> None:
    table = topology()
    table.linked(B)
    hear(table, record(B, orders(), opening=2))
    twin = record(B, opening=opening, counter=9, run=run_of(D, 7))
    with pytest.raises(SameNodeTwice) as refused:
        hear(table, twin)
    assert refused.value.code == "SAME_NODE_TWICE"
    for named in (twin.run, run_of(B, 2), "ws://n02:61616"):
        assert named in str(refused.value)
    assert table.records[B].run == run_of(B, 2)


def test_a_second_process_that_others_pass_on_takes_no_place_of_the_first() -> None:
    table = topology()
    table.linked(B)
    table.linked(C)
    hear(table, record(B, orders()))
    assert hear(table, record(B, counter=9, run=run_of(D, 7)), C) is Heard.OTHER_RUN
    assert turns(table) == [B]
    assert hear(table, record(B, orders(readers=1), counter=2)) is Heard.APPLIED


def test_own_records_that_come_back_are_ignored() -> None:
    table = topology(A, orders())
    table.linked(B)
    assert hear(table, record(A), B) is Heard.OWN
    assert hear(table, record(A, counter=9, run=run_of(D, 7)), B) is Heard.OWN
    assert table.records[A].places == (orders(),)


@pytest.mark.parametrize("opening", [1, 9])
def test_a_node_that_connects_under_this_nodes_uuid_is_refused(opening: int) -> None:
    with pytest.raises(SameNodeTwice):
        hear(topology(A), record(A, opening=opening, run=run_of(D, 7)))


# -- ways ----------------------------------------------------------------------------------------------------


def test_fewest_hops_win_and_the_first_of_equal_ways_is_kept_while_it_lives() -> None:
    table = topology()
    for neighbour in (B, C):
        table.linked(neighbour)
    far = uuid(9)
    hear(table, record(far), D, B)
    assert (table.distance(far), table.next_hop(far)) == (3, B)
    assert hear(table, record(far), C) is Heard.WAY
    assert (table.distance(far), table.next_hop(far)) == (2, C)
    assert hear(table, record(far), B) is Heard.KNOWN
    assert table.next_hop(far) == C
    table.lost(C)
    assert not table.reachable(far)
    assert table.next_hop(far) == C
    assert hear(table, record(far), B) is Heard.WAY
    assert table.reachable(far)
    assert table.next_hop(far) == B


def test_a_link_that_comes_is_the_way_at_once_and_one_that_goes_leaves_the_record() -> None:
    table = topology()
    table.linked(B)
    hear(table, record(C, orders()), B)
    assert table.distance(C) == 2
    table.linked(C)
    assert table.distance(C) == 1
    table.lost(C)
    assert not table.reachable(C)
    assert turns(table) == [C]


def test_the_way_to_a_neighbour_is_its_link_whoever_tells_of_it_first() -> None:
    table = topology()
    table.linked(B)
    table.linked(C)
    hear(table, record(C), B)
    assert (table.distance(C), table.next_hop(C)) == (1, C)


def test_no_node_takes_a_way_through_itself_but_the_record_counts() -> None:
    table = topology()
    table.linked(B)
    assert hear(table, record(C, orders()), A, B) is Heard.APPLIED
    assert not table.reachable(C)
    assert table.next_hop(C) is None
    assert turns(table) == []


def test_a_notice_of_a_link_that_is_down_is_no_way() -> None:
    table = topology()
    hear(table, record(B, orders()))
    hear(table, record(C, orders()), B)
    assert not table.reachable(B)
    assert not table.reachable(C)


def test_a_record_comes_from_the_node_that_its_path_ends_with() -> None:
    table = topology()
    with pytest.raises(Malformed, match="ends with the node that tells it"):
        table.heard(Announcement(record(B)), C)
    with pytest.raises(Malformed, match="ends with the node that tells it"):
        table.heard(Announcement(record(B), (D,)), C)


def test_a_neighbour_that_lost_its_way_says_so_and_the_way_by_it_is_down() -> None:
    table = topology()
    table.linked(B)
    hear(table, record(B))
    hear(table, record(C, orders()), B)
    table.heard_known(Known((KnownNode(B, Version(1, 1), 0), KnownNode(C, Version(1, 1)))), B)
    assert not table.reachable(C)
    assert table.reachable(B)
    assert KnownNode(C, Version(1, 1)) in table.known().nodes
    assert turns(table) == [C]


def test_a_way_that_changed_beyond_the_neighbour_is_doubted_and_then_down() -> None:
    table = topology()
    table.linked(B)
    hear(table, record(C), B)
    longer = Known((KnownNode(C, Version(1, 1), 2, 77),))
    table.heard_known(longer, B)
    assert table.reachable(C)
    (asked,) = (one for one in table.known().nodes if one.node == C)
    assert (asked.version, asked.distance) == (ANY_VERSION, 2)
    table.heard_known(longer, B)
    assert not table.reachable(C)
    assert hear(table, record(C), D, B) is Heard.WAY
    assert table.distance(C) == 3


# -- what neighbours are told --------------------------------------------------------------------------------


def test_a_neighbour_that_knows_nothing_is_told_everything_but_itself() -> None:
    table = topology(A, orders())
    for neighbour in (B, C):
        table.linked(neighbour)
        hear(table, record(neighbour))
    told = table.heard_known(Known(()), B)
    assert told == [Announcement(table.records[A]), Announcement(record(C), (A,))]


def test_what_a_neighbour_knows_is_not_told_again_unless_it_has_no_way_or_a_longer_one() -> None:
    table = topology()
    for neighbour in (B, C):
        table.linked(neighbour)
        hear(table, record(neighbour))

    def told(distance: int | None, version: Version = FIRST) -> list[Announcement]:
        return table.heard_known(Known((KnownNode(A, FIRST, 1), KnownNode(C, version, distance))), B)

    onward = [Announcement(record(C), (A,))]
    assert told(1) == told(2) == []
    assert told(3) == told(None) == onward
    assert told(1, ANY_VERSION) == onward
    assert told(None, Version(1, 2)) == []


def test_a_node_without_a_way_is_told_only_to_those_that_know_an_older_record_of_it() -> None:
    table = topology()
    table.linked(B)
    table.linked(C)
    hear(table, record(C, state=NodeState.LEFT, counter=5))
    table.lost(C)
    assert table.announced(C, B) is None
    assert table.announced(C, B, KnownNode(C, Version(1, 5))) is None
    said = table.announced(C, B, KnownNode(C, Version(1, 4), 2))
    assert said == Announcement(record(C, state=NodeState.LEFT, counter=5), None)
    assert table.announced(D, B) is None


def test_a_way_is_not_told_to_a_node_on_it() -> None:
    table = topology()
    table.linked(B)
    hear(table, record(D), C, B)
    assert table.announced(D, C) is None
    assert table.announced(D, C, KnownNode(D, ANY_VERSION)) == Announcement(record(D), None)


# -- limits --------------------------------------------------------------------------------------------------


def test_one_node_too_many_is_refused_with_both_numbers() -> None:
    table = topology(uuid(0))
    for number in range(1, NODES):
        table.linked(uuid(number))
        hear(table, record(uuid(number)))
    one_more = uuid(NODES)
    assert hear(table, record(one_more), B) is Heard.FULL
    table.linked(one_more)
    with pytest.raises(TooManyNodes, match="at most 64 nodes") as refused:
        hear(table, record(one_more))
    assert (refused.value.limit, refused.value.found) == (64, 65)
    assert len(table.records) == len(table.known().nodes) == NODES
    table.forget(uuid(5))
    assert hear(table, record(one_more)) is Heard.APPLIED


@pytest.mark.parametrize(("max_hops", "seen"), [(0, []), (1, [B]), (2, [B, C])])
def test_nodes_beyond_max_hops_are_known_and_get_nothing(max_hops: int, seen: list[str]) -> None:
    table = topology(max_hops=max_hops)
    table.linked(B)
    hear(table, record(B, orders()))
    hear(table, record(C, orders()), B)
    assert turns(table) == seen
    assert table.records[C].url == "ws://n03:61616"
    table.linked(C)
    assert turns(table) == ([B, C] if max_hops else [])


def test_a_node_whose_link_goes_down_keeps_its_places_though_it_is_seen_beyond_max_hops() -> None:
    """C38: what is for it waits at the link that there was."""
    table = topology(max_hops=1)
    for neighbour in (B, C):
        table.linked(neighbour)
        hear(table, record(neighbour, orders()))
    table.lost(C)
    hear(table, record(C, orders()), B)
    assert (table.reachable(C), table.distance(C), table.next_hop(C)) == (True, 2, B)
    assert turns(table) == [B, C]
    assert table.snapshot().shortest == {B: (1, B), C: (1, C)}


# -- the order of places -------------------------------------------------------------------------------------


def test_the_own_place_is_first_where_it_was_there_at_the_start_and_last_where_it_came_later() -> None:
    table = topology(A, orders())
    for neighbour in (C, B):
        table.linked(neighbour)
        hear(table, record(neighbour, orders(), Place("news", "eu")))
    assert turns(table) == [A, C, B]
    table.own(record(A, orders(), Place("news", "eu")))
    assert turns(table, "news", "eu") == [C, B, A]


def test_a_place_that_was_down_keeps_its_turn_and_one_that_left_comes_last() -> None:
    table = topology(A)
    for neighbour in (B, C, D):
        table.linked(neighbour)
        hear(table, record(neighbour, orders()))
    table.lost(B)
    table.linked(B)
    hear(table, record(B, orders(readers=2), opening=2))
    assert turns(table) == [B, C, D]
    hear(table, record(C, counter=2, state=NodeState.LEFT))
    table.lost(C)
    assert turns(table) == [B, D]
    table.linked(C)
    hear(table, record(C, orders(), opening=2))
    assert turns(table) == [B, D, C]


def test_a_draining_nodes_places_are_not_seen_and_come_back_at_their_turn() -> None:
    table = topology(A)
    for neighbour in (B, C):
        table.linked(neighbour)
        hear(table, record(neighbour, orders()))
    hear(table, record(B, orders(), counter=2, state=NodeState.DRAINING))
    assert turns(table) == [C]
    hear(table, record(B, orders(), counter=3))
    assert turns(table) == [B, C]


def test_a_queue_that_only_a_leaver_has_is_there_until_its_heir_is_known_to_have_it() -> None:
    """Else a subscription would miss what others send between the leaver's word and its heir's."""
    table = topology(A)
    for neighbour in (B, C):
        table.linked(neighbour)
    hear(table, record(B, orders()))
    hear(table, record(C))
    hear(table, record(B, orders(), counter=2, state=NodeState.DRAINING))
    assert turns(table) == [B]
    hear(table, record(C, orders(), counter=2))
    assert turns(table) == [C], "the heir has the queue"
    hear(table, record(C, counter=3))
    hear(table, record(B, orders(), counter=3, state=NodeState.DRAINED))
    assert turns(table) == [B], "drained, and nobody is known to answer for it"
    hear(table, record(C, counter=4, inherited=(B,)))
    assert turns(table) == [], "its heir had the queue, and has deleted it"


def test_what_an_earlier_process_knew_is_known_until_it_is_heard_again() -> None:
    before = topology(A)
    for neighbour in (B, C, D):
        before.linked(neighbour)
        hear(before, record(neighbour, orders(readers=2), opening=3))
    hear(before, record(D, opening=3, counter=2, state=NodeState.LEFT))
    table = topology(A)
    for one in before.remembered():
        table.remember(one)
    assert turns(table) == [B, C], "in their order; D has left"
    assert not table.reachable(B)
    assert table.next_hop(B) == B
    (place,) = table.records[B].places
    assert place.readers == 0, "they may have gone"
    table.linked(B)
    assert hear(table, record(B, opening=3)) is Heard.APPLIED, "told again, though nothing has changed there"
    assert turns(table) == [C]


def test_a_remembered_node_is_told_to_no_one_and_asked_for() -> None:
    before = topology(A)
    before.linked(B)
    hear(before, record(B, orders()))
    table = topology(A)
    table.remember(before.remembered()[0])
    assert table.announced(B, C) is None
    assert [one.version for one in table.known().nodes] == [Version(1, 1), ANY_VERSION]


def test_a_remembered_leaver_gets_nothing_once_its_heir_is_heard() -> None:
    before = topology(A)
    before.linked(B)
    hear(before, record(B, orders()))
    table = topology(A)
    table.remember(before.remembered()[0])
    table.linked(C)
    hear(table, record(C, inherited=(B,)))
    assert turns(table) == []
    assert [one.record.node for one in table.remembered()] == [C]


def test_a_leavers_queue_is_gone_once_this_node_answers_for_it() -> None:
    table = topology(A)
    table.linked(B)
    hear(table, record(B, orders(), state=NodeState.DRAINED))
    assert turns(table) == [B]
    assert table.own(record(A, inherited=(B,)))
    assert turns(table) == []


def test_a_node_that_disagrees_on_a_routing_type_is_named_and_its_places_there_are_ignored() -> None:
    table = topology(A, orders())
    table.linked(B)
    hear(table, record(B, Place("orders", "orders"), Place("news", "eu")))
    wrong = Disagreement(B, "orders", "ANYCAST", "MULTICAST")
    assert table.disagreements() == (wrong,)
    assert turns(table) == [A]
    assert turns(table, "news", "eu") == [B]
    table.own(record(A))
    assert table.disagreements() == ()
    assert turns(table) == [B]
    table.own(record(A, orders()))
    hear(table, record(B, orders(), counter=2))
    assert table.disagreements() == ()
    assert turns(table) == [B, A]


def test_a_snapshot_does_not_change() -> None:
    table = topology(A, orders())
    table.linked(B)
    hear(table, record(B, orders(), Place("news", "eu")))
    before = table.snapshot()
    table.lost(B)
    table.forget(B)
    table.own(record(A))
    assert [one.node for one in before.places["orders"]["orders"]] == [A, B]
    assert set(before.places) == {"orders", "news"}
    assert before.next_hops == {A: A, B: B}
    assert before.distances == {A: 0, B: 1}
    assert before.reachable == {A, B}
    after = table.snapshot()
    assert not after.places
    assert after.next_hops == {A: A}
    assert after.reachable == {A}
