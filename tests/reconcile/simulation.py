"""Logs of simulated runs with known faults: what the two ends of a bridge write, and what is true of it.

A flow is a row of slots, each with at most one fault. So the truth is known from how the lines were made,
slot by slot, without looking at them again: `tests.reconcile.model`, which only reads, must agree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Final

from bridge import delivery_log
from bridge.messages import positions as run_arithmetic
from tests.reconcile.faults import NO_RECEIVED, NO_SENT, Entry, Fault, FlowSpec, Slot, State
from tests.reconcile.model import FlowTruth

#: When the messages of the first slot were stored at the source, ms since the epoch; and of each slot after.
BEGAN_MS: Final = 1_700_000_000_000
SLOT_MS: Final = 1_000
#: What a message takes from end to end, and what a late one takes.
USUAL_MS: Final = 5
LATE_MS: Final = 3_600_000

_SENT_STATES: Final = {
    Fault.SENT_TORN: State.TORN,
    Fault.SENT_MISSING: State.MISSING,
    Fault.BOTH_MISSING: State.MISSING,
    Fault.REPEATED: State.REPEATED,
}
_RECEIVED_STATES: Final = {
    Fault.RECEIVED_TORN: State.TORN,
    Fault.RECEIVED_MISSING: State.MISSING,
    Fault.BOTH_MISSING: State.MISSING,
    Fault.REPEATED: State.REPEATED,
}
_WHERE_REFUSED: Final = {
    Fault.REFUSED: ("sent", "received"),
    Fault.REFUSED_AFTER_SENDING: ("received",),
}


def simulate(spec: FlowSpec) -> tuple[list[Entry], FlowTruth]:
    """The lines of both sides, and what is true of them."""
    run = _Run(spec)
    for number in range(len(spec.slots)):
        if spec.gone != "sent":
            run.send(number)
        if spec.gone != "received":
            run.receive(number)
        run.judge(number)
    return run.entries, run.truth


@dataclass(frozen=True, slots=True)
class _Made:
    """A slot at its place: sets of positions."""

    slot: Slot
    start: int
    struck: set[int]
    #: What each side's line names.
    sent: set[int]
    received: set[int]

    @classmethod
    def at(cls, slot: Slot, start: int) -> _Made:
        carried, struck = (
            {start + n for n in range(slot.width) if mask >> n & 1} for mask in (slot.messages, slot.struck)
        )
        unsent = struck if slot.fault in (Fault.REFUSED, Fault.UNSENT) else set()
        missed = struck if slot.fault in (Fault.LOST, *_WHERE_REFUSED) else set()
        return cls(slot, start, struck, carried - unsent, carried - missed)

    @property
    def upto(self) -> int:
        return self.start + self.slot.width

    def refused(self, side: str) -> set[int]:
        """What the side's line says was refused."""
        return self.struck if side in _WHERE_REFUSED.get(self.slot.fault, ()) else set()

    def second_line(self) -> tuple[int, int] | None:
        """What the receiver covers again, where it has messages twice."""
        middle = self.start + (self.slot.width + 1) // 2
        match self.slot.fault:
            case Fault.DOUBLED | Fault.DOUBLED_AT_THE_END:
                return self.start, self.upto
            case Fault.DOUBLED_BEGINNING:
                return self.start, middle
            case Fault.DOUBLED_END if middle < self.upto:
                return middle, self.upto
        return None


