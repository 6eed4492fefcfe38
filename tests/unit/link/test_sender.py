"""The sending end: one scenario a test, frames in and frames out, no socket and no clock but the tests'."""

from __future__ import annotations

import msgspec
import pytest

from bridge.errors import BridgeError, Fenced, OutOfSequence, TargetRefused, TargetStopping, TargetUnavailable
from bridge.link import limits
from bridge.link.batch_frames import receipt_frame
from bridge.link.frames import (
    AnyFrame,
    BatchFrame,
    Close,
    CloseCode,
    Credit,
    OpenStream,
    Ping,
    Pong,
    ReceiptFrame,
    StreamOpened,
)
from bridge.link.machine import LinkState
from bridge.link.pending_requests import GREETING, Answered
from bridge.link.sender import Sender
from bridge.messages.batch import Batch
from bridge.messages.block import encode_message, pack
from bridge.messages.message import Message
from bridge.relay.ports import Opened, Receipt, StreamState
from dedup.verdict import Verdict
from tests.unit.link.helpers import (
    HELLO,
    KIB,
    OTHER,
    STREAM,
    WELCOME,
    at,
    batch,
    coverage,
    new_sender,
    not_now,
    open_sender,
    refused,
    sent,
    stored,
    tell,
    welcomed_sender,
)


def numbers(frames: list[AnyFrame]) -> list[int]:
    """The numbers of the batches among the frames."""
    return [frame.number for frame in frames if isinstance(frame, BatchFrame)]


def receipts(sender: Sender) -> list[Receipt]:
    """The receipts that callers got, in the order they got them."""
    answers = [event.answer for event in sender.take_events() if isinstance(event, Answered)]
    return [receipt for answer in answers if isinstance(answer, tuple) for receipt in answer]


def verdicts(sender: Sender) -> list[Verdict]:
    return [receipt.verdict for receipt in receipts(sender)]


def test_hello_leaves_first_and_welcome_answers_the_handshake() -> None:
    sender = new_sender()
    assert sent(sender) == [HELLO]
    tell(sender, WELCOME)
    assert sender.take_events() == [Answered(GREETING, WELCOME)]
    assert sender.state is LinkState.OPEN
    assert sender.largest_sent == WELCOME.max_frame_size


def test_a_handshake_without_an_answer_ends_at_the_call_timeout() -> None:
    sender = new_sender(call_timeout_ms=5_000)
    sent(sender)
    assert sender.deadline_ms() == 5_000
    sender.tick(at(4_999))
    assert sender.state is LinkState.GREETING
    sender.tick(at(5_000))
    assert str(sender.error()) == "TIMEOUT: HELLO not answered for 5000 ms (call-timeout)"


def test_a_call_timeout_of_minus_one_is_never() -> None:
    sender = new_sender(call_timeout_ms=-1)
    sender.tick(at(10**12))
    assert sender.state is LinkState.GREETING


def test_a_welcome_of_another_version_is_refused_with_both_versions() -> None:
    sender = new_sender()
    sent(sender)
    tell(sender, msgspec.structs.replace(WELCOME, version=2))
    detail = "this node speaks version 1; found version 2"
    assert sent(sender) == [Close(CloseCode.VERSION, detail, permanent=True)]
    assert isinstance(sender.error(), TargetRefused)


def test_a_ping_during_the_handshake_is_answered() -> None:
    sender = new_sender()
    sent(sender)
    tell(sender, Ping(1, 5))
    assert sent(sender) == [Pong(1, 5, 1_000_000)]


def test_streams_get_their_index_in_the_order_of_their_first_open_and_keep_it() -> None:
    sender = welcomed_sender()
    sender.open([STREAM, OTHER], at(0))
    assert sent(sender) == [
        OpenStream(0, STREAM.identity, "orders", "orders.eu", "run-1"),
        OpenStream(1, OTHER.identity, "invoices", "invoices", "run-1"),
    ]
    sender.open([OTHER], at(0))
    assert sent(sender) == [OpenStream(1, OTHER.identity, "invoices", "invoices", "run-1")]


def test_open_is_answered_when_every_stream_is_in_any_order() -> None:
    sender = welcomed_sender()
    ticket = sender.open([STREAM, OTHER], at(0))
    tell(sender, StreamOpened(1, None))
    assert sender.take_events() == []
    tell(sender, StreamOpened(0, 42, "run-0", 7, 3))
    states = {OTHER.identity: StreamState(None), STREAM.identity: StreamState(42, "run-0", 7, 3)}
    assert sender.take_events() == [Answered(ticket, Opened("hub-store", states))]


def test_an_open_without_an_answer_ends_the_link_at_the_call_timeout() -> None:
    sender = welcomed_sender()
    sender.open([STREAM], at(1_000))
    assert sender.deadline_ms() == 6_000
    sender.tick(at(6_000))
    assert str(sender.error()) == "TIMEOUT: OPEN not answered for 5000 ms (call-timeout)"


