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
from bridge.messages.batch import Batch
from bridge.messages.block import KeptBody
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
    #: Of a large body: the chunks that were sent, and their bytes.
    chunks: int = 0
    sent: int = 0

    @property
    def weight(self) -> int:
        """Bytes of its BATCH frame that count for credit; those of a large body count with their chunks."""
        return 0 if self.batch.block is None else self.batch.block.size

    @property
    def unsent(self) -> KeptBody | None:
        """Its large body, while not all of it was sent; None: it has none, or it was."""
        large = None if self.batch.block is None else self.batch.block.large
        return None if large is None or self.sent >= large.body.size else large

    @property
    def stale(self) -> bool:
        """Whether the stream was opened again since."""
        return self.generation != self.stream.generation


@dataclass(frozen=True, slots=True)
class ChunkWanted:
    """Read a chunk of a large body, then call `Sender.chunk_read` or `Sender.chunk_lost`."""

    #: Of the batch whose message has the body.
    number: int
    kept: KeptBody
    #: The chunk's number, from 0.
    chunk: int


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
