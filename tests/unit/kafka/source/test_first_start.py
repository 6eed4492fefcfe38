"""The record of a first start, as one lane speaks of it."""

from __future__ import annotations

from structlog.testing import capture_logs

from bridge.kafka.records.identity import partition_of
from bridge.kafka.source.first_start import FirstStart
from bridge.kafka.source.missing_topics import MissingTopics
from bridge.messages.batch import Batch
from bridge.relay.ports import Stream, StreamState

IDENTITY = "kafka:c:start:0"


def test_it_is_asked_for_and_sent_until_the_target_has_it() -> None:
    first = FirstStart(records=True)
    assert first.streams("c") == [Stream(IDENTITY, "start", "start", empty=True)]
    assert partition_of(IDENTITY) == 0  # what looks for a partition in a stream's identity finds one
    first.opened({IDENTITY: StreamState(None)})
    assert [first.take(), first.take()] == [Batch(IDENTITY, 0, 0), None]
    assert first.streams("c")
    first.settled()
    assert not first.streams("c")
    first.forget()
    assert first.streams("c")


def test_one_that_the_target_has_is_not_sent_again() -> None:
    first = FirstStart(records=True)
    first.streams("c")
    first.opened({IDENTITY: StreamState(0)})
    assert first.is_recorded
    assert first.take() is None


def test_one_that_was_not_taken_waits_until_it_is_opened_again() -> None:
    first = FirstStart(records=True)
    first.streams("c")
    first.opened({IDENTITY: StreamState(None)})
    first.back_off(["kafka:c:topic:0"])
    first.back_off([IDENTITY])
    assert first.take() is None
    first.opened({IDENTITY: StreamState(None)})
    assert first.take() is not None


def test_other_lanes_say_nothing() -> None:
    first = FirstStart(records=False)
    assert not first.streams("c")
    assert not first.is_it("")
    first.opened({})
    assert first.take() is None


def test_a_missing_topic_is_said_once_and_its_coming_too() -> None:
    missing = MissingTopics("b", logs=True)
    with capture_logs() as logs:
        for now in (["orders", "bills"], ["orders", "bills"], ["bills"], []):
            missing.look(now)
    assert [(log["event"], log["topic"]) for log in logs] == [
        ("topic-missing", "bills"),
        ("topic-missing", "orders"),
        ("topic-found", "orders"),
        ("topic-found", "bills"),
    ]
    assert not missing.reported


def test_of_several_lanes_one_says_so() -> None:
    missing = MissingTopics("b", logs=False)
    with capture_logs() as logs:
        missing.look(["orders"])
    assert not logs
    assert not missing.reported
