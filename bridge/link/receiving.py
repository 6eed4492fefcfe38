"""Values of the receiving end: its identity, its requests to the shell, and its streams and batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from bridge.errors import BridgeError
from bridge.link import limits
from bridge.link.frames import BodyFrame, BrokenFrame, Hello, Welcome
from bridge.link.machine import StreamGate
from bridge.link.zstd import ZSTD
from bridge.messages.batch import Batch
from bridge.relay.ports import Receipt, Stream


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """The receiving node and its limits: the content of WELCOME."""

    node_id: str
    node_name: str
    #: Store identity.
    store: str
    #: Largest message body in a batch, bytes.
    max_message_size: int
    #: Bytes of batches that a link may have unanswered, where its sender asks for no more.
    credit: int = limits.INITIAL_CREDIT
    #: Returns the store identities that the node answers for beside its own.
    inherited: Callable[[], tuple[str, ...]] = tuple
    #: Largest body that comes in chunks, bytes; 0: none does.
    max_body_size: int = 0
    #: Whether it takes batches and bodies that are compressed.
    takes_compressed: bool = True

    def welcome(self, hello: Hello, credit: int) -> Welcome:
        """The answer to HELLO, with this credit."""
        return Welcome(
            version=limits.VERSION,
            node_id=self.node_id,
            node_name=self.node_name,
            store=self.store,
            credit=credit,
            max_message_size=self.max_message_size,
            max_frame_size=limits.largest_frame(self.max_message_size),
            inherited=self.inherited(),
            max_body_size=self.max_body_size,
            compression=ZSTD if self.takes_compressed and ZSTD in hello.compression else "",
        )


@dataclass(frozen=True, slots=True)
class Greeted:
    """HELLO came: answer with `Receiver.welcome` or `Receiver.fail`."""

    hello: Hello


@dataclass(frozen=True, slots=True)
class Opening:
    """Open the stream at the target, then call `Receiver.opened`."""

    index: int
    stream: Stream


@dataclass(frozen=True, slots=True)
class Delivering:
    """Hand the batch to the target now, before any that comes later; then call `Receiver.delivered`."""

    number: int
    batch: Batch
    #: The large body of its one message; None: it has none.
    body: int | None = None


@dataclass(frozen=True, slots=True)
class PieceArrived:
    """Store the piece, after those that came before it; then call `Receiver.piece_stored`, or
    `Receiver.body_refused`.
    """

    #: Counts the bodies of the link: which one it is of.
    body: int
    stream: Stream
    #: Position of its message.
    position: int
    #: Bytes of the whole body, and of it before this piece.
    size: int
    start: int
    piece: bytes
    #: It is the first that has come of the body; it is empty where all of the body is kept.
    is_first: bool


@dataclass(frozen=True, slots=True)
class BodyEnded:
    """No more comes of this body: let go of it."""

    body: int
    #: It may come again: its message has not been taken, and not been refused.
    may_come_again: bool


Event = Greeted | Opening | Delivering | PieceArrived | BodyEnded


@dataclass(slots=True)
class ReceivedStream:
    """A stream as the receiving end knows it."""

    #: The stream, by the last OPEN.
    stream: Stream
    index: int
    gate: StreamGate = StreamGate.OPENING
    #: OPENs that wait for the answers of the batches before them.
    deferred: int = 0
    #: OPENs that are at the target and not answered.
    opens: int = 0
    #: Batches not answered yet.
    unanswered: int = 0
    #: The target's next, by its last answer.
    next: int = 0


class Stage(Enum):
    """The stage that a batch has reached."""

    WAITING = "waiting"
    #: At the target.
    HANDED = "handed"
    DONE = "done"


@dataclass(slots=True)
class ReceivedBody:
    """A large body as it comes, before the batch of its message."""

    #: Counts the bodies of the link.
    number: int
    stream: ReceivedStream
    #: Position of the message.
    position: int
    #: Bytes of the whole; those that have come, on this link or before; pieces that are not stored yet.
    size: int
    came: int
    unstored: int = 0

    def add(self, frame: BodyFrame) -> None:
        """Count a piece that has come. Raises: BrokenFrame."""
        found = (frame.index, frame.position, frame.size, frame.start)
        expected = (self.stream.index, self.position, self.size, self.came)
        if found != expected:
            fields = "index, position, size and start"
            raise BrokenFrame(f"BODY: expected {fields} {expected}; found {found}")
        self.came += len(frame.piece)
        self.unstored += 1
        if self.came > self.size:
            raise BrokenFrame(f"BODY: a body of {self.size} bytes; found {self.came}")

    def check(self, batch: Batch) -> None:
        """Check that the batch is that of this body, all of which has come. Raises: BrokenFrame."""
        if list(batch.runs) != [(self.position, self.position)]:
            raise BrokenFrame(f"BATCH: expected the message at {self.position} of the BODY before it")
        if self.came != self.size:
            raise BrokenFrame(f"BATCH: a body of {self.size} bytes; found {self.came}")


@dataclass(slots=True)
class ReceivedBatch:
    """A batch that has no receipt yet."""

    number: int
    stream: ReceivedStream
    batch: Batch
    #: Bytes that it takes in memory, without those of a large body.
    buffered: int
    stage: Stage = Stage.WAITING
    #: Its large body, where it has one.
    body: ReceivedBody | None = None
    #: With DONE; None: never handed over, because the stream was halted.
    outcome: Receipt | BridgeError | None = None
