"""Record batches in the making."""

from __future__ import annotations

import pytest
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from bridge.kafka.records.record_batches import (
    RECORD_BATCH_BYTES,
    Appended,
    RecordBatch,
    RecordBatches,
    Segment,
    TooLarge,
)
from bridge.kafka.records.topic_rules import TopicRules
from bridge.messages.message import Message

STREAM = "kafka:c:t:0"
RULES = TopicRules("orders", 4, max_message_bytes=1_000)


def record_batches(*, exact: bool = True) -> RecordBatches:
    return RecordBatches(lambda most: BatchBuilder(most, 0, is_transactional=True), exact=exact)


def appended(messages: list[Message], first: int = 0, stream: str = STREAM) -> Appended:
    positions = range(first, first + len(messages))
    return Appended(stream, positions, messages, [list(message.headers) for message in messages])


def built(batch: RecordBatch) -> list[Message]:
    """The records as a reader decodes them."""
    found = []
    records = MemoryRecords(bytes(batch.builder._build()))  # type: ignore[attr-defined]
    while records.has_next():
        found += [
            Message(one.value, one.key, tuple(one.headers), one.timestamp) for one in records.next_batch()
        ]
    return found


messages = st.lists(
    st.builds(
        Message,
        st.none() | st.binary(max_size=300),
        st.none() | st.binary(max_size=20),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=20)), max_size=3).map(tuple),
        st.sampled_from([-1, -1, 0, 5, 1_700_000_000_000, 2**41]),
    ),
    min_size=1,
    max_size=40,
)


@given(messages, st.booleans())
def test_what_is_appended_is_what_a_reader_gets_in_order(messages: list[Message], alone: bool) -> None:
    """Trap 7 among it: a record without a timestamp keeps none, whatever stands around it."""
    made = record_batches()
    made.append(RULES, 2, appended(messages), alone=alone)
    assert [message for batch in made.by_partition["orders", 2] for message in built(batch)] == messages


@given(messages)
def test_no_record_batch_is_larger_than_its_topic_takes(messages: list[Message]) -> None:
    made = record_batches()
    made.append(RULES, 0, appended(messages))
    for batch in made:
        assert len(batch.builder._build()) <= RULES.max_message_bytes  # type: ignore[attr-defined]


@given(messages, messages)
def test_segments_say_who_is_where(first: list[Message], second: list[Message]) -> None:
    made = record_batches()
    made.append(RULES, 0, appended(first, 10))
    made.append(RULES, 0, appended(second, 70, "other"))
    covered = []
    for batch in made:
        before = -1
        for segment in batch.segments:
            assert segment.last_index - before == segment.last - segment.first + 1
            covered += [(segment.stream, position) for position in range(segment.first, segment.last + 1)]
            before = segment.last_index
        assert before == batch.builder.record_count() - 1
    assert covered == [
        *((STREAM, 10 + n) for n in range(len(first))),
        *(("other", 70 + n) for n in range(len(second))),
    ]


def test_a_message_that_fits_no_record_batch_is_named() -> None:
    made = record_batches()
    with pytest.raises(TooLarge) as error:
        made.append(RULES, 0, appended([Message(b"a"), Message(b"x" * 1_000), Message(b"b")]))
    assert list(error.value.sizes) == [1]
    assert error.value.sizes[1] > 1_000


def test_the_last_message_of_all_is_measured_too() -> None:
    with pytest.raises(TooLarge):
        record_batches().append(RULES, 0, appended([Message(b"x" * 1_000)]))


def test_where_sizes_are_not_known_nothing_is_too_large() -> None:
    made = record_batches(exact=False)
    made.append(RULES, 0, appended([Message(b"a"), Message(b"x" * 1_000), Message(b"b")]))
    assert [batch.builder.record_count() for batch in made] == [1, 1, 1]


def test_a_topic_with_a_high_limit_still_gets_batches_of_a_sensible_size() -> None:
    made = record_batches()
    rules = TopicRules("orders", 1, max_message_bytes=100_000_000)
    made.append(rules, 0, appended([Message(b"x" * 400_000, None, (), 1)] * 6))
    assert [batch.builder.record_count() for batch in made] == [2, 2, 2]
    assert all(batch.builder.size() <= RECORD_BATCH_BYTES for batch in made)


def test_what_is_appended_alone_shares_its_record_batch_with_nobody() -> None:
    made = record_batches()
    made.append(RULES, 0, appended([Message(b"a")]))
    made.append(RULES, 0, appended([Message(b"b"), Message(b"c")], 1), alone=True)
    made.append(RULES, 0, appended([Message(b"d")], 3))
    assert [batch.segments for batch in made] == [
        [Segment(STREAM, 0, 0, 0)],
        [Segment(STREAM, 1, 2, 1)],
        [Segment(STREAM, 3, 3, 0)],
    ]


def test_topics_and_partitions_have_record_batches_of_their_own() -> None:
    made = record_batches()
    for topic, partition in (("a", 0), ("b", 0), ("a", 1), ("a", 0)):
        made.append(TopicRules(topic, 2), partition, appended([Message(b"x")]))
    assert {partition: len(batches) for partition, batches in made.by_partition.items()} == {
        ("a", 0): 1,
        ("b", 0): 1,
        ("a", 1): 1,
    }
