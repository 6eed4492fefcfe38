from __future__ import annotations

import asyncio
import random

import pytest

from bridge.relay.pacing import BURST_S, Pacer
from bridge.relay.token_bucket import TokenBucket
from tests.fakes.virtual_time import in_virtual_time, now_ms


def test_a_burst_passes_at_once_and_then_the_rate_holds() -> None:
    bucket = TokenBucket(100, 50)
    assert [bucket.take(25, 0), bucket.take(25, 0)] == [0, 0]
    assert [bucket.take(25, 0), bucket.take(25, 0)] == [0.25, 0.5]


def test_a_silence_fills_the_bucket_and_no_more() -> None:
    bucket = TokenBucket(100, 50)
    bucket.take(50, 0)
    assert bucket.take(50, 3600) == 0
    assert bucket.take(10, 3600) == pytest.approx(0.1)


def test_what_is_larger_than_the_bucket_passes_when_it_is_full_and_the_next_waits_for_the_debt() -> None:
    bucket = TokenBucket(100, 50)
    assert bucket.take(1_000, 0) == 0
    assert bucket.take(1_000, 0) == pytest.approx(10.0), "950 owed, and a full bucket"
    assert bucket.take(1, 0) == pytest.approx(19.51)


def test_callers_pass_in_their_order_so_that_small_ones_starve_no_large_one() -> None:
    bucket = TokenBucket(100, 50)
    bucket.take(50, 0)
    waits = [bucket.take(size, 0) for size in (40, 1, 1, 1)]
    assert waits == sorted(waits)


def test_what_did_not_pass_is_given_back() -> None:
    bucket = TokenBucket(100, 50)
    bucket.take(40, 0)
    bucket.give_back(40)
    assert bucket.take(50, 0) == 0
    bucket.give_back(1_000)
    assert bucket.take(51, 0) == 0
    assert bucket.take(50, 0) == pytest.approx(0.51), "no more than a full bucket"


def test_a_clock_that_stands_still_or_goes_back_brings_nothing() -> None:
    bucket = TokenBucket(100, 50)
    bucket.take(50, 10)
    assert bucket.take(50, 9) == pytest.approx(0.5)


@pytest.mark.parametrize("seed", range(20))
def test_over_any_time_no_more_than_the_rate_and_one_burst_and_one_message_pass(seed: int) -> None:
    chance = random.Random(seed)
    rate, burst, now_s = 1_000.0, 1_000.0, 0.0
    bucket = TokenBucket(rate, burst)
    passed: list[tuple[float, int]] = []
    largest = 0
    for _ in range(500):
        size = chance.choice((1, 100, 999, 5_000))
        largest = max(largest, size)
        now_s += chance.choice((0.0, 0.0, 0.1, 3.0))
        now_s += bucket.take(size, now_s)
        passed.append((now_s, size))
    for first in range(0, 500, 7):
        begin_s, total = passed[first][0], 0
        for at_s, size in passed[first:]:
            total += size
            assert total <= rate * (at_s - begin_s) + burst + largest + 1, (seed, first)


@in_virtual_time
async def test_lanes_share_the_rate_of_their_bridge() -> None:
    pacer = Pacer(1_000)
    assert BURST_S == 1.0

    async def lane() -> None:
        for _ in range(5):
            await pacer.passed(500)

    await asyncio.gather(lane(), lane())
    assert now_ms() == 4_000, "5,000 bytes, of which 1,000 left at once"
    assert pacer.text == "max-rate: 1,000 bytes/s"


@in_virtual_time
async def test_a_wait_that_is_cancelled_does_not_count() -> None:
    pacer = Pacer(1_000)
    await pacer.passed(1_000)
    waiting = asyncio.create_task(pacer.passed(60_000))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await pacer.passed(1_000)
    assert now_ms() == 1_000
