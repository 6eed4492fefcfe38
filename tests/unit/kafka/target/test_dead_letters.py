"""Dead letters that wait for the transaction that covers their positions."""

from __future__ import annotations

import json

import pytest

from bridge.errors import TargetRefused
from bridge.kafka.records.topic_rules import TopicRules
from bridge.kafka.target import dead_letters as letters_module
from bridge.kafka.target.dead_letters import Letter, Letters
from bridge.messages.message import Message
from bridge.relay.dead_letters import LETTER_HEADERS, REDUCED_HEADER

STREAM = "kafka:c:t:0"
RULES = TopicRules("dead", 1, before_max_ms=1_000, after_max_ms=1_000)
NOW = 1_700_000_000_000


def letter(position: int = 3, message: Message | None = None) -> Letter:
    message = message or Message(b"body", b"key", (("a", b"1"),), NOW)
    return Letter("bridge", "orders", STREAM, position, "LOOP: why", message, b"id")


def test_a_letter_is_the_message_with_its_reason() -> None:
    record = letter().record(RULES, NOW)
    assert (record.body, record.key, record.timestamp) == (b"body", b"key", NOW)
    assert record.headers[0] == ("a", b"1")
    assert tuple(name for name, _ in record.headers[1:]) == LETTER_HEADERS


@pytest.mark.parametrize("timestamp", [NOW + 1_001, NOW - 1_001])
def test_a_timestamp_that_the_topic_would_refuse_becomes_now(timestamp: int) -> None:
    assert letter(message=Message(b"x", None, (), timestamp)).record(RULES, NOW).timestamp == NOW


def test_a_letter_that_a_broker_refuses_for_its_time_has_none_and_keeps_all_else() -> None:
    """By this machine's clock it would pass; a record without a time always does."""
    letters = Letters()
    letters.keep(letter())
    letters.reduce(STREAM, 3, "INVALID_TIMESTAMP: topic dead does not take it")
    (one,) = letters.of(STREAM, [3])
    record = one.record(RULES, NOW)
    assert (record.body, record.key, record.timestamp) == (b"body", b"key", -1)
    letters.reduce(STREAM, 3, "MESSAGE_TOO_LARGE: topic dead does not take it")
    (one,) = letters.of(STREAM, [3])
    assert (one.is_reduced, one.record(RULES, NOW).timestamp) == (True, -1)


def test_a_compacted_topic_gets_keys() -> None:
    rules = TopicRules("dead", 1, compacted=True)
    assert letter(message=Message(b"x")).record(rules, NOW).key == f"{STREAM}/3".encode()
    assert letter().record(rules, NOW).key == b"key"


def test_a_reduced_letter_has_coordinates_and_nothing_of_the_message() -> None:
    record = letter(message=Message(b"x" * 9, b"k" * 9, (("h", b"1" * 9),), NOW)).reduced().record(RULES, NOW)
    assert json.loads(record.whole or b"") == {
        "bridge": "bridge", "stream": STREAM, "position": 3, "reason": "LOOP: why", "size": 9,
    }  # fmt: skip
    assert record.key is None
    assert [name for name, _ in record.headers] == [REDUCED_HEADER, *LETTER_HEADERS]


def test_letters_are_there_until_they_are_stored_one_for_a_position() -> None:
    letters = Letters()
    for position in (3, 5, 5, 9):
        letters.keep(letter(position))
    assert [one.position for one in letters.of(STREAM, [1, 3, 5])] == [3, 5]
    assert letters.of("other", [3]) == []
    letters.stored(STREAM, [3, 5, 7])
    assert [one.position for one in letters.of(STREAM, range(20))] == [9]


def test_what_is_kept_is_bounded_by_leaving_bodies_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters_module, "MOST_KEPT_BYTES", 1_000)
    letters = Letters()
    for position in range(20):
        letters.keep(letter(position, Message(b"x" * 300)))
    kept = letters.of(STREAM, range(20))
    assert [one.is_reduced for one in kept] == [False] * 3 + [True] * 17
    letters.stored(STREAM, range(20))
    letters.keep(letter(0, Message(b"x" * 300)))
    assert not letters.of(STREAM, [0])[0].is_reduced


def test_a_letter_is_reduced_once_and_then_refused_with_the_setting() -> None:
    letters = Letters()
    letters.keep(letter())
    letters.reduce(STREAM, 3, "MESSAGE_TOO_LARGE: why")
    assert letters.of(STREAM, [3])[0].is_reduced
    with pytest.raises(TargetRefused) as refused:
        letters.reduce(STREAM, 3, "MESSAGE_TOO_LARGE: why")
    assert refused.value.key == "dead-letter-address"
    assert "MESSAGE_TOO_LARGE: why" in str(refused.value)
