"""The sending end of a link: batches in, in the order of the calls; receipts out, in order for each stream.

Pure (see `bridge.link.machine`). A pending request is a ticket: `open` and `deliver` return one, and an
`Answered` event brings its answer. A batch becomes a frame only when credit allows it to leave. Batches leave
in order; those of other streams pass a large body that is on its way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from bridge.errors import BridgeError, TargetUnavailable
from bridge.link import batch_frames, limits
from bridge.link.body_pace import BodyPace
from bridge.link.clock_offset import MEASURE_INTERVAL_MS
from bridge.link.compressor import PAYLOADS, Compressor
from bridge.link.frames import (
    AnyFrame,
    BatchFrame,
    BodyFrame,
    BrokenFrame,
    Close,
    CloseCode,
    Credit,
    Hello,
    Notice,
    OpenStream,
    Ping,
    Pong,
    ReceiptFrame,
    StopBody,
    StreamOpened,
    Welcome,
)
from bridge.link.machine import HALTED_REASON, TAKEN, LinkState, Machine, Now, StreamGate
from bridge.link.outgoing_body import OutgoingBody
from bridge.link.pending_requests import Answered, PendingRequests
from bridge.link.sending import ChunkWanted, OwnAnswer, SentBatch, SentStream, error_of
from bridge.messages.batch import Batch
from bridge.messages.block import KeptBody
from bridge.messages.message import MESSAGE_SLACK
from bridge.relay.ports import Receipt, Stream, StreamState, UnfinishedBody
from dedup.verdict import Verdict

#: The reason why a large message waits: the other node is older than large bodies are.
_TAKES_NO_BODIES = "LARGE_BODIES_NOT_TAKEN: the other node takes no body in chunks: update it"


class Sender(Machine[Answered | ChunkWanted]):
    """The state machine of the end that sends batches."""

    def __init__(
        self,
        hello: Hello,
        *,
        call_timeout_ms: int,
        now: Now,
        pace: BodyPace | None = None,
        compressor: Compressor | None = None,
    ) -> None:
        """`pace`: of large bodies, as the connection before has left it; None: this is the first.
        `compressor`: the one whose compressions HELLO names; None: nothing is compressed.
        """
        super().__init__(now, largest_sent=limits.LEAST_FRAME)
        self._compressor = compressor or Compressor("off")
        self._hello = hello
        self._call_timeout_ms = call_timeout_ms
        self._pending = PendingRequests(limits.deadline_ms(now.ms, call_timeout_ms))
        self._largest_message = 0
        #: Largest body that it takes in chunks.
        self._largest_body = 0
        self._credit = 0
        #: Credit while nothing is unanswered.
        self._whole_credit = 0
        self._numbers = 0
        self._streams: dict[str, SentStream] = {}
        self._by_index: list[SentStream] = []
        #: Batches not yet sent; then those sent (or answered here) and not yet answered to the caller. Both
        #: in order.
        self._waiting: deque[SentBatch] = deque()
        self._in_flight: deque[SentBatch] = deque()
        self._sent_unanswered = 0
        #: The batch whose large body is being sent; None: none is. Counts these bodies.
        self._body_of: SentBatch | None = None
        self._bodies = 0
        #: Batches that wait for its end: those of its stream, large ones, and those of their streams.
        self._behind: deque[SentBatch] = deque()
        self._streams_behind: set[int] = set()
        self._pace = pace or BodyPace()
        self._pace.connected()
        #: A piece of a body is next, where pieces and batches wait.
        self._piece_turn = True
        #: The next frame is a notice, where notices and batches wait.
        self._notice_turn = True
        #: The time at which the clocks may be compared again.
        self._measure_at_ms = now.ms
        self._controls.append(hello)

    def open(self, streams: Sequence[Stream], now: Now) -> int:
        """Open streams (at least one), or open them again; the ticket brings `Opened`.

        Their batches that have not been sent yet never will be: the answer is NOT_NOW.

        Raises:
            BridgeError: the link has ended (`error`).
        """
        self._check_open()
        ping = self._pings + 1 if self._sent_unanswered else None
        ticket = self._pending.new_open(len(streams), self._deadline_ms(now), ping)
        for asked in streams:
            stream = self._streams.get(asked.identity)
            if stream is None:
                stream = self._streams[asked.identity] = SentStream(asked.identity, len(self._by_index))
                self._by_index.append(stream)
            stream.gate = StreamGate.OPENING
            stream.generation += 1
            stream.opening.append(ticket)
            self._controls.append(
                OpenStream(
                    stream.index,
                    asked.identity,
                    asked.address,
                    asked.target_address,
                    asked.run,
                    asked.routing_type,
                )
            )
        if ping is not None:
            self._send_ping(now)
        return ticket

    def _deadline_ms(self, now: Now) -> int:
        return limits.deadline_ms(now.ms, self._call_timeout_ms)

    def deliver(self, batches: Sequence[Batch]) -> int:
        """Send batches (at least one) as credit allows; the ticket brings a receipt for each.

        Raises:
            BridgeError: the link has ended (`error`).
            TargetUnavailable: a stream was never opened on this link.
        """
        self._check_open()
        for batch in batches:
            if batch.stream not in self._streams:
                raise TargetUnavailable(f"stream {batch.stream} is not open on this link: open it first")
        ticket = self._pending.new_call(len(batches))
        for place, batch in enumerate(batches):
            stream = self._streams[batch.stream]
            self._waiting.append(SentBatch(batch, stream, stream.generation, ticket, place=place))
        return ticket

    def chunk_read(self, body: int, chunk: bytes) -> None:
        """Take the chunk that a `ChunkWanted` of this body named."""
        if self._body_of is not None and self._bodies == body:
            assert self._body_of.body is not None
            self._body_of.body.read(chunk)

    def chunk_lost(self, body: int, error: BridgeError) -> None:
        """End the link, because a chunk of this body cannot be read: its source has to say what is there."""
        if self._body_of is not None and self._bodies == body:
            self.close(CloseCode.TARGET_UNAVAILABLE, f"a large body cannot be read: {error.detail}")

    def error(self) -> BridgeError:
        """The reason why the link ended, as the error for its callers; a new one at each call."""
        assert self.ending is not None, "asked for the error of a link that has not ended"
        return error_of(self.ending)

    def _check_open(self) -> None:
        if self.state is LinkState.CLOSED:
            raise self.error()
        assert self.state is LinkState.OPEN, "a link is used only after its WELCOME"

    def _let_go(self) -> None:
        self._waiting.clear()
        self._behind.clear()
        self._in_flight.clear()
        self._body_of = None
        self._pending.clear()

    def tick(self, now: Now) -> None:
        """As `Machine.tick`; also ends the link where a call has waited for `call-timeout`."""
        overdue = self._pending.overdue(now.ms)
        if overdue is not None:
            detail = f"{overdue} not answered for {self._call_timeout_ms} ms (call-timeout)"
            self.close(CloseCode.TIMEOUT, detail)
        super().tick(now)

    def deadline_ms(self) -> int | None:
        """As `Machine.deadline_ms`, with the deadlines of the calls."""
        if self.state is LinkState.CLOSED:
            return None
        deadlines = (super().deadline_ms(), self._pending.deadline_ms())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    # ------------------------------------------------------------------ frames out

    def next_frame(self) -> AnyFrame | None:
        """Returns control frames first, so that a PONG never waits behind batches; then batches, in order,
        and between them the notices.

        May bring events: batches that need not be sent are answered here.
        """
        control = self._next_control()
        if control is not None or self.state is not LinkState.OPEN:
            return control
        return self._next_in_turn() if self._notices else self._next_batch()

    def packed(self, frame: AnyFrame, data: bytes, now: Now) -> bytes:
        """As `Machine.packed`; batches and bodies may be compressed."""
        return self._compressor.packed(frame, data, now.ms) if isinstance(frame, PAYLOADS) else data

    def _next_in_turn(self) -> Notice | BatchFrame | BodyFrame:
        """A notice and a batch by turns, so that neither waits until there is none of the other."""
        batch = None if self._notice_turn else self._next_batch()
        self._notice_turn = batch is not None
        return self._notices.popleft() if batch is None else batch

    def _next_batch(self) -> BatchFrame | BodyFrame | None:
        """The next batch; while a large body is on its way, a piece of it and a batch of another stream by
        turns.
        """
        if self._body_of is None:
            frame = self._next_waiting()
            if frame is not None or self._body_of is None:
                return frame
        if any(delivery.ended for delivery in self._behind):
            self._answer_behind()
        first, second = self._next_of_body, self._next_waiting
        if not self._piece_turn:
            first, second = second, first
        return first() or second()

    def _next_waiting(self) -> BatchFrame | BodyFrame | None:
        while self._waiting:
            delivery = self._waiting[0]
            stream = delivery.stream
            if self._waits_for_body(delivery):
                self._behind.append(self._waiting.popleft())
                self._streams_behind.add(stream.index)
            elif delivery.ended:
                self._answer_here(delivery, OwnAnswer(Verdict.NOT_NOW, HALTED_REASON))
            elif stream.gate is StreamGate.OPENING:
                return None
            elif (refusal := self._refusal(delivery.batch)) is not None:
                stream.gate = StreamGate.HALTED
                self._answer_here(delivery, refusal)
            elif delivery.large is not None:
                return self._begin_body(delivery, delivery.large)
            elif self._may_send(delivery.weight):
                self._piece_turn = True
                return self._send(self._waiting.popleft())
            else:
                return None
        return None

    def _answer_behind(self) -> None:
        """Answer the batches that wait for the end of a large body, and cannot be sent behind it any more."""
        behind = tuple(self._behind)
        self._behind.clear()
        for delivery in behind:
            if delivery.ended:
                self._waiting.appendleft(delivery)
                self._answer_here(delivery, OwnAnswer(Verdict.NOT_NOW, HALTED_REASON))
            else:
                self._behind.append(delivery)

    def _waits_for_body(self, delivery: SentBatch) -> bool:
        """Whether the batch cannot leave before the large body that is on its way."""
        if self._body_of is None:
            return False
        stream = delivery.stream
        behind = stream is self._body_of.stream or stream.index in self._streams_behind
        return behind or delivery.large is not None

    def _may_send(self, size: int) -> bool:
        """Whether a batch may be sent: there is credit, or none is in flight.

        Without the second a batch above the whole credit would wait for ever.
        """
        if self._sent_unanswered == 0:
            return True
        return size <= self._credit and self._sent_unanswered < limits.UNANSWERED_MOST

    @property
    def lacks_credit(self) -> bool:
        """Whether a batch, or a piece of a large body, waits for credit."""
        if self._body_of is not None:
            body = self._body_of.body
            assert body is not None
            return not body.wants_chunk and not self._has_credit(body.piece_size(self._pace.piece_bytes()))
        return bool(self._waiting) and not self._may_send(self._waiting[0].weight)

    def _send(self, delivery: SentBatch) -> BatchFrame:
        self._in_flight.append(delivery)
        delivery.number = self._numbers
        self._numbers += 1
        self._sent_unanswered += 1
        self._credit -= delivery.weight
        return batch_frames.to_frame(delivery.batch, delivery.number, delivery.stream.index)

    def _begin_body(self, delivery: SentBatch, kept: KeptBody) -> BatchFrame | BodyFrame | None:
        delivery.body = OutgoingBody(kept, delivery.stream.bodies.pop(delivery.position, None))
        self._body_of = self._waiting.popleft()
        self._bodies += 1
        return self._next_of_body()

    def _next_of_body(self) -> BatchFrame | BodyFrame | None:
        """The next piece of the large body, or the batch behind it.

        None: a chunk has to be read, or there is no credit.
        """
        delivery = self._body_of
        if delivery is None:
            return None
        body = delivery.body
        assert body is not None
        if delivery.ended:
            self._end_body(OwnAnswer(Verdict.NOT_NOW, HALTED_REASON))
            return self._next_waiting()
        if body.has_left:
            if self._sent_unanswered >= limits.UNANSWERED_MOST or not self._has_credit(delivery.weight):
                return None
            self._leave_body()
            return self._send(delivery)
        return self._next_piece(delivery, body)

    def _next_piece(self, delivery: SentBatch, body: OutgoingBody) -> BodyFrame | None:
        if body.wants_chunk:
            if not body.reading:
                body.reading = True
                self._events.append(ChunkWanted(body.kept, body.next_chunk, self._bodies))
            return None
        size = body.piece_size(self._pace.piece_bytes())
        if not self._has_credit(size) or not self._pace.has_room(size):
            return None
        start, piece = body.take(size)
        self._credit -= size
        self._pace.sent(size)
        self._piece_turn = False
        return BodyFrame(delivery.stream.index, delivery.position, body.kept.body.size, start, piece)

    def _leave_body(self) -> None:
        """Let the batches go on that have waited for the end of the large body."""
        self._body_of = None
        self._piece_turn = True
        self._streams_behind.clear()
        self._waiting.extendleft(reversed(self._behind))
        self._behind.clear()

    def _end_body(self, answer: OwnAnswer) -> None:
        """Answer the batch whose large body is on its way; no more of that is sent."""
        delivery = self._body_of
        assert delivery is not None
        self._leave_body()
        self._waiting.appendleft(delivery)
        self._answer_here(delivery, answer)

    def _has_credit(self, size: int) -> bool:
        """Whether credit covers a part of a large message, or nothing uses any of it."""
        return size <= self._credit or self._credit == self._whole_credit

    def _refusal(self, batch: Batch) -> OwnAnswer | None:
        """REFUSED for a message above the largest that the target takes, by its WELCOME.

        Answered here, because the target could not read its frame: the link would break at it for ever.
        """
        most = self._largest_message + MESSAGE_SLACK
        if batch.block is not None and batch.block.large is not None:
            return self._refusal_of_large(batch, batch.block.large)
        if batch.block is None or batch.block.largest <= most:
            return None
        position, size = batch_frames.first_above(batch, most)
        reason = f"MESSAGE_TOO_LARGE: the target takes {most} bytes encoded; found {size}"
        return OwnAnswer(Verdict.REFUSED, reason, position)

    def _refusal_of_large(self, batch: Batch, kept: KeptBody) -> OwnAnswer | None:
        """As `_refusal`, of a message with a large body. NOT_NOW for a node that takes none yet."""
        if not self._largest_body:
            return OwnAnswer(Verdict.NOT_NOW, _TAKES_NO_BODIES)
        if kept.body.size <= self._largest_body:
            return None
        found = f"the body has {kept.body.size} bytes; the target takes {self._largest_body}"
        return OwnAnswer(Verdict.REFUSED, f"MESSAGE_TOO_LARGE: {found}", batch.runs[0][0])

    def _answer_here(self, delivery: SentBatch, answer: OwnAnswer) -> None:
        delivery.own = answer
        self._in_flight.append(self._waiting.popleft())
        self._settle()

    # ------------------------------------------------------------------ frames in

    def _on_welcome(self, frame: Welcome, now: Now) -> None:
        if frame.version != limits.VERSION:
            detail = f"this node speaks version {limits.VERSION}; found version {frame.version}"
            self.close(CloseCode.VERSION, detail, permanent=True)
            return
        self._compressor.agree(frame.compression)
        self.state = LinkState.OPEN
        self._credit = self._whole_credit = frame.credit
        self._largest_body = frame.max_body_size
        self._largest_message = frame.max_message_size
        self.largest_sent = frame.max_frame_size
        self._watch(self._hello, now)
        self._events.append(self._pending.greeted(frame))

    def _on_opened(self, frame: StreamOpened, now: Now) -> None:
        stream = self._by_index[frame.index] if frame.index < len(self._by_index) else None
        if stream is None or not stream.opening:
            raise BrokenFrame(f"OPENED of stream {frame.index}, for which no OPEN waits")
        ticket = stream.opening.popleft()
        if not stream.opening:
            stream.gate, stream.next, stream.untaken = StreamGate.OPEN, frame.next or 0, False
            stream.bodies = {body[0]: UnfinishedBody(*body) for body in frame.bodies}
        state = StreamState(frame.next, frame.run, frame.checksum, frame.epoch, frame.has_run)
        self._emit(self._pending.opened(ticket, stream.identity, state))
        self._pending.go_on(self._deadline_ms(now))
        self._measure(now)

    def _measure(self, now: Now) -> None:
        """Compare the clocks, for the delivery log: first while nothing is in flight, then every
        `MEASURE_INTERVAL_MS`.

        Only when a frame comes: an idle link stays as silent as `check-period` allows.
        """
        if now.ms >= self._measure_at_ms:
            self._measure_at_ms = now.ms + MEASURE_INTERVAL_MS
            self._ping(now)

    def _on_receipt(self, frame: ReceiptFrame, now: Now) -> None:
        expected = self._in_flight[0].number if self._in_flight else None
        if frame.number != expected:
            raise BrokenFrame(f"RECEIPT.number: expected {expected}; found {frame.number}")
        delivery = self._in_flight.popleft()
        self._sent_unanswered -= 1
        self._compressor.answered(frame.number, now.ms)
        delivery.stream.next = frame.next
        offset_ms = self.clock_offset_ms
        receipt = batch_frames.to_receipt(
            frame, delivery.stream.identity, None if offset_ms is None else round(offset_ms)
        )
        stopped, stream = delivery.stopped, delivery.stream
        if stopped is not None and receipt.verdict is Verdict.NOT_NOW and not stream.untaken:
            receipt = replace(
                receipt, verdict=stopped.verdict, position=stopped.position, reason=stopped.reason
            )
        self._answer(delivery, receipt)
        self._settle()
        self._measure(now)

    def _on_pong(self, frame: Pong, now: Now) -> None:
        """As `Machine.on_pong`; the OPENs before the PING have been read, too."""
        self._pending.read(frame.number, self._deadline_ms(now))
        self.on_pong(frame, now)

    def _on_stop_body(self, frame: StopBody, _now: Now) -> None:
        """End the body, or keep the answer for the RECEIPT of its batch, which has left by now."""
        position = frame.position if frame.verdict is Verdict.REFUSED else None
        answer = OwnAnswer(frame.verdict, frame.reason, position)
        if frame.verdict in TAKEN:
            raise BrokenFrame(f"STOP_BODY.verdict: refused or not-now expected; found {frame.verdict.value}")
        place = (frame.index, frame.position)
        if self._body_of is not None and (self._body_of.stream.index, self._body_of.position) == place:
            self._body_of.stream.gate = StreamGate.HALTED
            self._end_body(answer)
            return
        for delivery in self._in_flight:
            if delivery.large is not None and (delivery.stream.index, delivery.position) == place:
                delivery.stopped = answer

    def _on_credit(self, frame: Credit, now: Now) -> None:
        self._credit += frame.bytes
        self._pace.confirmed(frame.bytes, now.ms)
        self._compressor.stored(frame.bytes, now.ms)

    def _settle(self) -> None:
        """Answer the batches that are answered here and have no sent batch before them."""
        while self._in_flight and (own := self._in_flight[0].own) is not None:
            delivery = self._in_flight.popleft()
            stream = delivery.stream
            if own.verdict is Verdict.REFUSED and (stream.untaken or delivery.stale):
                own = OwnAnswer(Verdict.NOT_NOW, HALTED_REASON)
            self._answer(
                delivery, Receipt(stream.identity, own.verdict, stream.next, own.position, own.reason)
            )

    def _answer(self, delivery: SentBatch, receipt: Receipt) -> None:
        stream = delivery.stream
        if receipt.verdict not in TAKEN and not delivery.stale:
            stream.gate, stream.untaken = StreamGate.HALTED, True
        self._emit(self._pending.receipt(delivery.ticket, delivery.place, receipt))

    def _emit(self, answered: Answered | None) -> None:
        if answered is not None:
            self._events.append(answered)

    #: Every frame that may come.
    TABLE = {  # noqa: RUF012 - a constant of the class, as the base says
        (LinkState.GREETING, Welcome): _on_welcome,
        (LinkState.GREETING, Ping): Machine.on_ping,
        (LinkState.GREETING, Close): Machine.on_close,
        (LinkState.OPEN, StreamOpened): _on_opened,
        (LinkState.OPEN, ReceiptFrame): _on_receipt,
        (LinkState.OPEN, StopBody): _on_stop_body,
        (LinkState.OPEN, Credit): _on_credit,
        (LinkState.OPEN, Ping): Machine.on_ping,
        (LinkState.OPEN, Pong): _on_pong,
        (LinkState.OPEN, Notice): Machine.on_notice,
        (LinkState.OPEN, Close): Machine.on_close,
    }
