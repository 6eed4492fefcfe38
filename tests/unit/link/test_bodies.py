"""Large bodies at both machines: BODY frames before their BATCH, credit, early answers, broken peers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import msgspec
import pytest

from bridge.errors import JournalUnavailable
from bridge.link import limits
from bridge.link.batch_frames import receipt_frame, to_batch, to_frame
from bridge.link.frames import (
    AnyFrame,
    BatchFrame,
    BodyFrame,
    Close,
    CloseCode,
    Credit,
    OpenStream,
    Ping,
    ReceiptFrame,
    StopBody,
    StreamOpened,
)
from bridge.link.machine import LinkState, Noticed
from bridge.link.pending_requests import Answered
from bridge.link.receiving import BodyEnded, Delivering, Opening, PieceArrived
from bridge.link.room import LinkRoom
from bridge.link.sender import Sender
from bridge.link.sending import ChunkWanted
from bridge.messages.batch import Batch
from bridge.messages.block import KeptBody, encode_message, pack
from bridge.messages.message import LargeBody, Message
from bridge.relay.ports import Opened, Receipt, Stream, StreamState, UnfinishedBody
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
BODY = b"".join(CHUNKS)
TAKES = replace(IDENTITY, max_body_size=100 * KIB, credit=2 * KIB)
GREETS = msgspec.structs.replace(WELCOME, max_body_size=100 * KIB, credit=2 * KIB)
OPEN = OpenStream(0, STREAM.identity, STREAM.address, STREAM.target_address, STREAM.run)


def large(position: int = 0, stream: Stream = STREAM, content: bytes = BODY) -> Batch:
    """A batch of one message whose body is beside it."""
    kept = KeptBody(7, LargeBody(len(content), blake2b(content, digest_size=16).digest()))
    block = pack([encode_message(Message(kept.body))], large=kept)
    return Batch(stream.identity, position, position + 1, ((position, position),), block, block.checksum)


def body(number: int, **other: Any) -> BodyFrame:
    """The piece that is this chunk."""
    start = sum(map(len, CHUNKS[:number]))
    return msgspec.structs.replace(BodyFrame(0, 0, SIZE, start, CHUNKS[number]), **other)


def frame(number: int = 0, position: int = 0) -> BatchFrame:
    return to_frame(large(position), number, 0)


def wanted(sender: Sender) -> list[ChunkWanted]:
    return [event for event in sender.take_events() if isinstance(event, ChunkWanted)]


def receipts(sender: Sender) -> list[Receipt]:
    answers = [event.answer for event in sender.take_events() if isinstance(event, Answered)]
    return [receipt for answer in answers if isinstance(answer, tuple) for receipt in answer]


def unfinished(kept: int, content: bytes = BODY, position: int = 0) -> tuple[int, int, int, bytes]:
    """What OPENED says of a body of which the receiver has so many bytes."""
    return (position, len(content), kept, blake2b(content[:kept], digest_size=16).digest())


def feed(sender: Sender, content: bytes = BODY) -> list[AnyFrame]:
    """Every frame that leaves while the sender reads this body's chunks."""
    left = sent(sender)
    while asked := wanted(sender):
        for want in asked:
            sender.chunk_read(want.body, content[want.chunk * KIB :][:KIB])
        left += sent(sender)
    return left


def sender_of(*bodies: tuple[int, int, int, bytes], credit: int = 10 * KIB) -> Sender:
    """A sender whose receiver has kept something of these bodies of STREAM."""
    sender = open_sender(welcome=msgspec.structs.replace(GREETS, credit=credit))
    sender.open([STREAM], at(0))
    sent(sender)
    tell(sender, StreamOpened(0, 0, bodies=bodies))
    sender.take_events()
    return sender


def test_chunks_leave_within_credit_and_the_batch_behind_them() -> None:
    sender = open_sender(welcome=GREETS)
    sender.deliver([large(), batch(1, 2)])
    left = sent(sender)
    for number, chunk in enumerate(CHUNKS):
        (want,) = wanted(sender)
        assert (want.body, want.chunk, want.kept.body_id) == (1, number, 7)
        sender.chunk_read(1, chunk)
        left += sent(sender)
    assert left == [body(0), body(1)]  # they are all of the credit
    tell(sender, Credit(KIB))
    left += sent(sender)
    assert left[2:] == [body(2)]  # and what is left does not cover the batch
    tell(sender, Credit(KIB))
    left += sent(sender)
    assert left[3:] == [frame(), to_frame(batch(1, 2), 1, 0)]
    tell(sender, receipt_frame(stored(1), 0), receipt_frame(stored(2), 1))
    assert [receipt.next for receipt in receipts(sender)] == [1, 2]


