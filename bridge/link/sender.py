"""The sending end of a link: batches in, in the order of the calls; receipts out, in the same order.

Pure (see `bridge.link.machine`). A pending request is a ticket: `open` and `deliver` return one, and an
`Answered` event brings its answer. A batch becomes a frame only when credit allows it to leave.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from bridge.errors import BridgeError, TargetUnavailable
from bridge.link import batch_frames, limits
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
    StreamOpened,
    Welcome,
)
from bridge.link.machine import HALTED_REASON, TAKEN, LinkState, Machine, Now, StreamGate
from bridge.link.pending_requests import Answered, PendingRequests
from bridge.link.sending import ChunkWanted, OwnAnswer, SentBatch, SentStream, error_of
from bridge.messages.batch import Batch
from bridge.messages.block import KeptBody
from bridge.messages.message import MESSAGE_SLACK
from bridge.relay.ports import Receipt, Stream, StreamState
from dedup.verdict import Verdict

#: The reason why a large message waits: the other node is older than large bodies are.
_TAKES_NO_BODIES = "LARGE_BODIES_NOT_TAKEN: the other node takes no body in chunks: update it"


class Sender(Machine[Answered | ChunkWanted]):
    """The state machine of the end that sends batches."""

    def __init__(
        self, hello: Hello, *, call_timeout_ms: int, now: Now, compressor: Compressor | None = None
    ) -> None:
        """`compressor`: the one whose compressions HELLO names; None: nothing is compressed."""
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
        #: The batch whose large body is being sent, before any other; None: none is. Its next chunk, where
        #: that was read; whether it is being read.
        self._body_of: SentBatch | None = None
        self._chunk: bytes | None = None
        self._reading = False
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
        for batch in batches:
            stream = self._streams[batch.stream]
            self._waiting.append(SentBatch(batch, stream, stream.generation, ticket))
        return ticket

    def chunk_read(self, number: int, chunk: bytes) -> None:
        """Take the chunk that a `ChunkWanted` of this batch named."""
        if self._body_of is not None and self._body_of.number == number:
            self._chunk, self._reading = chunk, False

    def chunk_lost(self, number: int, error: BridgeError) -> None:
        """End the link, because a chunk of this batch's body cannot be read: its source has to say what is
        there.
        """
        if self._body_of is not None and self._body_of.number == number:
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
        self._in_flight.clear()
        self._body_of = self._chunk = None
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
        if self._body_of is not None:
            return self._next_of_body(self._body_of)
        while self._waiting:
            delivery = self._waiting[0]
            stream = delivery.stream
            if delivery.stale or stream.gate is StreamGate.HALTED:
                self._answer_here(delivery, OwnAnswer(Verdict.NOT_NOW, HALTED_REASON))
            elif stream.gate is StreamGate.OPENING:
                return None
            elif (refusal := self._refusal(delivery.batch)) is not None:
                stream.gate = StreamGate.HALTED
                self._answer_here(delivery, refusal)
            elif self._may_send(delivery.weight):
                return self._send(delivery)
            else:
                return None
        return None

    def _may_send(self, size: int) -> bool:
        """Whether a batch may be sent: there is credit, or none is in flight.

        Without the second a batch above the whole credit would wait for ever.
        """
        if self._sent_unanswered == 0:
            return True
        return size <= self._credit and self._sent_unanswered < limits.UNANSWERED_MOST

    def _send(self, delivery: SentBatch) -> BatchFrame | BodyFrame | None:
        self._in_flight.append(self._waiting.popleft())
        delivery.number = self._numbers
        self._numbers += 1
        self._sent_unanswered += 1
        if delivery.unsent is not None:
            self._body_of, self._chunk, self._reading = delivery, None, False
            return self._next_of_body(delivery)
        return self._frame(delivery)

    def _next_of_body(self, delivery: SentBatch) -> BatchFrame | BodyFrame | None:
        """The next chunk of the batch's large body, or the batch behind it.

        None: the chunk has to be read, or there is no credit.
        """
        kept, number = delivery.unsent, delivery.number
        assert number is not None
        if kept is None:
            if not self._has_credit(delivery.weight):
                return None
            self._body_of = None
            return self._frame(delivery)
        chunk = self._chunk
        if chunk is None:
            if not self._reading:
                self._reading = True
                self._events.append(ChunkWanted(number, kept, delivery.chunks))
            return None
        if not self._has_credit(len(chunk)):
            return None
        self._chunk = None
        self._credit -= len(chunk)
        delivery.chunks += 1
        delivery.sent += len(chunk)
        ((position, _),) = delivery.batch.runs
        return BodyFrame(number, delivery.stream.index, position, kept.body.size, chunk)

    def _has_credit(self, size: int) -> bool:
        """Whether credit covers a part of a large message, or nothing uses any of it."""
        return size <= self._credit or self._credit == self._whole_credit

    def _frame(self, delivery: SentBatch) -> BatchFrame:
        self._credit -= delivery.weight
        assert delivery.number is not None
        return batch_frames.to_frame(delivery.batch, delivery.number, delivery.stream.index)

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
        if delivery is self._body_of:  # answered before all of its body was sent
            self._body_of = self._chunk = None
        delivery.stream.next = frame.next
        offset_ms = self.clock_offset_ms
        receipt = batch_frames.to_receipt(
            frame, delivery.stream.identity, None if offset_ms is None else round(offset_ms)
        )
        self._answer(delivery, receipt)
        self._settle()
        self._measure(now)

    def _on_pong(self, frame: Pong, now: Now) -> None:
        """As `Machine.on_pong`; the OPENs before the PING have been read, too."""
        self._pending.read(frame.number, self._deadline_ms(now))
        self.on_pong(frame, now)

    def _on_credit(self, frame: Credit, _now: Now) -> None:
        self._credit += frame.bytes

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
        self._emit(self._pending.receipt(delivery.ticket, receipt))

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
        (LinkState.OPEN, Credit): _on_credit,
        (LinkState.OPEN, Ping): Machine.on_ping,
        (LinkState.OPEN, Pong): _on_pong,
        (LinkState.OPEN, Notice): Machine.on_notice,
        (LinkState.OPEN, Close): Machine.on_close,
    }
