from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.kafka.lanes.assignor import Claim, assign, decode, encode, protocol_name

NOBODY = Claim()
#: How many lanes, and what each member says.
Group: TypeAlias = tuple[int, dict[str, Claim]]


def claims_of(shares: dict[str, frozenset[int]], generation: int = 1) -> dict[str, Claim]:
    return {member: Claim(lanes, generation) for member, lanes in shares.items()}


def moved(before: dict[str, frozenset[int]], after: dict[str, frozenset[int]]) -> set[int]:
    """Lanes that somebody owned and that are now somebody else's."""
    owner = {lane: member for member, lanes in after.items() for lane in lanes}
    return {lane for member, lanes in before.items() for lane in lanes if owner[lane] != member}


def divided(lanes: int, *members: str) -> dict[str, frozenset[int]]:
    return assign(lanes, dict.fromkeys(members, NOBODY))


def test_one_member_owns_every_lane() -> None:
    assert divided(4, "a") == {"a": frozenset({0, 1, 2, 3})}


def test_members_without_a_lane_are_standbys() -> None:
    assert divided(1, "b", "a", "c") == {"a": frozenset({0}), "b": frozenset(), "c": frozenset()}


def test_a_new_member_takes_only_its_share() -> None:
    before = divided(6, "a", "b")
    after = assign(6, {**claims_of(before), "c": NOBODY})
    assert [len(after[member]) for member in "abc"] == [2, 2, 2]
    assert len(moved(before, after)) == 2


def test_what_a_member_leaves_behind_is_all_that_moves() -> None:
    before = divided(7, "a", "b", "c")
    after = assign(7, claims_of({member: before[member] for member in "ac"}))
    assert moved({member: before[member] for member in "ac"}, after) == set()
    assert sorted(map(len, after.values())) == [3, 4]


def test_the_lane_too_many_stays_where_it_is() -> None:
    after = assign(3, claims_of({"a": frozenset({0}), "z": frozenset({1, 2})}))
    assert after == {"a": frozenset({0}), "z": frozenset({1, 2})}


def test_of_two_claims_the_newer_counts() -> None:
    """A worker that was suspended comes back claiming what has been somebody else's since."""
    after = assign(2, {"a": Claim(frozenset({0, 1}), 3), "b": Claim(frozenset({1}), 4)})
    assert after == {"a": frozenset({0}), "b": frozenset({1})}


def test_lanes_that_there_are_no_more_are_nobodys() -> None:
    assert assign(2, {"a": Claim(frozenset({1, 5, -1}), 1)}) == {"a": frozenset({0, 1})}


def test_a_lane_that_has_failed_on_a_member_goes_to_another_and_no_other_comes_for_it() -> None:
    """What failed on the first may lie in its node: the next lane would fail on it, too."""
    said = {
        "a": Claim(frozenset({1}), 5, frozenset({0})),
        "b": Claim(frozenset({2, 3}), 5),
    }
    assert assign(4, said) == {"a": frozenset({1}), "b": frozenset({0, 2, 3})}


def test_a_member_on_which_a_lane_has_failed_keeps_no_more_than_its_share() -> None:
    said = {"a": Claim(frozenset({1, 2, 3}), 5, frozenset({0})), "b": NOBODY}
    assert assign(4, said) == {"a": frozenset({1, 2}), "b": frozenset({0, 3})}


def test_a_lane_that_has_failed_on_every_member_is_nobodys_and_the_others_are_shared() -> None:
    failed = frozenset({2})
    said = {"a": Claim(frozenset({0, 1, 3, 4}), 5, failed), "b": Claim(frozenset(), 5, failed)}
    shares = assign(5, said)
    assert shares == {"a": frozenset({0, 1}), "b": frozenset({3, 4})}
    assert assign(5, {"a": Claim(frozenset({0}), 5, frozenset({0}))}) == {"a": frozenset({1, 2, 3, 4})}


def test_members_on_which_different_lanes_have_failed_take_each_others() -> None:
    said = {"a": Claim(frozenset({1}), 5, frozenset({0})), "b": Claim(frozenset({0}), 5, frozenset({1}))}
    assert assign(2, said) == {"a": frozenset({1}), "b": frozenset({0})}
    swapped = {"a": Claim(frozenset({0}), 5, frozenset({0})), "b": Claim(frozenset({1}), 5, frozenset({1}))}
    assert assign(2, swapped) == {"a": frozenset({1}), "b": frozenset({0})}


