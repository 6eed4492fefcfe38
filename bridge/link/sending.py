"""Values of the sending end: its streams and batches, and the error for its callers when the link ends."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from bridge.errors import (
    BridgeError,
    Fenced,
    OutOfSequence,
    TargetRefused,
    TargetStopping,
    TargetUnavailable,
)
from bridge.link.frames import CloseCode
from bridge.link.machine import Ending, StreamGate
from bridge.link.outgoing_body import OutgoingBody
from bridge.messages.batch import Batch
from bridge.messages.block import KeptBody
from bridge.relay.ports import UnfinishedBody
from dedup.verdict import Verdict


@dataclass(slots=True)
class SentStream:
    """A stream as the sending end knows it."""

    identity: str
    index: int
    gate: StreamGate = StreamGate.OPENING
    #: PendingRequests whose OPEN has not been answered, in order.
    opening: deque[int] = field(default_factory=deque)
    #: The target's next, by its last answer.
    next: int = 0
    #: Counts OPENs: a batch handed in before the latest of them must not be sent after it.
    generation: int = 0
    #: A batch of this generation was answered, and not taken.
    untaken: bool = False
    #: What the receiver has kept of large bodies, by its last OPENED and by position.
    bodies: dict[int, UnfinishedBody] = field(default_factory=dict)


@dataclass(slots=True)
class SentBatch:
    """One batch on its way."""

    batch: Batch
    stream: SentStream
    generation: int
    ticket: int
    #: Its frame's number; None: not sent.
    number: int | None = None
    #: The reason why it is not sent but answered here.
    own: OwnAnswer | None = None
    #: Its place among the batches of its call.
    place: int = 0
    #: Its large body, once that is being sent.
    body: OutgoingBody | None = None
    #: What the receiver said of it before its BATCH came (STOP_BODY).
    stopped: OwnAnswer | None = None

    @property
    def weight(self) -> int:
        """Bytes of its BATCH frame that count for credit; those of a large body count with their chunks."""
        return 0 if self.batch.block is None else self.batch.block.size

    @property
    def large(self) -> KeptBody | None:
        """Its large body; None: it has none."""
        return None if self.batch.block is None else self.batch.block.large

    @property
    def position(self) -> int:
        """The position of its first message; of a large one it is the only one."""
        return self.batch.runs[0][0]

    @property
    def stale(self) -> bool:
        """Whether the stream was opened again since."""
        return self.generation != self.stream.generation

    @property
    def ended(self) -> bool:
        """Whether it can only be answered: its stream was opened again, or takes no more until it is."""
        return self.stale or self.stream.gate is StreamGate.HALTED


@dataclass(frozen=True, slots=True)
class ChunkWanted:
    """Read a chunk of a large body, then call `Sender.chunk_read` or `Sender.chunk_lost`."""

    kept: KeptBody
    #: The chunk's number, from 0.
    chunk: int
    #: Counts the bodies that the link has sent: which one it is.
    body: int


@dataclass(frozen=True, slots=True)
class OwnAnswer:
    """The answer that the target would give, by its WELCOME and its receipts."""

    verdict: Verdict
    reason: str
    position: int | None = None


def error_of(ending: Ending) -> BridgeError:
    """The error of the port `Target` for a link's end."""
    if not ending.permanent and ending.code == CloseCode.OUT_OF_SEQUENCE:
        return OutOfSequence(ending.detail)
    if not ending.permanent and ending.code == CloseCode.FENCED:
        return Fenced(ending.detail)
    stopping = TargetStopping if ending.code == CloseCode.STOPPING else TargetUnavailable
    kind = TargetRefused if ending.permanent else stopping
    # An error is shown with its own code before its text.
    return kind(ending.detail if ending.code == kind.code else f"{ending.code}: {ending.detail}")
