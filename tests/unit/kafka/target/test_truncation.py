"""What a target has lost of what it confirmed, by the offsets in the journal."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest
from aiokafka.structs import TopicPartition

from bridge.kafka.journal_topic.records import StreamRecord
from bridge.kafka.records.topic_rules import TopicRules
from bridge.kafka.target.truncation import Loss, losses
from bridge.relay.ports import Stream

STREAM = Stream("kafka:c:t:0", "orders", "to", "7", 1)
TOPICS = {"to": TopicRules("to", 2, id="id-1")}
ENDS = {TopicPartition("to", 0): 10, TopicPartition("to", 1): 20}


def record(*offsets: tuple[str, int, int], target_id: str = "id-1") -> StreamRecord:
    return StreamRecord(next=100, offsets=offsets, target_id=target_id)


async def found(known: StreamRecord, ends: Mapping[TopicPartition, int] = ENDS) -> list[Loss]:
    async def ask(tps: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: end for tp, end in ends.items() if tp in tps}

    return await losses([(STREAM, known)], TOPICS, ask)


@pytest.mark.parametrize("last", [0, 8, 9])
async def test_a_topic_that_has_the_last_record_written_has_lost_nothing(last: int) -> None:
    assert await found(record(("to", 0, last))) == []


async def test_an_end_at_or_below_the_last_record_written_is_a_loss_with_both_numbers() -> None:
    known = record(("to", 0, 10), ("to", 1, 19))
    assert await found(known) == [Loss(STREAM.identity, "to", 0, 10, 11, recreated=False)]


async def test_another_topic_under_the_name_is_a_loss_however_far_it_has_grown() -> None:
    known = record(("to", 0, 3), target_id="id-0")
    assert await found(known) == [Loss(STREAM.identity, "to", 0, 10, 4, recreated=True)]


async def test_without_a_recorded_id_only_the_end_counts() -> None:
    """Records of an older version have none."""
    assert await found(record(("to", 0, 3), target_id="")) == []
    assert await found(record(("to", 0, 10), target_id="")) != []


async def test_what_is_not_known_is_no_loss() -> None:
    assert await found(record(("to", 0, 10)), {}) == []


async def test_only_where_the_stream_writes_now_is_asked() -> None:
    """Its forwarding address has changed, or the topic is not there: that is told by other means."""
    asked: list[Collection[TopicPartition]] = []

    async def ask(tps: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        asked.append(tps)
        return {}

    assert await losses([(STREAM, record(("before", 0, 10)))], TOPICS, ask) == []
    assert await losses([(STREAM, record(("to", 0, 10)))], {}, ask) == []
    assert await losses([(STREAM, record())], TOPICS, ask) == []
    assert asked == []
