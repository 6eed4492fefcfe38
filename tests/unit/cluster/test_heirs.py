"""Who answers for a node that has drained."""

from __future__ import annotations

import pytest

from cluster.heirs import Heirs, Leaver, answering
from cluster.record import NodeState, Record, Version
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


def _leaver(**how: bool) -> Heirs:
    heirs = Heirs(None, tuple, lambda: None)  # type: ignore[arg-type]  # nothing is stored here
    heirs.leavers[B] = Leaver("drain", "nb", "store", version=Version(1, 5), **how)
    return heirs


def _says(counter: int, state: NodeState = NodeState.UP) -> dict[str, Record]:
    return {B: record(B, counter=counter, state=state)}


def test_an_heir_stays_while_the_leavers_record_is_older_than_its_drain() -> None:
    assert _leaver().busy(_says(4)) == "nb"
    assert _leaver().busy({}) == "nb"
    assert _leaver().busy(_says(5, NodeState.DRAINING)) == "nb"


def test_an_heir_may_go_once_the_leaver_says_that_it_drains_no_more() -> None:
    assert _leaver().busy(_says(6)) == ""
    assert _leaver(applied=True).busy(_says(6)) == "nb"
    assert _leaver(applied=True, done=True).busy(_says(6, NodeState.DRAINED)) == ""
