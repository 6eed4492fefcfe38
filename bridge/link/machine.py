"""The common part of both ends of a link: the states, reading a frame, answering pings, closing.

An end is a machine without I/O. `receive`, `tick` and each end's own calls take an event and its time;
`next_frame` returns the frame to send, `take_events` the events that the shell has to act on, `deadline_ms`
the latest time to call `tick`. After CLOSED only the frames decided on before it are left, and the CLOSE.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import ClassVar, Final, Generic, NamedTuple, TypeVar

from bridge.errors import BridgeError, TargetRefused
from bridge.link import limits
from bridge.link.clock_offset import ClockOffset
from bridge.link.codec import check, decode
from bridge.link.frames import (
    AnyFrame,
    BrokenFrame,
    Close,
    CloseCode,
    Frame,
    Hello,
    Notice,
    Ping,
    Pong,
    clipped,
    name_of,
)
from bridge.link.liveness import Duty, Liveness
from dedup.verdict import Verdict


class Now(NamedTuple):
    """A moment by both clocks."""

    #: Never goes back: for deadlines. Milliseconds.
    ms: int
    #: Milliseconds since the epoch: shown to the other end.
    epoch_ms: int


class LinkState(Enum):
    """A link's life at either end. DECIDING and STOPPING are the receiver's only."""

    #: HELLO sent and not answered, or not come yet.
    GREETING = "GREETING"
    #: The receiver has HELLO and opens the target.
    DECIDING = "DECIDING"
    OPEN = "OPEN"
    #: The receiver answers the batches at the target, takes no more, and then closes.
    STOPPING = "STOPPING"
    CLOSED = "CLOSED"


class StreamGate(Enum):
    """A stream's state on a link, at either end."""

    #: OPEN sent and not answered, or come and not answered.
    OPENING = "OPENING"
    OPEN = "OPEN"
    #: A batch was not taken: no later one may be, until the stream is opened again.
    HALTED = "HALTED"


class Noticed(NamedTuple):
    """NOTICE came: hand its body to the extension at this end, where there is one."""

    body: bytes


class Ending(NamedTuple):
    """The end of a link: the CLOSE that was sent or came, or its equivalent for a lost connection."""

    code: str
    detail: str
    permanent: bool


#: The verdicts after which a stream goes on.
TAKEN: Final = (Verdict.STORED, Verdict.DUPLICATE)
#: The reason why a batch behind one that was not taken is NOT_NOW, at either end.
HALTED_REASON: Final = "STREAM_HALTED: a batch before this one was not taken; open the stream again"

#: Endings before which the notices leave that wait: the other end is there and reads.
_IN_PEACE: Final = (CloseCode.GOODBYE, CloseCode.STOPPING)

EventT = TypeVar("EventT")
#: The handler of a frame in a state; a frame that is not in the table is not allowed.
Table = Mapping[tuple[LinkState, type[Frame]], Callable[..., None]]


