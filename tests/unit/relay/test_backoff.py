from __future__ import annotations

import random
from collections import Counter

import pytest

from bridge.relay.backoff import ASKED_MOST_MS, Backoff


def test_the_default_waits_two_seconds_every_time() -> None:
    assert [Backoff().delay_ms(n) for n in (1, 2, 1000)] == [2000, 2000, 2000]


def test_each_wait_is_multiplied_up_to_the_cap() -> None:
    """R6"""
    backoff = Backoff(1000, 2.0, 5000)
    assert [backoff.delay_ms(n) for n in range(1, 6)] == [1000, 2000, 4000, 5000, 5000]


def test_the_cap_holds_for_the_first_wait_too() -> None:
    assert Backoff(5000, 1.0, 2000).delay_ms(1) == 2000


def test_endless_failures_do_not_overflow() -> None:
    assert Backoff(1000, 10.0, 60_000).delay_ms(10_000) == 60_000


def test_an_interval_of_zero_tries_at_once() -> None:
    """R20"""
    assert Backoff(0, 1.0, 2000).delay_ms(7) == 0


def test_failures_are_counted_from_one() -> None:
    with pytest.raises(AssertionError):
        Backoff().delay_ms(0)


@pytest.mark.parametrize(("drawn", "wait_ms"), [(0.0, 4000), (0.5, 3000), (0.999_999, 2000)])
def test_chance_takes_up_to_half_off_each_wait(drawn: float, wait_ms: int) -> None:
    """R6"""
    assert Backoff(1000, 2.0, 4000, lambda: drawn).delay_ms(9) == wait_ms


def test_nodes_that_lose_one_hub_at_a_moment_come_back_spread_out() -> None:
    chance = random.Random(44)
    waits = [Backoff(chance=chance.random).delay_ms(1) for _ in range(1000)]
    tenths = Counter(wait // 100 for wait in waits)
    assert min(waits) >= 1000
    assert max(waits) <= 2000
    assert max(tenths.values()) < 200, "in no tenth of a second comes a fifth of them"


def test_a_wait_that_the_other_end_asks_for_is_a_least_one() -> None:
    assert Backoff(chance=lambda: 0.0).asked_ms(4000) == 4000
    assert Backoff(chance=lambda: 0.5).asked_ms(4000) == 5000
    assert Backoff().asked_ms(10**9) == ASKED_MOST_MS


def test_what_many_nodes_do_at_one_time_of_day_is_spread_over_the_interval() -> None:
    assert Backoff().spread_ms() == 0
    assert Backoff(chance=lambda: 0.25).spread_ms() == 500
