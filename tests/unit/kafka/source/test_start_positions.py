"""Where a partition begins, by the target's word and the log's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bridge.errors import SourceGap
from bridge.kafka.source.start_positions import GapPolicy, Log, Start, find_start, run_epoch
from bridge.messages.batch import Batch
from bridge.relay.divergence import Diverged
from bridge.relay.ports import Stream, StreamState

STREAM = Stream("kafka:c:t:3", "orders", "orders", "4", 8)
LOG = Log(start=10, end=100, epoch=4)


def found(state: StreamState, *, mark: int = 0, policy: GapPolicy = "stop", **log: Any) -> Start:
    return find_start(STREAM, 3, state, mark, replace(LOG, **log), policy)


def test_the_targets_next_decides() -> None:
    assert found(StreamState(50), mark=70) == Start(50)
    assert found(StreamState(10)) == Start(10)
    assert found(StreamState(100)) == Start(100)


def test_a_stream_never_seen_begins_at_its_mark() -> None:
    assert found(StreamState(None), mark=10) == Start(10, Batch(STREAM.identity, 10, 10))
    assert found(StreamState(None), mark=60) == Start(60, Batch(STREAM.identity, 60, 60))


def test_one_without_a_mark_is_new_and_begins_at_0() -> None:
    assert found(StreamState(None), start=0) == Start(0, Batch(STREAM.identity, 0, 0))
    with pytest.raises(SourceGap, match=r"has not read it yet .* 10 positions are gone"):
        found(StreamState(None))
    assert found(StreamState(None), policy="continue") == Start(
        10, Batch(STREAM.identity, 0, 10), skipped=10, gone=((0, 9),)
    )


def test_a_mark_that_has_expired_is_a_gap_too() -> None:
    with pytest.raises(SourceGap):
        found(StreamState(None), mark=6)
    assert found(StreamState(None), mark=6, policy="continue") == Start(
        10, Batch(STREAM.identity, 6, 10), skipped=4, gone=((6, 9),)
    )


@pytest.mark.parametrize("policy", ["stop", "continue"])
def test_beyond_the_end_is_never_passed(policy: GapPolicy) -> None:
    with pytest.raises(SourceGap) as raised:
        found(StreamState(101), policy=policy)
    assert (raised.value.limit, raised.value.found) == (100, 101)
    with pytest.raises(SourceGap):
        found(StreamState(None), mark=101, policy=policy)


def test_an_epoch_that_ends_below_next_is_a_divergence_and_one_that_ends_at_next_is_not() -> None:
    assert found(StreamState(50, "3"), run_end=50) == Start(50)
    with pytest.raises(Diverged, match="2 positions were replaced") as raised:
        found(StreamState(50, "3"), run_end=48)
    assert (raised.value.limit, raised.value.found) == (48, 50)


def test_an_epoch_above_the_leaders_is_a_divergence() -> None:
    assert found(StreamState(50, "4")) == Start(50)
    with pytest.raises(Diverged):
        found(StreamState(50, "5"))


def test_checksums_are_compared_where_both_are_known() -> None:
    assert found(StreamState(50, checksum=9), checksum=9) == Start(50)
    assert found(StreamState(50, checksum=9)) == Start(50)
    assert found(StreamState(50), checksum=9) == Start(50)
    with pytest.raises(Diverged):
        found(StreamState(50, checksum=8), checksum=9)


def test_a_cut_back_log_is_not_taken_for_an_expired_one() -> None:
    with pytest.raises(Diverged):
        found(StreamState(5, "3"), run_end=4, policy="continue")


def test_a_run_is_an_epoch_where_it_is_one() -> None:
    assert run_epoch(StreamState(5, "12")) == 12
    for state in (StreamState(5), StreamState(None, "12"), StreamState(5, "a-journals-run")):
        assert run_epoch(state) is None


def test_what_another_store_of_the_bridge_has_is_no_gap() -> None:
    assert found(StreamState(6, elsewhere=((6, 20),))) == Start(10, Batch(STREAM.identity, 6, 10), skipped=4)
    with pytest.raises(SourceGap, match="2 positions are gone"):
        found(StreamState(6, elsewhere=((8, 20),)))
    passed = found(StreamState(4, elsewhere=((6, 7),)), policy="continue")
    assert passed == Start(10, Batch(STREAM.identity, 4, 10), skipped=6, gone=((4, 5), (8, 9)))
