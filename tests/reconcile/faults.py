"""What can happen to a simulated run: the words that `simulation` turns into lines and into the truth."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from tests.reconcile.model import Flow


class Fault(enum.Enum):
    """What happened to one slot."""

    NONE = enum.auto()
    #: Messages that the receiver covered and does not have.
    LOST = enum.auto()
    #: The receiver has it twice: all of it, its beginning, its end; or all of it, at the end of the log.
    DOUBLED = enum.auto()
    DOUBLED_BEGINNING = enum.auto()
    DOUBLED_END = enum.auto()
    DOUBLED_AT_THE_END = enum.auto()
    LATE = enum.auto()
    #: The receiver's line stands behind the next one.
    SWAPPED = enum.auto()
    #: The line is damaged, or its segment is gone.
    SENT_TORN = enum.auto()
    RECEIVED_TORN = enum.auto()
    SENT_MISSING = enum.auto()
    RECEIVED_MISSING = enum.auto()
    BOTH_MISSING = enum.auto()
    #: A crash before the outbox forgot the lines: they are written again, the same.
    REPEATED = enum.auto()
    #: The sender cut its batch anew and settled a part of it twice.
    SENT_AGAIN = enum.auto()
    #: The target knew the batch, and says so.
    REPLAYED = enum.auto()
    #: Refused positions, which neither side counts as messages; or only the sender does.
    REFUSED = enum.auto()
    REFUSED_AFTER_SENDING = enum.auto()
    #: The receiver has messages where the sender covered none.
    UNSENT = enum.auto()
    #: The sender learnt at an opening that the target has it.
    RECOVERED = enum.auto()
    #: The lane moved before its node wrote the line: the next owner writes it, too or alone.
    WRITTEN_BY_BOTH = enum.auto()
    WRITTEN_BY_THE_NEXT = enum.auto()


#: After these a side's log has no line of the slot.
NO_SENT: Final = frozenset({Fault.SENT_TORN, Fault.SENT_MISSING, Fault.BOTH_MISSING})
NO_RECEIVED: Final = frozenset({Fault.RECEIVED_TORN, Fault.RECEIVED_MISSING, Fault.BOTH_MISSING})


@dataclass(frozen=True, slots=True)
class Slot:
    """What the receiver covers with one line, and the one fault that it has."""

    #: Positions, at least 1; bit n of the masks stands for the n-th of them.
    width: int
    #: Which carry a message.
    messages: int
    fault: Fault = Fault.NONE
    #: Which of them the fault strikes.
    struck: int = 0
    #: Where the sender cut its batches: offsets; those that are not within the slot are none.
    cuts: tuple[int, ...] = ()
    #: Which of the two receiving nodes has the lane.
    owner: int = 0


@dataclass(frozen=True, slots=True)
class FlowSpec:
    """One bridge's stream into one store."""

    flow: Flow
    slots: tuple[Slot, ...]
    #: First position.
    start: int = 0
    #: ``sent`` or ``received``: the side whose log nobody has.
    gone: str | None = None
    address: str = "orders"
    sender: str = "edge"
    owners: tuple[str, str] = ("hub-0", "hub-1")
    lane: int = 0


class State(enum.Enum):
    """What becomes of a line on its way to the disk."""

    WHOLE = enum.auto()
    TORN = enum.auto()
    MISSING = enum.auto()
    REPEATED = enum.auto()


@dataclass(frozen=True, slots=True)
class Entry:
    """A line for a node's log; `order` is ascending there."""

    node: str
    order: float
    text: bytes
    state: State = State.WHOLE