class Machine(Generic[EventT]):
    """One end of a link."""

    #: The handlers of each frame in each state: each end has its own.
    TABLE: ClassVar[Table] = {}

    def __init__(self, now: Now, largest_sent: int) -> None:
        self.state = LinkState.GREETING
        #: Set with CLOSED.
        self.ending: Ending | None = None
        #: Largest frame that the other end takes, bytes.
        self.largest_sent = largest_sent
        #: The clock offset, by the answers to PINGs.
        self._clock_offset = ClockOffset()
        self._liveness = Liveness(-1, -1, now.ms)
        self.unfinished_period_ms = self._liveness.unfinished_period_ms
        self._controls: deque[AnyFrame] = deque()
        #: PONGs among them.
        self._pongs = 0
        #: NOTICEs that wait to leave, in order.
        self._notices: deque[Notice] = deque()
        #: Bytes of the frame that came last.
        self._frame_bytes = 0
        self._events: list[EventT | Noticed] = []
        self._pings = 0
        self._ping_sent_ms: int | None = None

    def arrived(self, data: bytes, now_ms: int) -> bool:
        """Count bytes of the connection as they come: a part of a frame is a sign of life, too.

        Returns `is_held`. Call `tick` after `unfinished_period_ms` at the latest.
        """
        self._liveness.heard_bytes(len(data), now_ms)
        return False

    @property
    def is_held(self) -> bool:
        """Whether no bytes are to be read from the connection."""
        return False

    @property
    def is_behind(self) -> bool:
        """Whether this end does not read because of its own work: the other end is not to blame."""
        return False

    def receive(self, data: bytes, now: Now) -> None:
        """Act on a binary message of the other end. A broken or forbidden one closes the link."""
        if self.state is LinkState.CLOSED:
            return
        self._liveness.heard(now.ms)
        self._frame_bytes = len(data)
        try:
            frame = self._frame_in(data)
            act = self.TABLE.get((self.state, type(frame)))
            if act is None:
                raise BrokenFrame(f"{name_of(frame)} is not allowed here in state {self.state.value}")
            act(self, frame, now)
        except BrokenFrame as error:
            self.close(CloseCode.PROTOCOL, error.detail)

    def _frame_in(self, data: bytes) -> AnyFrame:
        """The frame in a message of the other end. Raises: BrokenFrame."""
        return decode(data)

    def may_take(self, _data: bytes, _wake: Callable[[], None]) -> bool:
        """Whether to act on a message that has come. Otherwise `_wake` is called when to ask again."""
        return True

    def packed(self, _frame: AnyFrame, data: bytes, _now: Now) -> bytes:
        """The message that carries a frame, which is encoded as `data`."""
        return data

    @property
    def may_read(self) -> bool:
        """Whether to take another frame. False while the other end does not read the answers it asks for.

        An end that only counts its PONGs reads on, however many other frames it has to send: so one end
        always reads, and the two never wait for each other.
        """
        return self._pongs < limits.ANSWERS_MOST

    def tick(self, now: Now) -> None:
        """Do everything that is due; call at `deadline_ms` at the latest; an earlier call does no harm."""
        if self.state is LinkState.CLOSED:
            return
        if not self.is_behind:
            self._liveness.resume(now.ms)
        match self._liveness.duty(now.ms):
            case Duty.PING:
                self._ping(now)
            case Duty.SILENT:
                silent_s = self._liveness.connection_ttl_ms / 1000
                self.close(
                    CloseCode.SILENT, f"the other end sent no byte for {silent_s:g} s (connection-ttl)"
                )
            case Duty.TOO_SLOW:
                slowness = self._liveness.slowness
                self.close(CloseCode.TOO_SLOW, f"the other end sent {slowness}, of a frame that is not whole")
            case Duty.NOTHING:
                pass

    @property
    def clock_offset_ms(self) -> float | None:
        """The other end's clock less this node's; None: not known yet."""
        best = self._clock_offset.best
        return None if best is None else best[1]

    @property
    def round_trip_ms(self) -> int | None:
        """The round trip of the PING and PONG that gave the offset, ms; the offset errs by half of it at
        most.
        """
        best = self._clock_offset.best
        return None if best is None else best[0]

    def deadline_ms(self) -> int | None:
        """The time at which `tick` is next due, by the clock that never goes back; None: not at all."""
        if self.state is LinkState.CLOSED:
            return None
        if self._liveness.held and not self.is_behind:
            return 0
        return self._liveness.deadline_ms()

    def next_frame(self) -> AnyFrame | None:
        """The next frame to send now; None: nothing can be sent now.

        Control frames in order; a notice when there is none.
        """
        control = self._next_control()
        return self._notices.popleft() if control is None and self._notices else control

    def _next_control(self) -> AnyFrame | None:
        if not self._controls:
            return None
        frame = self._controls.popleft()
        self._pongs -= isinstance(frame, Pong)
        return frame

    def notify(self, body: bytes) -> bool:
        """Send bytes to the extension at the other end, behind the control frames that wait.

        False: nothing is sent, for the link is not open, or `limits.NOTICES_MOST` wait to leave. The caller
        says it again later.

        Raises:
            BrokenFrame: the body is beyond `limits.NOTICE_MOST`.
        """
        notice = Notice(body)
        check(notice)
        if self.state is not LinkState.OPEN or len(self._notices) >= limits.NOTICES_MOST:
            return False
        self._notices.append(notice)
        return True

    def take_events(self) -> list[EventT | Noticed]:
        """The events since the last call, in order."""
        events, self._events = self._events, []
        return events

    def close(self, code: str, detail: str, *, permanent: bool = False) -> None:
        """End the link and tell the other end why. Does nothing where the link has ended."""
        if self.state is not LinkState.CLOSED:
            if code in _IN_PEACE:
                self._controls.extend(self._notices)
            self._controls.append(Close(code, clipped(detail), permanent))
            self._end(Ending(code, detail, permanent))

    def fail(self, error: BridgeError) -> None:
        """End the link because this end cannot go on: the other end gets the error's code."""
        self.close(error.code, error.detail, permanent=isinstance(error, TargetRefused))

    def lost(self, detail: str) -> None:
        """End the link after its connection was lost."""
        self._controls.clear()
        if self.state is not LinkState.CLOSED:
            self._end(Ending(CloseCode.TARGET_UNAVAILABLE, detail, permanent=False))

    def _watch(self, hello: Hello, now: Now) -> None:
        """Begin to measure silence, by the bridge's settings; both ends do so from the handshake on."""
        self._liveness = Liveness(hello.check_period_ms, hello.connection_ttl_ms, now.ms)
        self.unfinished_period_ms = self._liveness.unfinished_period_ms

    def _end(self, ending: Ending) -> None:
        self.state = LinkState.CLOSED
        self.ending = ending
        self._notices.clear()
        self._let_go()

    def _let_go(self) -> None:
        """Drop the messages on their way: a caller that still holds the machine must not hold messages by
        it.
        """

    def _ping(self, now: Now) -> None:
        """Send a PING, unless one still waits to leave."""
        if any(isinstance(frame, Ping) for frame in self._controls):
            return
        self._send_ping(now)

    def _send_ping(self, now: Now) -> None:
        self._ping_sent_ms = now.ms
        self._pings += 1
        self._controls.append(Ping(self._pings, now.epoch_ms))

    def on_ping(self, frame: Ping, now: Now) -> None:
        """Answer with both clocks."""
        self._controls.append(Pong(frame.number, frame.sent, now.epoch_ms))
        self._pongs += 1

    def on_pong(self, frame: Pong, now: Now) -> None:
        """Compute the offset of the clocks from the answer to the last PING."""
        if frame.number != self._pings or self._ping_sent_ms is None:
            return
        self._clock_offset.answered(frame.sent, now.ms - self._ping_sent_ms, frame.received)
        self._ping_sent_ms = None

    def on_notice(self, frame: Notice, _now: Now) -> None:
        """Hand the bytes on at once: none of them are kept here."""
        self._events.append(Noticed(frame.body))

    def on_close(self, frame: Close, _now: Now) -> None:
        """End the link for the reason that the other end gives."""
        self._controls.clear()
        self._end(Ending(frame.code, frame.detail, frame.permanent))
