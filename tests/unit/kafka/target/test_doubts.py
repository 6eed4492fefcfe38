"""Which messages a topic may refuse, by what its brokers have said of others."""

from __future__ import annotations

import pytest

from bridge.kafka.records.topic_rules import UNKNOWN_LIMIT, TopicRules
from bridge.kafka.target.doubts import GROW, GROW_AFTER, SHRINK, TRY_AGAIN_AFTER, Doubts
from bridge.messages.message import Message

NOW = 1_700_000_000_000
LIMITED = TopicRules("orders", 1, before_max_ms=5_000, after_max_ms=1_000)
UNLIMITED = TopicRules("orders", 1)
TOO_LARGE, INVALID_TIMESTAMP, INVALID_RECORD = 10, 32, 87


def of(time: int, body: bytes = b"x", key: bytes | None = b"k") -> Message:
    return Message(body, key, (), time)


def in_doubt(doubts: Doubts, *messages: Message, rules: TopicRules = LIMITED) -> list[int]:
    return doubts.of(rules, messages, NOW)


@pytest.mark.parametrize("doubtful", [NOW + 1_001, NOW - 5_001])
def test_what_this_clock_finds_too_early_or_late_is_in_doubt(doubtful: int) -> None:
    assert in_doubt(Doubts(), of(NOW - 5_000), of(NOW + 1_000), of(-1), of(doubtful), of(NOW)) == [3]


def test_a_topic_that_sets_its_own_times_takes_any() -> None:
    rules = TopicRules("orders", 1, before_max_ms=5_000, after_max_ms=1_000, log_append_time=True)
    assert in_doubt(Doubts(), of(NOW * 2), of(0), rules=rules) == []


@pytest.mark.parametrize("sign", [1, -1])
def test_where_this_clock_is_wrong_one_answer_frees_those_that_are_as_far_off(sign: int) -> None:
    doubts, off = Doubts(), [9_000, 10_000, 12_500, 12_501]
    assert in_doubt(doubts, *(of(NOW + sign * one) for one in off)) == [0, 1, 2, 3]
    doubts.taken(of(NOW + sign * 10_000), NOW)
    assert in_doubt(doubts, *(of(NOW + sign * one) for one in off)) == [3]
    # And not those of the other direction.
    assert in_doubt(doubts, of(NOW - sign * 9_000)) == [0]


@pytest.mark.parametrize("sign", [1, -1])
def test_where_limits_are_not_known_a_refusal_tells_them(sign: int) -> None:
    doubts, off = Doubts(), [1_000, 9_999, 10_000, 20_000]
    assert in_doubt(doubts, *(of(NOW + sign * one) for one in off), rules=UNLIMITED) == []
    doubts.refused(INVALID_TIMESTAMP, of(NOW + sign * 10_000), NOW)
    assert in_doubt(doubts, *(of(NOW + sign * one) for one in off), rules=UNLIMITED) == [2, 3]
    # Until the broker takes one: its limit, or its clock, was changed.
    doubts.taken(of(NOW + sign * 20_000), NOW)
    assert in_doubt(doubts, *(of(NOW + sign * one) for one in off), rules=UNLIMITED) == []


def test_a_refusal_ends_what_was_free() -> None:
    doubts = Doubts()
    doubts.taken(of(NOW + 10_000), NOW)
    doubts.refused(INVALID_TIMESTAMP, of(NOW + 8_000), NOW)
    assert in_doubt(doubts, of(NOW + 7_999), of(NOW + 8_000)) == [1]


def test_messages_without_a_key_are_in_doubt_once_one_was_refused() -> None:
    doubts, keyless = Doubts(), of(NOW, key=None)
    assert in_doubt(doubts, keyless) == []
    doubts.refused(INVALID_RECORD, of(NOW), NOW)
    assert in_doubt(doubts, keyless) == []
    doubts.refused(INVALID_RECORD, keyless, NOW)
    assert in_doubt(doubts, of(NOW), keyless, keyless) == [1, 2]
    doubts.taken(keyless, NOW)
    assert in_doubt(doubts, keyless) == []


def test_messages_as_large_as_one_that_was_refused_are_in_doubt() -> None:
    doubts = Doubts()
    sizes = [of(NOW, b"x" * size) for size in (98, 99, 100)]
    doubts.refused(TOO_LARGE, sizes[1], NOW)
    assert in_doubt(doubts, *sizes) == [1, 2]
    doubts.taken(sizes[1], NOW)  # it compresses better
    assert in_doubt(doubts, *sizes) == [2]


def test_record_batches_get_smaller_until_the_topic_takes_them() -> None:
    doubts = Doubts()
    assert doubts.most_bytes == UNKNOWN_LIMIT
    doubts.refused_batch(1_000_000)
    doubts.refused_batch(900_000)
    assert doubts.most_bytes == 900_000 // SHRINK


def test_record_batches_grow_again_once_enough_of_their_size_were_taken() -> None:
    doubts, refused = Doubts(), 1_000_000
    doubts.refused_batch(refused)
    sizes = []
    for _ in range(GROW_AFTER + TRY_AGAIN_AFTER):
        sizes.append(doubts.most_bytes)
        doubts.taken_batch(min(doubts.most_bytes, refused - 1))
    assert sorted(set(sizes)) == [refused // SHRINK, refused // SHRINK * GROW]
    assert doubts.most_bytes == UNKNOWN_LIMIT, "the topic's limit may have been raised"
    doubts.refused_batch(refused)
    assert doubts.most_bytes == refused // SHRINK


def test_small_record_batches_tell_nothing_of_larger_ones() -> None:
    doubts = Doubts()
    doubts.refused_batch(1_000_000)
    for _ in range(TRY_AGAIN_AFTER):
        doubts.taken_batch(100)
    assert doubts.most_bytes == 1_000_000 // SHRINK
