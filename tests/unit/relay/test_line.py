"""What is sent over a line fits it: a simulated line and a clock of its own."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest

from bridge.relay.line import (
    GOOD_S,
    LEAST_BATCH,
    LEAST_SHARE,
    RECONNECTS_MOST,
    START,
    Line,
    LineStatus,
)

KIB = 1024
MIB = 1024 * KIB
#: `producer-window-size` and `confirmation-window-size`, as they are by default.
BATCH_MOST = MIB
WINDOW = 10 * MIB


@dataclass(slots=True)
class Simulated:
    """A backlog without end that is sent over one line."""

    #: Bytes a second that the line carries, and its round trip, s.
    rate: float
    round_trip_s: float
    #: Bytes of a message.
    message: int = KIB
    #: The life of a connection, s; 0: without end.
    life_s: float = 0.0
    window: int = WINDOW
    line: Line = field(default_factory=lambda: Line(BATCH_MOST))
    now_s: float = 0.0
    #: Bytes that the line has carried, those of them whose receipts came, and that were stored.
    carried: float = 0.0
    confirmed: int = 0
    stored: int = 0
    #: The most that was ever on its way.
    most: int = 0

    def run(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self._connection(min(self.now_s + self.life_s, end_s) if self.life_s else end_s)
            if self.life_s:
                self.line.ended()

    def _connection(self, end_s: float) -> None:
        line = self.line
        line.connected(self.now_s)
        line.round_trip_s = self.round_trip_s
        #: When the line has carried what was sent; and what is on its way: size, begin, end of its carriage.
        free_s = self.now_s
        under_way: deque[tuple[int, float, float]] = deque()
        in_flight = 0
        while True:
            while True:
                count = max(line.batch_bytes // self.message, 1)
                size = count * self.message
                if in_flight and (not line.has_room(size) or in_flight + size > self.window):
                    line.held()
                    break
                line.sent(size, self.now_s)
                begin_s = max(free_s, self.now_s)
                free_s = begin_s + size / self.rate
                under_way.append((size, begin_s, free_s))
                in_flight += size
                self.most = max(self.most, in_flight)
            size, _, carried_s = under_way[0]
            if carried_s + self.round_trip_s > end_s:
                break
            self.now_s = carried_s + self.round_trip_s
            under_way.popleft()
            in_flight -= size
            line.answered(self.now_s)
            self.carried += size
            self.confirmed += size
            self.stored += size
        self.now_s = end_s
        for size, begin_s, carried_s in under_way:
            came_s = end_s - self.round_trip_s / 2
            part = min(max((end_s - begin_s) / (carried_s - begin_s), 0.0), 1.0)
            self.carried += size * part
            self.stored += size if carried_s <= came_s else 0
            if not self.life_s:
                self.line.answered(end_s, stored=False)


RATES = (2_000, 8_000, 60_000, 125_000, 1_000_000, 10_000_000, 100_000_000)
ROUND_TRIPS_S = (0.001, 0.05, 0.2, 0.4, 0.6, 1.0, 2.0)


@pytest.mark.parametrize("round_trip_s", ROUND_TRIPS_S)
@pytest.mark.parametrize("rate", RATES)
def test_line_is_filled(rate: int, round_trip_s: float) -> None:
    """Of what the line carries at least 80 %; of a far and fast one, what the window lets it carry."""
    line = Simulated(rate, round_trip_s)
    line.run(60)
    doublings = 12
    carries = min(rate, WINDOW / (round_trip_s + BATCH_MOST / rate)) * (60 - doublings * round_trip_s)
    assert line.confirmed >= 0.8 * carries


@pytest.mark.parametrize("message", [100, 10_000, 100_000, 300_000])
@pytest.mark.parametrize("round_trip_s", [0.01, 0.05, 0.2, 0.6])
@pytest.mark.parametrize("rate", [8_000, 60_000, 125_000, 1_000_000])
def test_line_is_filled_whatever_the_size_of_messages(rate: int, round_trip_s: float, message: int) -> None:
    line = Simulated(rate, round_trip_s, message=message)
    line.run(120)
    carries = rate * (120 - 2 * round_trip_s) - message
    assert line.confirmed >= 0.8 * carries - message


@pytest.mark.parametrize("round_trip_s", [0.001, 0.05, 0.2, 0.6])
@pytest.mark.parametrize("rate", [8_000, 60_000, 125_000])
def test_line_that_is_cut_every_five_seconds_carries_little_in_vain(rate: int, round_trip_s: float) -> None:
    line = Simulated(rate, round_trip_s, message=1_000, life_s=5.0)
    line.run(100)
    carries = min(rate, WINDOW / round_trip_s) * (5 - 2 * round_trip_s) * 20
    assert line.stored >= 0.6 * carries
    assert line.carried <= 1.3 * line.stored


def test_large_messages_pass_a_line_that_is_cut() -> None:
    line = Simulated(120_000, 0.05, message=100_000, life_s=5.0)
    line.run(100)
    assert line.stored >= 0.6 * 120_000 * 100
    assert line.carried <= 1.3 * line.stored


@pytest.mark.parametrize("rate", [8_000, 60_000, 125_000, 1_000_000])
@pytest.mark.parametrize("round_trip_s", [0.001, 0.05, 0.2])
def test_a_few_seconds_at_most_are_on_their_way(rate: int, round_trip_s: float) -> None:
    """So an alarm does not wait long behind what was sent before it."""
    line = Simulated(rate, round_trip_s)
    line.run(60)
    assert line.most <= max(2.0 * rate, START)


def test_batch_takes_half_a_second() -> None:
    line = Simulated(100_000, 0.05)
    line.run(30)
    assert line.line.batch_bytes == pytest.approx(50_000, rel=0.1)


def test_fast_line_has_whole_batches_within_few_round_trips() -> None:
    line = Simulated(100_000_000, 0.001)
    line.run(0.2)
    assert line.line.batch_bytes == BATCH_MOST
    assert line.line.wanted >= WINDOW


def test_batches_grow_although_their_source_is_slower_than_the_line() -> None:
    """One is on its way at a time, so nothing shows that more would be carried."""
    line = Line(BATCH_MOST)
    line.connected(0.0)
    for turn in range(10):
        line.sent(line.batch_bytes, turn)
        line.answered(turn + 0.001)
    assert line.batch_bytes == BATCH_MOST


def test_first_batch_is_small_whatever_comes_later() -> None:
    line = Line(BATCH_MOST)
    line.connected(0.0)
    assert line.batch_bytes == LEAST_BATCH
    assert line.wanted == START


def test_batches_are_no_larger_than_the_producer_window() -> None:
    line = Line(1_000)
    line.connected(0.0)
    assert line.batch_bytes == 1_000


def test_line_that_has_become_slow_is_seen() -> None:
    line = Simulated(1_000_000, 0.05)
    line.run(20)
    line.rate = 8_000
    line.run(300)
    assert line.line.rate == pytest.approx(8_000, rel=0.1)
    assert line.line.wanted <= 2 * 8_000


def test_line_that_has_become_fast_is_seen() -> None:
    line = Simulated(8_000, 0.05)
    line.run(60)
    line.rate = 1_000_000
    line.run(30)
    assert line.line.rate == pytest.approx(1_000_000, rel=0.1)


def test_messages_that_come_now_and_then_say_nothing_of_the_line() -> None:
    line = Simulated(1_000_000, 0.05)
    line.run(20)
    for turn in range(100):
        line.line.sent(100, 100.0 + turn)
        line.line.answered(100.05 + turn)
    assert line.line.rate == pytest.approx(1_000_000, rel=0.1)


def test_break_halves_batches_and_good_connection_restores_them() -> None:
    line = Line(BATCH_MOST)
    for _ in range(10):
        line.connected(0.0)
        line.sent(1_000, 0.0)
        line.ended()
    assert line._share == LEAST_SHARE
    line.connected(0.0)
    for turn in range(1, 10):
        line.sent(1_000, turn * GOOD_S)
        line.answered(turn * GOOD_S + 0.1)
    assert line._share == 1.0


def test_answer_without_storing_says_nothing_of_the_line() -> None:
    line = Line(BATCH_MOST)
    line.connected(0.0)
    line.sent(LEAST_BATCH, 0.0)
    line.answered(0.0, stored=False)
    assert line.rate == 0
    assert line.has_room(START)


def test_break_with_nothing_on_its_way_changes_nothing() -> None:
    line = Line(BATCH_MOST)
    line.connected(0.0)
    line.ended()
    assert line._share == 1.0


def test_samples_kept_are_few() -> None:
    line = Simulated(100_000_000, 0.001)
    line.run(15)
    assert len(line.line._rates) <= 21


def test_reconnects_of_the_last_hour_are_counted() -> None:
    line = Line(BATCH_MOST)
    for at_s in (0.0, 100.0, 200.0):
        line.connected(at_s)
    assert [line.reconnects(now_s) for now_s in (200.0, 3_750.0, 4_000.0)] == [2, 1, 0]


def test_reconnects_kept_are_few() -> None:
    line = Line(BATCH_MOST)
    for at_ms in range(0, 2 * RECONNECTS_MOST, 1):
        line.connected(at_ms / 1000)
    assert line.reconnects(10.0) == RECONNECTS_MOST


def test_lines_of_lanes_are_shown_as_one() -> None:
    first, second = LineStatus(None, 10, 1, 2, "", 1), LineStatus(30, 5, 1, 2, "line", 2)
    assert first.beside(second) == LineStatus(30, 15, 2, 4, "line", 3)
