"""A stuck consumer is told from an idle one."""

from __future__ import annotations

from aiokafka.structs import TopicPartition

from bridge.kafka.source.stall_detection import STUCK_AFTER_MS, StallDetector

ORDERS = TopicPartition("orders", 0)
INVOICES = TopicPartition("invoices", 0)
BOTH = [ORDERS, INVOICES]


def waiting() -> StallDetector:
    patience = StallDetector()
    for tp in BOTH:
        patience.moved(tp)
    return patience


def test_only_what_was_waited_for_long_enough_is_asked_for() -> None:
    patience = waiting()
    patience.waited_ms += STUCK_AFTER_MS - 1
    assert patience.run_out(BOTH) == []
    patience.moved(INVOICES)
    patience.waited_ms += 1
    assert patience.run_out(BOTH) == [ORDERS]


def test_what_is_missed_twice_in_a_row_is_stuck() -> None:
    patience = waiting()
    patience.waited_ms += STUCK_AFTER_MS
    assert patience.stuck({ORDERS: 5, INVOICES: 9}, {ORDERS: 7, INVOICES: 9}) == []
    assert patience.run_out(BOTH) == []
    patience.waited_ms += STUCK_AFTER_MS
    assert patience.stuck({ORDERS: 5, INVOICES: 9}, {ORDERS: 7, INVOICES: 9}) == [ORDERS]


def test_what_has_come_meanwhile_is_not() -> None:
    patience = waiting()
    assert patience.stuck({ORDERS: 5}, {ORDERS: 7}) == []
    patience.moved(ORDERS)
    assert patience.stuck({ORDERS: 7}, {ORDERS: 9}) == []
    assert patience.stuck({ORDERS: 9}, {ORDERS: 12}) == []
