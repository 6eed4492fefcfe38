"""Large bodies at both machines: BODY frames before their BATCH, credit, early answers, broken peers."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from bridge.errors import JournalUnavailable
from bridge.link.batch_frames import receipt_frame, to_frame
from bridge.link.frames import BatchFrame, BodyFrame, Close, CloseCode, Credit, OpenStream, Ping
from bridge.link.machine import LinkState, Noticed
from bridge.link.pending_requests import Answered
from bridge.link.receiving import BodyEnded, ChunkArrived, Delivering, Opening
from bridge.link.room import LinkRoom
from bridge.link.sender import Sender
from bridge.link.sending import ChunkWanted
from bridge.messages.batch import Batch
from bridge.messages.block import KeptBody, encode_message, pack
from bridge.messages.message import LargeBody, Message
from bridge.relay.ports import Receipt, Stream, StreamState
from dedup.verdict import Verdict
from tests.harness.rounds import rounds
from tests.unit.link.helpers import (
    IDENTITY,
    KIB,
    OTHER,
    STREAM,
    WELCOME,
    at,
    batch,
    not_now,
    open_receiver,
    open_sender,
    sent,
    stored,
    tell,
)

#: Bytes of a body in three chunks.
SIZE = 3 * KIB - 1
CHUNKS = [b"a" * KIB, b"b" * KIB, b"c" * (KIB - 1)]
TAKES = replace(IDENTITY, max_body_size=100 * KIB, credit=2 * KIB)
GREETS = msgspec.structs.replace(WELCOME, max_body_size=100 * KIB, credit=2 * KIB)
OPEN = OpenStream(0, STREAM.identity, STREAM.address, STREAM.target_address, STREAM.run)


def large(position: int = 0, size: int = SIZE, stream: Stream = STREAM) -> Batch:
    """A batch of one message whose body is beside it."""
    kept = KeptBody(7, LargeBody(size, b"d" * 16))
    block = pack([encode_message(Message(kept.body))], large=kept)
    return Batch(stream.identity, position, position + 1, ((position, position),), block, block.checksum)


def body(chunk: bytes, number: int = 0, **other: Any) -> BodyFrame:
    return msgspec.structs.replace(BodyFrame(number, 0, 0, SIZE, chunk), **other)


def frame(number: int = 0, position: int = 0) -> BatchFrame:
    return to_frame(large(position), number, 0)


def wanted(sender: Sender) -> list[ChunkWanted]:
    return [event for event in sender.take_events() if isinstance(event, ChunkWanted)]


def receipts(sender: Sender) -> list[Receipt]:
    answers = [event.answer for event in sender.take_events() if isinstance(event, Answered)]
    return [receipt for answer in answers if isinstance(answer, tuple) for receipt in answer]


def test_chunks_leave_within_credit_and_the_batch_behind_them() -> None:
    sender = open_sender(welcome=GREETS)
    sender.deliver([large(), batch(1, 2)])
    left = sent(sender)
    for number, chunk in enumerate(CHUNKS):
        (want,) = wanted(sender)
        assert (want.number, want.chunk, want.kept.body_id) == (0, number, 7)
        sender.chunk_read(0, chunk)
        left += sent(sender)
    assert left == [body(CHUNKS[0]), body(CHUNKS[1])]  # they are all of the credit
    tell(sender, Credit(KIB))
    left += sent(sender)
    assert left[2:] == [body(CHUNKS[2])]  # and what is left does not cover the batch
    tell(sender, Credit(KIB))
    left += sent(sender)
    assert left[3:] == [frame(), to_frame(batch(1, 2), 1, 0)]
    tell(sender, receipt_frame(stored(1), 0), receipt_frame(stored(2), 1))
    assert [receipt.next for receipt in receipts(sender)] == [1, 2]


def test_a_receipt_that_comes_before_the_body_is_sent_ends_it() -> None:
    sender = open_sender(welcome=GREETS)
    sender.deliver([large()])
    sent(sender)
    sender.chunk_read(0, CHUNKS[0])
    assert sent(sender) == [body(CHUNKS[0])]
    tell(sender, receipt_frame(not_now(0), 0))
    assert [receipt.verdict for receipt in receipts(sender)] == [Verdict.NOT_NOW]
    sender.chunk_read(0, CHUNKS[1])  # it was being read meanwhile
    assert sent(sender) == []
    sender.open([STREAM], at(0))
    assert sent(sender) == [OPEN]


def test_a_body_that_cannot_be_read_any_more_ends_the_link() -> None:
    sender = open_sender(welcome=GREETS)
    sender.deliver([large()])
    sent(sender)
    sender.chunk_lost(1, JournalUnavailable("of another batch"))
    assert sender.state is LinkState.OPEN
    sender.chunk_lost(0, JournalUnavailable("it is gone"))
    (close,) = sent(sender)
    assert close == Close(CloseCode.TARGET_UNAVAILABLE, "a large body cannot be read: it is gone")


def test_a_receiver_without_bodies_gets_none_and_one_with_smaller_ones_is_not_sent_it() -> None:
    for most, verdict, reason in (
        (0, Verdict.NOT_NOW, "LARGE_BODIES"),
        (SIZE - 1, Verdict.REFUSED, "MESSAGE_TOO"),
    ):
        sender = open_sender(welcome=msgspec.structs.replace(GREETS, max_body_size=most))
        sender.deliver([large(position=0)])
        assert sent(sender) == []
        (receipt,) = receipts(sender)
        assert (receipt.verdict, receipt.position) == (verdict, 0 if most else None)
        assert receipt.reason.startswith(reason)


def test_notices_and_pongs_leave_between_chunks() -> None:
    sender = open_sender(welcome=GREETS)
    sender.deliver([large()])
    sent(sender)
    assert sender.notify(b"hear")
    tell(sender, Ping(9, 0))
    sender.chunk_read(0, CHUNKS[0])
    kinds = [type(one).__name__ for one in sent(sender)]
    assert kinds == ["Pong", "Notice", "BodyFrame"]


def test_the_target_gets_a_batch_when_all_of_its_chunks_are_stored_and_those_behind_it_then() -> None:
    receiver = open_receiver(identity=replace(TAKES, credit=10 * KIB))
    tell(receiver, *map(body, CHUNKS), frame(), to_frame(batch(1, 2), 1, 0))
    events = receiver.take_events()
    assert [event.chunk for event in events if isinstance(event, ChunkArrived)] == CHUNKS
    assert len(events) == len(CHUNKS)
    for chunk in CHUNKS[:2]:
        receiver.chunk_stored(0, len(chunk))
        assert receiver.take_events() == []
    assert sent(receiver) == [Credit(KIB), Credit(KIB)]
    receiver.chunk_stored(0, len(CHUNKS[2]))
    assert [event.number for event in receiver.take_events() if isinstance(event, Delivering)] == [0, 1]
    receiver.delivered(0, stored(1))
    assert receiver.take_events() == [BodyEnded(0)]


def test_a_refused_body_is_answered_at_once_and_what_still_comes_of_it_is_dropped() -> None:
    receiver = open_receiver(identity=TAKES)
    tell(receiver, body(CHUNKS[0], position=4))
    receiver.take_events()
    receiver.body_refused(0, Verdict.REFUSED, "MESSAGE_TOO_LARGE: it is")
    receiver.chunk_stored(0, KIB)
    answered = sent(receiver)
    receipt = Receipt(STREAM.identity, Verdict.REFUSED, 0, 4, "MESSAGE_TOO_LARGE: it is")
    assert answered == [receipt_frame(receipt, 0), Credit(KIB)]
    assert receiver.take_events() == [BodyEnded(0)]
    tell(receiver, body(CHUNKS[1], position=4), body(CHUNKS[2], position=4), frame(position=4))
    assert receiver.take_events() == []
    assert sum(one.bytes for one in sent(receiver) if isinstance(one, Credit)) > 2 * KIB - 1
    tell(receiver, OPEN)
    assert receiver.take_events() == [Opening(0, STREAM)]
    receiver.opened(0, StreamState(5))
    tell(receiver, to_frame(batch(5, 6), 1, 0))
    assert [event.number for event in receiver.take_events() if isinstance(event, Delivering)] == [1]


def test_a_body_whose_last_chunk_finds_no_room_is_not_handed_over() -> None:
    receiver = open_receiver(identity=replace(TAKES, credit=10 * KIB))
    tell(receiver, *map(body, CHUNKS), frame())
    receiver.body_refused(0, Verdict.NOT_NOW, "DISK_FULL: no room")
    for chunk in CHUNKS:
        receiver.chunk_stored(0, len(chunk))
    assert not any(isinstance(event, Delivering) for event in receiver.take_events())
    assert [one.verdict for one in sent(receiver) if hasattr(one, "verdict")] == [Verdict.NOT_NOW]
    receiver.body_refused(0, Verdict.NOT_NOW, "twice")  # it has been answered
    assert sent(receiver) == []


def test_a_body_behind_a_batch_that_was_not_taken_is_answered_with_its_first_chunk() -> None:
    receiver = open_receiver(identity=TAKES)
    tell(receiver, to_frame(batch(0, 1), 0, 0))
    receiver.take_events()
    receiver.delivered(0, not_now(0))
    sent(receiver)
    tell(receiver, body(CHUNKS[0], number=1, position=1))
    assert receiver.take_events() == [BodyEnded(1)]
    verdicts = [one.verdict for one in sent(receiver) if hasattr(one, "verdict")]
    assert verdicts == [Verdict.NOT_NOW]


def test_an_open_waits_for_the_body_of_its_stream() -> None:
    receiver = open_receiver(identity=replace(TAKES, credit=10 * KIB))
    tell(receiver, body(CHUNKS[0]), OPEN)
    assert not any(isinstance(event, Opening) for event in receiver.take_events())
    receiver.body_refused(0, Verdict.NOT_NOW, "ADDRESS_FULL: it is")
    assert any(isinstance(event, Opening) for event in receiver.take_events())


def test_what_is_not_stored_yet_counts_as_memory_of_the_link_and_is_let_go_with_it() -> None:
    room = LinkRoom(100 * KIB)
    receiver = open_receiver(identity=TAKES, room=room)
    tell(receiver, body(CHUNKS[0]), body(CHUNKS[1]))
    assert room.buffered == 2 * KIB
    receiver.chunk_stored(0, KIB)
    assert room.buffered == KIB
    receiver.lost("cut")
    assert room.buffered == 0
    receiver.chunk_stored(0, KIB)  # its task has not heard of it yet
    receiver.body_refused(0, Verdict.NOT_NOW, "too late")
    assert room.buffered == 0


def test_a_link_that_stops_takes_no_more_of_a_body() -> None:
    receiver = open_receiver(identity=TAKES)
    tell(receiver, to_frame(batch(0, 1), 0, 0), body(CHUNKS[0], number=1, position=1))
    receiver.take_events()
    receiver.stop("going down")
    tell(receiver, body(CHUNKS[1], number=1, position=1))
    assert receiver.take_events() == []
    receiver.delivered(0, stored(1))
    assert sent(receiver)[-1] == Close(CloseCode.STOPPING, "going down")


@pytest.mark.parametrize(
    ("frames", "detail"),
    [
        ([body(CHUNKS[0], number=1)], "BODY.number: expected 0; found 1"),
        ([body(CHUNKS[0], index=1)], "BODY.index: below 1 expected; found 1"),
        ([body(CHUNKS[0], size=101 * KIB)], "BODY.size: at most 102400; found 103424"),
        ([body(CHUNKS[0]), body(CHUNKS[1], position=1)], "BODY 0: its fields differ"),
        ([body(CHUNKS[0]), body(CHUNKS[1], size=SIZE + 1)], "BODY 0: its fields differ"),
        ([body(CHUNKS[0], size=10)], "BODY 0: a body of 10 bytes; found 1024"),
        ([body(CHUNKS[0]), body(CHUNKS[1]), body(CHUNKS[2])], "credit for 0 bytes; found 1023"),
        ([body(CHUNKS[0]), frame()], "BATCH 0: a body of 3071 bytes; found 1024"),
        ([body(b"x", size=1), frame(position=1)], "BATCH 0: expected the message at 0"),
        ([body(b"x", size=1), to_frame(batch(0, 2), 0, 0)], "BATCH 0: expected the message at 0"),
        ([OPEN, body(CHUNKS[0])], "BODY 0 of stream 0 before its OPENED"),
        ([body(b"")], "BODY.chunk: length 1 to 1048576; found 0"),
    ],
)
def test_a_sender_that_breaks_the_rules_of_bodies_is_closed(frames: list[Any], detail: str) -> None:
    receiver = open_receiver(identity=TAKES)
    tell(receiver, *frames)
    close = sent(receiver)[-1]
    assert isinstance(close, Close)
    assert close.code == CloseCode.PROTOCOL
    assert detail in close.detail


class World:
    """Both machines, a target that stores chunks and batches, and chance."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.credit = rng.choice((KIB, 2 * KIB, 5 * KIB))
        self.next = {STREAM.identity: 0, OTHER.identity: 0}
        #: By position of STREAM: whether its message is large.
        self.kinds = {position: rng.random() < 0.5 for position in range(12)}
        self.arrived: list[int] = []
        self.most_buffered = 0
        self.refusals = rng.randint(0, 3)
        self.connect()

    def connect(self) -> None:
        room = LinkRoom(1 << 30)
        self.room = room
        self.sender = open_sender(welcome=msgspec.structs.replace(GREETS, credit=self.credit))
        self.receiver = open_receiver(identity=replace(TAKES, credit=self.credit), room=room)
        self.pieces: dict[int, int] = {}
        self.reopen()

    def reopen(self) -> None:
        self.sender.open([STREAM], at(0))
        self.cursor: int | None = None

    def step(self) -> None:
        """Let one of the things happen that may happen next."""
        if self.cursor is not None and self.cursor < len(self.kinds) and self.rng.random() < 0.5:
            position = self.cursor
            self.sender.deliver([large(position) if self.kinds[position] else batch(position, position + 1)])
            self.cursor += 1
        for machine, other in ((self.sender, self.receiver), (self.receiver, self.sender)):
            for one in sent(machine):
                tell(other, one)
        self.most_buffered = max(self.most_buffered, self.room.buffered)
        self.hear()
        self.work()

    def hear(self) -> None:
        for event in self.sender.take_events():
            if isinstance(event, Noticed):
                continue
            if isinstance(event, ChunkWanted):
                self.sender.chunk_read(event.number, CHUNKS[event.chunk])
            elif isinstance(event.answer, tuple):
                (receipt,) = event.answer
                if receipt.verdict is Verdict.NOT_NOW and self.cursor is not None:
                    self.reopen()
            elif hasattr(event.answer, "streams"):
                self.cursor = event.answer.streams[STREAM.identity].next

    def work(self) -> None:
        for event in self.receiver.take_events():
            match event:
                case Opening(index, stream):
                    self.receiver.opened(index, StreamState(self.next[stream.identity]))
                case ChunkArrived(number, _, _, chunk):
                    if self.refusals and self.rng.random() < 0.2:
                        self.refusals -= 1
                        self.receiver.body_refused(number, Verdict.NOT_NOW, "ADDRESS_FULL: it is")
                    else:
                        self.pieces[number] = self.pieces.get(number, 0) + len(chunk)
                    self.receiver.chunk_stored(number, len(chunk))
                case Delivering(number, delivered):
                    self.deliver(number, delivered)
                case BodyEnded(number):
                    self.pieces.pop(number, None)

    def deliver(self, number: int, delivered: Batch) -> None:
        at_position = delivered.from_
        if self.kinds[at_position]:
            assert self.pieces[number] == SIZE, "the whole body is there before its message"
        if at_position == self.next[STREAM.identity]:
            self.arrived.append(at_position)
            self.next[STREAM.identity] = delivered.upto
        self.receiver.delivered(number, stored(self.next[STREAM.identity]))


def test_any_history_of_chunks_refusals_and_cuts_delivers_each_message_once_within_credit() -> None:
    for seed in range(rounds(40)):
        rng = random.Random(seed)
        world = World(rng)
        for _ in range(2_000):
            world.step()
            if rng.random() < 0.01:
                world.connect()
            if len(world.arrived) == len(world.kinds):
                break
        assert world.arrived == list(range(12)), f"seed {seed}"
        assert world.most_buffered <= world.credit + 2 * KIB, f"seed {seed}"