def test_batches_leave_numbered_in_call_order_and_each_call_gets_its_receipts() -> None:
    sender = open_sender()
    first, second = sender.deliver([batch(0, 2), batch(2, 3)]), sender.deliver([batch(3, 5)])
    frames = sent(sender)
    assert numbers(frames) == [0, 1, 2]
    tell(sender, receipt_frame(stored(2), 0))
    assert sender.take_events() == []
    tell(sender, receipt_frame(stored(3), 1), receipt_frame(stored(5), 2))
    assert sender.take_events() == [
        Answered(first, (stored(2), stored(3))),
        Answered(second, (stored(5),)),
    ]


def test_a_receipt_out_of_order_is_a_broken_link() -> None:
    sender = open_sender()
    sender.deliver([batch(0, 1), batch(1, 2)])
    sent(sender)
    tell(sender, receipt_frame(stored(2), 1))
    assert str(sender.error()) == "PROTOCOL: RECEIPT.number: expected 0; found 1"


def test_a_receipt_for_nothing_is_a_broken_link() -> None:
    sender = open_sender()
    tell(sender, receipt_frame(stored(2), 0))
    assert str(sender.error()) == "PROTOCOL: RECEIPT.number: expected None; found 0"


@pytest.mark.parametrize("index", [0, 1])
def test_an_opened_that_nobody_waits_for_is_a_broken_link(index: int) -> None:
    sender = open_sender()
    tell(sender, StreamOpened(index, 0))
    assert str(sender.error()) == f"PROTOCOL: OPENED of stream {index}, for which no OPEN waits"


def test_batches_wait_for_credit_and_leave_with_it() -> None:
    sender = open_sender()
    for position in range(12):
        sender.deliver([batch(position, position + 1, body=KIB)])
    # Credit is 10 KiB, and each batch has a few bytes more than 1 KiB.
    lacks_credit = [sender.lacks_credit]
    assert numbers(sent(sender)) == list(range(9))
    lacks_credit.append(sender.lacks_credit)
    tell(sender, receipt_frame(stored(1), 0))
    assert sent(sender) == [], "a receipt is no credit"
    tell(sender, Credit(4 * KIB))
    assert numbers(sent(sender)) == [9, 10, 11]
    assert [*lacks_credit, sender.lacks_credit] == [False, True, False]


def test_a_batch_above_the_whole_credit_leaves_when_nothing_is_in_flight() -> None:
    sender = open_sender()
    sender.deliver([batch(0, 1), batch(1, 2, body=100 * KIB), batch(2, 3)])
    assert numbers(sent(sender)) == [0]
    tell(sender, receipt_frame(stored(1), 0))
    assert numbers(sent(sender)) == [1], "alone: what follows waits for its receipt"
    tell(sender, receipt_frame(stored(2), 1))
    assert numbers(sent(sender)) == [2]


def test_coverage_alone_needs_no_credit_but_the_number_of_batches_is_limited() -> None:
    sender = open_sender()
    sender.deliver([coverage(position, position + 1) for position in range(limits.UNANSWERED_MOST + 5)])
    assert len(sent(sender)) == limits.UNANSWERED_MOST
    tell(sender, ReceiptFrame(0, Verdict.STORED, 1))
    assert numbers(sent(sender)) == [limits.UNANSWERED_MOST]


def test_a_pong_does_not_wait_behind_batches() -> None:
    sender = open_sender()
    sender.deliver([batch(0, 1)])
    tell(sender, Ping(1, 2))
    assert [type(frame) for frame in sent(sender)] == [Pong, BatchFrame]


@pytest.mark.parametrize("verdict", [not_now(0), refused(0, 0)], ids=["not-now", "refused"])
def test_nothing_behind_a_batch_that_was_not_taken_is_sent_until_the_stream_is_opened_again(
    verdict: Receipt,
) -> None:
    sender = open_sender()
    sender.deliver([batch(0, 1, body=9 * KIB)])
    sender.deliver([batch(1, 2, body=9 * KIB)])
    assert numbers(sent(sender)) == [0]
    tell(sender, receipt_frame(verdict, 0), Credit(9 * KIB))
    assert sent(sender) == []
    sender.deliver([batch(2, 3)])
    assert sent(sender) == []
    assert verdicts(sender) == [verdict.verdict, Verdict.NOT_NOW, Verdict.NOT_NOW]
    sender.open([STREAM], at(0))
    sender.deliver([batch(0, 1)])
    assert [type(frame) for frame in sent(sender)] == [OpenStream], "the batch waits for OPENED"
    tell(sender, StreamOpened(0, 0))
    assert numbers(sent(sender)) == [1]


def test_a_halted_stream_does_not_hold_up_another() -> None:
    sender = open_sender(STREAM, OTHER)
    sender.deliver([batch(0, 1)])
    sent(sender)
    tell(sender, receipt_frame(not_now(0), 0))
    sender.deliver([batch(1, 2), batch(0, 1, stream=OTHER)])
    (frame,) = sent(sender)
    assert isinstance(frame, BatchFrame)
    assert frame.index == 1


