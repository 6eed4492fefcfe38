from __future__ import annotations

import random

import pytest

from bridge.relay.window import Window


def test_a_batch_is_sent_only_where_it_fits() -> None:
    window = Window(100)
    window.sent(60, 6)
    assert window.has_room(40)
    assert not window.has_room(41)


def test_a_batch_above_the_whole_window_is_sent_when_nothing_is_in_flight() -> None:
    """B18"""
    window = Window(100)
    assert window.has_room(1000)
    window.sent(1000, 1)
    assert not window.has_room(0)
    window.confirmed(1000, 1)
    assert window.has_room(1000)


def test_coverage_alone_takes_no_room() -> None:
    window = Window(100)
    window.sent(100, 1)
    assert window.has_room(0)


def test_what_was_never_sent_cannot_be_confirmed() -> None:
    window = Window(100)
    window.sent(10, 1)
    with pytest.raises(AssertionError):
        window.confirmed(11, 1)


def test_never_above_the_limit_except_for_a_single_batch(rng: random.Random) -> None:
    window = Window(100)
    in_flight: list[int] = []
    for _ in range(2000):
        size = rng.choice((0, 1, 30, 70, 100, 150))
        if window.has_room(size):
            in_flight.append(size)
            window.sent(size, 1)
        else:
            done = in_flight.pop(0)
            window.confirmed(done, 1)
        assert (window.bytes, window.batches) == (sum(in_flight), len(in_flight))
        assert window.bytes <= window.limit or sum(size > 0 for size in in_flight) == 1