@pytest.mark.parametrize("kept", [1, KIB - 1, KIB, 2 * KIB + 5])
def test_what_the_receiver_has_of_a_body_is_not_sent_again(kept: int) -> None:
    sender = sender_of(unfinished(kept))
    sender.deliver([large()])
    *pieces, last = feed(sender)
    assert next(piece.start for piece in pieces if isinstance(piece, BodyFrame)) == kept
    assert content_of(pieces) == BODY[kept:]
    assert last == frame()


def test_a_body_that_the_receiver_has_whole_is_taken_up_by_an_empty_piece() -> None:
    sender = sender_of(unfinished(SIZE))
    sender.deliver([large()])
    assert feed(sender) == [body(2, start=SIZE, piece=b""), frame()]


@pytest.mark.parametrize(
    "other",
    [
        unfinished(KIB, b"other" + BODY[5:]),  # a restored source may have another message there
        unfinished(KIB, BODY + b"longer"),
        unfinished(KIB, position=1),
        (0, SIZE, SIZE + 1, b"d" * 16),
        (0, SIZE, 0, b""),
    ],
)
def test_a_body_of_which_the_receiver_has_something_else_begins_at_its_first_byte(
    other: tuple[int, int, int, bytes],
) -> None:
    sender = sender_of(other)
    sender.deliver([large()])
    assert feed(sender) == [body(0), body(1), body(2), frame()]


def test_what_was_kept_counts_once_and_only_until_the_stream_is_opened_again() -> None:
    sender = sender_of(unfinished(KIB))
    sender.open([STREAM], at(0))
    sent(sender)
    tell(sender, StreamOpened(0, 0))
    sender.deliver([large()])
    assert content_of(feed(sender)) == BODY


def content_of(frames: Sequence[AnyFrame]) -> bytes:
    return b"".join(frame.piece for frame in frames if isinstance(frame, BodyFrame))


def test_batches_of_other_streams_leave_between_the_pieces_of_a_body() -> None:
    sender = open_sender(STREAM, OTHER, welcome=msgspec.structs.replace(GREETS, credit=10 * KIB))
    others = [batch(position, position + 1, stream=OTHER) for position in range(3)]
    sender.deliver([large()])
    sender.deliver([batch(1, 2)])  # behind the body, for it is of its stream
    for one in others:
        sender.deliver([one])
    left = feed(sender)
    assert [one for one in left if isinstance(one, BatchFrame)] == [
        *(to_frame(one, number, 1) for number, one in enumerate(others)),
        frame(3),
        to_frame(batch(1, 2), 4, 0),
    ]
    kinds = ["body" if isinstance(one, BodyFrame) else "batch" for one in left]
    assert kinds[-2:] == ["batch", "batch"]
    assert "body" in kinds[kinds.index("batch") :]
    tell(sender, receipt_frame(stored(1, OTHER), 0), receipt_frame(stored(2, OTHER), 1))
    assert [receipt.stream for receipt in receipts(sender)] == [OTHER.identity] * 2  # not behind the body


def test_a_second_body_and_what_is_behind_it_wait_for_the_first() -> None:
    sender = open_sender(STREAM, OTHER, welcome=msgspec.structs.replace(GREETS, credit=20 * KIB))
    sender.deliver([large()])
    sender.deliver([large(stream=OTHER)])
    sender.deliver([batch(1, 2, stream=OTHER)])
    left = feed(sender)
    assert [one.index for one in left if isinstance(one, BodyFrame)] == [0, 0, 0, 1, 1, 1]
    assert [one.index for one in left if isinstance(one, BatchFrame)] == [0, 1, 1]


@pytest.mark.parametrize("opened_again", [False, True])
def test_what_is_behind_a_body_is_answered_once_its_stream_takes_no_more(opened_again: bool) -> None:
    """It would hold the next opening of its stream for as long as the body takes."""
    sender = open_sender(STREAM, OTHER, welcome=msgspec.structs.replace(GREETS, credit=20 * KIB))
    sender.deliver([large()])
    sender.deliver([batch(0, 1, stream=OTHER)])
    sender.deliver([large(1, stream=OTHER)])
    sender.deliver([batch(2, 3, stream=OTHER)])
    sent(sender)
    if opened_again:
        sender.open([OTHER], at(0))
    tell(sender, receipt_frame(not_now(0, OTHER), 0))
    sent(sender)
    answered = receipts(sender)
    assert [one.verdict for one in answered] == [Verdict.NOT_NOW] * 3
    assert {one.stream for one in answered} == {OTHER.identity}


