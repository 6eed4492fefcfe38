"""Who answers for a node that has drained."""

from __future__ import annotations

import pytest

from cluster.heirs import answering
from cluster.record import NodeState
from tests.unit.cluster.rig import A, B, C, record


def test_the_heir_answers_for_its_leaver() -> None:
    assert {leaver: one.node for leaver, one in answering([record(A, inherited=(B,))]).items()} == {B: A}


@pytest.mark.parametrize("reverse", [False, True])
def test_an_heir_that_has_drained_leaves_that_to_its_own_heir_in_any_order_of_records(
    reverse: bool,
) -> None:
    first = record(A, inherited=(C,), state=NodeState.DRAINED)
    second = record(B, inherited=(A, C))
    records = [second, first] if reverse else [first, second]
    assert {leaver: one.node for leaver, one in answering(records).items()} == {A: B, C: B}


def test_an_heir_that_was_stopped_still_answers_when_it_returns() -> None:
    stopped = record(A, inherited=(B,), state=NodeState.LEFT)
    assert answering([stopped]) == {B: stopped}