@dataclass(slots=True)
class _Run:
    spec: FlowSpec
    entries: list[Entry] = field(default_factory=list)
    truth: FlowTruth = field(default_factory=FlowTruth)
    made: list[_Made] = field(init=False)
    #: Numbers of the slots of which each side's log has the line.
    sent: list[int] = field(init=False)
    received: list[int] = field(init=False)

    def __post_init__(self) -> None:
        slots = self.spec.slots
        starts = accumulate((slot.width for slot in slots), initial=self.spec.start)
        self.made = [_Made.at(slot, start) for slot, start in zip(slots, starts, strict=False)]
        self.sent = self._numbers("sent", NO_SENT)
        self.received = self._numbers("received", NO_RECEIVED)
        self.truth.sent_upto = self.made[self.sent[-1]].upto if self.sent else None
        self.truth.received_upto = self.made[self.received[-1]].upto if self.received else None

    def _numbers(self, side: str, without: frozenset[Fault]) -> list[int]:
        if self.spec.gone == side:
            return []
        return [number for number, slot in enumerate(self.spec.slots) if slot.fault not in without]

    # -- the lines ---------------------------------------------------------------------------------

    def send(self, number: int) -> None:
        made = self.made[number]
        slot = made.slot
        edges = sorted({0, slot.width, *(cut for cut in slot.cuts if 0 < cut < slot.width)})
        pieces = list(pairwise(edges))
        if slot.fault is Fault.SENT_AGAIN:
            pieces.append((slot.width // 2, slot.width))
        for first, end in dict.fromkeys(pieces):
            span = made.start + first, made.start + end
            text = self._line(number, "sent", span, made.sent)
            state = _SENT_STATES.get(slot.fault, State.WHOLE)
            self.entries.append(Entry(self.spec.sender, number, text, state))

    def receive(self, number: int) -> None:
        made = self.made[number]
        span, fault = (made.start, made.upto), made.slot.fault
        text = self._line(number, "received", span, made.received)
        order = number + 1.5 if self._is_behind_the_next(number) else number
        self._write(self._log(number), order, text, _RECEIVED_STATES.get(fault, State.WHOLE))
        again = made.second_line()
        if again is not None:
            text = self._line(number, "received", again, made.received, later_ms=1)
            order = len(self.made) + 1 + number if self._is_doubled_at_the_end(number) else number + 0.25
            self._write(made.slot.owner, order, text)
        elif fault is Fault.WRITTEN_BY_BOTH:
            self._write(1 - made.slot.owner, order, text)
        elif fault is Fault.REPLAYED:
            count = len(made.received)
            text = self._line(number, "received", span, made.received, duplicates=count, verdict="duplicate")
            self._write(made.slot.owner, number + 0.25, text)
            self.truth.rejected += count

    def _write(self, owner: int, order: float, text: bytes, state: State = State.WHOLE) -> None:
        self.entries.append(Entry(self.spec.owners[owner], order, text, state))

    def _line(
        self, number: int, side: str, span: tuple[int, int], messages: set[int],
        *, later_ms: int = 0, duplicates: int = 0, verdict: str | None = None,
    ) -> bytes:  # fmt: skip
        spec, slot = self.spec, self.made[number].slot
        node = spec.sender if side == "sent" else spec.owners[slot.owner]
        event_ms = BEGAN_MS + number * SLOT_MS
        taken_ms = LATE_MS if slot.fault is Fault.LATE else USUAL_MS
        within = sorted(position for position in messages if span[0] <= position < span[1])
        refused = sorted(p for p in self.made[number].refused(side) if span[0] <= p < span[1])
        writer = delivery_log.LineWriter(
            node=node, node_id=f"id-of-{node}", bridge=spec.flow.bridge, lane=spec.lane, target="hub",
            store=spec.flow.store,
        )  # fmt: skip
        return delivery_log.Line(
            side=side, writer=writer, stream=spec.flow.stream, address=spec.address, from_=span[0],
            upto=span[1], runs=run_arithmetic.join((p, p) for p in within), refused=refused,
            events=(event_ms, event_ms), committed=event_ms + taken_ms + later_ms,
            duplicates=duplicates, verdict=verdict,
            recovered=side == "sent" and slot.fault is Fault.RECOVERED,
        ).encode()  # fmt: skip

    # -- the order of the receiver's log -----------------------------------------------------------

    def _log(self, number: int) -> int:
        """Which owner's log has the receiver's first line."""
        slot = self.spec.slots[number]
        return 1 - slot.owner if slot.fault is Fault.WRITTEN_BY_THE_NEXT else slot.owner

    def _is_in_own_log(self, number: int, owner: int) -> bool:
        """Whether the line is this owner's and in its log: one written for another node is another's."""
        return self._log(number) == self.spec.slots[number].owner == owner

    def _is_behind_the_next(self, number: int) -> bool:
        """Not where the next line stands in two logs: in which of them it counts is nobody's business."""
        if self.spec.slots[number].fault is not Fault.SWAPPED:
            return False
        following = self.spec.slots[number + 1 : number + 2]
        return not any(slot.fault is Fault.WRITTEN_BY_BOTH for slot in following)

    def _is_doubled_at_the_end(self, number: int) -> bool:
        if self.spec.slots[number].fault is not Fault.DOUBLED_AT_THE_END:
            return False
        return not any(slot.fault is Fault.WRITTEN_BY_BOTH for slot in self.spec.slots)

    def _out_of_order(self, number: int) -> set[int]:
        """Messages of a line of this slot that has a line with a greater upto before it in its log."""
        made = self.made[number]
        again = made.second_line()
        if self._is_behind_the_next(number):
            following = number + 1
            is_behind = (
                following in self.received
                and self._is_in_own_log(following, made.slot.owner)
                and not self._is_behind_the_next(following)
            )
            return made.received if is_behind else set()
        if self._is_doubled_at_the_end(number):
            later = (other for other in self.received if other > number)
            own = any(self._is_in_own_log(other, made.slot.owner) for other in later)
            return made.received if own else set()
        if again is not None and again[1] < made.upto:
            return {position for position in made.received if position < again[1]}
        return set()

    # -- the truth ---------------------------------------------------------------------------------

    def judge(self, number: int) -> None:
        """Add what this slot brings to the truth."""
        truth, made = self.truth, self.made[number]
        is_sent, is_received = number in self.sent, number in self.received
        if is_sent:
            truth.sent |= made.sent
            truth.refused |= made.refused("sent")
        if is_received:
            self._judge_received(number)
        if is_sent and is_received:
            self._compare(made)
        elif _has_gap(number, self.sent) or _has_gap(number, self.received):
            truth.unknown |= set(range(made.start, made.upto))
        elif is_sent and _is_behind(number, self.received):
            truth.open |= made.sent
        elif is_sent:
            truth.unknown |= made.sent
        elif is_received and not _is_behind(number, self.sent):
            truth.unknown |= made.received

    def _compare(self, made: _Made) -> None:
        match made.slot.fault:
            case Fault.LOST:
                self.truth.lost |= made.sent & made.struck
            case Fault.UNSENT:
                self.truth.unsent |= made.received & made.struck
            case Fault.LATE:
                self.truth.late |= made.received

    def _judge_received(self, number: int) -> None:
        truth, made = self.truth, self.made[number]
        truth.received.update(made.received)
        truth.refused |= made.refused("received")
        truth.out_of_order |= self._out_of_order(number)
        again = made.second_line()
        if again is not None:
            twice = {position for position in made.received if again[0] <= position < again[1]}
            truth.received.update(twice)
            truth.doubled |= twice


def _is_behind(number: int, logged: list[int]) -> bool:
    """Whether a slot comes after all that a side's log has."""
    return bool(logged) and number > logged[-1]


def _has_gap(number: int, logged: list[int]) -> bool:
    """Whether a slot is missing between others that are there."""
    return bool(logged) and logged[0] < number < logged[-1] and number not in logged
