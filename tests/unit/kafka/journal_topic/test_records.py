"""Records of the journal topic: cut to what it takes, and told from those that others write."""

from __future__ import annotations

import json

import pytest

from bridge.kafka.journal_topic.records import (
    DEFAULT_BATCH_BYTES,
    LEAST_BATCH_BYTES,
    StreamRecord,
    foreign,
    id_record,
    stream_record,
)


@pytest.mark.parametrize(
    "key",
    [
        b"generation",
        b"lanes",
        b"0b8e/lanes",
        b"stream:kafka:c:t:0",
        "0b8e/stream:journal:i:größe/x:0".encode(),
        id_record("0b8e", "orders:eu", 7, None)[0],
        b"\xff\xfe",
        b"other:\xff",
        b"stream",
    ],
)
def test_keys_of_a_bridge_and_those_of_others_are_not_foreign(key: bytes) -> None:
    assert foreign(key) == ""


@pytest.mark.parametrize("key", [b"stream:\xff", b"x/stream:\xff", b"ids:\xff:1", b"ids:a:", b"ids:a:b"])
def test_keys_that_look_like_a_bridges_and_cannot_be_are(key: bytes) -> None:
    assert foreign(key)


def test_a_stream_record_is_cut_to_what_the_topic_takes() -> None:
    record = StreamRecord(next=7, line="x" * 40_000, offsets=(("t", 0, 1),), target_id="id")
    _, whole = stream_record("", "s", record, DEFAULT_BATCH_BYTES)
    _, cut = stream_record("", "s", record, LEAST_BATCH_BYTES)
    assert whole is not None
    assert cut is not None
    assert len(json.loads(whole)["line"]) == 40_000
    assert {**json.loads(whole), "line": ""} == json.loads(cut)


def test_the_offsets_of_very_many_partitions_are_left_out() -> None:
    offsets = tuple(("topic", partition, 1) for partition in range(1_000))
    _, value = stream_record("", "s", StreamRecord(next=7, offsets=offsets, target_id="id"))
    assert value is not None
    found = json.loads(value)
    assert (found["next"], found["offsets"], found["target_id"]) == (7, [], "")
