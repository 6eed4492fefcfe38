"""Which partitions an open transaction has blocked for too long."""

from __future__ import annotations

from aiokafka.structs import TopicPartition

from bridge.kafka.source.blocked_partitions import BlockedPartitions

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)


def looked(blocked: BlockedPartitions, now_ms: int, **seen: tuple[int, int]) -> tuple[list[int], list[int]]:
    """Partitions that are reported now, and that are no longer blocked."""
    by_name = {"one": ONE, "two": TWO}
    due, ended = blocked.look(
        {by_name[n]: at for n, at in seen.items()}, [ONE, TWO], now_ms, 1_000_000 + now_ms
    )
    return [one.tp.partition for one in due], [one.tp.partition for one in ended]


def test_one_that_stands_still_for_too_long_is_reported_once_and_its_end_too() -> None:
    blocked = BlockedPartitions(60_000)
    assert looked(blocked, 0, one=(5, 9), two=(9, 9)) == ([], [])
    assert blocked.since_wall_ms == 1_000_000
    assert looked(blocked, 59_999, one=(5, 12)) == ([], [])
    assert not blocked.reported
    assert looked(blocked, 60_000, one=(5, 20)) == ([0], [])
    assert looked(blocked, 90_000, one=(5, 20)) == ([], [])
    (text,) = blocked.reported
    assert text == (
        "orders/0 can be read up to offset 5 of 20: a transaction has been open there for 90 s,"
        " of an unknown producer"
    )
    assert looked(blocked, 91_000, one=(20, 20)) == ([], [0])
    assert not blocked.reported
    assert blocked.since_wall_ms is None


def test_transactions_that_follow_one_another_hold_nothing_back() -> None:
    blocked = BlockedPartitions(60_000)
    for minute in range(10):
        assert looked(blocked, minute * 50_000, one=(minute, 100)) == ([], [])


def test_what_is_not_seen_stays_as_it_was_and_what_is_not_open_is_forgotten() -> None:
    blocked = BlockedPartitions(60_000)
    looked(blocked, 0, one=(5, 9), two=(5, 9))
    assert looked(blocked, 60_000) == ([], [])
    assert looked(blocked, 60_001, one=(5, 9), two=(5, 9)) == ([0, 1], [])
    assert len(blocked.reported) == 2
    blocked.look({}, [TWO], 61_000, 0)
    assert [text.split()[0] for text in blocked.reported] == ["orders/1"]


def test_a_next_transaction_right_behind_is_another() -> None:
    blocked = BlockedPartitions(10)
    looked(blocked, 0, one=(5, 9))
    assert looked(blocked, 10, one=(5, 9)) == ([0], [])
    assert looked(blocked, 20, one=(7, 9)) == ([], [0])
    assert looked(blocked, 30, one=(7, 9)) == ([0], [])


def test_never_is_never() -> None:
    blocked = BlockedPartitions(-1)
    looked(blocked, 0, one=(5, 9))
    assert looked(blocked, 10**9, one=(5, 9)) == ([], [])
