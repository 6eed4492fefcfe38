"""How much the next transaction takes: as brokers ask, and as the line carries."""

from __future__ import annotations

import pytest
import structlog

from bridge.kafka.client.connection import END_TRANSACTION_TIMEOUT_MS
from bridge.kafka.client.line import LEAST_RATE
from bridge.kafka.client.throttling import Throttle
from bridge.kafka.target.delivery_queue import TRANSACTION_BYTES
from bridge.kafka.target.pace import (
    AIM_MS,
    FIRST_BYTES,
    GROW,
    LEAST_BYTES,
    LINE_AIM_MS,
    MOST_TRANSACTION_MS,
    MOST_WATCH_INTERVAL_MS,
    ROUND_TRIPS,
    Measured,
    Pace,
    longer_ms,
)
from bridge.kafka.target.transaction import LineTooSlow, SendFailed
from bridge.relay.counts import Counts


class Clock:
    """A clock that moves when it is told."""

    def __init__(self) -> None:
        self.now_ms = 0

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class Lane:
    """Transactions of one lane, by what they are measured by."""

    def __init__(self) -> None:
        self.counts, self.throttle, self.clock = Counts(), Throttle(), Clock()
        self.pace = Pace(self.counts, structlog.get_logger(), self.clock)

    def transaction(
        self,
        size: int = 0,
        *,
        asked_ms: int = 0,
        took_ms: int = 0,
        round_trip_ms: float = 0,
        error: Exception | None = None,
    ) -> None:
        """One of `size` bytes, or of as many as it takes."""
        one = Measured(self.throttle, size or self.pace.most_bytes, round_trip_ms)
        with self.pace.measured(one):
            self.throttle.asked_ms += asked_ms
            self.clock.now_ms += took_ms + asked_ms
            if error is not None:
                raise error

    def late(self, error: TimeoutError, **options: int) -> None:
        with pytest.raises(SendFailed):
            self.transaction(error=SendFailed("orders", 0, error), **options)

    def warmed_up(self) -> Lane:
        """With the largest transactions."""
        while self.pace.most_bytes < TRANSACTION_BYTES:
            self.transaction()
        return self


def slow(rate: float = 0, *, is_at_limit: bool = False) -> LineTooSlow:
    return LineTooSlow("slow", rate=rate, is_at_limit=is_at_limit)


# -- quotas ------------------------------------------------------------------------------------------------


def test_transactions_shrink_while_brokers_ask_for_long_and_grow_again() -> None:
    lane = Lane().warmed_up()
    with structlog.testing.capture_logs() as logged:
        lane.transaction(1_000_000, asked_ms=4 * AIM_MS)
        assert lane.pace.most_bytes == 250_000
        assert "producer_byte_rate" in lane.counts.throttled
        lane.transaction(250_000, asked_ms=AIM_MS)
        assert lane.pace.most_bytes == 250_000
        lane.transaction(250_000, asked_ms=10**9)
        assert lane.pace.most_bytes == LEAST_BYTES
        lane.transaction()
        assert (lane.pace.most_bytes, lane.counts.throttled) == (GROW * LEAST_BYTES, "")
        lane.warmed_up()
    assert [one["event"] for one in logged] == ["throttled"]
    assert lane.counts.throttled_ms == 5 * AIM_MS + 10**9


def test_nothing_is_throttled_while_nothing_is_sent() -> None:
    lane = Lane()
    lane.transaction(100, asked_ms=100)
    assert lane.counts.throttled
    lane.pace.rest()
    assert lane.counts.throttled == ""


def test_a_transaction_that_fails_is_measured_too() -> None:
    lane = Lane().warmed_up()
    with pytest.raises(TimeoutError):
        lane.transaction(1_000_000, asked_ms=2 * AIM_MS, error=TimeoutError())
    assert lane.pace.most_bytes == 500_000


# -- lines -------------------------------------------------------------------------------------------------


def test_a_lane_begins_small_and_reaches_the_largest_transaction_in_a_few() -> None:
    lane, count = Lane(), 0
    assert lane.pace.most_bytes == FIRST_BYTES
    while lane.pace.most_bytes < TRANSACTION_BYTES:
        lane.transaction(took_ms=20)
        count += 1
    assert count == 4


