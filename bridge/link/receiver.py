"""The receiving end of a link: batches go to the target in the order in which they come, and are answered in
it.

Pure (see `bridge.link.machine`). Several deliveries may be under way at the target, so that its group commit
has something to group; their outcomes are processed in the order of the batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from bridge.errors import BridgeError, OutOfSequence
from bridge.link import batch_frames, limits
from bridge.link.arriving import Arriving
from bridge.link.codec import decode
from bridge.link.compressor import PAYLOADS
from bridge.link.frames import (
    AnyFrame,
    BatchFrame,
    BodyFrame,
    BrokenFrame,
    Close,
    CloseCode,
    Credit,
    Frame,
    Hello,
    Notice,
    OpenStream,
    Ping,
    Pong,
    StopBody,
    StreamOpened,
    clipped,
    name_of,
)
from bridge.link.machine import HALTED_REASON, TAKEN, LinkState, Machine, Now, StreamGate
from bridge.link.receiving import (
    BodyEnded,
    Delivering,
    Event,
    Greeted,
    NodeIdentity,
    Opening,
    PieceArrived,
    ReceivedBatch,
    ReceivedBody,
    ReceivedStream,
    Stage,
)
from bridge.link.room import LinkRoom
from bridge.link.zstd import decompress, is_compressed
from bridge.messages.stream_names import StreamKind
from bridge.relay.counts import Traffic
from bridge.relay.ports import Receipt, Stream, StreamState
from dedup.verdict import Verdict

#: The names of the frames that may come compressed.
_COMPRESSED: Final = " and ".join(name_of(frame) for frame in PAYLOADS)


class Receiver(Machine[Event]):
    """The state machine of the end that receives batches."""

    def __init__(
        self,
        identity: NodeIdentity,
        *,
        call_timeout_ms: int,
        now: Now,
        room: LinkRoom | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        """`room`: of all links of the node; None: this link is alone. `traffic` counts what comes."""
        super().__init__(now, largest_sent=limits.ANSWER_MOST)
        self._traffic = traffic or Traffic()
        #: Whether batches and bodies may come compressed, by WELCOME.
        self._takes_compressed = False
        #: Called when a compressed frame that has come may be unpacked; None: none waits.
        self._unpacker: Callable[[], None] | None = None
        self._identity = identity
        self._room = room or LinkRoom(limits.NUMBER_MOST)
        self.arriving = Arriving(self._room, limits.largest_frame(identity.max_message_size))
        #: Bytes were counted as they came.
        self._counts = False
        self._call_timeout_ms = call_timeout_ms
        self._greeting_deadline_ms = limits.deadline_ms(now.ms, call_timeout_ms)
        self._streams: list[ReceivedStream] = []
        self._numbers = 0
        #: Batches not yet handed over; and all that are not answered, by number. Both in order.
        self._waiting: deque[ReceivedBatch] = deque()
        self._unanswered: dict[int, ReceivedBatch] = {}
        self._handed = 0
        #: The text of CLOSE once the link is STOPPING.
        self._stop_reason = ""
        #: Bytes that the sender may still send, and those while nothing is unanswered; and those that it gets
        #: back with the next CREDIT.
        self._credit = self._whole_credit = identity.credit
        self._returned = 0
        self._step = 1
        #: The large body that comes; None: none does. Counts those of the link.
        self._incoming: ReceivedBody | None = None
        self._bodies = 0
        #: Bytes that the unanswered batches take in memory; and the number of OPENs that are not answered.
        self._buffered = 0
        self._opens = 0

    def arrived(self, data: bytes, now_ms: int) -> bool:
        """As `Machine.arrived`; also counts the bytes in the room of all links."""
        self._liveness.heard_bytes(len(data), now_ms)
        if self.state is LinkState.CLOSED:
            return False
        self._counts = True
        if self.arriving.add(data):
            self._liveness.hold()
            return True
        return False

    def receive(self, data: bytes, now: Now) -> None:
        """As `Machine.receive`; then what is kept of the message counts in place of its bytes."""
        super().receive(data, now)
        if not self._counts or self.state is LinkState.CLOSED:
            return
        if not self.arriving.taken(len(data)):
            self.close(CloseCode.PROTOCOL, "bytes came before the upgrade was answered")
            return
        if self.arriving.is_unfinished:
            self._liveness.begin_frame(now.ms)
        if self.is_behind:
            self._liveness.hold()

    @property
    def is_held(self) -> bool:
        """Whether no bytes are to be read from the connection: the room of all links is full."""
        return self.arriving.held

    @property
    def is_behind(self) -> bool:
        """As `Machine.is_behind`: batches or OPENs wait for the target, or the room of all links is full."""
        return (
            self.arriving.held
            or (self._unpacker is not None and self._room.kept >= self._room.most)
            or self._opens >= limits.OPENS_MOST
            or self._buffered >= limits.BUFFERED_MOST
        )

    # ------------------------------------------------------------------ the target's answers

    def welcome(self, hello: Hello) -> None:
        """Let the sender begin: the target is there."""
        if self.state is not LinkState.DECIDING:
            return
        self.state = LinkState.OPEN
        self._step = hello.producer_window
        # As much as the sender's window, for a far line; what has come is bounded by `may_read` all the same.
        self._whole_credit = max(self._identity.credit, min(hello.window, self._room.most))
        self._credit = self._whole_credit
        welcome = self._identity.welcome(hello, self._whole_credit)
        self._takes_compressed = bool(welcome.compression)
        self._controls.append(welcome)

    def opened(self, index: int, state: StreamState) -> None:
        """Answer an `Opening` with the target's record of the stream."""
        if self.state is LinkState.CLOSED:
            return
        stream = self._streams[index]
        self._opens -= 1
        stream.opens -= 1
        if stream.opens == 0:
            stream.gate, stream.next = StreamGate.OPEN, state.next or 0
        run = clipped(state.run, limits.RUN_MOST)
        bodies = tuple((one.position, one.size, one.kept, one.digest) for one in state.bodies)
        bodies = bodies[: limits.BODIES_MOST]
        self._controls.append(
            StreamOpened(index, state.next, run, state.checksum, state.epoch, state.has_run, bodies)
        )

    def delivered(self, number: int, outcome: Receipt | BridgeError) -> None:
        """Take the target's answer to the batch that a `Delivering` named."""
        if self.state is LinkState.CLOSED:
            return
        delivery = self._unanswered[number]
        assert delivery.stage is Stage.HANDED, f"batch {number} was {delivery.stage.value}"
        delivery.stage, delivery.outcome = Stage.DONE, outcome
        self._handed -= 1
        self._answer()
        self._hand_over()
        self._close_if_stopped()

    def piece_stored(self, body: int, size: int) -> None:
        """Take note that a piece of so many bytes, which a `PieceArrived` named, is held no more."""
        if self.state is LinkState.CLOSED:
            return
        self._hold(-size - limits.ENTRY_BYTES)
        self._grant(size, at_once=True)
        found = self._body(body)
        if found is not None:
            found.unstored -= 1
            self._hand_over()

    def body_refused(self, body: int, verdict: Verdict, reason: str) -> None:
        """Answer the message of a large body that cannot be stored, whether or not all of that has come."""
        found = self._body(body)
        if self.state is not LinkState.OPEN or found is None:
            return
        stream = found.stream
        delivery = next((one for one in self._waiting if one.body is found), None)
        if delivery is None:
            self._controls.append(StopBody(stream.index, found.position, verdict, clipped(reason)))
            self._halt(stream)
            return
        position = found.position if verdict is Verdict.REFUSED else None
        delivery.outcome = Receipt(stream.stream.identity, verdict, stream.next, position, reason)
        delivery.stage = Stage.DONE
        self._waiting.remove(delivery)
        self._answer()
        self._hand_over()

    def _body(self, number: int) -> ReceivedBody | None:
        """The large body that comes, or waits for its last pieces to be stored; None: it has ended."""
        if self._incoming is not None and self._incoming.number == number:
            return self._incoming
        bodies = (delivery.body for delivery in self._waiting)
        return next((body for body in bodies if body is not None and body.number == number), None)

    def _halt(self, stream: ReceivedStream) -> None:
        """Take no more of the stream until it is opened again."""
        stream.gate = StreamGate.HALTED
        self._leave_body_of(stream)

    def _leave_body_of(self, stream: ReceivedStream) -> None:
        """Let go of the large body that comes of the stream: it may come again."""
        if self._incoming is not None and self._incoming.stream is stream:
            self._events.append(BodyEnded(self._incoming.number, may_come_again=True))
            self._incoming = None

    def _hold(self, size: int) -> None:
        """Count bytes that the link holds in memory, or holds no more."""
        self._buffered += size
        if size > 0:
            self._room.keep(size)
        else:
            self._room.release(-size)

    def stop(self, reason: str) -> None:
        """Answer the batches at the target, take no more, then close with STOPPING and the reason."""
        if self.state in (LinkState.GREETING, LinkState.DECIDING, LinkState.OPEN):
            self.state = LinkState.STOPPING
            self._stop_reason = reason
            self._close_if_stopped()

    def _close_if_stopped(self) -> None:
        if self.state is LinkState.STOPPING and self._handed == 0:
            self.close(CloseCode.STOPPING, self._stop_reason)

    def _let_go(self) -> None:
        self._waiting.clear()
        self._unanswered.clear()
        self._events.clear()
        if self._unpacker is not None:
            self._room.stay_packed(self._unpacker)
        buffered, self._buffered = self._buffered, 0
        self._room.release(buffered)
        self.arriving.end()

    @property
    def may_read(self) -> bool:
        """Whether to take another frame: the frames taken and not answered are bounded, and so are the
        answers.

        A full room of all links keeps bytes from coming (`is_held`), not frames that have come.
        """
        return (
            len(self._controls) < limits.ANSWERS_MOST
            and self._opens < limits.OPENS_MOST
            and self._buffered < limits.BUFFERED_MOST
        )

    def tick(self, now: Now) -> None:
        """As `Machine.tick`; also closes the link where no HELLO came within `call-timeout`."""
        if self.state is LinkState.GREETING and now.ms >= self._greeting_deadline_ms:
            self.close(CloseCode.TIMEOUT, f"no HELLO for {self._call_timeout_ms} ms")
        super().tick(now)

    def deadline_ms(self) -> int | None:
        """As `Machine.deadline_ms`, with the deadline of HELLO."""
        return self._greeting_deadline_ms if self.state is LinkState.GREETING else super().deadline_ms()

    # ------------------------------------------------------------------ frames in

    def _frame_in(self, data: bytes) -> AnyFrame:
        """As `Machine._frame_in`; the frame may be compressed."""
        compressed = is_compressed(data)
        content = decompress(data, self._content_most()) if compressed else data
        frame = decode(content)
        if isinstance(frame, PAYLOADS):
            self._frame_bytes = len(content)
            self._traffic.count(len(content), len(data))
        elif compressed:
            raise BrokenFrame(f"{name_of(frame)} came compressed; only {_COMPRESSED} may")
        return frame

    def may_take(self, data: bytes, wake: Callable[[], None]) -> bool:
        """As `Machine.may_take`: a compressed frame waits while the batches of all links take too much."""
        if not is_compressed(data):
            return True
        if self._room.may_unpack(wake):
            self._unpacker = None
            return True
        self._unpacker = wake
        self._liveness.hold()
        return False

    def _content_most(self) -> int:
        """The most bytes that a compressed frame may hold now: the sender's credit, as `_check_flow` counts
        it, and the lists beside the bodies. Raises: BrokenFrame: none may come.
        """
        if not self._takes_compressed:
            raise BrokenFrame("a compressed frame, where WELCOME names no compression")
        most = limits.largest_frame(self._identity.max_message_size)
        if not self._unanswered or self._credit == self._identity.credit:
            return most
        return min(most, max(self._credit, 0) + limits.FRAME_SLACK)

    def _on_hello(self, frame: Hello, now: Now) -> None:
        if frame.version != limits.VERSION:
            detail = f"this node speaks version {limits.VERSION}; found version {frame.version}"
            self.close(CloseCode.VERSION, detail, permanent=True)
            return
        self.state = LinkState.DECIDING
        self._watch(frame, now)
        self._events.append(Greeted(frame))

    def _on_open(self, frame: OpenStream, _now: Now) -> None:
        asked = Stream(
            frame.identity,
            frame.address,
            frame.target_address,
            frame.run,
            routing_type=frame.routing_type,
        )
        if frame.index > len(self._streams):
            raise BrokenFrame(f"OPEN.index: expected at most {len(self._streams)}; found {frame.index}")
        if frame.index == len(self._streams):
            self._streams.append(ReceivedStream(asked, frame.index))
        stream = self._streams[frame.index]
        if stream.stream.identity != asked.identity:
            known = stream.stream.identity
            raise BrokenFrame(f"OPEN.identity: stream {frame.index} is {known}; found {asked.identity}")
        if len(asked.run) > limits.NAME_MOST and asked.kind is not StreamKind.DEAD_LETTERS:
            raise BrokenFrame(f"OPEN.run: length 0 to {limits.NAME_MOST}; found {len(asked.run)}")
        stream.stream = asked
        self._leave_body_of(stream)
        stream.deferred += 1
        self._opens += 1
        self._open_if_answered(stream)

    def _on_batch(self, frame: BatchFrame, _now: Now) -> None:
        if frame.number != self._numbers:
            raise BrokenFrame(f"BATCH.number: expected {self._numbers}; found {frame.number}")
        stream = self._stream_of(frame)
        batch = batch_frames.to_batch(frame, stream.stream.identity)
        body = self._incoming
        if body is not None and body.stream is not stream:
            body = None
        self._check_flow(batch.size, of_body=body is not None)
        self._check_unanswered()
        if body is not None:
            body.check(batch)
            self._incoming = None
        self._numbers += 1
        self._credit -= batch.size
        buffered = batch_frames.buffered_bytes(frame, self._frame_bytes)
        self._hold(buffered)
        stream.unanswered += 1
        delivery = ReceivedBatch(frame.number, stream, batch, buffered, body=body)
        self._unanswered[frame.number] = delivery
        self._waiting.append(delivery)
        self._hand_over()

    def _on_body(self, frame: BodyFrame, _now: Now) -> None:
        self._check_flow(len(frame.piece), of_body=True)
        stream = self._stream_of(frame)
        self._credit -= len(frame.piece)
        if stream.gate is StreamGate.HALTED:
            # The sender has been told, and opens the stream again.
            self._grant(len(frame.piece), at_once=True)
            return
        body = self._incoming
        is_first = body is None
        if body is None:
            body = self._incoming = self._begin_body(frame, stream)
        elif not frame.piece:
            raise BrokenFrame("BODY.piece: only the first one of a body may be empty")
        body.add(frame)
        self._hold(len(frame.piece) + limits.ENTRY_BYTES)
        self._events.append(
            PieceArrived(
                body.number,
                stream.stream,
                body.position,
                body.size,
                frame.start,
                frame.piece,
                is_first,
            )
        )

    def _begin_body(self, frame: BodyFrame, stream: ReceivedStream) -> ReceivedBody:
        """The large body that begins with this frame. Raises: BrokenFrame."""
        if frame.size > (most := self._identity.max_body_size):
            raise BrokenFrame(f"BODY.size: at most {most}; found {frame.size}")
        if not frame.piece and frame.start != frame.size:
            raise BrokenFrame(f"BODY.piece: bytes expected from {frame.start} of {frame.size} on; found none")
        self._bodies += 1
        return ReceivedBody(self._bodies, stream, frame.position, frame.size, frame.start)

    def _stream_of(self, frame: BatchFrame | BodyFrame) -> ReceivedStream:
        """The stream of the frame. Raises: BrokenFrame: there is none, or it has no OPENED yet."""
        if frame.index >= (most := len(self._streams)):
            raise BrokenFrame(f"{name_of(frame)}.index: below {most} expected; found {frame.index}")
        stream = self._streams[frame.index]
        if stream.deferred or stream.gate is StreamGate.OPENING:
            raise BrokenFrame(f"{name_of(frame)} of stream {frame.index} before its OPENED")
        return stream

    def _ignore(self, _frame: Frame, _now: Now) -> None:
        """Ignore a frame that came too late: the sender is told STOPPING, and opens elsewhere or later."""

    def _check_flow(self, size: int, *, of_body: bool = False) -> None:
        """Hold the sender to its credit.

        `of_body`: it is a part of a large message, which may exceed the credit only where nothing uses any.
        """
        may_exceed = self._credit == self._whole_credit if of_body else not self._unanswered
        if size > self._credit and not may_exceed:
            raise BrokenFrame(f"BATCH: credit for {self._credit} bytes; found {size}")

    def _check_unanswered(self) -> None:
        if len(self._unanswered) >= limits.UNANSWERED_MOST:
            raise BrokenFrame(f"BATCH: at most {limits.UNANSWERED_MOST} unanswered; found one more")

    # ------------------------------------------------------------------ the way of a batch

    def _hand_over(self) -> None:
        """Give the target the batches that it may have now; none behind a batch that was not taken."""
        while self._waiting and self._handed < limits.DELIVERIES_MOST and self.state is LinkState.OPEN:
            if (body := self._waiting[0].body) is not None and body.unstored:
                return
            delivery = self._waiting.popleft()
            if delivery.stream.gate is StreamGate.HALTED:
                delivery.stage = Stage.DONE
                self._answer()
            else:
                delivery.stage = Stage.HANDED
                self._handed += 1
                number = None if body is None else body.number
                self._events.append(Delivering(delivery.number, delivery.batch, number))

    def _answer(self) -> None:
        """Send the receipts that are next in order."""
        while self._unanswered:
            delivery = next(iter(self._unanswered.values()))
            if delivery.stage is not Stage.DONE:
                return
            outcome = self._judged(delivery)
            if isinstance(outcome, BridgeError):
                self.fail(outcome)
                return
            stream = delivery.stream
            stream.next = outcome.next
            if outcome.verdict not in TAKEN:
                self._halt(stream)
            del self._unanswered[delivery.number]
            self._hold(-delivery.buffered)
            stream.unanswered -= 1
            self._controls.append(batch_frames.receipt_frame(outcome, delivery.number))
            if delivery.body is not None:
                again = outcome.verdict is Verdict.NOT_NOW
                self._events.append(BodyEnded(delivery.body.number, may_come_again=again))
            self._grant(delivery.batch.size)
            self._open_if_answered(stream)

    def _judged(self, delivery: ReceivedBatch) -> Receipt | BridgeError:
        """The target's word, unless a batch of the stream before this one was not taken.

        Then the sender gets NOT_NOW, whatever the target did with this one: the target got it before that was
        known, found it out of sequence, or stored the part of it that was not. The next OPEN shows which.
        """
        stream, outcome = delivery.stream, delivery.outcome
        halted = stream.gate is StreamGate.HALTED
        if halted and (outcome is None or isinstance(outcome, Receipt | OutOfSequence)):
            return Receipt(stream.stream.identity, Verdict.NOT_NOW, stream.next, reason=HALTED_REASON)
        assert outcome is not None, f"batch {delivery.number} was deferred on a stream that is not halted"
        return outcome

    def _grant(self, size: int, *, at_once: bool = False) -> None:
        """Give credit back in steps of the producer window, and at the latest when no batch is unanswered.

        `at_once`: a sender that is in the middle of a body may have nothing else that brings credit.
        """
        self._returned += size
        if self._returned and (at_once or self._returned >= self._step or not self._unanswered):
            self._controls.append(Credit(self._returned))
            self._credit += self._returned
            self._returned = 0

    def _open_if_answered(self, stream: ReceivedStream) -> None:
        """Ask the target about an OPEN once every batch before it is answered, or its answer would be out of
        date.
        """
        if stream.unanswered or not stream.deferred:
            return
        stream.gate = StreamGate.OPENING
        self._events.extend([Opening(stream.index, stream.stream)] * stream.deferred)
        stream.opens += stream.deferred
        stream.deferred = 0

    #: Every frame that may come.
    TABLE = {  # noqa: RUF012 - a constant of the class, as the base says
        (LinkState.GREETING, Hello): _on_hello,
        (LinkState.GREETING, Close): Machine.on_close,
        (LinkState.DECIDING, Pong): Machine.on_pong,
        (LinkState.DECIDING, Close): Machine.on_close,
        (LinkState.OPEN, OpenStream): _on_open,
        (LinkState.OPEN, BatchFrame): _on_batch,
        (LinkState.OPEN, BodyFrame): _on_body,
        (LinkState.OPEN, Ping): Machine.on_ping,
        (LinkState.OPEN, Pong): Machine.on_pong,
        (LinkState.OPEN, Notice): Machine.on_notice,
        (LinkState.OPEN, Close): Machine.on_close,
        (LinkState.STOPPING, OpenStream): _ignore,
        (LinkState.STOPPING, BatchFrame): _ignore,
        (LinkState.STOPPING, BodyFrame): _ignore,
        (LinkState.STOPPING, Ping): Machine.on_ping,
        (LinkState.STOPPING, Pong): Machine.on_pong,
        (LinkState.STOPPING, Notice): _ignore,
        (LinkState.STOPPING, Close): Machine.on_close,
    }
