"""Silence and what it asks for. The clock is the tests'."""

from __future__ import annotations

from bridge.link.liveness import Duty, Liveness


def test_silence_for_the_check_period_asks_for_one_ping_and_for_the_ttl_ends() -> None:
    liveness = Liveness(30, 60, 100)
    assert liveness.deadline_ms() == 130
    assert liveness.duty(129) is Duty.NOTHING
    assert liveness.duty(130) is Duty.PING
    assert liveness.deadline_ms() == 160
    assert liveness.duty(159) is Duty.NOTHING
    assert liveness.duty(160) is Duty.GIVE_UP


def test_any_frame_begins_the_silence_anew() -> None:
    liveness = Liveness(30, 60, 0)
    assert liveness.duty(30) is Duty.PING
    liveness.heard(50)
    assert liveness.deadline_ms() == 80
    assert liveness.duty(79) is Duty.NOTHING
    assert liveness.duty(80) is Duty.PING


def test_a_process_that_slept_past_both_gives_up_rather_than_pings() -> None:
    assert Liveness(30, 60, 0).duty(1_000) is Duty.GIVE_UP


def test_minus_one_is_never() -> None:
    assert Liveness(-1, -1, 0).deadline_ms() is None
    assert Liveness(-1, -1, 0).duty(10**9) is Duty.NOTHING
    assert Liveness(-1, 60, 0).deadline_ms() == 60
    assert Liveness(30, -1, 0).duty(10**9) is Duty.PING
