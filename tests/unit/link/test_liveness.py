"""Silence, slowness, and what they ask for. The clock is the tests'."""

from __future__ import annotations

from bridge.link.limits import LEAST_RATE, PACE_MOST_MS
from bridge.link.liveness import Duty, Liveness


def test_silence_for_the_check_period_asks_for_one_ping_and_for_the_ttl_ends() -> None:
    liveness = Liveness(30, 60, 100)
    assert liveness.deadline_ms() == 130
    assert liveness.duty(129) is Duty.NOTHING
    assert liveness.duty(130) is Duty.PING
    assert liveness.duty(130) is Duty.NOTHING
    assert liveness.deadline_ms() == 160
    assert liveness.duty(159) is Duty.NOTHING
    assert liveness.duty(160) is Duty.SILENT


def test_any_frame_begins_the_silence_anew() -> None:
    liveness = Liveness(30, 60, 0)
    assert liveness.duty(30) is Duty.PING
    liveness.heard(50)
    assert liveness.deadline_ms() == 80
    assert liveness.duty(79) is Duty.NOTHING
    assert liveness.duty(80) is Duty.PING


def test_a_process_that_slept_past_both_gives_up_rather_than_pings() -> None:
    assert Liveness(30, 60, 0).duty(1_000) is Duty.SILENT


def test_minus_one_is_never() -> None:
    assert Liveness(-1, -1, 0).deadline_ms() is None
    assert Liveness(-1, -1, 0).duty(10**9) is Duty.NOTHING
    assert Liveness(-1, 60, 0).deadline_ms() == 60
    assert Liveness(30, -1, 0).duty(10**9) is Duty.PING


def test_bytes_of_a_frame_that_comes_slowly_are_life_and_bring_a_ping_in_each_period() -> None:
    """The other end, which sends all that time, hears nothing else from this one."""
    liveness = Liveness(30_000, 60_000, 0)
    pings = []
    for now_ms in range(500, 300_000, 500):
        liveness.heard_bytes(1_000, now_ms)
        duty = liveness.duty(now_ms)
        assert duty in (Duty.NOTHING, Duty.PING)
        if duty is Duty.PING:
            pings.append(now_ms)
    assert pings == list(range(15_000, 300_000, 15_000)), "a quarter of the ttl"


def test_a_line_of_16_kbit_that_is_cut_for_half_of_each_minute_is_fast_enough() -> None:
    liveness = Liveness(30_000, 60_000, 0)
    for now_ms in range(100, 1_200_000, 100):
        if now_ms % 60_000 >= 30_000:
            liveness.heard_bytes(200, now_ms)
        assert liveness.duty(now_ms) in (Duty.NOTHING, Duty.PING), now_ms


def test_a_byte_in_each_few_seconds_is_too_slow_and_the_reason_has_its_numbers() -> None:
    liveness = Liveness(30_000, 60_000, 0)
    liveness.heard(10_000)
    for now_ms in range(20_000, 80_000, 5_000):
        liveness.heard_bytes(1, now_ms)
        assert liveness.duty(now_ms) in (Duty.NOTHING, Duty.PING)
    assert liveness.deadline_ms() == 80_000, "a window after the frame's first byte"
    assert liveness.duty(80_000) is Duty.TOO_SLOW
    assert liveness.slowness == f"12 bytes in 60 s, fewer than {LEAST_RATE} a second"


def test_a_frame_that_came_whole_owes_nothing_however_small_it_was() -> None:
    liveness = Liveness(-1, 60_000, 0)
    for now_ms in range(50_000, 500_000, 50_000):
        liveness.heard_bytes(20, now_ms)
        liveness.heard(now_ms)
        assert liveness.duty(now_ms + 49_999) is Duty.NOTHING
    assert liveness.duty(510_000) is Duty.SILENT


def test_the_window_of_a_frame_begins_with_its_first_byte_not_with_the_silence_before_it() -> None:
    liveness = Liveness(-1, 60_000, 0)
    liveness.heard(0)
    liveness.heard_bytes(100, 59_000)
    assert liveness.duty(60_000) is Duty.NOTHING
    liveness.heard_bytes(LEAST_RATE * 60, 118_000)
    assert liveness.duty(119_000) is Duty.NOTHING


def test_a_link_without_a_ttl_may_be_silent_but_a_frame_that_has_begun_goes_on() -> None:
    liveness = Liveness(-1, -1, 0)
    assert liveness.duty(10**9) is Duty.NOTHING
    liveness.heard_bytes(10, 10**9)
    assert liveness.deadline_ms() == 10**9 + PACE_MOST_MS
    assert liveness.duty(10**9 + PACE_MOST_MS) is Duty.TOO_SLOW


def test_an_end_that_does_not_read_blames_no_one_but_pings() -> None:
    liveness = Liveness(30, 60, 0)
    liveness.heard_bytes(1, 5)
    liveness.hold()
    assert [liveness.duty(now_ms) for now_ms in (30, 60, 90)] == [Duty.PING] * 3
    liveness.resume(100)
    assert liveness.duty(159) is Duty.PING
    assert liveness.duty(160) is Duty.SILENT
