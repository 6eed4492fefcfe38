"""Messages by where each was first stored: their IDs, and which of them an address holds."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from bridge.messages import positions as run_arithmetic
from bridge.messages.block import FreshBlock
from bridge.messages.message import Message
from bridge.messages.origins import disjoint, duplicate_ids, expanded, overlaps, positions_of
from dedup.ids import Stamp

STREAM = "journal:i:orders:0"
MESSAGES = [Message(b"a"), Message(b"b"), Message(b"c")]
positions = st.lists(st.integers(0, 30), unique=True).map(sorted)


def runs(places: list[int]) -> run_arithmetic.Runs:
    return run_arithmetic.join((place, place) for place in places)


@given(positions, st.integers(0, 30), st.integers(0, 10))
def test_what_runs_and_a_range_have_in_common(places: list[int], first: int, length: int) -> None:
    last = first + length
    found = list(run_arithmetic.positions(overlaps(runs(places), first, last)))
    assert found == [place for place in places if first <= place <= last]


coordinates = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=12)


def origins(listed: list[tuple[str, int]]) -> list[tuple[str, int, int]]:
    return [(stream, at, at) for stream, at in listed]


@given(coordinates, coordinates, st.lists(st.integers(2, 4), max_size=12))
def test_a_message_is_there_once_its_origin_is_held_as_often_as_it_should_be(
    sent: list[tuple[str, int]], held: list[tuple[str, int]], copies: list[int]
) -> None:
    """Origins name the messages in order; their positions in the stream that brings them are others."""
    places = range(100, 100 + 3 * len(sent), 3)
    due = dict(zip(places, copies, strict=False))
    found = positions_of(origins(sent), places, origins(held), due)
    there = Counter(held)
    for place, at in zip(places, sent, strict=True):
        assert (place in found) == (there[at] >= due.get(place, 1))
        there[at] += place not in found


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 20), st.integers(0, 5)), max_size=12))
def test_disjoint_origins_name_the_same_coordinates_once(
    given_origins: list[tuple[str, int, int]],
) -> None:
    named = [(stream, first, first + length) for stream, first, length in given_origins]
    found = list(expanded(disjoint(named)))
    assert sorted(found) == sorted(set(expanded(named)))


def test_ids_are_those_of_the_places_where_messages_were_first_stored() -> None:
    block = FreshBlock(MESSAGES, (), ((STREAM, 4, 5), ("journal:i:other:0", 70, 70)))
    assert duplicate_ids(block, stamp=True) == [
        Stamp(STREAM).text(4).encode(),
        Stamp(STREAM).text(5).encode(),
        Stamp("journal:i:other:0").text(70).encode(),
    ]


def test_a_producers_id_goes_before_a_stamp_and_goes_along_without_stamping() -> None:
    """D4"""
    block = FreshBlock(MESSAGES, ((1, b"\xff mine"),), ((STREAM, 0, 2),))
    assert duplicate_ids(block, stamp=True)[1] == b"\xff mine"
    assert duplicate_ids(block, stamp=False) == [None, b"\xff mine", None]


def test_a_block_without_origins_gets_no_stamps() -> None:
    assert duplicate_ids(FreshBlock(MESSAGES), stamp=True) == [None, None, None]
