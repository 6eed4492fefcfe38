"""The truth of a set of delivery logs, straight from the definitions: sets and counters, one entry a message.

It shares nothing with ``dedup.reconcile``, so that a mistake there is not repeated here. Slow on purpose: it
is for logs of up to some million messages.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

#: What `SegmentWriter` calls its files.
NAME = re.compile(r"(?P<node>.+)-\d{8}T\d{6}-(?P<number>\d{6,})\.jsonl(\.open)?")


class Flow(NamedTuple):
    """What is compared: the sent lines and the received lines of one of these."""

    #: None: what clients sent to a node.
    bridge: str | None
    stream: str
    store: str


class Place(NamedTuple):
    """Where a line stands in the log. Ascending within a node, whichever directory the file is in."""

    node: str
    file_number: int
    line_number: int


@dataclass(frozen=True, slots=True)
class Event:
    """One line, however often and wherever it was found; `place` is the first."""

    place: Place
    line: dict[str, Any]


@dataclass(slots=True)
class FlowTruth:
    """What holds for one flow; positions, not runs."""

    #: Named by sent lines, and by received lines that are no verdict lines (how often).
    sent: set[int] = field(default_factory=set)
    received: Counter[int] = field(default_factory=Counter)
    lost: set[int] = field(default_factory=set)
    doubled: set[int] = field(default_factory=set)
    unsent: set[int] = field(default_factory=set)
    out_of_order: set[int] = field(default_factory=set)
    open: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)
    #: Delivered, but not within the time; and open for longer, at the latest time that any log names.
    late: set[int] = field(default_factory=set)
    overdue: set[int] = field(default_factory=set)
    #: Messages that the target knew already.
    rejected: int = 0
    sent_upto: int | None = None
    received_upto: int | None = None


@dataclass(slots=True)
class IdTruth:
    """What holds for one (store, address) where producers' IDs are checked."""

    #: Each accepted ID, in log order.
    accepted: list[bytes] = field(default_factory=list)
    #: IDs accepted at more than one (flow, position); and how often, after its first, an ID was at a flow's.
    doubled: dict[bytes, set[tuple[Flow, int]]] = field(default_factory=dict)
    again: Counter[Flow] = field(default_factory=Counter)
    #: IDs that came again, accepted or rejected.
    repeated: set[bytes] = field(default_factory=set)
    #: The id-cache-size that would have rejected them all; 0: none came again.
    needed: int = 0


@dataclass(slots=True)
class FileTruth:
    """What holds for one file."""

    sha256: str
    #: Lines that can be read, and lines that cannot.
    lines: int = 0
    unreadable: int = 0


@dataclass(slots=True)
class Truth:
    """What a reconciliation must find."""

    files: dict[Path, FileTruth]
    flows: dict[Flow, FlowTruth]
    ids: dict[tuple[str, str], IdTruth]


def truth(directories: Iterable[Path], *, late_after_ms: int) -> Truth:
    """Read every ``*.jsonl`` and ``*.jsonl.open`` in `directories` and say what holds."""
    files: dict[Path, FileTruth] = {}
    found: list[Event] = []
    for directory in directories:
        for path in sorted((*directory.glob("*.jsonl"), *directory.glob("*.jsonl.open"))):
            files[path] = FileTruth(hashlib.sha256(path.read_bytes()).hexdigest())
            found += _lines(path, files[path])
    events = _events(found)
    flows: dict[Flow, list[Event]] = defaultdict(list)
    for event in events:
        flows[_flow(event.line)].append(event)
    times = [ms for event in events for ms in (*event.line["events"], event.line["committed"])]
    late = _Late(late_after_ms, max(times, default=0))
    return Truth(files, {flow: _compare(flow, flows[flow], late) for flow in flows}, _ids(events))


def _lines(path: Path, file: FileTruth) -> Iterator[Event]:
    name = NAME.fullmatch(path.name)
    assert name is not None, path
    text = path.read_bytes()
    *whole, rest = text.split(b"\n")
    if rest and not path.name.endswith(".open"):
        whole.append(rest)  # only the file that is being written may end in the middle of a line
    for number, raw in enumerate(whole, 1):
        try:
            line = json.loads(raw)
        except ValueError:
            file.unreadable += 1
            continue
        file.lines += 1
        yield Event(Place(name["node"], int(name["number"]), number), line)


def _events(found: Iterable[Event]) -> list[Event]:
    """Equal lines are one event, at its first place; in log order."""
    events: dict[str, Event] = {}
    for event in found:
        line = event.line
        key = [line["side"], *_flow(line), line["from"], line["upto"]]
        if line["side"] == "received":
            key.append(line)  # two that say something different are two events
        name = json.dumps(key, sort_keys=True)
        events[name] = min(event, events.get(name, event), key=lambda each: each.place)
    return sorted(events.values(), key=lambda event: event.place)


def _flow(line: dict[str, Any]) -> Flow:
    return Flow(line["bridge"], line["stream"], line["store"])


def _is_verdict(line: dict[str, Any]) -> bool:
    return line.get("verdict") is not None


@dataclass(frozen=True, slots=True)
class _Late:
    """When a message is late; for lines whose two event times are one."""

    after_ms: int
    now_ms: int

    def is_delivered_late(self, line: dict[str, Any]) -> bool:
        return bool(line["committed"] - line["events"][0] > self.after_ms)

    def is_overdue(self, line: dict[str, Any]) -> bool:
        return bool(self.now_ms - line["events"][0] > self.after_ms)


