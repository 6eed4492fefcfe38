"""Notices at both machines: their order, their limits, and that nothing waits for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from bridge.errors import Conflict, TargetRefused
from bridge.link import limits
from bridge.link.batch_frames import receipt_frame, to_frame
from bridge.link.frames import (
    AnyFrame,
    BrokenFrame,
    Close,
    CloseCode,
    Credit,
    Notice,
    Ping,
    Pong,
    StreamOpened,
    name_of,
)
from bridge.link.machine import LinkState, Machine, Noticed
from bridge.link.receiver import Receiver
from tests.unit.link.helpers import (
    HELLO,
    OTHER,
    WELCOME,
    at,
    batch,
    new_receiver,
    new_sender,
    open_receiver,
    open_sender,
    raw,
    sent,
    stored,
    tell,
    welcomed_sender,
)

Make = Callable[[], Machine[Any]]
both = pytest.mark.parametrize("make", [open_sender, open_receiver])


def names(frames: list[AnyFrame]) -> list[str]:
    return [name_of(frame) for frame in frames]


def stopping() -> Receiver:
    """A receiver that is to stop, and has a batch at its target."""
    receiver = open_receiver()
    tell(receiver, to_frame(batch(0, 1), 0, 0))
    receiver.take_events()
    receiver.stop("the node is going down")
    assert receiver.state is LinkState.STOPPING
    return receiver


def ended() -> Machine[Any]:
    machine = open_sender()
    machine.lost("cut")
    return machine


@both
def test_a_notice_leaves_as_it_is_and_one_that_comes_is_handed_on(make: Make) -> None:
    machine = make()
    assert machine.notify(b"\x00 anything")
    assert sent(machine) == [Notice(b"\x00 anything")]
    tell(machine, Notice(b"a"), Notice(b""))
    assert machine.take_events() == [Noticed(b"a"), Noticed(b"")]
    assert machine.may_read
    assert machine.state is LinkState.OPEN


@both
def test_notices_leave_in_order_behind_control_frames(make: Make) -> None:
    machine = make()
    assert machine.notify(b"1")
    assert machine.notify(b"2")
    tell(machine, Ping(7, 7))
    pong, *notices = sent(machine)
    assert isinstance(pong, Pong)
    assert notices == [Notice(b"1"), Notice(b"2")]


@both
def test_so_many_wait_to_leave_and_no_more(make: Make) -> None:
    machine = make()
    bodies = [b"%d" % number for number in range(limits.NOTICES_MOST)]
    assert all(map(machine.notify, bodies))
    assert not machine.notify(b"one more")
    assert machine.may_read, "the other end may be waiting with frames of its own"
    assert machine.next_frame() == Notice(b"0")
    assert machine.notify(b"again")
    assert sent(machine) == [Notice(body) for body in [*bodies[1:], b"again"]]


@both
def test_a_notice_that_is_too_large_is_not_sent_and_closes_where_it_comes(make: Make) -> None:
    machine = make()
    assert machine.notify(bytes(limits.NOTICE_MOST))
    with pytest.raises(BrokenFrame, match=r"NOTICE\.body: length 0 to 49152; found 49153"):
        machine.notify(bytes(limits.NOTICE_MOST + 1))
    assert machine.state is LinkState.OPEN
    machine.receive(raw("NOTICE", bytes(limits.NOTICE_MOST + 1)), at(0))
    assert sent(machine) == [Close("PROTOCOL", "NOTICE.body: length 0 to 49152; found 49153")]
    assert machine.take_events() == []


@pytest.mark.parametrize("make", [new_sender, new_receiver, stopping, ended])
def test_nothing_is_said_on_a_link_that_is_not_open(make: Make) -> None:
    machine = make()
    sent(machine)
    assert not machine.notify(b"a")
    assert sent(machine) == []


@pytest.mark.parametrize("deciding", [False, True])
@pytest.mark.parametrize("make", [new_sender, new_receiver])
def test_a_notice_before_the_handshake_is_over_is_out_of_turn(make: Make, deciding: bool) -> None:
    machine = make()
    sent(machine)
    if deciding and isinstance(machine, Receiver):
        tell(machine, HELLO)
        machine.take_events()
    tell(machine, Notice(b"a"))
    assert machine.take_events() == []
    (close,) = sent(machine)
    assert isinstance(close, Close)
    assert close.code == CloseCode.PROTOCOL
    assert close.detail.startswith("NOTICE is not allowed here in state ")


def test_a_receiver_that_stops_ignores_what_comes() -> None:
    receiver = stopping()
    tell(receiver, Notice(b"a"))
    assert receiver.take_events() == []
    receiver.delivered(0, stored(1))
    assert names(sent(receiver)) == ["RECEIPT", "CREDIT", "CLOSE"]


@both
@pytest.mark.parametrize("code", [CloseCode.GOODBYE, CloseCode.STOPPING])
def test_what_waits_leaves_before_an_end_in_peace(make: Make, code: CloseCode) -> None:
    machine = make()
    machine.notify(b"last word")
    machine.close(code, "")
    assert sent(machine) == [Notice(b"last word"), Close(code)]


@both
def test_what_waits_is_dropped_at_every_other_end(make: Make) -> None:
    def failed(machine: Machine[Any]) -> None:
        machine.fail(Conflict("twice"))

    def heard(machine: Machine[Any]) -> None:
        tell(machine, Close("GOODBYE"))

    ends: list[tuple[Callable[[Machine[Any]], None], list[AnyFrame]]] = [
        (failed, [Close("CONFLICT", "twice")]),
        (lambda machine: machine.fail(TargetRefused("no")), [Close("TARGET_REFUSED", "no", permanent=True)]),
        (lambda machine: machine.lost("cut"), []),
        (heard, []),
    ]
    for end, frames in ends:
        machine = make()
        machine.notify(b"a")
        end(machine)
        assert sent(machine) == frames


def test_notices_and_batches_leave_by_turns() -> None:
    sender = open_sender()
    sender.deliver([batch(number, number + 1) for number in range(4)])
    for number in range(6):
        assert sender.notify(b"%d" % number)
    assert names(sent(sender)) == ["NOTICE", "BATCH"] * 4 + ["NOTICE"] * 2


def test_notices_that_keep_coming_hold_up_no_batch() -> None:
    sender = open_sender()
    sender.deliver([batch(number, number + 1) for number in range(20)])
    left: list[AnyFrame] = []
    while names(left).count("BATCH") < 20:
        while sender.notify(b"more"):
            pass
        frame = sender.next_frame()
        assert frame is not None
        left.append(frame)
    assert len(left) == 40


def test_notices_cost_no_credit_and_leave_while_batches_wait_for_it() -> None:
    welcome = msgspec.structs.replace(WELCOME, credit=30)
    sender = open_sender(welcome=welcome)
    sender.deliver([batch(0, 1), batch(1, 2)])
    assert names(sent(sender)) == ["BATCH"]
    for number in range(10):
        assert sender.notify(bytes(limits.NOTICE_MOST)), number
    assert names(sent(sender)) == ["NOTICE"] * 10
    tell(sender, receipt_frame(stored(1), 0), Credit(30))
    assert names(sent(sender)) == ["BATCH"]


def test_notices_leave_while_a_stream_is_opened() -> None:
    sender = open_sender()
    sender.open([OTHER], at(0))
    sender.deliver([batch(0, 1, stream=OTHER)])
    sender.notify(b"a")
    assert names(sent(sender)) == ["OPEN", "NOTICE"]
    tell(sender, StreamOpened(1, 0))
    assert names(sent(sender)) == ["BATCH"]


def test_notices_that_come_give_and_take_no_credit() -> None:
    receiver = open_receiver()
    for _ in range(100):
        tell(receiver, Notice(bytes(limits.NOTICE_MOST)))
        assert len(receiver.take_events()) == 1
    assert sent(receiver) == []
    tell(receiver, to_frame(batch(0, 1), 0, 0))
    receiver.take_events()
    receiver.delivered(0, stored(1))
    assert names(sent(receiver)) == ["RECEIPT", "CREDIT"]


def test_a_sender_may_speak_as_soon_as_it_is_welcome() -> None:
    sender = welcomed_sender()
    assert sender.notify(b"a")
    assert sent(sender) == [Notice(b"a")]
