"""Lines that no bridge would write, but that the definitions judge all the same: overlaps and holes."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from bridge import delivery_log
from bridge.messages import positions as run_arithmetic
from tests.reconcile.faults import Entry, State
from tests.reconcile.model import Flow
from tests.reconcile.simulation import BEGAN_MS, LATE_MS, USUAL_MS

#: Greatest `upto`.
UPTO = 16


@dataclass(frozen=True, slots=True)
class Wild:
    """One line: everything that the definitions look at, by chance."""

    side: str
    #: Two ends of what it covers, in any order; equal: nothing.
    ends: tuple[int, int]
    #: Bit n stands for position n.
    messages: int
    refused: int
    is_late: bool
    is_verdict: bool
    duplicates: int
    #: Where it stands: which of two logs, which of two lanes, and before or after which others.
    log: int
    lane: int
    order: int
    state: State


lines = st.lists(
    st.builds(
        Wild,
        side=st.sampled_from(["sent", "received"]),
        ends=st.tuples(st.integers(0, UPTO), st.integers(0, UPTO)),
        messages=st.integers(0, 2**UPTO - 1) | st.just(2**UPTO - 1),
        refused=st.sampled_from([0, 0, 0, 1, 0b110, 1 << 9, 1 << 15]),
        is_late=st.booleans(),
        is_verdict=st.sampled_from([False] * 5 + [True]),
        duplicates=st.integers(0, 3),
        log=st.integers(0, 1),
        lane=st.integers(0, 1),
        order=st.integers(0, 12),
        state=st.sampled_from([State.WHOLE] * 6 + list(State)),
    ),
    min_size=1,
    max_size=9,
)


def entries(flow: Flow, found: list[Wild]) -> list[Entry]:
    """The lines of one flow. What a sender says of the same coverage is always the same."""
    sent: dict[tuple[int, int], tuple[int, int]] = {}
    written = []
    for line in found:
        from_, upto = sorted(line.ends)
        said = line.messages, line.refused
        messages, refused = sent.setdefault((from_, upto), said) if line.side == "sent" else said
        is_verdict = line.is_verdict and line.side == "received"
        node = f"wild-{line.log}"
        event_ms = BEGAN_MS + from_
        writer = delivery_log.LineWriter(
            node=node, node_id=f"id-of-{node}", bridge=flow.bridge, lane=line.lane, target="hub",
            store=flow.store,
        )  # fmt: skip
        text = delivery_log.Line(
            side=line.side, writer=writer, stream=flow.stream, address="wild", from_=from_, upto=upto,
            runs=run_arithmetic.join((p, p) for p in range(from_, upto) if messages >> p & 1),
            refused=[p for p in range(from_, upto) if refused >> p & 1],
            events=(event_ms, event_ms), committed=event_ms + (LATE_MS if line.is_late else USUAL_MS),
            duplicates=line.duplicates, verdict="duplicate" if is_verdict else None,
        ).encode()  # fmt: skip
        written.append(Entry(node, line.order, text, line.state))
    return written
