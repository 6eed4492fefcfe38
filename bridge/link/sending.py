"""What the sending end keeps of its streams and batches, and what a link's end means to its callers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from bridge.errors import BridgeError, Fenced, OutOfSequence, TargetRefused, TargetUnavailable
from bridge.link.frames import CloseCode
from bridge.link.machine import Ending, StreamGate
from bridge.messages.batch import Batch
from dedup.verdict import Verdict


@dataclass(slots=True)
class SentStream:
    """A stream as the sending end knows it."""

    identity: str
    index: int
    gate: StreamGate = StreamGate.OPENING
    #: Tickets whose OPEN has not been answered, in order.
    opening: deque[int] = field(default_factory=deque)
    #: The target's next as last heard.
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
    #: Why it is not sent but answered here.
    own: OwnAnswer | None = None

    @property
    def stale(self) -> bool:
        """The stream was opened again since."""
        return self.generation != self.stream.generation


@dataclass(frozen=True, slots=True)
class OwnAnswer:
    """What the target would say, by what it said in WELCOME and in its receipts."""

    verdict: Verdict
    reason: str
    position: int | None = None


def error_of(ending: Ending) -> BridgeError:
    """A link's end as what the port `Target` raises."""
    if not ending.permanent and ending.code == CloseCode.OUT_OF_SEQUENCE:
        return OutOfSequence(ending.detail)
    if not ending.permanent and ending.code == CloseCode.FENCED:
        return Fenced(ending.detail)
    kind = TargetRefused if ending.permanent else TargetUnavailable
    # An error is shown with its own code before it.
    return kind(ending.detail if ending.code == kind.code else f"{ending.code}: {ending.detail}")
