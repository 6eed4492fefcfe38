"""The pieces of a large body follow what the line carries."""

from __future__ import annotations

from collections import deque

import pytest

from bridge.link.body_pace import LEAST_PIECE_BYTES, BodyPace
from bridge.messages.message import CHUNK_BYTES


def carried(pieces: BodyPace, rate: int, ms: int, start_ms: int = 0) -> int:
    """The line is busy for so long, with two pieces on their way; answers the piece that leaves then."""
    now_ms = float(start_ms)
    on_the_way = [pieces.piece_bytes()]
    pieces.sent(on_the_way[0])
    while now_ms < start_ms + ms:
        on_the_way.append(pieces.piece_bytes())
        pieces.sent(on_the_way[-1])
        size = on_the_way.pop(0)
        now_ms += size * 1000 / rate
        pieces.confirmed(size, int(now_ms))
    return pieces.piece_bytes()


@pytest.mark.parametrize(
    ("rate", "piece"),
    [
        (2_000, LEAST_PIECE_BYTES),
        (8_000, LEAST_PIECE_BYTES),
        (64_000, 8 * 1024),
        (400_000, 64 * 1024),
        (100_000_000, CHUNK_BYTES),
    ],
)
def test_a_piece_takes_a_quarter_to_an_eighth_of_a_second(rate: int, piece: int) -> None:
    found = carried(BodyPace(), rate, 20_000)
    assert found in (piece, 2 * piece) if LEAST_PIECE_BYTES < piece < CHUNK_BYTES else found == piece


def test_the_first_piece_is_small_and_later_ones_grow_with_what_was_carried() -> None:
    pieces = BodyPace()
    assert pieces.piece_bytes() == LEAST_PIECE_BYTES
    assert carried(pieces, 400_000, 20) == LEAST_PIECE_BYTES
    assert carried(pieces, 400_000, 20_000, 20) > 8 * LEAST_PIECE_BYTES


def test_pieces_shrink_when_the_line_slows_down() -> None:
    pieces = BodyPace()
    assert carried(pieces, 100_000_000, 2_000) == CHUNK_BYTES
    assert carried(pieces, 8_000, 600_000, 2_000) == LEAST_PIECE_BYTES


def test_credit_of_batches_is_none_of_a_body() -> None:
    pieces = BodyPace()
    pieces.confirmed(100 * CHUNK_BYTES, 1)
    pieces.sent(LEAST_PIECE_BYTES)
    pieces.confirmed(100 * CHUNK_BYTES, 2)
    assert pieces.piece_bytes() == LEAST_PIECE_BYTES


def test_the_time_in_which_nothing_was_on_its_way_does_not_count() -> None:
    pieces = BodyPace()
    before = carried(pieces, 400_000, 5_000)
    pieces.confirmed(CHUNK_BYTES, 5_100)  # all that is on its way
    pieces.sent(before)
    pieces.confirmed(before, 3_600_000)
    assert pieces.piece_bytes() == before


@pytest.mark.parametrize("round_trip_ms", [5, 200, 600, 1_000])
@pytest.mark.parametrize("rate", [8_000, 1_000_000])
def test_far_lines_are_filled_and_little_is_on_its_way_beyond(rate: int, round_trip_ms: int) -> None:
    """A line with a queue before it: a piece is confirmed a round trip after it has passed."""
    pace, now_ms, free_ms, passed = BodyPace(), 0, 0.0, 0
    confirming: deque[tuple[float, int]] = deque()
    waits: list[float] = []
    while now_ms < 60_000:
        now_ms += 1
        while confirming and confirming[0][0] <= now_ms:
            pace.confirmed(confirming.popleft()[1], now_ms)
        while pace.has_room(size := pace.piece_bytes()):
            pace.sent(size)
            free_ms = max(free_ms, now_ms) + size * 1000 / rate
            confirming.append((free_ms + round_trip_ms, size))
            if now_ms > 30_000:
                passed += size
                waits.append(free_ms - now_ms)
    assert passed >= 0.9 * rate * 30
    assert max(waits) <= 2_600


def test_one_piece_may_always_leave() -> None:
    pace = BodyPace()
    assert pace.has_room(CHUNK_BYTES)
    pace.sent(CHUNK_BYTES)
    assert not pace.has_room(1)
    pace.confirmed(CHUNK_BYTES, 0)
    assert pace.has_room(CHUNK_BYTES)


def test_a_connection_begins_with_half_of_what_the_one_before_has_shown() -> None:
    pace = BodyPace()
    before = carried(pace, 400_000, 5_000)
    pace.connected()
    assert pace.piece_bytes() == before // 2
    assert pace.has_room(CHUNK_BYTES), "nothing is on its way"
    for _ in range(20):
        pace.connected()
    assert pace.piece_bytes() == LEAST_PIECE_BYTES
