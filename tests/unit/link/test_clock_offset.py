"""The offset of two clocks, from pings and pongs, and what the sending end does with it."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.link.batch_frames import receipt_frame
from bridge.link.clock_offset import MEASURE_INTERVAL_MS, SAMPLES, ClockOffset
from bridge.link.frames import AnyFrame, Ping, Pong
from bridge.link.pending_requests import Answered
from bridge.link.sender import Sender
from tests.unit.link.helpers import at, batch, open_sender, sent, stored, tell


def pings(sender: Sender) -> list[Ping]:
    return [frame for frame in sent(sender) if isinstance(frame, Ping)]


def answer(ping: AnyFrame, ahead_ms: int, there_ms: int) -> Pong:
    """The answer of a clock that is ahead, which the ping reached after `there_ms`."""
    assert isinstance(ping, Ping)
    return Pong(ping.number, ping.sent, ping.sent + there_ms + ahead_ms)


def offset_of(events: Sequence[object]) -> int | None:
    (event,) = events
    assert isinstance(event, Answered)
    assert isinstance(event.answer, tuple)
    (receipt,) = event.answer
    return receipt.clock_offset_ms


def test_of_many_samples_the_one_that_came_back_soonest_counts() -> None:
    offset = ClockOffset()
    assert offset.best is None
    offset.answered(1_000, 100, 1_095 + 40)  # 95 ms there, 5 back: 45 ms wrong
    offset.answered(2_000, 4, 2_002 + 40)
    offset.answered(3_000, 60, 3_001 + 40)
    assert offset.best == (4, 40.0)


def test_of_equally_good_samples_the_newest_counts_and_old_ones_are_forgotten() -> None:
    offset = ClockOffset()
    offset.answered(0, 2, 1)
    offset.answered(0, 2, 8)
    assert offset.best == (2, 7.0)
    for _ in range(SAMPLES):
        offset.answered(0, 10, 105)
    assert offset.best == (10, 100.0)


def test_receipts_carry_the_offset_that_was_measured_as_the_streams_were_opened() -> None:
    sender = open_sender()
    sender.deliver([batch(0, 1)])
    sent(sender)
    tell(sender, Pong(1, at(0).epoch_ms, at(0).epoch_ms + 10 - 5_000), ms=20)
    tell(sender, receipt_frame(stored(1), 0), ms=21)
    assert offset_of(sender.take_events()) == -5_000


def test_a_receipt_that_comes_before_any_pong_carries_none() -> None:
    sender = open_sender()
    sender.deliver([batch(0, 1)])
    sent(sender)
    tell(sender, receipt_frame(stored(1), 0), ms=5)
    assert offset_of(sender.take_events()) is None


def test_the_clocks_are_compared_again_while_the_link_is_in_use() -> None:
    sender = open_sender()
    for number, (ms, pinged) in enumerate(
        [(1, 0), (MEASURE_INTERVAL_MS - 1, 0), (MEASURE_INTERVAL_MS, 1), (MEASURE_INTERVAL_MS + 1, 0)]
    ):
        sender.deliver([batch(number, number + 1)])
        sent(sender)
        tell(sender, receipt_frame(stored(number + 1), number), ms=ms)
        assert len(pings(sender)) == pinged, ms


def test_a_ping_that_was_answered_late_does_not_replace_a_better_sample() -> None:
    sender = open_sender()
    tell(sender, Pong(1, at(0).epoch_ms, at(0).epoch_ms + 1 + 300), ms=2)
    assert (sender.round_trip_ms, sender.clock_offset_ms) == (2, 300)
    sender.deliver([batch(0, 1)])
    sent(sender)
    tell(sender, receipt_frame(stored(1), 0), ms=MEASURE_INTERVAL_MS)
    (ping,) = pings(sender)
    tell(sender, answer(ping, 300, 90), ms=MEASURE_INTERVAL_MS + 100)
    assert (sender.round_trip_ms, sender.clock_offset_ms) == (2, 300)
