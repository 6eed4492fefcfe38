"""Where a restored journal and what its target has part: by the target's word, or a person's."""

from __future__ import annotations

import pytest

from bridge.journal.rules.branching import Look, branch_at
from bridge.journal.sqlite.reader import BridgeQueueRow
from bridge.relay.divergence import Past
from bridge.relay.ports import StreamState

#: A journal that ends at 120, and has a bridge's queue at 40.
ROW = BridgeQueueRow("orders", 1, 0, 120, 0, 40)


def look(run_end: int | None = None, *, known: bool = True, checksum: int = 0xAB) -> Look:
    return Look(ROW, Past("run-3", known, run_end, 120, checksum))


@pytest.mark.parametrize(
    ("state", "its", "at"),
    [
        (StreamState(None), look(known=False), 40),
        (StreamState(100, "run-1", 0xAB), look(90), 90),
        (StreamState(80, "run-1", 0xAB), look(90), 80),
        (StreamState(80, "run-3", 0xAB), look(), 80),
        (StreamState(80, "run-3", 0), look(), 80),
        (StreamState(80, "", 0xAB), look(known=False), 80),
    ],
    ids=["unknown to it", "beyond the run", "within it", "this run", "no checksum", "no run"],
)
def test_it_is_found_out_where_the_targets_run_is_known(state: StreamState, its: Look, at: int) -> None:
    assert branch_at(state, its, None) == at


@pytest.mark.parametrize(
    ("state", "its"),
    [
        (StreamState(100, "run-x", 0xAB), look(known=False)),
        (StreamState(80, "run-3", 0xAC), look()),
        (StreamState(130, "run-3", 0xAB), look()),
    ],
    ids=["another run", "another message", "beyond the end"],
)
def test_where_it_cannot_be_a_person_says_it(state: StreamState, its: Look) -> None:
    assert branch_at(state, its, None) is None
    assert branch_at(state, its, 60) == 60
    assert branch_at(StreamState(50, state.run), its, 60) == 50, "never beyond what the target has"
