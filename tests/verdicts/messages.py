"""What the world of `tests.verdicts.world` is made of: messages, copies, and what became of each."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Fate(enum.Enum):
    """What became of one source position that carried a message, in the target's present life."""

    #: The target has not covered it: on its way, however long.
    OPEN = enum.auto()
    #: Stored, once or more often; retention may have taken copies since (`Truth.present`).
    STORED = enum.auto()
    #: Covered, and nowhere at the target.
    LOST = enum.auto()
    #: Covered and left out: the target had accepted its producer's ID before.
    REJECTED = enum.auto()
    #: Covered and empty: it can never be taken, and has a dead letter.
    REFUSED = enum.auto()
    #: Covered and empty: retention had taken it at the source before the bridge read it.
    EXPIRED = enum.auto()


@dataclass(slots=True)
class Message:
    """One message of a source stream."""

    position: int
    #: What the record itself carries as its duplicate ID; None: nothing, the bridge stamps it.
    id: bytes | None
    #: Whether `id` is a bridge's stamp that came with the record: several records may carry the same one.
    is_stamp: bool
    #: What the target's record carries: `id`, or this position's own stamp.
    carried: bytes
    #: Can never be taken by the target.
    is_refused: bool = False
    #: No longer at the source.
    is_gone: bool = False
    #: A bridge has read it and sent it, whatever became of it.
    was_sent: bool = False


@dataclass(slots=True)
class Stream:
    """One run of messages with an identity that is never reused."""

    identity: str
    partition: int
    first: int
    #: One beyond the last position.
    end: int
    #: By position; one without a message is a marker or a hole.
    messages: dict[int, Message] = field(default_factory=dict)
    #: What the source's own log says the target has confirmed.
    confirmed: int = 0
    #: The bridge goes no further: a gap that is not accepted, or a divergence.
    is_stopped: bool = False


@dataclass(slots=True)
class Copy:
    """A record at the target."""

    partition: int
    offset: int
    #: Which source message it is a copy of.
    stream: str
    position: int
    id: bytes
    #: Whether `id` is a stamp.
    is_stamp: bool
    #: Taken by the target's retention.
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class Truth:
    """What is true of one source position."""

    fate: Fate
    #: Copies that the target stored in its present life; and those of them that are still there, by place.
    stored: int
    present: tuple[tuple[int, int], ...]
    #: No longer at the source.
    is_gone: bool


@dataclass(frozen=True, slots=True)
class Record:
    """A row of one end's table, as a reader of the topic or address sees it."""

    partition: int
    offset: int
    #: The value of its duplicate-ID header; None: it has none.
    id: bytes | None
    is_stamp: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """What kind of bridge it is."""

    #: Tells this history's bridge, streams, stores and nodes from those of all others.
    number: int
    is_kafka_source: bool
    is_kafka_target: bool
    checks_ids: bool
    #: How many IDs the target remembers.
    cache: int
    partitions: int

    @property
    def bridge(self) -> str:
        """The bridge's name."""
        return f"bridge-{self.number}"

    @property
    def address(self) -> str:
        """The address or topic at both ends."""
        return f"orders-{self.number}"

    @property
    def store(self) -> str:
        """The target's store identity; a restored target keeps it."""
        return f"kafka:c-{self.number}" if self.is_kafka_target else f"hub-{self.number}:1f"

    @property
    def sender(self) -> str:
        """The node that writes the sent lines."""
        return f"edge-{self.number}"

    @property
    def receiver(self) -> str:
        """The node that writes the received lines."""
        return self.sender if self.is_kafka_target else f"hub-{self.number}"


@dataclass(frozen=True, slots=True)
class Line:
    """One delivery-log line as the product makes it; `tests.verdicts.log_lines` gives it its text."""

    #: Order of writing in this history, and in which life of the target (0: the first disk).
    order: int
    life: int
    side: str
    bridge: str | None
    stream: str
    from_: int
    upto: int
    #: Positions that carried a message; positions that were refused.
    messages: tuple[int, ...] = ()
    refused: tuple[int, ...] = ()
    ids: tuple[tuple[int | None, bytes], ...] = ()
    duplicates: int = 0
    verdict: str | None = None
    recovered: bool = False
    #: Of `messages`, those that were left out because the target knew them.
    known: tuple[int, ...] = ()
    #: IDs are listed although the target did not look them up.
    unchecked: bool = False
    #: Of a node's journal: which opening wrote it, its number, and which line the opening went on from.
    session: str | None = None
    number: int = 0
    after: tuple[str, int] | None = None
    #: Which of several stores, where the bridge fails over; empty: it has one.
    hub: str = ""
