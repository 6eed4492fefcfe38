"""The receiving end: one scenario a test, frames in and frames out, no socket and no clock but the tests'."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from bridge.errors import BridgeError, DiskFull, Fenced, OutOfSequence, TargetRefused, TargetUnavailable
from bridge.link import limits
from bridge.link.batch_frames import receipt_frame, to_frame
from bridge.link.codec import encode
from bridge.link.frames import (
    AnyFrame,
    BatchFrame,
    Close,
    CloseCode,
    Credit,
    OpenStream,
    Ping,
    Pong,
    StreamOpened,
    Welcome,
)
from bridge.link.machine import Ending, LinkState
from bridge.link.receiver import Receiver
from bridge.link.receiving import Delivering, Greeted, Opening
from bridge.link.room import LinkRoom
from bridge.messages.batch import Batch
from bridge.messages.stream_names import LETTERS
from bridge.relay.ports import Receipt, Stream, StreamState
from dedup.verdict import Verdict
from tests.unit.link.helpers import (
    HELLO,
    IDENTITY,
    KIB,
    OTHER,
    STREAM,
    WELCOME,
    at,
    batch,
    coverage,
    new_receiver,
    not_now,
    open_receiver,
    refused,
    sent,
    stored,
    tell,
    ws_frame,
)

OPEN = OpenStream(0, STREAM.identity, STREAM.address, STREAM.target_address, STREAM.run)


def handed(receiver: Receiver) -> list[int]:
    """The numbers of the batches that go to the target now."""
    return [event.number for event in receiver.take_events() if isinstance(event, Delivering)]


def verdicts(frames: list[AnyFrame]) -> list[Verdict]:
    return [frame.verdict for frame in frames if hasattr(frame, "verdict")]


def frame(number: int, sent_batch: Batch, index: int = 0) -> BatchFrame:
    return to_frame(sent_batch, number, index)


def three_at_the_target() -> Receiver:
    """Positions 0, 1, 2 in a batch each, all of them with the target."""
    receiver = open_receiver()
    tell(receiver, *(frame(number, batch(number, number + 1)) for number in range(3)))
    assert handed(receiver) == [0, 1, 2]
    return receiver


def test_hello_is_handed_on_and_welcome_says_who_answers_and_what_it_takes() -> None:
    receiver = new_receiver()
    tell(receiver, HELLO)
    assert receiver.take_events() == [Greeted(HELLO)]
    assert sent(receiver) == [], "the target is looked for first"
    receiver.welcome(HELLO)
    assert sent(receiver) == [WELCOME]


def test_a_hello_of_another_version_is_answered_with_both_versions() -> None:
    receiver = new_receiver()
    tell(receiver, msgspec.structs.replace(HELLO, version=2))
    detail = "this node speaks version 1; found version 2"
    assert sent(receiver) == [Close(CloseCode.VERSION, detail, permanent=True)]
    assert receiver.take_events() == []


def test_a_connection_that_never_says_hello_ends_at_the_call_timeout() -> None:
    receiver = new_receiver()
    assert receiver.deadline_ms() == 5_000
    receiver.tick(at(5_000))
    assert sent(receiver) == [Close(CloseCode.TIMEOUT, "no HELLO for 5000 ms")]


@pytest.mark.parametrize(
    ("error", "close"),
    [
        (TargetRefused("no such bridge"), Close("TARGET_REFUSED", "no such bridge", permanent=True)),
        (TargetUnavailable("starting"), Close("TARGET_UNAVAILABLE", "starting")),
        (DiskFull("no room"), Close("DISK_FULL", "no room")),
    ],
)
def test_a_target_that_cannot_be_had_closes_with_its_reason(error: BridgeError, close: Close) -> None:
    receiver = new_receiver()
    tell(receiver, HELLO)
    receiver.fail(error)
    assert sent(receiver) == [close]
    receiver.welcome(HELLO)
    assert sent(receiver) == [], "too late"


def test_an_open_is_asked_of_the_target_and_its_word_sent() -> None:
    receiver = new_receiver()
    tell(receiver, HELLO)
    receiver.take_events()
    receiver.welcome(HELLO)
    sent(receiver)
    tell(receiver, OPEN)
    assert receiver.take_events() == [Opening(0, STREAM)]
    receiver.opened(0, StreamState(42, "run-0", 7, 3))
    assert sent(receiver) == [StreamOpened(0, 42, "run-0", 7, 3)]


def test_batches_go_to_the_target_before_the_first_is_done_and_in_order() -> None:
    receiver = open_receiver()
    tell(receiver, frame(0, batch(0, 1)), frame(1, batch(1, 2)))
    assert receiver.take_events() == [Delivering(0, batch(0, 1)), Delivering(1, batch(1, 2))]


def test_at_most_so_many_are_at_the_target_at_once() -> None:
    receiver = open_receiver()
    most = limits.DELIVERIES_MOST
    tell(receiver, *(frame(number, coverage(number, number + 1)) for number in range(most + 2)))
    assert handed(receiver) == list(range(most))
    receiver.delivered(3, stored(4))
    assert handed(receiver) == [most]


def test_receipts_leave_in_the_order_of_the_batches() -> None:
    receiver = three_at_the_target()
    receiver.delivered(2, stored(3))
    receiver.delivered(1, stored(2))
    assert sent(receiver) == []
    receiver.delivered(0, stored(1))
    numbers = [answer.number for answer in sent(receiver) if hasattr(answer, "number")]
    assert numbers == [0, 1, 2]


@pytest.mark.parametrize("untaken", [not_now(0), refused(0, 0)], ids=["not-now", "refused"])
def test_every_later_batch_of_the_stream_is_not_now_whatever_the_target_said(untaken: Receipt) -> None:
    receiver = three_at_the_target()
    receiver.delivered(1, OutOfSequence("from 1 beyond next 0"))
    receiver.delivered(2, stored(3))
    receiver.delivered(0, untaken)
    frames = sent(receiver)
    assert verdicts(frames) == [untaken.verdict, Verdict.NOT_NOW, Verdict.NOT_NOW]
    assert receiver.state is LinkState.OPEN
    tell(receiver, frame(3, batch(3, 4)))
    assert handed(receiver) == [], "the target never sees it"
    assert verdicts(sent(receiver)) == [Verdict.NOT_NOW]


def test_what_waited_behind_a_batch_that_was_not_taken_never_reaches_the_target() -> None:
    receiver = open_receiver()
    most = limits.DELIVERIES_MOST
    tell(receiver, *(frame(number, coverage(number, number + 1)) for number in range(most + 3)))
    handed(receiver)
    receiver.delivered(0, not_now(0))
    assert handed(receiver) == []
    for number in range(1, most):
        receiver.delivered(number, OutOfSequence("behind"))
    assert handed(receiver) == []
    assert verdicts(sent(receiver)) == [Verdict.NOT_NOW] * (most + 3)


def test_a_halted_stream_flows_again_after_its_open() -> None:
    receiver = three_at_the_target()
    receiver.delivered(0, not_now(0))
    tell(receiver, OPEN)
    assert receiver.take_events() == [], "two batches before the OPEN have no answer yet"
    receiver.delivered(1, OutOfSequence("behind"))
    receiver.delivered(2, OutOfSequence("behind"))
    assert receiver.take_events() == [Opening(0, STREAM)]
    receiver.opened(0, StreamState(0))
    assert verdicts(sent(receiver)) == [Verdict.NOT_NOW] * 3
    tell(receiver, frame(3, batch(0, 1)))
    assert handed(receiver) == [3]


def test_a_halted_stream_does_not_halt_another() -> None:
    receiver = open_receiver(STREAM, OTHER)
    tell(receiver, frame(0, batch(0, 1)), frame(1, batch(0, 1, stream=OTHER), index=1))
    handed(receiver)
    receiver.delivered(0, not_now(0))
    receiver.delivered(1, stored(1, OTHER))
    assert verdicts(sent(receiver)) == [Verdict.NOT_NOW, Verdict.STORED]


@pytest.mark.parametrize(
    "error",
    [
        OutOfSequence("from 5 beyond next 1"),
        Fenced("epoch 2"),
        TargetUnavailable("gone"),
        DiskFull("no room"),
    ],
)
def test_a_target_that_fails_closes_after_the_receipts_before_it(error: BridgeError) -> None:
    receiver = three_at_the_target()
    receiver.delivered(1, error)
    assert receiver.state is LinkState.OPEN, "the first is not answered yet"
    receiver.delivered(0, stored(1))
    receipt, *_, close = sent(receiver)
    assert receipt == receipt_frame(stored(1), 0)
    assert close == Close(error.code, error.detail)
    receiver.delivered(2, stored(3))
    receiver.opened(0, StreamState(3))
    assert sent(receiver) == [], "nothing is said after the end"


def test_fencing_is_not_hidden_by_a_halt() -> None:
    receiver = three_at_the_target()
    receiver.delivered(0, not_now(0))
    receiver.delivered(1, Fenced("epoch 2"))
    assert sent(receiver)[-1] == Close("FENCED", "epoch 2")


def test_credit_comes_back_in_steps_of_the_producer_window() -> None:
    receiver = open_receiver()
    sizes = []
    for number in range(4):
        covered = batch(number, number + 1, body=400)
        sizes.append(covered.size)
        tell(receiver, frame(number, covered))
    handed(receiver)
    granted = []
    for number in range(4):
        receiver.delivered(number, stored(number + 1))
        granted.append([answer.bytes for answer in sent(receiver) if isinstance(answer, Credit)])
    # HELLO's producer window is 1 KiB: three batches of some 400 bytes; the last comes back alone,
    # because nothing else will bring it back.
    assert granted == [[], [], [sum(sizes[:3])], [sizes[3]]]


def test_credit_that_came_back_counts_again() -> None:
    receiver = open_receiver()
    tell(receiver, frame(0, batch(0, 1, body=9 * KIB)))
    handed(receiver)
    receiver.delivered(0, stored(1))
    tell(receiver, frame(1, batch(1, 2)), frame(2, batch(2, 3, body=9 * KIB)))
    assert handed(receiver) == [1, 2]


def test_credit_is_as_large_as_the_senders_window() -> None:
    """A far line is filled: `confirmation-window-size` does what it says."""
    receiver = open_receiver(room=LinkRoom(1024 * KIB), hello=msgspec.structs.replace(HELLO, window=64 * KIB))
    tell(receiver, *(frame(number, batch(number, number + 1, body=20 * KIB)) for number in range(3)))
    assert handed(receiver) == [0, 1, 2]


def test_credit_is_never_larger_than_the_memory_of_all_links() -> None:
    receiver = Receiver(IDENTITY, call_timeout_ms=30_000, now=at(0), room=LinkRoom(40 * KIB))
    hello = msgspec.structs.replace(HELLO, window=64 * KIB)
    tell(receiver, hello)
    receiver.welcome(hello)
    (welcome,) = (answer for answer in sent(receiver) if isinstance(answer, Welcome))
    assert welcome.credit == 40 * KIB


@pytest.mark.parametrize("window", [0, 5 * KIB])
def test_credit_of_a_sender_with_a_small_window_is_the_nodes(window: int) -> None:
    receiver = Receiver(IDENTITY, call_timeout_ms=30_000, now=at(0))
    hello = msgspec.structs.replace(HELLO, window=window)
    tell(receiver, hello)
    receiver.welcome(hello)
    (welcome,) = (answer for answer in sent(receiver) if isinstance(answer, Welcome))
    assert welcome.credit == IDENTITY.credit


def test_a_sender_above_its_credit_is_cut_off() -> None:
    receiver = open_receiver()
    tell(receiver, frame(0, batch(0, 1)), frame(1, batch(1, 2, body=11 * KIB)))
    credit = IDENTITY.credit - batch(0, 1).size
    size = batch(1, 2, body=11 * KIB).size
    assert sent(receiver) == [Close("PROTOCOL", f"BATCH: credit for {credit} bytes; found {size}")]


def test_a_batch_above_the_whole_credit_is_taken_when_nothing_is_unanswered() -> None:
    receiver = open_receiver()
    tell(receiver, frame(0, batch(0, 1, body=100 * KIB)))
    assert handed(receiver) == [0]


def test_too_many_unanswered_batches_are_cut_off_whatever_their_size() -> None:
    receiver = open_receiver()
    most = limits.UNANSWERED_MOST
    tell(receiver, *(frame(number, coverage(number, number + 1)) for number in range(most)))
    assert receiver.state is LinkState.OPEN
    tell(receiver, frame(most, coverage(most, most + 1)))
    assert sent(receiver)[-1] == Close("PROTOCOL", f"BATCH: at most {most} unanswered; found one more")


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (frame(1, batch(0, 1)), "BATCH.number: expected 0; found 1"),
        (frame(0, batch(0, 1), index=1), "BATCH.index: below 1 expected; found 1"),
        (
            msgspec.structs.replace(frame(0, batch(0, 1)), upto=5, from_=6),
            "BATCH.from: expected to be at most upto (5); found 6",
        ),
        (OpenStream(2, "s", "a", "a"), "OPEN.index: expected at most 1; found 2"),
        (
            OpenStream(0, "s", "a", "a"),
            f"OPEN.identity: stream 0 is {STREAM.identity}; found s",
        ),
        (HELLO, "HELLO is not allowed here in state OPEN"),
    ],
)
def test_a_frame_that_breaks_the_order_ends_the_link_with_numbers(bad: AnyFrame, says: str) -> None:
    receiver = open_receiver()
    tell(receiver, bad)
    assert sent(receiver) == [Close("PROTOCOL", says)]
    assert receiver.take_events() == []


def test_a_batch_before_its_opened_breaks_the_order() -> None:
    receiver = open_receiver()
    tell(receiver, OPEN, frame(0, batch(0, 1)))
    assert sent(receiver) == [Close("PROTOCOL", "BATCH of stream 0 before its OPENED")]


def test_stopping_answers_what_is_at_the_target_and_takes_nothing_more() -> None:
    receiver = open_receiver()
    tell(receiver, *(frame(number, batch(number, number + 1)) for number in range(2)))
    assert handed(receiver) == [0, 1]
    receiver.stop("the node is going down")
    tell(receiver, frame(2, batch(2, 3)), OPEN)
    assert receiver.take_events() == []
    receiver.delivered(1, stored(2))
    assert sent(receiver) == []
    receiver.delivered(0, stored(1))
    assert verdicts(sent_but_close(receiver)) == [Verdict.STORED, Verdict.STORED]


def sent_but_close(receiver: Receiver) -> list[AnyFrame]:
    *frames, close = sent(receiver)
    assert close == Close("STOPPING", "the node is going down")
    return frames


@pytest.mark.parametrize("make", [new_receiver, open_receiver])
def test_stopping_an_idle_link_closes_at_once(make: Callable[[], Receiver]) -> None:
    receiver = make()
    receiver.stop("the node is going down")
    receiver.stop("the node is going down")
    assert sent_but_close(receiver) == []
    assert receiver.state is LinkState.CLOSED


def test_a_stream_opened_again_takes_what_the_new_open_says() -> None:
    receiver = open_receiver()
    receiver.take_events()
    tell(receiver, OpenStream(0, STREAM.identity, "orders", "orders.us", "run-2"))
    assert receiver.take_events() == [
        Opening(0, Stream(STREAM.identity, "orders", "orders.us", "run-2")),
    ]


# ---------------------------------------------------------------------- what a peer can make grow


def test_nothing_more_is_read_while_the_answers_to_pings_are_not() -> None:
    receiver = open_receiver()
    for number in range(limits.ANSWERS_MOST):
        assert receiver.may_read
        tell(receiver, Ping(number, 0))
    assert not receiver.may_read
    assert receiver.next_frame() == Pong(0, 0, at(0).epoch_ms)
    assert receiver.may_read


def test_nothing_more_is_read_while_so_many_opens_wait_for_the_target() -> None:
    receiver = open_receiver()
    for _ in range(limits.OPENS_MOST):
        assert receiver.may_read
        tell(receiver, OpenStream(0, STREAM.identity, "orders", "orders.eu"))
    assert not receiver.may_read
    receiver.opened(0, StreamState(0))
    assert receiver.may_read


def test_nothing_more_is_read_while_batches_of_many_entries_are_not_answered() -> None:
    """Coverage alone takes no credit; its lists take memory."""
    receiver = open_receiver()
    step = 50_000
    number = 0
    while receiver.may_read:
        positions = tuple(range(number * step, (number + 1) * step))
        covering = Batch(STREAM.identity, positions[0], positions[-1] + 1, refused=positions)
        tell(receiver, to_frame(covering, number, 0))
        number += 1
    assert 1 < number <= limits.BUFFERED_MOST // (step * limits.ENTRY_BYTES) + 1
    receiver.delivered(0, stored(step))
    assert receiver.may_read


def test_no_link_is_read_while_the_batches_of_all_take_too_much() -> None:
    """And each is read again when those of another one are stored, or their link has ended."""
    room = LinkRoom(1)
    one, other = (open_receiver(room=room) for _ in range(2))
    woken: list[str] = []
    one.arriving.wake = lambda: woken.append("one")
    other.arriving.wake = lambda: woken.append("other")

    def arrive(receiver: Receiver, number: int) -> None:
        data = encode(to_frame(batch(number, number + 1), number, 0))
        receiver.arrived(ws_frame(data), 0)
        receiver.receive(data, at(0))

    arrive(one, 0)
    arrive(other, 0)
    assert [one.is_held, other.is_held] == [True, True]
    assert [one.may_read, other.may_read] == [True, True], "what has come is taken"
    assert woken == []
    one.delivered(0, stored(1))
    assert woken == [], "the other's batch is there"
    other.delivered(0, stored(1))
    assert [one.is_held, other.is_held] == [False, False]
    assert woken == ["one", "other"]
    assert room.buffered == 0
    arrive(one, 1)
    arrive(other, 1)
    one.lost("gone")
    other.lost("gone")
    assert room.buffered == 0
    assert woken == ["one", "other", "other"]


def test_a_sender_that_is_not_read_is_not_silent_until_it_is_read_again() -> None:
    room = LinkRoom(1)
    receiver = open_receiver(room=room)
    room.take(1)
    receiver.arrived(ws_frame(encode(to_frame(batch(0, 1), 0, 0)))[:20], 1_000)
    held = [receiver.is_held]
    for ms in range(1_000, 300_000, 1_000):
        receiver.tick(at(ms))
    pings = [frame for frame in sent(receiver) if isinstance(frame, Ping)]
    assert len(pings) == 1, "one that waits to leave is enough"
    room.give(1)
    assert [*held, receiver.is_held] == [True, False]
    assert receiver.deadline_ms() == 0, "silence is measured from the next tick on"
    receiver.tick(at(300_000))
    receiver.tick(at(359_999))
    assert receiver.state is LinkState.OPEN
    receiver.tick(at(360_000))
    assert receiver.ending is not None
    assert receiver.ending.code == CloseCode.SILENT
    assert room.buffered == 0


def test_bytes_before_the_answer_to_the_upgrade_close_the_link() -> None:
    """Frames that follow would be counted wrongly."""
    receiver = open_receiver()
    data = encode(to_frame(batch(0, 1), 0, 0))
    receiver.arrived(ws_frame(data)[-1:], 0)
    receiver.receive(data, at(0))
    assert receiver.ending is not None
    assert receiver.ending.detail == "bytes came before the upgrade was answered"


def test_a_link_has_at_most_so_many_streams() -> None:
    receiver = open_receiver()
    data = encode(OpenStream(limits.STREAMS_MOST, STREAM.identity, "orders", "orders"))
    receiver.receive(data, at(0))
    assert isinstance(receiver.ending, Ending)
    assert receiver.ending.code == CloseCode.PROTOCOL
    assert str(limits.STREAMS_MOST - 1) in receiver.ending.detail


def test_a_run_of_dead_letters_is_answered_whole_and_no_other_stream_may_have_so_long_a_one() -> None:
    run = ",".join(f"{2**50 - n}-{2**50 - n}" for n in range(480))
    letters = Stream(STREAM.identity + LETTERS, "orders", "dead-letters", run)
    receiver = open_receiver(letters)
    tell(receiver, OpenStream(0, letters.identity, "orders", "dead-letters", run))
    receiver.opened(0, StreamState(9, run))
    (opened,) = sent(receiver)
    assert opened == StreamOpened(0, 9, run)
    receiver = open_receiver()
    tell(receiver, OpenStream(0, STREAM.identity, "orders", "orders.eu", "r" * 256))
    assert sent(receiver)[-1] == Close("PROTOCOL", "OPEN.run: length 0 to 255; found 256")
