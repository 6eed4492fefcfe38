"""A lane's memory: what a transaction sees, writes and leaves behind; and records that cannot be read."""

from __future__ import annotations

import json

import pytest

from bridge.errors import TargetRefused
from bridge.kafka.journal_topic.lane_state import LaneState
from bridge.kafka.journal_topic.options import StateOptions
from bridge.kafka.journal_topic.records import LaneRecord, Record, Snapshot, StreamRecord

LANE = LaneRecord(bridge="eu-to-us", generation=1, lanes=2)
STREAM = "kafka:cluster:topic:0"


def record(next_position: int) -> StreamRecord:
    return StreamRecord(next=next_position, run="4", checksum=9, address="orders", line='{"v":1}')


def rebuilt(records: list[Record], owner: str = "") -> LaneState:
    options = StateOptions(owner=owner, id_cache_size=lambda _: 1_000, persist_ids=True)
    return LaneState.rebuilt(LANE, Snapshot(records), options)


def commit(state: LaneState, written: list[Record], *streams: str) -> None:
    """A transaction that covers these; what it writes is added to `written`."""
    change = state.change()
    for each in streams:
        change.cover(each, record(5))
    written += change.records()
    change.commit()


def lined(state: LaneState) -> list[str]:
    return sorted(identity for identity, found in state.streams.items() if found.line)


def test_keys_are_text_and_streams_are_json_that_people_can_read() -> None:
    change = rebuilt([]).change()
    change.cover(STREAM, record(5))
    change.add_ids("orders", [b"a"])
    lane, stream, ids = change.records()
    assert lane[0] == b"lanes"
    assert stream[0] == b"stream:kafka:cluster:topic:0"
    assert stream[1] is not None
    assert json.loads(stream[1])["next"] == 5
    assert ids[0] == b"ids:orders:0"


def test_the_identity_goes_with_the_first_change_and_with_no_other() -> None:
    state = rebuilt([])
    before = state.unwritten
    first = state.change()
    assert [key for key, _ in first.records()] == [b"lanes"]
    first.commit()
    assert (before, state.unwritten) == (True, False)
    assert state.change().records() == []


def test_a_transaction_sees_what_it_brought_and_others_do_not_before_it_is_committed() -> None:
    state = rebuilt([])
    change = state.change()
    change.cover(STREAM, record(5))
    change.add_ids("orders", [b"a"])
    assert change.next(STREAM) == 5
    assert change.known("orders", [b"b", b"a"]) == [1]
    assert state.stream(STREAM) is None
    assert state.id_entries("orders") == (0, 1_000)
    change.commit()
    assert state.stream(STREAM) == record(5)
    assert state.id_entries("orders") == (1, 1_000)


def test_d32_a_dropped_transaction_leaves_nothing() -> None:
    state = rebuilt([])
    dropped = state.change()
    dropped.cover(STREAM, record(5))
    dropped.add_ids("orders", [b"a"])
    change = state.change()
    assert change.next(STREAM) is None
    assert change.known("orders", [b"a"]) == []
    assert [key for key, _ in change.records()] == [b"lanes"]


def test_a_dropped_transaction_cannot_be_committed_later_and_none_twice() -> None:
    state = rebuilt([])
    dropped, change = state.change(), state.change()
    with pytest.raises(RuntimeError):
        dropped.commit()
    change.commit()
    with pytest.raises(RuntimeError):
        change.commit()


def test_owners_write_under_their_own_keys() -> None:
    change = rebuilt([], owner="node-1").change()
    change.cover(STREAM, record(5))
    records = change.records()
    assert all(key.startswith(b"node-1/") for key, _ in records)
    assert rebuilt(records, owner="node-1").stream(STREAM) == record(5)
    assert rebuilt(records, owner="node-2").stream(STREAM) is None
    assert rebuilt(records).stream(STREAM) is None


def test_only_streams_of_the_last_transaction_carry_lines() -> None:
    """However many streams there have been: a taker reads these, and writes them once more to the log."""
    written: list[Record] = []
    state = rebuilt([])
    for number in range(20):
        commit(state, written, f"s{number}")
    commit(state, written, "s3", "s4")
    for found in (state, rebuilt(written)):
        assert len(found.streams) == 20
        assert lined(found) == ["s3", "s4"]
    assert {each.next for each in state.streams.values()} == {5}


def test_a_taker_goes_on_taking_lines_out() -> None:
    written: list[Record] = []
    commit(rebuilt([]), written, "a", "b")
    commit(rebuilt(written), written, "b")
    assert lined(rebuilt(written)) == ["b"]


def test_a_transaction_that_covers_nothing_leaves_lines_in_place() -> None:
    """A taker may write one, for ID blocks of another size, before it has put the lines on disk."""
    written: list[Record] = []
    state = rebuilt([])
    commit(state, written, "a")
    change = state.change()
    change.add_ids("orders", [b"a"])
    written += change.records()
    change.commit()
    assert lined(state) == lined(rebuilt(written)) == ["a"]
    commit(state, written, "b")
    assert lined(state) == lined(rebuilt(written)) == ["b"]


def test_laying_a_lane_keeps_the_lines_that_it_took_over() -> None:
    """They are on disk only after it."""
    state = LaneState(
        LANE, StateOptions(id_cache_size=lambda _: 0, persist_ids=True), streams={"a": record(5)}
    )
    written: list[Record] = []
    commit(state, written)
    assert lined(state) == lined(rebuilt(written)) == ["a"]
    commit(state, written, "b")
    assert lined(state) == lined(rebuilt(written)) == ["b"]


def test_a_dropped_transaction_takes_no_line_out() -> None:
    state, written = rebuilt([]), list[Record]()
    commit(state, written, "a")
    dropped = state.change()
    dropped.cover("b", record(5))
    assert [key for key, _ in dropped.records()] == [b"stream:a", b"stream:b"]
    assert lined(state) == ["a"]
    assert [key for key, _ in state.change().records()] == []


def test_a_damaged_record_is_refused_by_its_key() -> None:
    with pytest.raises(TargetRefused, match="stream:x cannot be read") as refused:
        rebuilt([(b"stream:x", b"{")])
    assert refused.value.key == "stream:x"


def test_a_newer_version_is_refused_with_both_numbers() -> None:
    with pytest.raises(TargetRefused, match="its version is 2, this one reads up to 1") as refused:
        rebuilt([(b"stream:x", b'{"v":2,"next":1}')])
    assert (refused.value.limit, refused.value.found) == (1, 2)


def test_fields_that_a_later_release_adds_are_passed_over() -> None:
    state = rebuilt([(b"stream:x", b'{"v":1,"next":7,"colour":"blue"}')])
    found = state.stream("x")
    assert found is not None
    assert found.next == 7
