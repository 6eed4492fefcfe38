"""What a topic takes, by its configuration."""

from __future__ import annotations

import pytest

from bridge.kafka.records.topic_rules import UNKNOWN_LIMIT, TopicRules, rules_of
from bridge.messages.message import Message

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


def test_what_is_not_known_refuses_nothing() -> None:
    rules = rules_of("orders", 1, {})
    assert rules.all_refused([Message(b"x", None, (), NOW)]) == {}


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact"])
def test_a_compacted_topic_needs_keys(policy: str) -> None:
    rules = rules_of("orders", 1, {"cleanup.policy": policy})
    found = rules.all_refused([Message(b"x", b""), Message(b"x"), Message(b"x", b"k"), Message(b"x")])
    assert list(found) == [1, 3]
    assert found[1].startswith("INVALID_RECORD: ")
    assert "cleanup.policy" in found[1]


LIMITED = TopicRules("orders", 1, before_max_ms=5_000, after_max_ms=1_000)


def test_the_explanation_of_a_refused_time_has_both_settings_and_numbers() -> None:
    text = LIMITED.time_limits(Message(b"x", None, (), NOW + 1_234), NOW)
    for word in (
        "1234 ms",
        "5000 ms",
        "1000",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
    ):
        assert word in text