def test_a_trickle_of_small_transactions_shows_nothing_about_large_ones() -> None:
    lane = Lane()
    for _ in range(20):
        lane.transaction(100, took_ms=20)
    assert lane.pace.most_bytes == FIRST_BYTES


def test_transactions_fit_the_rate_that_the_line_shows() -> None:
    lane = Lane().warmed_up()
    lane.transaction(1_000_000, took_ms=50_000)
    assert lane.pace.most_bytes == 1_000_000 * LINE_AIM_MS // 50_000
    assert lane.pace.expected_ms(20_000) == 1_000
    lane.transaction(took_ms=LINE_AIM_MS)
    assert lane.pace.most_bytes == 40_000
    lane.transaction(took_ms=100_000)
    assert lane.pace.most_bytes == LEAST_BYTES


def test_a_far_line_is_no_slow_one() -> None:
    """A transaction is some round trips, however little it carries."""
    lane = Lane().warmed_up()
    lane.transaction(1_000_000, took_ms=ROUND_TRIPS * 600 + 900, round_trip_ms=600)
    assert lane.pace.most_bytes == TRANSACTION_BYTES


def test_a_transaction_that_runs_out_of_time_is_followed_by_a_smaller_one_that_waits_longer() -> None:
    lane = Lane().warmed_up()
    lane.late(slow(), size=1_000_000, took_ms=15_000)
    assert lane.pace.most_bytes == 250_000
    assert lane.pace.expected_ms(1_000_000) == pytest.approx(2 * 15_000)
    lane.late(slow(), size=1_000_000, took_ms=45_000)
    assert lane.pace.expected_ms(1_000_000) == pytest.approx(2 * 45_000)
    for _ in range(20):
        lane.late(slow(), size=1_000_000, took_ms=10**9)
    assert lane.pace.most_bytes == LEAST_BYTES
    assert lane.pace.expected_ms(1_000) == 1_000 / LEAST_RATE * 1_000


def test_brokers_that_take_nothing_make_no_later_transaction_wait_longer() -> None:
    lane = Lane().warmed_up()
    lane.late(TimeoutError(), size=1_000_000, took_ms=15_000)
    assert (lane.pace.most_bytes, lane.pace.expected_ms(1_000)) == (250_000, 0)


def test_a_slow_line_is_asked_less_often_whether_its_cluster_is_there() -> None:
    lane = Lane()
    assert lane.pace.watch_interval_ms(1_000) == 1_000
    lane.transaction(40_000, took_ms=2_000)
    assert lane.pace.watch_interval_ms(1_000) == 3_200
    lane.transaction(8_000, took_ms=4_000)
    assert lane.pace.watch_interval_ms(1_000) == MOST_WATCH_INTERVAL_MS
    lane.transaction(4_000_000, took_ms=1_000)
    assert lane.pace.watch_interval_ms(1_000) == 1_000


# -- one message that needs longer than a transaction may take ---------------------------------------------


@pytest.mark.parametrize(
    ("error", "longer"),
    [
        pytest.param(
            slow(2_000, is_at_limit=True), 200_000 // 2 * 3 // 2 + END_TRANSACTION_TIMEOUT_MS, id="rate"
        ),
        pytest.param(slow(10**9, is_at_limit=True), 120_000, id="at-least-twice"),
        pytest.param(slow(1, is_at_limit=True), 620_000, id="no-less-than-the-least-rate"),
        pytest.param(slow(2_000), 0, id="stood-still"),
        pytest.param(TimeoutError(), 0, id="brokers"),
    ],
)
def test_a_message_gets_a_transaction_as_long_as_it_needs(error: TimeoutError, longer: int) -> None:
    assert longer_ms(error, 60_000, 200_000) == longer


def test_no_transaction_is_longer_than_brokers_let_it_be() -> None:
    assert longer_ms(slow(2_000, is_at_limit=True), 60_000, 10**9) == MOST_TRANSACTION_MS