def test_a_body_is_ended_by_the_receivers_word_before_all_of_it_was_sent() -> None:
    sender = open_sender(welcome=GREETS)
    sender.deliver([large()])
    sent(sender)
    sender.chunk_read(1, CHUNKS[0])
    assert sent(sender) == [body(0)]
    tell(sender, StopBody(0, 0, Verdict.NOT_NOW, "ADDRESS_FULL: it is"))
    assert [(one.verdict, one.reason) for one in receipts(sender)] == [
        (Verdict.NOT_NOW, "ADDRESS_FULL: it is")
    ]
    sender.chunk_read(1, CHUNKS[1])  # it was being read meanwhile
    assert sent(sender) == []
    sender.open([STREAM], at(0))
    assert sent(sender) == [OPEN]


def test_a_body_whose_stream_halts_or_is_opened_again_ends_and_others_go_on() -> None:
    for halts in (True, False):
        sender = open_sender(STREAM, OTHER, welcome=GREETS)
        sender.deliver([batch(0, 1)])
        sender.deliver([large(1)])
        sender.deliver([large(stream=OTHER)])
        sent(sender)
        if halts:
            tell(sender, receipt_frame(not_now(0), 0))
        else:
            sender.open([STREAM], at(0))
        sent(sender)
        assert [want.body for want in wanted(sender)][-1:] == [2], "the next body begins"


@pytest.mark.parametrize("halted", [False, True])
def test_the_receivers_word_holds_although_the_batch_has_left(halted: bool) -> None:
    sender = open_sender(welcome=msgspec.structs.replace(GREETS, credit=20 * KIB))
    if halted:
        sender.deliver([batch(0, 1)])
    sender.deliver([large(1)])
    feed(sender)
    if halted:
        tell(sender, receipt_frame(not_now(0), 0))
    tell(sender, StopBody(0, 1, Verdict.REFUSED, "MESSAGE_TOO_LARGE: it is"))
    tell(sender, receipt_frame(not_now(0), 1 if halted else 0))
    receipt = receipts(sender)[-1]
    if halted:  # the batch before it comes again, and so does the body
        assert receipt.verdict is Verdict.NOT_NOW
    else:
        assert (receipt.verdict, receipt.position) == (Verdict.REFUSED, 1)


def test_a_word_that_takes_a_body_is_no_word_before_its_batch() -> None:
    sender = open_sender(welcome=GREETS)
    tell(sender, StopBody(0, 0, Verdict.STORED))
    close = sent(sender)[-1]
    assert isinstance(close, Close)
    assert "STOP_BODY.verdict: refused or not-now expected; found stored" in close.detail


def test_a_body_that_cannot_be_read_any_more_ends_the_link() -> None:
    sender = open_sender(welcome=GREETS)
    sender.deliver([large()])
    sent(sender)
    sender.chunk_lost(2, JournalUnavailable("of another body"))
    assert sender.state is LinkState.OPEN
    sender.chunk_lost(1, JournalUnavailable("it is gone"))
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
    sender.chunk_read(1, CHUNKS[0])
    kinds = [type(one).__name__ for one in sent(sender)]
    assert kinds == ["Pong", "Notice", "BodyFrame"]


def test_the_target_gets_a_batch_when_all_of_its_pieces_are_stored_and_those_behind_it_then() -> None:
    receiver = open_receiver(identity=replace(TAKES, credit=10 * KIB))
    tell(receiver, *map(body, range(3)), frame(), to_frame(batch(1, 2), 1, 0))
    events = receiver.take_events()
    assert [event.piece for event in events if isinstance(event, PieceArrived)] == CHUNKS
    assert [event.is_first for event in events if isinstance(event, PieceArrived)] == [True, False, False]
    assert len(events) == len(CHUNKS)
    for chunk in CHUNKS[:2]:
        receiver.piece_stored(1, len(chunk))
        assert receiver.take_events() == []
    assert sent(receiver) == [Credit(KIB), Credit(KIB)]
    receiver.piece_stored(1, len(CHUNKS[2]))
    handed = [event for event in receiver.take_events() if isinstance(event, Delivering)]
    assert [(event.number, event.body) for event in handed] == [(0, 1), (1, None)]
    receiver.delivered(0, stored(1))
    assert receiver.take_events() == [BodyEnded(1, may_come_again=False)]


