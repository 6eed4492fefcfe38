"""Values of the receiving end: its identity, its requests to the shell, and its streams and batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from bridge.errors import BridgeError
from bridge.link import limits
from bridge.link.frames import Hello, Welcome
from bridge.link.machine import StreamGate
from bridge.messages.batch import Batch
from bridge.relay.ports import Receipt, Stream


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """The receiving node and its limits: the content of WELCOME."""

    node_id: str
    node_name: str
    #: Store identity.
    store: str
    #: Largest message body, bytes.
    max_message_size: int
    #: Bytes of batches that a link may have unanswered.
    credit: int = limits.INITIAL_CREDIT
    #: Returns the store identities that the node answers for beside its own.
    inherited: Callable[[], tuple[str, ...]] = tuple

    def welcome(self) -> Welcome:
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


Event = Greeted | Opening | Delivering


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
class ReceivedBatch:
    """A batch that has no receipt yet."""

    number: int
    stream: ReceivedStream
    batch: Batch
    #: Bytes that it takes in memory.
    buffered: int
    stage: Stage = Stage.WAITING
    #: With DONE; None: never handed over, because the stream was halted.
    outcome: Receipt | BridgeError | None = None
