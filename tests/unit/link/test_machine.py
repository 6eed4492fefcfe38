"""What both ends share, shown at both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from bridge.link.batch_frames import receipt_frame
from bridge.link.frames import Close, CloseCode, Ping, Pong
from bridge.link.machine import Ending, LinkState, Machine
from bridge.link.sender import Sender
from tests.unit.link.helpers import (
    HELLO,
    at,
    new_receiver,
    new_sender,
    open_receiver,
    open_sender,
    sent,
    stored,
    tell,
)

Make = Callable[[], Machine[Any]]
both = pytest.mark.parametrize("make", [open_sender, open_receiver])


@both
def test_silence_brings_a_ping_with_the_clock_and_then_the_end(make: Make) -> None:
    machine = make()
    assert machine.deadline_ms() == 30_000
    machine.tick(at(29_999))
    assert sent(machine) == []
    machine.tick(at(30_000))
    (ping,) = sent(machine)
    assert isinstance(ping, Ping)
    assert ping.sent == 1_030_000
    assert machine.deadline_ms() == 60_000
    machine.tick(at(60_000))
    assert machine.state is LinkState.CLOSED
    assert sent(machine) == [Close(CloseCode.SILENT, "the other end sent no byte for 60 s (connection-ttl)")]
    assert machine.deadline_ms() is None


@both
def test_a_ping_is_answered_with_both_clocks(make: Make) -> None:
    machine = make()
    tell(machine, Ping(7, 500), ms=40)
    assert sent(machine) == [Pong(7, 500, 1_000_040)]


@both
def test_a_pong_tells_the_offset_of_the_clocks(make: Make) -> None:
    machine = make()
    machine.tick(at(30_000))
    (ping,) = sent(machine)
    assert isinstance(ping, Ping)
    # 20 ms there and back; the other clock is 5,000 ms ahead.
    tell(machine, Pong(ping.number, ping.sent, ping.sent + 10 + 5_000), ms=30_020)
    assert machine.round_trip_ms == 20
    assert machine.clock_offset_ms == 5_000


@both
def test_a_pong_nobody_asked_for_says_nothing(make: Make) -> None:
    machine = make()
    tell(machine, Pong(7, 0, 10**6))
    assert machine.clock_offset_ms is None
    assert machine.state is LinkState.OPEN


@both
def test_a_broken_frame_closes_with_protocol_and_what_was_found(make: Make) -> None:
    machine = make()
    machine.receive(b"junk", at(0))
    (close,) = sent(machine)
    assert isinstance(close, Close)
    assert close.code == CloseCode.PROTOCOL
    assert "4 bytes" in close.detail
    assert not close.permanent


@pytest.mark.parametrize("make", [new_sender, new_receiver, open_sender])
def test_a_frame_out_of_its_state_closes_with_protocol(make: Make) -> None:
    machine = make()
    sent(machine)
    tell(machine, Pong(1, 1, 1) if make is not open_sender else receipt_frame(stored(1), 0))
    (close,) = sent(machine)
    assert isinstance(close, Close)
    assert close.code == CloseCode.PROTOCOL


@both
def test_the_other_ends_close_ends_without_an_answer(make: Make) -> None:
    machine = make()
    tell(machine, Ping(1, 1), Close("FENCED", "epoch 3; this one has 2"))
    assert machine.ending == Ending("FENCED", "epoch 3; this one has 2", permanent=False)
    assert sent(machine) == []


@both
def test_a_lost_connection_ends_with_its_reason_and_sends_nothing(make: Make) -> None:
    machine = make()
    tell(machine, Ping(1, 1))
    machine.lost("reset by peer")
    assert machine.ending == Ending("TARGET_UNAVAILABLE", "reset by peer", permanent=False)
    assert sent(machine) == []


@both
def test_what_comes_after_the_end_changes_nothing(make: Make) -> None:
    machine = make()
    machine.close("STOPPING", "first")
    machine.close("GOODBYE", "second")
    machine.lost("third")
    tell(machine, Close("FENCED", "fourth"), Ping(1, 1))
    machine.receive(b"junk", at(0))
    machine.tick(at(10**9))
    assert machine.ending == Ending("STOPPING", "first", permanent=False)


@both
def test_frames_decided_on_before_the_end_leave_before_the_close(make: Make) -> None:
    machine = make()
    tell(machine, Ping(1, 1))
    machine.close("GOODBYE", "x" * 5_000)
    pong, close = sent(machine)
    assert isinstance(pong, Pong)
    assert isinstance(close, Close)
    assert len(close.detail) == 1024


@pytest.mark.parametrize("check_period_ms", [30_000, 15_000])
def test_an_idle_link_sends_something_in_each_direction_within_the_check_period(check_period_ms: int) -> None:
    """What drops a connection on which nothing passes finds none: proxies after 60 s, bad NATs after 20 s.

    The sender's period holds at both ends, from the handshake on.
    """
    hello = msgspec.structs.replace(HELLO, check_period_ms=check_period_ms)
    sender = Sender(hello, call_timeout_ms=5_000, now=at(0))
    receiver = new_receiver()
    last = {sender: 0, receiver: 0}
    gaps: dict[Machine[Any], list[int]] = {sender: [], receiver: []}

    def exchange(now_ms: int) -> None:
        passed = True
        while passed:
            passed = False
            for one, other in ((sender, receiver), (receiver, sender)):
                for frame in sent(one):
                    passed = True
                    gaps[one].append(now_ms - last[one])
                    last[one] = now_ms
                    tell(other, frame, ms=now_ms)

    exchange(0)
    receiver.welcome(hello)
    exchange(0)
    for now_ms in range(0, 300_000, 1_000):
        sender.tick(at(now_ms))
        receiver.tick(at(now_ms))
        exchange(now_ms)
    assert LinkState.CLOSED not in (sender.state, receiver.state)
    for one in (sender, receiver):
        assert max(gaps[one]) <= check_period_ms
        assert 300_000 - last[one] <= check_period_ms
