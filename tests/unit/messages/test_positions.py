"""Run arithmetic against the plainest model there is: a list of positions."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.messages import positions
from bridge.messages.positions import Runs

POSITION = st.integers(0, 60)


@st.composite
def ascending_runs(draw: st.DrawFn) -> Runs:
    """Runs as they travel: ascending, disjoint; neighbours may touch, as after a merge of batches."""
    lengths = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6)), max_size=6))
    found, start = [], draw(st.integers(0, 5))
    for gap, length in lengths:
        found.append((start + gap, start + gap + length - 1))
        start += gap + length
    return tuple(found)


def model(some: Runs) -> list[int]:
    return [position for first, last in some for position in range(first, last + 1)]


def well_formed(some: Runs) -> bool:
    return all(first <= last for first, last in some) and all(a[1] < b[0] for a, b in pairwise(some))


@given(ascending_runs())
def test_counting_and_listing_agree(some: Runs) -> None:
    assert list(positions.positions(some)) == model(some)
    assert positions.count(some) == len(model(some))


@given(ascending_runs(), POSITION)
def test_a_cut_at_a_position_keeps_every_position_on_one_side(some: Runs, place: int) -> None:
    behind, ahead = positions.below(some, place), positions.from_position(some, place)
    assert model(behind) == [position for position in model(some) if position < place]
    assert model(ahead) == [position for position in model(some) if position >= place]
    assert well_formed(behind)
    assert well_formed(ahead)


@given(ascending_runs(), POSITION)
def test_a_cut_by_number_keeps_every_position_on_one_side(some: Runs, number: int) -> None:
    first, rest = positions.take(some, number), positions.drop(some, number)
    assert model(first) == model(some)[:number]
    assert model(rest) == model(some)[number:]
    assert well_formed(first)
    assert well_formed(rest)


@given(ascending_runs())
def test_joining_keeps_the_positions_and_leaves_no_runs_that_touch(some: Runs) -> None:
    joined = positions.join(some)
    assert model(joined) == model(some)
    assert all(a[1] + 1 < b[0] for a, b in pairwise(joined))
    assert positions.join(joined) == joined


@pytest.mark.parametrize(
    ("number", "kept"),
    [
        (0, ((0, 9), (20, 29))),
        (9, ((9, 9), (20, 29))),
        (10, ((20, 29),)),
        (11, ((21, 29),)),
        (20, ()),
        (99, ()),
    ],
)
def test_dropping_stops_at_the_edge_of_a_run(number: int, kept: Runs) -> None:
    assert positions.drop(((0, 9), (20, 29)), number) == kept


def test_nothing_is_made_of_nothing() -> None:
    assert (
        positions.join(()) == positions.take((), 3) == positions.drop((), 3) == positions.below((), 3) == ()
    )
    assert positions.count(()) == 0
    assert positions.take(((5, 5),), 0) == ()


def test_runs_come_from_any_iterable_and_go_out_as_tuples() -> None:
    assert positions.join(iter([(0, 1), (2, 3)])) == ((0, 3),)
    assert positions.from_position([(0, 9)], 4) == ((4, 9),)


def test_positions_are_found_by_their_places_without_the_others() -> None:
    far = ((3, 4), (9, 9), (20, 2**50))
    assert list(positions.at(far, (0, 1, 2, 3, 10))) == [3, 4, 9, 20, 27]
    assert list(positions.at(far, ())) == []
    assert list(positions.at(far, (2, 2**40))) == [9, 20 + 2**40 - 3]


def test_runs_of_any_order_are_united_and_taken_out_of_others() -> None:
    assert positions.union([(5, 6), (0, 1), (2, 2), (6, 9)]) == ((0, 2), (5, 9))
    assert positions.union([]) == ()
    assert positions.without(((0, 9), (20, 29)), ((2, 3), (8, 21), (29, 40))) == ((0, 1), (4, 7), (22, 28))
    assert positions.without(((0, 9),), ()) == ((0, 9),)
    assert positions.without(((3, 4),), ((0, 9),)) == ()
