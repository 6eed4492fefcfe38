"""Record batches in the making."""

from __future__ import annotations

import pytest
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from bridge.kafka.records.record_batches import (
    RECORD_BATCH_BYTES,
    Piles,
    Pouring,
    RecordBatch,
    Segment,
    TooLarge,
)
from bridge.kafka.records.topic_rules import TopicRules
from bridge.messages.message import Message

STREAM = "kafka:c:t:0"
RULES = TopicRules("orders", 4, max_message_bytes=1_000)


def piles(*, exact: bool = True) -> Piles:
    return Piles(lambda most: BatchBuilder(most, 0, is_transactional=True), exact=exact)


def pouring(messages: list[Message], first: int = 0, stream: str = STREAM) -> Pouring:
    positions = range(first, first + len(messages))
    return Pouring(stream, positions, messages, [list(message.headers) for message in messages])


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
def test_what_is_poured_is_what_a_reader_gets_in_order(poured: list[Message], alone: bool) -> None:
    """Trap 7 among it: a record without a timestamp keeps none, whatever stands around it."""
    made = piles()
    made.pour(RULES, 2, pouring(poured), alone=alone)
    assert [message for batch in made.piles["orders", 2] for message in built(batch)] == poured


@given(messages)
def test_no_record_batch_is_larger_than_its_topic_takes(poured: list[Message]) -> None:
    made = piles()
    made.pour(RULES, 0, pouring(poured))
    for batch in made:
        assert len(batch.builder._build()) <= RULES.max_message_bytes  # type: ignore[attr-defined]


@given(messages, messages)
def test_segments_say_who_is_where(first: list[Message], second: list[Message]) -> None:
    made = piles()
    made.pour(RULES, 0, pouring(first, 10))
    made.pour(RULES, 0, pouring(second, 70, "other"))
    told = []
    for batch in made:
        before = -1
        for segment in batch.segments:
            assert segment.place - before == segment.last - segment.first + 1
            told += [(segment.stream, position) for position in range(segment.first, segment.last + 1)]
            before = segment.place
        assert before == batch.builder.record_count() - 1
    assert told == [
        *((STREAM, 10 + n) for n in range(len(first))),
        *(("other", 70 + n) for n in range(len(second))),
    ]


def test_a_message_that_fits_no_record_batch_is_named() -> None:
    made = piles()
    with pytest.raises(TooLarge) as error:
        made.pour(RULES, 0, pouring([Message(b"a"), Message(b"x" * 1_000), Message(b"b")]))
    assert list(error.value.sizes) == [1]
    assert error.value.sizes[1] > 1_000


def test_the_last_message_of_all_is_measured_too() -> None:
    with pytest.raises(TooLarge):
        piles().pour(RULES, 0, pouring([Message(b"x" * 1_000)]))


def test_where_sizes_are_not_known_nothing_is_too_large() -> None:
    made = piles(exact=False)
    made.pour(RULES, 0, pouring([Message(b"a"), Message(b"x" * 1_000), Message(b"b")]))
    assert [batch.builder.record_count() for batch in made] == [1, 1, 1]


def test_a_topic_with_a_high_limit_still_gets_batches_of_a_sensible_size() -> None:
    made = piles()
    rules = TopicRules("orders", 1, max_message_bytes=100_000_000)
    made.pour(rules, 0, pouring([Message(b"x" * 400_000, None, (), 1)] * 6))
    assert [batch.builder.record_count() for batch in made] == [2, 2, 2]
    assert all(batch.builder.size() <= RECORD_BATCH_BYTES for batch in made)


def test_what_is_poured_alone_shares_its_record_batch_with_nobody() -> None:
    made = piles()
    made.pour(RULES, 0, pouring([Message(b"a")]))
    made.pour(RULES, 0, pouring([Message(b"b"), Message(b"c")], 1), alone=True)
    made.pour(RULES, 0, pouring([Message(b"d")], 3))
    assert [batch.segments for batch in made] == [
        [Segment(STREAM, 0, 0, 0)],
        [Segment(STREAM, 1, 2, 1)],
        [Segment(STREAM, 3, 3, 0)],
    ]


def test_topics_and_partitions_have_piles_of_their_own() -> None:
    made = piles()
    for topic, partition in (("a", 0), ("b", 0), ("a", 1), ("a", 0)):
        made.pour(TopicRules(topic, 2), partition, pouring([Message(b"x")]))
    assert {place: len(pile) for place, pile in made.piles.items()} == {("a", 0): 1, ("b", 0): 1, ("a", 1): 1}
