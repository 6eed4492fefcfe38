"""Who takes part in a transaction, and how a hanging one must end."""

from __future__ import annotations

import pytest

from bridge.errors import TargetRefused
from bridge.kafka.journal_topic.participants import (
    Mark,
    Outcome,
    Participant,
    is_named,
    is_to_commit,
    mark,
    marked,
    together,
)
from bridge.kafka.records.record_batches import RecordBatch

A, B, C = Participant("orders", 0, 41), Participant("orders", 1, 7), Participant("dead-letters", 0, 3)
HANGING, COMMITTED, ABORTED = Outcome.HANGING, Outcome.COMMITTED, Outcome.ABORTED
UNKNOWN, GONE = Outcome.UNKNOWN, Outcome.GONE


class Builder:
    """A record batch that is full."""

    def __init__(self, records: int) -> None:
        self._records = records

    def append(self, **_record: object) -> None:
        return None

    def size(self) -> int:
        return 0

    def record_count(self) -> int:
        return self._records


def sent(topic: str, partition: int, records: int) -> RecordBatch:
    return RecordBatch(topic, partition, Builder(records))


# -- marks ---------------------------------------------------------------------------------------------


def test_a_mark_names_the_last_offset_of_each_partition() -> None:
    offsets = {sent("orders", 0, 10): 20, sent("orders", 0, 12): 30, sent("dead-letters", 0, 1): 3}
    assert marked(mark(2, offsets)) == Mark(2, (C, A))


def test_a_mark_names_a_partition_of_which_the_broker_did_not_say_the_offset() -> None:
    offsets = {sent("orders", 0, 10): -1, sent("orders", 0, 12): 30}
    assert marked(mark(1, offsets)).participants == (Participant("orders", 0, -1),)


def test_a_transaction_without_data_has_no_participants() -> None:
    assert marked(mark(3, {})) == Mark(3, ())


def test_a_mark_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(TargetRefused, match="unreadable"):
        marked(b"[1]")


def test_of_transactions_one_after_the_other_the_last_offset_counts() -> None:
    later = Participant("orders", 0, 99)
    assert together([Mark(2, (A, B)), Mark(1, (later,))]) == Mark(3, (later, B))
    assert together([Mark(1, (A,)), Mark(1, (Participant("orders", 0, -1),))]).participants[0].last == -1


# -- the decision --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "complete", "commit"),
    [
        ({}, True, True),
        ({A: HANGING, B: HANGING}, True, True),
        ({A: HANGING, B: COMMITTED}, True, True),
        ({A: HANGING, B: ABORTED}, True, False),
        ({A: COMMITTED}, True, True),
        ({A: ABORTED, B: ABORTED}, True, False),
        # A record that is gone says nothing, and another does.
        ({A: UNKNOWN, B: COMMITTED}, True, True),
        ({A: UNKNOWN, B: ABORTED}, True, False),
        # Of a topic that is gone nothing can be lost or doubled.
        ({A: GONE, B: HANGING}, True, True),
        ({A: GONE}, True, True),
        # Never told to commit: that comes behind the journal's last record.
        ({}, False, False),
        ({A: HANGING}, False, False),
        ({A: ABORTED, B: HANGING}, False, False),
        ({A: UNKNOWN}, False, False),
    ],
)
def test_what_is_open_ends_as_the_rest_has_ended(
    found: dict[Participant, Outcome], complete: bool, commit: bool
) -> None:
    assert is_to_commit("it", found, complete=complete) is commit


@pytest.mark.parametrize(
    ("found", "complete"),
    [
        ({A: COMMITTED, B: ABORTED}, True),
        ({A: COMMITTED, B: ABORTED, C: HANGING}, True),
        ({A: COMMITTED, B: HANGING}, False),
        ({A: UNKNOWN, B: HANGING}, True),
    ],
)
def test_what_cannot_be_told_or_is_mixed_is_left_to_an_operator(
    found: dict[Participant, Outcome], complete: bool
) -> None:
    with pytest.raises(TargetRefused) as refused:
        is_to_commit("a transaction of lane 0", found, complete=complete)
    for one, outcome in found.items():
        assert f"{one.topic}/{one.partition} up to offset {one.last} {outcome.value}" in refused.value.detail
    assert "kafka-transactions.sh" in refused.value.detail


# -- data that hangs alone -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "named"), [(None, False), (19, False), (20, True), (21, True)], ids=["none", "below", "at", "up"]
)
def test_what_is_open_is_committed_only_if_the_last_mark_names_it(last: int | None, named: bool) -> None:
    assert is_named("a transaction", ("orders", 0), last, 20) is named


def test_what_is_open_where_the_broker_did_not_say_the_offset_is_left_to_an_operator() -> None:
    with pytest.raises(TargetRefused, match=r"a transaction open .* orders/0 .* offset 20 .*find-hanging"):
        is_named("a transaction", ("orders", 0), -1, 20)
