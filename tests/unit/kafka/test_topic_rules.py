"""What a topic takes, by its configuration."""

from __future__ import annotations

import pytest

from bridge.kafka.topic_rules import MOST_ALONE, UNKNOWN_LIMIT, TopicRules, rules_of
from bridge.message import Message

NOW = 1_700_000_000_000


def test_rules_are_read_from_the_configuration() -> None:
    rules = rules_of(
        "orders",
        3,
        {
            "max.message.bytes": "1048588",
            "message.timestamp.before.max.ms": "9223372036854775807",
            "message.timestamp.after.max.ms": "3600000",
            "message.timestamp.type": "CreateTime",
            "cleanup.policy": "delete",
            "min.insync.replicas": "2",
        },
    )
    assert rules == TopicRules("orders", 3, 1048588, UNKNOWN_LIMIT, 3_600_000, False, False, 2)


def cut(rules: TopicRules, *timestamps: int) -> list[tuple[int, int, bool]]:
    return list(rules.pieces([Message(b"x", None, (), one) for one in timestamps], NOW))


def test_what_is_not_known_refuses_nothing() -> None:
    rules = rules_of("orders", 1, {})
    assert rules.first_refused([Message(b"x", None, (), NOW)]) is None
    assert cut(rules, -1, 0, 2**60) == [(0, 3, False)]


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact"])
def test_a_compacted_topic_needs_keys(policy: str) -> None:
    rules = rules_of("orders", 1, {"cleanup.policy": policy})
    found = rules.first_refused([Message(b"x", b""), Message(b"x", b"k"), Message(b"x")])
    assert found is not None
    assert found[0] == 2
    assert found[1].startswith("INVALID_RECORD: ")
    assert "cleanup.policy" in found[1]


LIMITED = TopicRules("orders", 1, before_max_ms=5_000, after_max_ms=1_000)


@pytest.mark.parametrize("doubtful", [NOW + 1_001, NOW - 5_001])
def test_what_this_clock_finds_too_early_or_late_goes_alone_and_is_not_refused(doubtful: int) -> None:
    assert cut(LIMITED, NOW - 5_000, NOW + 1_000, -1) == [(0, 3, False)]
    assert cut(LIMITED, NOW - 5_000, NOW + 1_000, -1, doubtful, NOW) == [
        (0, 3, False),
        (3, 4, True),
        (4, 5, True),
    ]
    assert LIMITED.first_refused([Message(b"x", None, (), doubtful)]) is None


def test_a_wrong_clock_costs_a_few_record_batches_however_many_messages_there_are() -> None:
    assert cut(LIMITED, *[NOW + 9_999] * 5_000) == [
        (0, 1, True), (1, 17, True), (17, 273, True), (273, 4_369, True), (4_369, 5_000, True),
    ]  # fmt: skip


def test_where_the_broker_has_refused_one_many_go_alone_so_that_all_of_them_are_found_at_once() -> None:
    messages = [Message(b"x", None, (), NOW + 9_999)] * (MOST_ALONE + 20)
    pieces = list(LIMITED.pieces(messages, NOW, refusing=True))
    assert pieces[:MOST_ALONE] == [(n, n + 1, True) for n in range(MOST_ALONE)]
    assert pieces[MOST_ALONE:] == [
        (MOST_ALONE, MOST_ALONE + 16, True),
        (MOST_ALONE + 16, MOST_ALONE + 20, True),
    ]


def test_what_is_told_of_a_refused_time_has_both_settings_and_numbers() -> None:
    told = LIMITED.time_told(Message(b"x", None, (), NOW + 1_234), NOW)
    for word in (
        "1234 ms",
        "5000 ms",
        "1000",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
    ):
        assert word in told


def test_a_topic_that_sets_its_own_times_takes_any() -> None:
    rules = TopicRules("orders", 1, before_max_ms=5_000, after_max_ms=1_000, log_append_time=True)
    assert cut(rules, NOW * 2, 0) == [(0, 2, False)]
