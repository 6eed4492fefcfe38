"""Finding the one record that a broker refuses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.kafka.suspects import PIECES, Suspects

STREAM = "kafka:c:t:0"


def attempts(positions: list[int], bad: int) -> int:
    """How many refused attempts it takes until `bad` is found, and nothing else."""
    suspects, tries = Suspects(), 0
    while suspects.refused(STREAM, positions) is None:
        for start, stop, _ in suspects.pieces(STREAM, positions):
            piece = positions[start:stop]
            if bad in piece:
                suspects.narrow(STREAM, piece[0], piece[-1], len(piece), "TOO_LARGE: why")
                break
        tries += 1
        assert tries < 20
    assert suspects.refused(STREAM, positions) == (bad, "TOO_LARGE: why")
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
def test_pieces_are_all_of_it_in_order(places: set[int], first: int, last: int, count: int) -> None:
    suspects, positions = Suspects(), sorted(places)
    suspects.narrow(STREAM, first, last, count, "why")
    pieces = list(suspects.pieces(STREAM, positions))
    assert [position for start, stop, _ in pieces for position in positions[start:stop]] == positions
    for start, stop, alone in pieces:
        assert all((first <= position <= last) == alone for position in positions[start:stop])
        assert not alone or stop - start <= -(-count // PIECES)


def test_another_stream_is_not_cut() -> None:
    suspects = Suspects()
    suspects.narrow(STREAM, 0, 99, 100, "why")
    assert list(suspects.pieces("other", [1, 2, 3])) == [(0, 3, False)]
    assert suspects.refused("other", [1, 2, 3]) is None


def test_what_is_covered_is_forgotten_and_only_that() -> None:
    suspects = Suspects()
    suspects.narrow(STREAM, 5, 5, 1, "why")
    suspects.narrow(STREAM, 10, 19, 10, "why")
    suspects.covered(STREAM, 5)
    assert suspects.refused(STREAM, [5]) == (5, "why")
    suspects.covered(STREAM, 6)
    assert suspects.refused(STREAM, [5]) is None
    assert len(list(suspects.pieces(STREAM, list(range(10, 20))))) == 10
    suspects.covered(STREAM, 20)
    assert len(list(suspects.pieces(STREAM, list(range(10, 20))))) == 1
