"""Which messages an address holds, by where each was first stored."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge import runs as run_arithmetic
from bridge.journal.held import overlaps, positions_of

positions = st.lists(st.integers(0, 30), unique=True).map(sorted)


def runs(places: list[int]) -> run_arithmetic.Runs:
    return run_arithmetic.join((place, place) for place in places)


@given(positions, st.integers(0, 30), st.integers(0, 10))
def test_what_runs_and_a_range_have_in_common(places: list[int], first: int, length: int) -> None:
    last = first + length
    found = list(run_arithmetic.positions(overlaps(runs(places), first, last)))
    assert found == [place for place in places if first <= place <= last]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=12), positions, positions)
def test_a_message_is_held_where_its_own_origin_is(
    origins: list[tuple[str, int]], held_of_a: list[int], held_of_b: list[int]
) -> None:
    """Origins name the messages in order; their positions in the stream that brings them are others."""
    places = range(100, 100 + 3 * len(origins), 3)
    held = [("a", *run) for run in runs(held_of_a)] + [("b", *run) for run in runs(held_of_b)]
    found = positions_of([(stream, at, at) for stream, at in origins], places, held)
    expected = {"a": held_of_a, "b": held_of_b}
    assert found == {
        place for place, (stream, at) in zip(places, origins, strict=True) if at in expected[stream]
    }