def test_what_is_kept_of_bodies_is_said_at_the_opening_and_a_body_goes_on_from_there() -> None:
    receiver = open_receiver(identity=replace(TAKES, credit=10 * KIB))
    tell(receiver, OPEN)
    receiver.take_events()
    receiver.opened(0, StreamState(0, bodies=(UnfinishedBody(0, SIZE, KIB, b"d" * 16),) * 20))
    (opened,) = [one for one in sent(receiver) if isinstance(one, StreamOpened)]
    assert opened.bodies == ((0, SIZE, KIB, b"d" * 16),) * 16
    tell(receiver, body(1), body(2), frame())
    starts = [event.start for event in receiver.take_events() if isinstance(event, PieceArrived)]
    assert starts == [KIB, 2 * KIB]


def test_a_body_that_is_here_whole_is_handed_over_once_that_is_known() -> None:
    receiver = open_receiver(identity=TAKES)
    tell(receiver, body(2, start=SIZE, piece=b""), frame())
    (arrived,) = receiver.take_events()
    assert isinstance(arrived, PieceArrived)
    assert (arrived.is_first, arrived.start) == (True, SIZE)
    receiver.piece_stored(1, 0)
    assert receiver.take_events() == [Delivering(0, to_batch(frame(), STREAM.identity), 1)]


def test_batches_of_other_streams_are_taken_between_the_pieces_of_a_body() -> None:
    receiver = open_receiver(STREAM, OTHER, identity=replace(TAKES, credit=10 * KIB))
    tell(receiver, body(0), to_frame(batch(0, 1, stream=OTHER), 0, 1), body(1), body(2), frame(1))
    handed = [event.number for event in receiver.take_events() if isinstance(event, Delivering)]
    assert handed == [0]
    receiver.delivered(0, stored(1, OTHER))
    assert [one.number for one in sent(receiver) if isinstance(one, ReceiptFrame)] == [0]


def test_a_refused_body_is_answered_at_once_and_what_still_comes_of_it_is_dropped() -> None:
    receiver = open_receiver(identity=replace(TAKES, credit=10 * KIB))
    tell(receiver, body(0, position=4))
    receiver.take_events()
    receiver.body_refused(1, Verdict.REFUSED, "MESSAGE_TOO_LARGE: it is")
    receiver.piece_stored(1, KIB)
    stop = StopBody(0, 4, Verdict.REFUSED, "MESSAGE_TOO_LARGE: it is")
    assert sent(receiver) == [stop, Credit(KIB)]
    assert receiver.take_events() == [BodyEnded(1, may_come_again=True)]
    tell(receiver, body(1, position=4), body(2, position=4), frame(position=4))
    assert receiver.take_events() == []
    answers = sent(receiver)
    assert sum(one.bytes for one in answers if isinstance(one, Credit)) > 2 * KIB - 1
    assert [one.verdict for one in answers if isinstance(one, ReceiptFrame)] == [Verdict.NOT_NOW]
    tell(receiver, OPEN)
    assert receiver.take_events() == [Opening(0, STREAM)]
    receiver.opened(0, StreamState(5))
    tell(receiver, to_frame(batch(5, 6), 1, 0))
    assert [event.number for event in receiver.take_events() if isinstance(event, Delivering)] == [1]


def test_a_body_whose_last_piece_finds_no_room_is_not_handed_over() -> None:
    receiver = open_receiver(identity=replace(TAKES, credit=10 * KIB))
    tell(receiver, *map(body, range(3)), frame())
    receiver.body_refused(1, Verdict.NOT_NOW, "DISK_FULL: no room")
    for chunk in CHUNKS:
        receiver.piece_stored(1, len(chunk))
    assert not any(isinstance(event, Delivering) for event in receiver.take_events())
    assert [one.verdict for one in sent(receiver) if hasattr(one, "verdict")] == [Verdict.NOT_NOW]
    receiver.body_refused(1, Verdict.NOT_NOW, "twice")  # it has been answered
    assert sent(receiver) == []


