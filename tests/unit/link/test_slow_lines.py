"""Both machines over a line that carries few bytes a second: nobody is given up while bytes move."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from bridge.link.codec import encode
from bridge.link.frames import Close, CloseCode
from bridge.link.limits import LEAST_RATE
from bridge.link.machine import LinkState, Machine
from bridge.link.receiver import Receiver
from bridge.link.receiving import Delivering, Greeted, NodeIdentity, Opening
from bridge.link.room import LinkRoom
from bridge.link.sender import Sender
from bridge.relay.ports import StreamState
from tests.unit.link.helpers import HELLO, OTHER, STREAM, at, batch, sent, stored, ws_frame

MIB = 1024 * 1024
#: Steps of the fake clock.
STEP_MS = 100
#: What the kernels on the way take at once, in bytes: a frame leaves the sender long before it has come.
BUFFER = 64 * MIB


@dataclass
class Way:
    """One direction of a line."""

    rate: int
    #: At the end of each minute nothing passes for so long.
    cut_ms: int = 0
    frames: deque[tuple[bytes, int]] = field(default_factory=deque)
    passed: int = 0

    def send(self, machine: Machine[Any]) -> None:
        """Take what the machine sends now."""
        while (frame := machine.next_frame()) is not None:
            data = encode(frame)
            self.frames.append((data, len(ws_frame(data))))

    def carry(self, machine: Machine[Any], ms: int) -> None:
        """Bring the other machine what passes in a step."""
        budget = self.rate * STEP_MS // 1000 if ms % 60_000 < 60_000 - self.cut_ms else 0
        while budget and self.frames:
            data, size = self.frames[0]
            part = min(budget, size - self.passed)
            machine.arrived(ws_frame(data)[self.passed : self.passed + part], ms)
            self.passed += part
            budget -= part
            if self.passed == size:
                self.frames.popleft()
                self.passed = 0
                machine.receive(data, at(ms))


class Line:
    """A sender, a receiver, and the line between them; the target stores everything at once."""

    def __init__(self, rate: int, cut_ms: int = 0, check_period_ms: int = 30_000) -> None:
        hello = msgspec.structs.replace(HELLO, check_period_ms=check_period_ms)
        self.ms = 0
        self.out, self.back = Way(rate, cut_ms), Way(rate, cut_ms)
        self.sender = Sender(hello, call_timeout_ms=30_000, now=at(0))
        self.room = LinkRoom(256 * MIB)
        identity = NodeIdentity("node-2", "hub", "hub-store", 16 * MIB)
        self.receiver = Receiver(identity, call_timeout_ms=30_000, now=at(0), room=self.room)
        self.stored: list[tuple[str, int]] = []
        self.answers = 0

    def step(self) -> None:
        self.ms += STEP_MS
        self.out.send(self.sender)
        self.back.send(self.receiver)
        self.out.carry(self.receiver, self.ms)
        self.back.carry(self.sender, self.ms)
        self.sender.tick(at(self.ms))
        self.receiver.tick(at(self.ms))
        for event in self.receiver.take_events():
            match event:
                case Greeted(hello):
                    self.receiver.welcome(hello)
                case Opening(index, _):
                    self.receiver.opened(index, StreamState(0))
                case Delivering(number, delivered):
                    self.stored.append((delivered.stream, delivered.upto))
                    stream = STREAM if delivered.stream == STREAM.identity else OTHER
                    self.receiver.delivered(number, stored(delivered.upto, stream))
        self.answers += len(self.sender.take_events())

    def run_until(self, answers: int, within_ms: int) -> None:
        """Go on until the sender has so many answers."""
        until_ms = self.ms + within_ms
        while self.answers < answers and self.ms < until_ms:
            self.step()
            for machine in (self.sender, self.receiver):
                assert machine.state is not LinkState.CLOSED, machine.ending
        assert self.answers == answers

    def open(self) -> None:
        self.run_until(1, 60_000)
        self.sender.open([STREAM], at(self.ms))
        self.run_until(2, 60_000)


@pytest.mark.parametrize(
    ("rate", "cut_ms"),
    [(8_000, 0), (2_000, 0), (2_000, 30_000)],
    ids=["64 kbit/s", "16 kbit/s", "16 kbit/s, cut for half of each minute"],
)
def test_a_batch_that_takes_longer_than_the_ttl_arrives(rate: int, cut_ms: int) -> None:
    line = Line(rate, cut_ms)
    line.open()
    for number in range(2):
        line.sender.deliver([batch(number * 50, number * 50 + 50, body=10_000)])
    line.run_until(4, 4 * 1_000_000 * 1000 // rate)
    assert line.ms > 60_000, "longer than connection-ttl"
    assert [upto for _, upto in line.stored] == [50, 100]
    assert line.room.buffered < 100, "a PONG at most"


def test_an_open_behind_a_batch_waits_as_long_as_the_line_takes_for_it() -> None:
    """`call-timeout` is 30 s; the batch takes 60."""
    line = Line(8_000)
    line.open()
    line.sender.deliver([batch(0, 48, body=10_000)])
    line.step()
    line.sender.open([OTHER], at(line.ms))
    line.run_until(4, 120_000)


def test_an_open_that_was_read_and_is_not_answered_is_overdue_after_call_timeout() -> None:
    line = Line(8_000)
    line.open()
    line.sender.deliver([batch(0, 48, body=10_000)])
    line.step()
    line.sender.open([OTHER], at(line.ms))
    line.receiver.opened = lambda *_: None  # type: ignore[method-assign]
    while line.sender.state is not LinkState.CLOSED:
        line.step()
    assert line.sender.ending is not None
    assert line.sender.ending.detail == "OPEN not answered for 30000 ms (call-timeout)"
    assert 90_000 <= line.ms <= 100_000


def test_a_line_that_breaks_in_the_middle_of_a_batch_is_noticed_by_both_ends_after_the_ttl() -> None:
    line = Line(8_000)
    line.open()
    line.sender.deliver([batch(0, 100, body=10_000)])
    while line.ms < 45_000:
        line.step()
    line.out.rate = line.back.rate = 0
    while line.ms < 85_000:
        line.step()
    assert line.receiver.state is line.sender.state is LinkState.OPEN
    while line.ms < 105_100:
        line.step()
    for machine in (line.sender, line.receiver):
        assert machine.ending is not None
        assert machine.ending.code == CloseCode.SILENT
        assert machine.ending.detail == "the other end sent no byte for 60 s (connection-ttl)"
    assert line.room.buffered == 0


@pytest.mark.parametrize("end", ["sender", "receiver"])
def test_an_end_that_sends_a_byte_now_and_then_is_given_up_with_the_numbers(end: str) -> None:
    line = Line(8_000)
    line.open()
    machine: Machine[Any] = line.sender if end == "sender" else line.receiver
    data = ws_frame(bytes(MIB))
    began_ms = line.ms
    for place in range(200):
        machine.arrived(data[place : place + 1], began_ms + place * 1_000)
        machine.tick(at(began_ms + place * 1_000))
        if machine.state is LinkState.CLOSED:
            break
    assert place == 60
    close = sent(machine)[-1]
    assert isinstance(close, Close)
    assert close.code == CloseCode.TOO_SLOW
    assert close.detail == (
        f"the other end sent 61 bytes in 60 s, fewer than {LEAST_RATE} a second, of a frame that is not whole"
    )