def test_what_waited_when_its_stream_was_opened_again_is_never_sent() -> None:
    sender = open_sender()
    sender.deliver([batch(0, 1, body=9 * KIB), batch(1, 2, body=9 * KIB)])
    assert numbers(sent(sender)) == [0]
    sender.open([STREAM], at(0))
    assert [type(frame) for frame in sent(sender)] == [OpenStream, Ping], "it may be read much later"
    tell(sender, receipt_frame(stored(1), 0), StreamOpened(0, 1))
    assert sent(sender) == []
    assert verdicts(sender) == [Verdict.STORED, Verdict.NOT_NOW]


def test_an_old_not_now_does_not_halt_the_stream_that_was_opened_since() -> None:
    sender = open_sender()
    sender.deliver([batch(0, 1)])
    sent(sender)
    sender.open([STREAM], at(0))
    sent(sender)
    sender.deliver([batch(0, 1)])
    tell(sender, receipt_frame(not_now(0), 0))
    assert sent(sender) == []
    tell(sender, StreamOpened(0, 0))
    assert numbers(sent(sender)) == [1]


def test_two_opens_of_a_stream_are_answered_in_order_and_batches_wait_for_the_second() -> None:
    sender = welcomed_sender()
    first, second = sender.open([STREAM], at(0)), sender.open([STREAM], at(0))
    sender.deliver([batch(3, 4)])
    assert [type(frame) for frame in sent(sender)] == [OpenStream, OpenStream]
    tell(sender, StreamOpened(0, 2))
    assert [type(frame) for frame in sent(sender)] == [Ping]
    tell(sender, StreamOpened(0, 3))
    answered = [event for event in sender.take_events() if isinstance(event, Answered)]
    assert [event.ticket for event in answered] == [first, second]
    assert numbers(sent(sender)) == [0]


def large_batch() -> Batch:
    """Positions 1 to 3, of which 2 is above what SMALL takes."""
    encoded = [encode_message(Message(b"x" * size)) for size in (10, 200 * KIB, 10)]
    return Batch(STREAM.identity, 1, 4, ((1, 3),), pack(encoded))


SMALL = msgspec.structs.replace(WELCOME, max_message_size=100 * KIB)


def test_a_message_above_what_the_target_takes_is_refused_without_being_sent() -> None:
    sender = open_sender(welcome=SMALL)
    sender.deliver([batch(0, 1), large_batch(), batch(4, 5)])
    assert numbers(sent(sender)) == [0]
    assert verdicts(sender) == [], "in order: the first has no receipt yet"
    tell(sender, receipt_frame(stored(1), 0))
    first, second, third = receipts(sender)
    assert first == stored(1)
    assert (second.verdict, second.position, second.next) == (Verdict.REFUSED, 2, 1)
    assert second.reason.startswith(f"MESSAGE_TOO_LARGE: the target takes {164 * KIB} bytes encoded; found")
    assert third.verdict is Verdict.NOT_NOW
    assert sent(sender) == []


def test_a_message_too_large_behind_a_batch_that_was_not_taken_is_not_refused_yet() -> None:
    sender = open_sender(welcome=SMALL)
    sender.deliver([batch(0, 1), large_batch()])
    sent(sender)
    tell(sender, receipt_frame(not_now(0), 0))
    assert verdicts(sender) == [Verdict.NOT_NOW, Verdict.NOT_NOW]


@pytest.mark.parametrize(
    ("close", "error"),
    [
        (Close("OUT_OF_SEQUENCE", "from 5 beyond next 3"), OutOfSequence),
        (Close("FENCED", "epoch 3; this one has 2"), Fenced),
        (Close("STOPPING", ""), TargetStopping),
        (Close("A_CODE_OF_LATER", "x"), TargetUnavailable),
        (Close("TARGET_REFUSED", "no such bridge", permanent=True), TargetRefused),
    ],
)
def test_what_the_other_end_closed_with_is_what_callers_get(close: Close, error: type[BridgeError]) -> None:
    sender = open_sender()
    tell(sender, close)
    assert type(sender.error()) is error
    assert close.detail in str(sender.error())
    with pytest.raises(error):
        sender.deliver([batch(0, 1)])
    with pytest.raises(error):
        sender.open([STREAM], at(0))


def test_a_stream_that_is_not_open_on_this_link_cannot_be_delivered_to() -> None:
    sender = open_sender()
    with pytest.raises(TargetUnavailable, match="is not open on this link"):
        sender.deliver([batch(0, 1), batch(0, 1, stream=OTHER)])
    assert sent(sender) == [], "nothing of the call was taken"


def test_nothing_waits_to_be_sent_on_a_closed_link() -> None:
    sender = open_sender()
    sender.deliver([batch(0, 1)])
    sender.close(CloseCode.GOODBYE, "")
    assert sent(sender) == [Close("GOODBYE")]
