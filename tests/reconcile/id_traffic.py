"""Simulated client sends and Kafka streams with producers' IDs that come again within and beyond a cache."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Final

from bridge import delivery_log
from tests.reconcile.faults import Entry
from tests.reconcile.model import Flow, FlowTruth, IdTruth
from tests.reconcile.simulation import BEGAN_MS, USUAL_MS

#: Text, text that JSON escapes, and bytes that are no text.
IDS: Final = (
    *(f"order-{n}".encode() for n in range(10)),
    b'"\\\n\t',
    "grün ☃ 𝄞".encode(),
    b"\xff",
    b"\x00\x80",
    b" ",
    b"null",
    # What comes between the IDs of a line.
    b"],[",
    b"],[17,",
    b"[5,",
)


@dataclass(frozen=True, slots=True)
class Send:
    """One message with an ID."""

    #: Its ID: an index of `IDS`.
    id: int
    #: By which flow it came: 0 is what clients sent, n is partition n of a Kafka topic.
    by: int = 0
    #: Whether it begins a line where it could have shared the one before.
    begins: bool = False


@dataclass(frozen=True, slots=True)
class IdSpec:
    """Everything that came to one address of one store, in order."""

    store: str
    address: str
    sends: tuple[Send, ...]
    #: Capacity of the address's ring of IDs; 0: none is remembered.
    cache: int
    node: str = "hub-1"
    #: Whether the store is a Kafka cluster: known IDs are named in the flow that brought them.
    is_kafka: bool = False


def simulate(spec: IdSpec) -> tuple[list[Entry], dict[Flow, FlowTruth], IdTruth]:
    """The lines of the receiving side (nobody has the senders'), and what is true of them."""
    run = _Run(spec)
    for send in spec.sends:
        run.send(send)
    run.end_line()
    for flow, found in run.flows.items():
        if flow.bridge is not None:
            found.unknown = set(found.received)
    run.truth.doubled = {value: where for value, where in run.places.items() if len(where) > 1}
    return run.entries, dict(run.flows), run.truth


@dataclass(slots=True)
class _Run:
    spec: IdSpec
    entries: list[Entry] = field(default_factory=list)
    flows: dict[Flow, FlowTruth] = field(default_factory=lambda: defaultdict(FlowTruth))
    truth: IdTruth = field(default_factory=IdTruth)
    #: Where each ID was accepted.
    places: dict[bytes, set[tuple[Flow, int]]] = field(default_factory=lambda: defaultdict(set))
    #: How many had been accepted before an ID's first copy.
    first: dict[bytes, int] = field(default_factory=dict)
    ring: deque[bytes] = field(init=False)
    #: The accepted messages of the line that is being written, and by which flow they came.
    ids: list[tuple[int | None, bytes]] = field(default_factory=list)
    by: int = 0

    def __post_init__(self) -> None:
        self.ring = deque(maxlen=self.spec.cache)

    def send(self, send: Send) -> None:
        value = IDS[send.id]
        if send.begins or send.by != self.by or value in self.ring:
            self.end_line()
        self.by = send.by
        if value in self.first:
            self.truth.repeated.add(value)
            self.truth.needed = max(self.truth.needed, len(self.truth.accepted) - self.first[value])
        if value in self.ring:
            self._reject(value)
            return
        position = self._position()
        self.ids.append((position, value))
        self.ring.append(value)
        self.first.setdefault(value, len(self.truth.accepted))
        self.truth.accepted.append(value)
        self.truth.again[self._flow()] += bool(self.places[value])
        self.places[value].add((self._flow(), position))

    def end_line(self) -> None:
        """Write what was accepted since the last line."""
        if self.ids:
            self._write_received(len(self.ids), rejected=0)
            self.ids = []

    def _flow(self, by: int | None = None) -> Flow:
        address, by = self.spec.address, self.by if by is None else by
        if by == 0:
            return Flow(None, f"journal:1f:{address}:0", self.spec.store)
        return Flow(f"to-{address}", f"kafka:c1:t-{address}:{by}", self.spec.store)

    def _position(self) -> int:
        return (self.flows[self._flow()].received_upto or 0) + len(self.ids)

    def _reject(self, value: bytes) -> None:
        """A known ID: its position is covered all the same, unless a client sent it."""
        if self.by:
            span = self._write_received(1, rejected=1)
            if self.spec.is_kafka:
                self._write(self._flow(), span, ids=[(None, value)], duplicates=1, verdict="duplicate")
                return
        clients = self._flow(0)
        self.flows[clients].rejected += 1
        self._write(clients, (0, 0), ids=[(None, value)], duplicates=1, verdict="duplicate")

    def _write_received(self, count: int, *, rejected: int) -> tuple[int, int]:
        found = self.flows[self._flow()]
        from_ = found.received_upto or 0
        span = (from_, from_ + count)
        found.received_upto = span[1]
        found.received.update(range(*span))
        found.rejected += rejected
        self._write(self._flow(), span, ids=self.ids, duplicates=rejected, verdict=None)
        return span

    def _write(
        self, flow: Flow, span: tuple[int, int], *, ids: list[tuple[int | None, bytes]], duplicates: int,
        verdict: str | None,
    ) -> None:  # fmt: skip
        spec, number = self.spec, len(self.entries)
        is_covered = verdict is None and span[0] < span[1]
        writer = delivery_log.LineWriter(
            node=spec.node, node_id=f"id-of-{spec.node}", bridge=flow.bridge, lane=0, target=spec.node,
            store=flow.store,
        )  # fmt: skip
        text = delivery_log.Line(
            side="received", writer=writer, stream=flow.stream, address=spec.address, from_=span[0],
            upto=span[1], runs=((span[0], span[1] - 1),) if is_covered else (), ids=ids,
            events=(BEGAN_MS + number, BEGAN_MS + number), committed=BEGAN_MS + number + USUAL_MS,
            duplicates=duplicates, verdict=verdict,
        ).encode()  # fmt: skip
        self.entries.append(Entry(spec.node, number, text))