def test_a_body_behind_a_batch_that_was_not_taken_is_kept_and_no_more_of_it_is_taken() -> None:
    receiver = open_receiver(STREAM, OTHER, identity=replace(TAKES, credit=10 * KIB))
    tell(receiver, to_frame(batch(0, 1), 0, 0), body(0, position=1))
    receiver.take_events()
    receiver.delivered(0, not_now(0))
    assert receiver.take_events() == [BodyEnded(1, may_come_again=True)]
    tell(receiver, body(1, position=1), body(0, index=1))  # the sender goes on with another
    events = receiver.take_events()
    assert [event.body for event in events if isinstance(event, PieceArrived)] == [2]
    assert receiver.state is LinkState.OPEN


def test_an_open_ends_a_body_of_its_stream_that_was_not_whole() -> None:
    receiver = open_receiver(identity=replace(TAKES, credit=10 * KIB))
    tell(receiver, body(0), OPEN)
    assert receiver.take_events()[1:] == [BodyEnded(1, may_come_again=True), Opening(0, STREAM)]


def test_what_is_not_stored_yet_counts_as_memory_of_the_link_and_is_let_go_with_it() -> None:
    """A small piece counts with what is held beside its bytes: a peer may send one byte at a time."""
    room = LinkRoom(100 * KIB)
    receiver = open_receiver(identity=TAKES, room=room)
    tell(receiver, body(0), body(1))
    assert room.buffered == 2 * (KIB + limits.ENTRY_BYTES)
    receiver.piece_stored(1, KIB)
    assert room.buffered == KIB + limits.ENTRY_BYTES
    receiver.lost("cut")
    assert room.buffered == 0
    receiver.piece_stored(1, KIB)  # its task has not heard of it yet
    receiver.body_refused(1, Verdict.NOT_NOW, "too late")
    assert room.buffered == 0


def test_a_link_that_stops_takes_no_more_of_a_body() -> None:
    receiver = open_receiver(identity=TAKES)
    tell(receiver, to_frame(batch(0, 1), 0, 0), body(0, position=1))
    receiver.take_events()
    receiver.stop("going down")
    tell(receiver, body(1, position=1))
    assert receiver.take_events() == []
    receiver.delivered(0, stored(1))
    assert sent(receiver)[-1] == Close(CloseCode.STOPPING, "going down")