@dataclass(slots=True)
class _Side:
    """What the lines of one side say of a flow; verdict lines are not among them."""

    lines: list[dict[str, Any]]

    def covered(self) -> set[int]:
        return {p for line in self.lines for p in range(line["from"], line["upto"])}

    def messages(self) -> Counter[int]:
        return Counter(p for line in self.lines for p in _positions(line))

    def messages_where(self, condition: Callable[[dict[str, Any]], bool]) -> set[int]:
        return {p for line in self.lines if condition(line) for p in _positions(line)}

    def known(self) -> Counter[int]:
        """Left out, because the target knew them."""
        return Counter(p for line in self.lines for p in _in(line.get("known", [])))

    def may_be_known(self) -> Counter[int]:
        """In lines that say how many were left out, and not which."""
        unclear = [line for line in self.lines if line["duplicates"] and "known" not in line]
        return Counter(p for line in unclear for p in _positions(line))

    def refused(self) -> set[int]:
        return {p for line in self.lines for p in line["refused"]}

    def first(self) -> int:
        return min(int(line["from"]) for line in self.lines)

    def upto(self) -> int:
        return max(int(line["upto"]) for line in self.lines)


def _positions(line: dict[str, Any]) -> Iterator[int]:
    yield from _in(line["runs"])


def _in(runs: Iterable[list[int]]) -> Iterator[int]:
    for first, last in runs:
        yield from range(first, last + 1)


def _compare(flow: Flow, events: list[Event], late: _Late) -> FlowTruth:
    sender = _Side([e.line for e in events if e.line["side"] == "sent"])
    accepted = [e for e in events if e.line["side"] == "received" and not _is_verdict(e.line)]
    receiver = _Side([e.line for e in accepted])
    found = FlowTruth(sent=set(sender.messages()), received=receiver.messages())
    found.refused = sender.refused() | receiver.refused()
    stored = Counter({p: times for p, times in found.received.items() if times > 1})
    stored -= receiver.known()
    unclear = receiver.may_be_known()
    found.doubled = {p for p, times in stored.items() if times - unclear[p] > 1}
    may_be_doubled = {p for p, times in stored.items() if times > 1} - found.doubled
    found.out_of_order = _out_of_order(accepted)
    found.rejected = sum(e.line["duplicates"] for e in events if _counts_rejected(e.line))
    found.sent_upto = sender.upto() if sender.lines else None
    found.received_upto = receiver.upto() if receiver.lines else None
    found.unknown = _gaps(sender) | _gaps(receiver) | may_be_doubled
    if flow.bridge is not None:
        _compare_sides(found, sender, receiver)
        found.late = found.sent & receiver.messages_where(late.is_delivered_late)
        found.overdue = found.open & sender.messages_where(late.is_overdue)
    return found


def _counts_rejected(line: dict[str, Any]) -> bool:
    """A bridge's line that names known IDs stands beside the one that counted them."""
    names = line.get("verdict") is not None and bool(line["ids"])
    return line["side"] == "received" and not (names and line["bridge"] is not None)


def _compare_sides(found: FlowTruth, sender: _Side, receiver: _Side) -> None:
    """Hold what each side names against what the other covers."""
    received = set(found.received)
    if not receiver.lines:
        found.unknown |= found.sent
    else:
        covered, upto = receiver.covered(), receiver.upto()
        missing = found.sent - received
        found.lost = {p for p in missing if p < upto and p in covered} - found.refused
        found.open = {p for p in missing if p >= upto} - found.refused
        found.unknown |= {p for p in found.sent if p < upto and p not in covered}
    if not sender.lines:
        found.unknown |= received
    else:
        covered, upto = sender.covered(), sender.upto()
        found.unsent = {p for p in received - found.sent if p in covered}
        found.unknown |= {p for p in received if p < upto and p not in covered}


def _gaps(side: _Side) -> set[int]:
    """Positions between a side's first and last that no line of it covers."""
    return set(range(side.first(), side.upto())) - side.covered() if side.lines else set()


def _out_of_order(accepted: list[Event]) -> set[int]:
    """Positions of lines that follow one with a greater upto, in the log of the same node and lane.

    A line that a lane's taker has written for the node before it is held against that node's own.
    """
    greatest: dict[tuple[str, str, int], int] = {}
    found: set[int] = set()
    for event in accepted:
        log = (event.place.node, event.line["node-id"], event.line["lane"])
        if event.line["upto"] < greatest.get(log, event.line["upto"]):
            found.update(_positions(event.line))
        greatest[log] = max(event.line["upto"], greatest.get(log, event.line["upto"]))
    return found


def _ids(events: list[Event]) -> dict[tuple[str, str], IdTruth]:
    found: dict[tuple[str, str], IdTruth] = defaultdict(IdTruth)
    first: dict[tuple[str, str, bytes], int] = {}
    places: dict[tuple[str, str, bytes], set[tuple[Flow, int]]] = defaultdict(set)
    for event in events:
        line, flow = event.line, _flow(event.line)
        is_checked = flow.bridge is None or flow.stream.startswith("kafka:")
        if line["side"] != "received" or not is_checked or not line["ids"]:
            continue
        where = (line["store"], line["address"])
        here = found[where]
        for position, text in line["ids"]:
            value = text.encode() if isinstance(text, str) else base64.b64decode(text["base64"])
            began = first.get((*where, value))
            if began is not None:
                here.repeated.add(value)
                # Accepted after its first copy and before this one, and one more.
                here.needed = max(here.needed, len(here.accepted) - began)
            if not _is_verdict(line):
                first.setdefault((*where, value), len(here.accepted))
                here.accepted.append(value)
                known = places[(*where, value)]
                here.again[flow] += bool(known) and (flow, position) not in known
                known.add((flow, position))
    for (store, address, value), known in places.items():
        if len(known) > 1:
            found[store, address].doubled[value] = known
    return dict(found)