def test_a_claim_of_a_version_that_gave_no_lane_up_is_read() -> None:
    assert decode(b'{"v":1,"lanes":[1],"generation":3}') == Claim(frozenset({1}), 3)


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"[]", b"null", b"7", b'{"v":2,"lanes":[1],"generation":1}', b'{"v":1,"lanes":3}']
)
def test_what_cannot_be_read_claims_nothing(data: bytes) -> None:
    assert decode(data) == NOBODY


def test_members_that_count_lanes_differently_do_not_speak_the_same_protocol() -> None:
    assert protocol_name(4) != protocol_name(8)


def claims(lanes: int) -> st.SearchStrategy[Claim]:
    some = st.frozensets(st.integers(-1, lanes + 1))
    return st.builds(Claim, some, st.integers(-1, 4))


def failing_claims(lanes: int) -> st.SearchStrategy[Claim]:
    some = st.frozensets(st.integers(0, lanes - 1))
    return st.builds(Claim, some, st.integers(-1, 4), some, st.text(max_size=3))


@st.composite
def groups(draw: st.DrawFn, claims: Callable[[int], st.SearchStrategy[Claim]] = claims) -> Group:
    lanes = draw(st.integers(1, 12))
    members = draw(st.lists(st.text("abcdef", min_size=1, max_size=3), min_size=1, max_size=6, unique=True))
    return lanes, {member: draw(claims(lanes)) for member in members}


@given(groups(failing_claims), st.randoms(use_true_random=False))
def test_what_failed_on_a_member_is_never_its_own_again_and_all_else_is_somebodys(
    group: Group, chance: random.Random
) -> None:
    lanes, said = group
    shares = assign(lanes, said)
    assert all(not owned & said[member].failed for member, owned in shares.items())
    nobodys = frozenset.intersection(*[claim.failed for claim in said.values()])
    assert sorted(lane for owned in shares.values() for lane in owned) == sorted({*range(lanes)} - nobodys)
    shuffled = list(said.items())
    chance.shuffle(shuffled)
    assert assign(lanes, dict(shuffled)) == shares


@given(groups(failing_claims))
def test_a_division_among_members_that_have_failed_on_lanes_stands(group: Group) -> None:
    """However often they join again with nothing new to say."""
    lanes, said = group
    shares = assign(lanes, said)
    after = {member: Claim(owned, 9, said[member].failed) for member, owned in shares.items()}
    assert assign(lanes, after) == shares


@given(groups(), st.randoms(use_true_random=False))
def test_every_lane_has_one_owner_evenly_whoever_leads(group: Group, chance: random.Random) -> None:
    lanes, said = group
    shares = assign(lanes, said)
    assert sorted(lane for owned in shares.values() for lane in owned) == list(range(lanes))
    sizes = [len(owned) for owned in shares.values()]
    assert max(sizes) - min(sizes) <= 1
    assert shares.keys() == said.keys()
    shuffled = list(said.items())
    chance.shuffle(shuffled)
    assert assign(lanes, dict(shuffled)) == shares


@given(groups())
def test_nothing_moves_while_nobody_comes_or_goes(group: Group) -> None:
    lanes, said = group
    shares = assign(lanes, said)
    assert assign(lanes, claims_of(shares, 9)) == shares


@given(st.integers(1, 12), st.integers(2, 6), st.data())
def test_no_even_division_moves_fewer_lanes(lanes: int, count: int, data: st.DataObject) -> None:
    """One member comes or goes: lanes move only because of it, never between those that stay."""
    members = [f"m{number}" for number in range(count)]
    before = divided(lanes, *members)
    gone = data.draw(st.sampled_from(members))
    stay = {member: before[member] for member in members if member != gone}
    assert moved(stay, assign(lanes, claims_of(stay))) == set()
    after = assign(lanes, {**claims_of(before), "new": NOBODY})
    assert moved(before, after) == after["new"]


@given(failing_claims(8))
def test_a_claim_survives_the_way_to_the_leader(claim: Claim) -> None:
    assert decode(encode(claim)) == claim