@pytest.mark.parametrize(
    ("frames", "detail"),
    [
        ([body(0, index=1)], "BODY.index: below 1 expected; found 1"),
        ([body(0, size=101 * KIB)], "BODY.size: at most 102400; found 103424"),
        (
            [body(0), body(1, position=1)],
            f"BODY: expected index, position, size and start {(0, 0, SIZE, KIB)}",
        ),
        ([body(0), body(1, size=SIZE + 1)], f"found {(0, 0, SIZE + 1, KIB)}"),
        ([body(0), body(2)], f"found {(0, 0, SIZE, 2 * KIB)}"),
        ([body(0), body(0)], f"found {(0, 0, SIZE, 0)}"),
        ([body(0, size=10)], "BODY: a body of 10 bytes; found 1024"),
        ([body(0), body(1), body(2)], "credit for 0 bytes; found 1023"),
        ([body(0), frame()], "BATCH: a body of 3071 bytes; found 1024"),
        ([body(0, piece=b"x", size=1), frame(position=1)], "BATCH: expected the message at 0"),
        ([body(0, piece=b"x", size=1), to_frame(batch(0, 2), 0, 0)], "BATCH: expected the message at 0"),
        ([OPEN, body(0)], "BODY of stream 0 before its OPENED"),
        ([body(0, piece=b"")], "BODY.piece: bytes expected from 0 of 3071 on; found none"),
        ([body(0), body(1, piece=b"")], "BODY.piece: only the first one of a body may be empty"),
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
    """Both machines, a target that stores pieces and batches and keeps bodies, and chance."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.credit = rng.choice((KIB, 2 * KIB, 5 * KIB))
        self.next = {STREAM.identity: 0, OTHER.identity: 0}
        #: By stream and position: the content of its message, where that is large.
        self.kinds = {
            stream: [rng.randbytes(SIZE) if rng.random() < 0.5 else None for _ in range(8)]
            for stream in self.next
        }
        contents = [content for kinds in self.kinds.values() for content in kinds if content is not None]
        self.by_digest = {blake2b(one, digest_size=16).digest(): one for one in contents}
        self.arrived: dict[str, list[int]] = {stream: [] for stream in self.next}
        self.most_buffered = 0
        self.refusals = rng.randint(0, 3)
        #: By stream and position: what the target has of a body.
        self.kept: dict[tuple[str, int], bytes] = {}
        self.connect()

    def connect(self) -> None:
        self.room = LinkRoom(1 << 30)
        self.sender = open_sender(STREAM, OTHER, welcome=msgspec.structs.replace(GREETS, credit=self.credit))
        self.receiver = open_receiver(
            STREAM, OTHER, identity=replace(TAKES, credit=self.credit), room=self.room
        )
        self.pieces: dict[int, tuple[str, int]] = {}
        self.cursors: dict[str, int | None] = dict.fromkeys(self.next)
        for stream in (STREAM, OTHER):
            self.sender.open([stream], at(0))

    def step(self) -> None:
        """Let one of the things happen that may happen next."""
        stream = self.rng.choice((STREAM, OTHER))
        position = self.cursors[stream.identity]
        if position is not None and position < len(self.kinds[stream.identity]):
            content = self.kinds[stream.identity][position]
            one = batch(position, position + 1, stream=stream)
            self.sender.deliver([one if content is None else large(position, stream=stream, content=content)])
            self.cursors[stream.identity] = position + 1
        for machine, other in ((self.sender, self.receiver), (self.receiver, self.sender)):
            for _ in range(self.rng.randint(0, 3)):
                if (frame := machine.next_frame()) is not None:
                    tell(other, frame)
        assert self.sender.ending is None
        assert self.receiver.ending is None
        self.most_buffered = max(self.most_buffered, self.room.buffered)
        self.hear()
        self.work()

    def hear(self) -> None:
        for event in self.sender.take_events():
            if isinstance(event, Noticed):
                continue
            if isinstance(event, ChunkWanted):
                content = self.by_digest[event.kept.body.digest]
                self.sender.chunk_read(event.body, content[event.chunk * KIB :][:KIB])
            elif isinstance(event.answer, tuple):
                (receipt,) = event.answer
                if receipt.verdict is Verdict.NOT_NOW and self.cursors[receipt.stream] is not None:
                    self.cursors[receipt.stream] = None
                    self.sender.open([STREAM if receipt.stream == STREAM.identity else OTHER], at(0))
            elif isinstance(event.answer, Opened):
                for stream, state in event.answer.streams.items():
                    self.cursors[stream] = state.next

    def work(self) -> None:
        for event in self.receiver.take_events():
            match event:
                case Opening(index, stream):
                    self.receiver.opened(index, self.state_of(stream.identity))
                case PieceArrived(number, stream, position, size, start, piece):
                    place = (stream.identity, position)
                    if event.is_first:
                        self.kept[place] = self.kept.get(place, b"")[:start]
                        self.pieces[number] = place
                    assert len(self.kept[place]) == start
                    assert size == SIZE
                    if self.refusals and self.rng.random() < 0.1:
                        self.refusals -= 1
                        self.receiver.body_refused(number, Verdict.NOT_NOW, "ADDRESS_FULL: it is")
                    else:
                        self.kept[place] += piece
                    self.receiver.piece_stored(number, len(piece))
                case Delivering(number, delivered, whole):
                    self.deliver(number, delivered, whole)

    def state_of(self, stream: str) -> StreamState:
        bodies = [
            UnfinishedBody(position, SIZE, len(kept), blake2b(kept, digest_size=16).digest())
            for (of, position), kept in self.kept.items()
            if of == stream and kept
        ]
        return StreamState(self.next[stream], bodies=tuple(bodies))

    def deliver(self, number: int, delivered: Batch, whole: int | None) -> None:
        stream, position = delivered.stream, delivered.from_
        content = self.kinds[stream][position]
        assert (content is None) == (whole is None)
        if whole is not None:
            assert self.kept[self.pieces[whole]] == content, "the whole body is there before its message"
        if position == self.next[stream]:
            self.arrived[stream].append(position)
            self.next[stream] = delivered.upto
        of = STREAM if stream == STREAM.identity else OTHER
        self.receiver.delivered(number, stored(self.next[stream], of))


def test_any_history_of_pieces_refusals_and_cuts_delivers_each_message_once_within_credit() -> None:
    for seed in range(rounds(40)):
        rng = random.Random(seed)
        world = World(rng)
        for _ in range(4_000):
            world.step()
            if rng.random() < 0.01:
                world.connect()
            if all(next_ == 8 for next_ in world.next.values()):
                break
        assert set(map(tuple, world.arrived.values())) == {tuple(range(8))}, f"seed {seed}"
        assert world.most_buffered <= world.credit + 4 * KIB, f"seed {seed}"
