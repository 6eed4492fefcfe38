from __future__ import annotations

import pytest

from bridge.relay.backoff import Backoff


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
