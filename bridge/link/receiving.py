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
    #: Bytes of batches that a link may have unanswered.
    credit: int = limits.INITIAL_CREDIT
    #: Returns the store identities that the node answers for beside its own.
    inherited: Callable[[], tuple[str, ...]] = tuple
    #: Largest body that comes in chunks, bytes; 0: none does.
    max_body_size: int = 0
    #: Whether it takes batches and bodies that are compressed.
    takes_compressed: bool = True

    def welcome(self, hello: Hello) -> Welcome:
        """The answer to HELLO."""
        return Welcome(
            version=limits.VERSION,
            node_id=self.node_id,
            node_name=self.node_name,
            store=self.store,
            credit=self.credit,
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


@dataclass(frozen=True, slots=True)
class ChunkArrived:
    """Store the chunk, after those that came before it; then call `Receiver.chunk_stored`, or
    `Receiver.body_refused`.
    """

    #: The number of the batch whose one message has the body.
    number: int
    stream: Stream
    #: Bytes of the whole body.
    size: int
    chunk: bytes


@dataclass(frozen=True, slots=True)
class BodyEnded:
    """No more comes of the body of this batch, which has been answered: let go of it."""

    number: int


Event = Greeted | Opening | Delivering | ChunkArrived | BodyEnded


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

    #: Its large body comes.
    ARRIVING = "arriving"
    WAITING = "waiting"
    #: At the target.
    HANDED = "handed"
    DONE = "done"


@dataclass(slots=True)
class ReceivedBody:
    """The large body of a batch's one message, as it comes."""

    #: Position of the message.
    position: int
    #: Bytes of the whole, those that have come, and those of them that are not stored yet.
    size: int
    came: int = 0
    unstored: int = 0

    def add(self, frame: BodyFrame, index: int) -> None:
        """Count a chunk that has come, of the stream with this index. Raises: BrokenFrame."""
        if (frame.index, frame.position, frame.size) != (index, self.position, self.size):
            raise BrokenFrame(f"BODY {frame.number}: its fields differ from those of its first frame")
        self.came += len(frame.chunk)
        if self.came > self.size:
            raise BrokenFrame(f"BODY {frame.number}: a body of {self.size} bytes; found {self.came}")


@dataclass(slots=True)
class ReceivedBatch:
    """A batch that has no receipt yet."""

    number: int
    stream: ReceivedStream
    #: None: its large body comes first.
    batch: Batch | None
    #: Bytes that it takes in memory, without those of a large body.
    buffered: int
    stage: Stage = Stage.WAITING
    #: Its large body, where it has one.
    body: ReceivedBody | None = None
    #: With DONE; None: never handed over, because the stream was halted.
    outcome: Receipt | BridgeError | None = None

    def complete(self, stream: ReceivedStream, batch: Batch, buffered: int) -> None:
        """Take the batch whose large body has come. Raises: BrokenFrame: it is not that body's."""
        body = self.body
        assert body is not None
        if stream is not self.stream or list(batch.runs) != [(body.position, body.position)]:
            raise BrokenFrame(f"BATCH {self.number}: expected the message at {body.position} of its BODY")
        if body.came != body.size:
            raise BrokenFrame(f"BATCH {self.number}: a body of {body.size} bytes; found {body.came}")
        self.batch, self.buffered, self.stage = batch, buffered, Stage.WAITING
