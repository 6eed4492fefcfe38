"""A stuck consumer is distinguished from an idle one."""

from __future__ import annotations

from aiokafka.structs import TopicPartition

from bridge.kafka.source.stall_detection import STUCK_AFTER_MS, StallDetector

ORDERS = TopicPartition("orders", 0)
INVOICES = TopicPartition("invoices", 0)
BOTH = [ORDERS, INVOICES]


def waiting() -> StallDetector:
    stalls = StallDetector()
    for tp in BOTH:
        stalls.moved(tp)
    return stalls


def test_only_what_was_waited_for_long_enough_is_asked_for() -> None:
    stalls = waiting()
    stalls.waited_ms += STUCK_AFTER_MS - 1
    assert stalls.run_out(BOTH) == []
    stalls.moved(INVOICES)
    stalls.waited_ms += 1
    assert stalls.run_out(BOTH) == [ORDERS]


def test_what_is_missed_twice_in_a_row_is_stuck() -> None:
    stalls = waiting()
    stalls.waited_ms += STUCK_AFTER_MS
    assert stalls.stuck({ORDERS: 5, INVOICES: 9}, {ORDERS: 7, INVOICES: 9}) == []
    assert stalls.run_out(BOTH) == []
    stalls.waited_ms += STUCK_AFTER_MS
    assert stalls.stuck({ORDERS: 5, INVOICES: 9}, {ORDERS: 7, INVOICES: 9}) == [ORDERS]


def test_what_has_come_meanwhile_is_not() -> None:
    stalls = waiting()
    assert stalls.stuck({ORDERS: 5}, {ORDERS: 7}) == []
    stalls.moved(ORDERS)
    assert stalls.stuck({ORDERS: 7}, {ORDERS: 9}) == []
    assert stalls.stuck({ORDERS: 9}, {ORDERS: 12}) == []
