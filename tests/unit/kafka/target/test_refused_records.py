"""Finding the one record that a broker refuses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.kafka.target.refused_records import MOST_JUDGED, PIECES, Isolation, in_order

STREAM = "kafka:c:t:0"
WHY = "INVALID_RECORD: why"


def attempts(positions: list[int], bad: int) -> int:
    """How many refused attempts it takes until `bad` is found, and nothing else."""
    isolation, tries = Isolation(), 1
    isolation.narrow(STREAM, positions[0], positions[-1], len(positions))
    while not isolation.refused(STREAM, positions):
        pieces = [positions[start:stop] for start, stop in isolation.pieces(STREAM, positions)]
        isolation.probed()
        for piece in pieces:
            if bad not in piece:
                isolation.clear(STREAM, piece)
            elif len(piece) == 1:
                isolation.refuse(STREAM, bad, WHY)
            else:
                isolation.narrow(STREAM, piece[0], piece[-1], len(piece))
        tries += 1
        assert tries < 20
    assert isolation.refused(STREAM, positions) == {positions.index(bad): WHY}
    assert list(isolation.pieces(STREAM, positions)) == []
    return tries


@given(st.sets(st.integers(0, 10_000), min_size=1, max_size=300), st.data())
def test_the_one_record_is_found_whatever_stands_around_it(places: set[int], data: st.DataObject) -> None:
    positions = sorted(places)
    assert attempts(positions, data.draw(st.sampled_from(positions))) <= 4


def test_a_thousand_records_take_four_attempts() -> None:
    assert attempts(list(range(1_000)), 777) == 4
    assert PIECES**3 > 1_000


@given(
    st.sets(st.integers(0, 500), min_size=1), st.integers(0, 500), st.integers(0, 500), st.integers(2, 300)
)
def test_pieces_are_all_that_is_suspected_in_order(
    places: set[int], first: int, last: int, count: int
) -> None:
    isolation, positions = Isolation(), sorted(places)
    isolation.narrow(STREAM, first, last, count)
    pieces = [positions[start:stop] for start, stop in isolation.pieces(STREAM, positions)]
    assert [place for piece in pieces for place in piece] == [p for p in positions if first <= p <= last]
    assert all(len(piece) <= -(-count // PIECES) for piece in pieces)


def test_another_stream_is_not_suspected() -> None:
    isolation = Isolation()
    isolation.narrow(STREAM, 0, 99, 100)
    isolation.refuse(STREAM, 1, WHY)
    assert list(isolation.pieces("other", [1, 2, 3])) == []
    assert isolation.refused("other", [1, 2, 3]) == {}


def test_what_the_broker_has_judged_is_not_put_to_it_again() -> None:
    isolation = Isolation()
    isolation.clear(STREAM, [10, 12])
    isolation.refuse(STREAM, 13, WHY)
    assert isolation.unjudged(STREAM, [10, 11, 12, 13, 14], [0, 1, 2, 3, 4]) == [1, 4]


def test_what_is_covered_is_forgotten_and_only_that() -> None:
    isolation = Isolation()
    isolation.refuse(STREAM, 5, WHY)
    isolation.narrow(STREAM, 10, 19, 10)
    isolation.covered(STREAM, 5)
    assert isolation.refused(STREAM, [5]) == {0: WHY}
    isolation.covered(STREAM, 6)
    assert isolation.refused(STREAM, [5]) == {}
    assert len(list(isolation.pieces(STREAM, list(range(10, 20))))) == 10
    isolation.covered(STREAM, 20)
    assert list(isolation.pieces(STREAM, list(range(10, 20)))) == []


def test_of_too_many_judgements_the_oldest_is_forgotten() -> None:
    isolation = Isolation()
    isolation.refuse(STREAM, 0, WHY)
    isolation.clear(STREAM, range(1, MOST_JUDGED + 1))
    assert isolation.refused(STREAM, [0]) == {}
    assert isolation.unjudged(STREAM, [0, 1], [0, 1]) == [0]


def test_pieces_that_overlap_are_cut_where_each_begins_and_ends() -> None:
    pieces = [(2, 5, True), (4, 8, False), (9, 10, True)]
    assert list(in_order(pieces, 10)) == [
        (0, 2, False),
        (2, 4, True),
        (4, 5, True),
        (5, 8, False),
        (8, 9, False),
        (9, 10, True),
    ]
