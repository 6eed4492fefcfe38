"""What one transaction holds, decided before anything is sent."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace

from aiokafka.producer.message_accumulator import BatchBuilder

from bridge.delivery_log import LineWriter
from bridge.errors import OutOfSequence
from bridge.kafka.journal_topic.id_blocks import MOST_ID_BYTES
from bridge.kafka.journal_topic.lane_state import LaneState
from bridge.kafka.journal_topic.options import StateOptions
from bridge.kafka.journal_topic.records import LaneRecord
from bridge.kafka.records.record_batches import RecordBatch, Segment
from bridge.kafka.records.topic_rules import TopicRules
from bridge.kafka.target.coverage import last_offsets
from bridge.kafka.target.dead_letters import Letter, Letters
from bridge.kafka.target.doubts import Doubts
from bridge.kafka.target.options import KafkaTargetOptions
from bridge.kafka.target.plan import Delivery, OpenStream, Plan, Setting, plan
from bridge.kafka.target.refused_records import Isolation
from bridge.kafka.target.stored_records import StoredRecords
from bridge.messages.batch import Batch
from bridge.messages.block import FreshBlock, IndexedId
from bridge.messages.message import Message
from bridge.relay.ports import Receipt, Stream
from dedup.verdict import Verdict

NOW = 1_700_000_000_000
ORDERS = Stream("kafka:c:t:0", "orders", "to.orders", "7", 1)
OTHER = Stream("kafka:c:u:0", "other", "to.orders", "7", 1)
TOO_LARGE = Message(b"x" * 2_000, None, (), NOW)


WRITER = LineWriter(node="n", node_id="u", bridge="b", lane=0, target="us", store="kafka:c")


def fresh_state(id_cache_size: int = 100) -> LaneState:
    return LaneState(
        LaneRecord(bridge="b", generation=1, lanes=1),
        StateOptions(id_cache_size=lambda _: id_cache_size, persist_ids=True),
        initialised=True,
    )


def setting(*, letters: Letters | None = None, topics: dict[str, TopicRules] | None = None) -> Setting:
    return Setting(
        refused={},
        options=KafkaTargetOptions(bridge="b", dead_letter_address="dead"),
        line_writer=WRITER,
        topics={"to.orders": TopicRules("to.orders", 1, 1_000)} if topics is None else topics,
        letters=letters or Letters(),
        isolation=Isolation(),
        stored=StoredRecords(),
        doubts=defaultdict(Doubts),
        make_builder=lambda most: BatchBuilder(most, 0, is_transactional=True),
        exact=True,
    )


class Line:
    """Deliveries of some streams, each as opened."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.opened: dict[str, OpenStream] = {}

    def put(
        self,
        stream: Stream,
        from_: int,
        *bodies: bytes | Message,
        ids: tuple[IndexedId, ...] = (),
        refused: tuple[int, ...] = (),
    ) -> Delivery:
        opened = self.opened.setdefault(stream.identity, OpenStream(stream, 1))
        messages = [Message(body, None, (), NOW) if isinstance(body, bytes) else body for body in bodies]
        upto = from_ + len(messages)
        runs = ((from_, upto - 1),) if messages else ()
        block = FreshBlock(messages, ids) if messages else None
        upto = max(upto, *(position + 1 for position in refused)) if refused else upto
        batch = Batch(stream.identity, from_, upto, runs, block, upto, refused, (NOW, NOW))
        self.deliveries.append(Delivery(batch, opened))
        return self.deliveries[-1]


def verdicts(made: Plan) -> list[Verdict | type[OutOfSequence]]:
    return [answer.verdict if isinstance(answer, Receipt) else type(answer) for _, answer in made.answers]


def bodies(made: Plan) -> int:
    return sum(batch.builder.record_count() for batch in made.batches)


def test_batches_are_judged_on_top_of_those_before_them() -> None:
    line = Line()
    for from_, count in ((5, 3), (8, 2), (6, 3), (8, 4), (20, 1)):
        line.put(ORDERS, from_, *[b"x"] * count)
    made = plan(line.deliveries, fresh_state(), setting(), NOW)
    assert verdicts(made) == [
        Verdict.STORED, Verdict.STORED, Verdict.DUPLICATE, Verdict.STORED, OutOfSequence,
    ]  # fmt: skip
    assert [answer.next for _, answer in made.answers if isinstance(answer, Receipt)] == [8, 10, 10, 12]
    assert bodies(made) == 3 + 2 + 2


def test_nothing_is_known_before_it_is_committed() -> None:
    """Rule 3"""
    state, line = fresh_state(), Line()
    line.put(ORDERS, 0, b"x", ids=((0, b"A"),))
    plan(line.deliveries, state, setting(), NOW)
    assert state.stream(ORDERS.identity) is None
    made = plan(line.deliveries, state, setting(), NOW)
    assert verdicts(made) == [Verdict.STORED]
    made.records({}, NOW)
    made.committed()
    assert state.stream(ORDERS.identity) is not None
    assert verdicts(plan(line.deliveries, state, setting(), NOW)) == [Verdict.DUPLICATE]


def test_a_message_found_too_large_while_batches_are_made_takes_only_its_own_batch_with_it() -> None:
    state, line = fresh_state(), Line()
    line.put(ORDERS, 0, b"a", ids=((0, b"A"),))
    line.put(ORDERS, 1, b"b", TOO_LARGE, ids=((0, b"B"),))
    line.put(OTHER, 0, b"c", ids=((0, b"B"),))
    line.put(ORDERS, 3, b"d")
    made = plan(line.deliveries, state, setting(), NOW)
    assert verdicts(made) == [Verdict.STORED, Verdict.REFUSED, Verdict.STORED, Verdict.NOT_NOW]
    receipts = [answer for _, answer in made.answers if isinstance(answer, Receipt)]
    assert (receipts[1].position, receipts[1].next) == (2, 1)
    # The ID of a message that was not stored is not known.
    assert receipts[2].duplicates == 0
    assert bodies(made) == 2
    made.committed()
    assert line.opened[ORDERS.identity].blocked
    assert not line.opened[OTHER.identity].blocked


def counts(made: Plan) -> list[int]:
    return [batch.builder.record_count() for batch in made.batches]


LATE = Message(b"late", None, (), NOW + 7_777)


def test_what_is_in_doubt_is_put_to_the_broker_by_itself_and_then_stored_or_refused() -> None:
    """The broker judges it: this machine's clock may be wrong."""
    own = setting(topics={"to.orders": TopicRules("to.orders", 1, 10_000, after_max_ms=1_000)})
    line = Line()
    line.put(OTHER, 0, b"a", b"b")
    line.put(ORDERS, 0, b"c", LATE, b"d", LATE)
    line.put(OTHER, 2, b"f")
    made = plan(line.deliveries, fresh_state(), own, NOW)
    assert (made.is_probe, counts(made)) == (True, [2])
    (asked,) = made.batches
    assert [asked.segment(index).at(index)[0] for index in (0, 1)] == [1, 3]  # type: ignore[union-attr]
    own.isolation.clear(ORDERS.identity, [1])
    own.isolation.refuse(ORDERS.identity, 3, "INVALID_TIMESTAMP: the broker's word")
    made = plan(line.deliveries, fresh_state(), own, NOW)
    assert (made.is_probe, verdicts(made)) == (
        False,
        [Verdict.STORED, Verdict.REFUSED, Verdict.STORED],
    )
    line.deliveries[1].leave_out_refused()
    made = plan(line.deliveries, fresh_state(), own, NOW)
    assert (made.is_probe, verdicts(made), bodies(made)) == (False, [Verdict.STORED] * 3, 6)
    receipts = [answer for _, answer in made.answers if isinstance(answer, Receipt)]
    assert [receipt.dead_lettered for receipt in receipts] == [(), (3,), ()]


def test_all_that_can_never_be_stored_is_found_at_once() -> None:
    line = Line()
    own = setting(topics={"to.orders": TopicRules("to.orders", 1, 1_000, compacted=True)})
    keyed = Message(b"x", b"k", (), NOW)
    delivery = line.put(ORDERS, 0, keyed, b"none", replace_body(keyed), keyed, b"none", replace_body(keyed))
    (answer,) = [answer for _, answer in plan(line.deliveries, fresh_state(), own, NOW).answers]
    assert isinstance(answer, Receipt)
    assert (answer.verdict, answer.position) == (Verdict.REFUSED, 1)
    assert sorted(delivery.refusals) == [1, 4]
    delivery.leave_out_refused()
    plan(line.deliveries, fresh_state(), own, NOW)
    assert sorted(delivery.refusals) == [2, 5]


def replace_body(message: Message) -> Message:
    """As large as no record batch of the topic."""
    return Message(b"x" * 2_000, message.key, (), NOW)


def test_what_the_broker_has_refused_for_its_time_is_refused_with_its_word_and_the_numbers() -> None:
    line, own = Line(), setting(topics={"to.orders": TopicRules("to.orders", 1, after_max_ms=1_000)})
    line.put(ORDERS, 0, b"a", LATE)
    own.isolation.refuse(ORDERS.identity, 1, "INVALID_TIMESTAMP: the broker's word")
    ((_, receipt),) = plan(line.deliveries, fresh_state(), own, NOW).answers
    assert isinstance(receipt, Receipt)
    assert (receipt.verdict, receipt.position) == (Verdict.REFUSED, 1)
    assert receipt.reason.startswith("INVALID_TIMESTAMP: the broker's word; ")
    assert "7777 ms" in receipt.reason


def test_ids_of_what_is_sent_again_on_purpose_are_not_checked() -> None:
    """Rule 4: a dead letter that is replayed has the ID that the target knows."""
    replayed = Stream("journal:i:$replay/b/orders:0", "orders", "to.orders", "7", 1)
    state, line = fresh_state(), Line()
    line.put(ORDERS, 0, b"x", ids=((0, b"A"),))
    line.put(replayed, 0, b"x", ids=((0, b"A"),))
    line.put(ORDERS, 1, b"x", ids=((0, b"A"),))
    made = plan(line.deliveries, state, setting(), NOW)
    assert [answer.duplicates for _, answer in made.answers if isinstance(answer, Receipt)] == [0, 0, 1]
    assert bodies(made) == 2


def test_an_id_longer_than_a_journal_record_can_hold_with_others_is_refused_alone() -> None:
    line = Line()
    own = setting(topics={"to.orders": TopicRules("to.orders", 1)})
    fits, too_long = b"i" * MOST_ID_BYTES, b"j" * (MOST_ID_BYTES + 1)
    line.put(ORDERS, 0, b"x", b"y", ids=((0, fits), (1, too_long)))
    ((_, receipt),) = plan(line.deliveries, fresh_state(), own, NOW).answers
    assert isinstance(receipt, Receipt)
    assert (receipt.verdict, receipt.position) == (Verdict.REFUSED, 1)
    assert receipt.reason.startswith("INVALID_DUPLICATE_ID: ")
    for number in (str(MOST_ID_BYTES), str(MOST_ID_BYTES + 1)):
        assert number in receipt.reason
    # Nothing is remembered of it where there is no cache, so it may be as long as it likes.
    assert verdicts(plan(line.deliveries, fresh_state(0), own, NOW)) == [Verdict.STORED]


def test_where_the_last_messages_stand_is_kept_with_the_topics_id_by_what_writes_none() -> None:
    state, line = fresh_state(), Line()
    first = {"to.orders": TopicRules("to.orders", 1, 1_000, id="id-1")}
    line.put(ORDERS, 0, b"x")
    made = plan(line.deliveries, state, setting(topics=first), NOW)
    (batch,) = made.batches
    made.records({batch: 41}, NOW)
    made.committed()
    line = Line()
    line.put(ORDERS, 1, refused=(1,))
    again = {"to.orders": TopicRules("to.orders", 1, 1_000, id="id-2")}
    made = plan(line.deliveries, state, setting(topics=again), NOW)
    made.records({}, NOW)
    made.committed()
    record = state.stream(ORDERS.identity)
    assert record is not None
    assert (record.next, record.offsets, record.target_id) == (2, (("to.orders", 0, 41),), "id-1")


def test_of_an_empty_coverage_only_the_journal_hears() -> None:
    line = Line()
    line.put(ORDERS, 7)
    made = plan(line.deliveries, fresh_state(), setting(), NOW)
    assert verdicts(made) == [Verdict.STORED]
    assert not made.is_empty
    assert list(made.batches) == []
    assert len(made.records({}, NOW)) == 1
    assert made.lines == []


def test_without_a_topic_nothing_is_planned() -> None:
    line = Line()
    line.put(ORDERS, 0, b"a")
    made = plan(line.deliveries, fresh_state(), setting(topics={}), NOW)
    assert verdicts(made) == [Verdict.NOT_NOW]
    assert made.is_empty


def test_a_letter_without_a_topic_holds_up_its_stream_and_no_other() -> None:
    letters, line = Letters(), Line()
    letters.keep(Letter("b", "orders", ORDERS.identity, 1, "LOOP: why", Message(b"x")))
    line.put(ORDERS, 0, b"a", refused=(1,))
    line.put(OTHER, 0, b"b")
    made = plan(line.deliveries, fresh_state(), setting(letters=letters), NOW)
    assert verdicts(made) == [Verdict.NOT_NOW, Verdict.STORED]
    assert list(made.covered) == [OTHER.identity]
    assert [batch.builder.record_count() for batch in made.batches] == [1]


def test_one_line_says_what_all_batches_of_a_stream_covered() -> None:
    line = Line()
    line.put(ORDERS, 2, b"a", b"b")
    line.put(ORDERS, 4, b"c", ids=((0, b"C"),))
    line.put(ORDERS, 5, refused=(5,))
    made = plan(line.deliveries, fresh_state(), setting(), NOW)
    made.records({}, NOW + 9)
    (fields,) = [json.loads(text) for text in made.lines]
    assert (fields["from"], fields["upto"], fields["runs"], fields["refused"]) == (2, 6, [[2, 4]], [5])
    assert (fields["ids"], fields["count"], fields["committed"]) == ([[4, "C"]], 3, NOW + 9)


def test_the_record_carries_the_line_and_nothing_where_no_delivery_log_is_written() -> None:
    for writer, carried in ((WRITER, True), (None, False)):
        line = Line()
        line.put(ORDERS, 0, b"a")
        made = plan(line.deliveries, fresh_state(), replace(setting(), line_writer=writer), NOW)
        ((_, value),) = made.records({}, NOW)
        assert value is not None
        assert (json.loads(value)["line"] != "") is carried
        assert len(made.lines) == carried


def test_an_id_that_was_known_stands_in_a_line_of_its_own_and_its_position_in_the_first() -> None:
    line = Line()
    line.put(ORDERS, 0, b"a", b"b", b"c", ids=((0, b"A"), (1, b"A"), (2, b"C")))
    made = plan(line.deliveries, fresh_state(), setting(), NOW)
    made.records({}, NOW)
    received, rejected = [json.loads(text) for text in made.lines]
    assert (received["runs"], received["ids"], received["duplicates"]) == ([[0, 2]], [[0, "A"], [2, "C"]], 1)
    assert (rejected["verdict"], rejected["runs"], rejected["ids"]) == ("duplicate", [], [[None, "A"]])


def test_last_offsets_count_messages_and_no_letters_and_nothing_that_is_not_known() -> None:
    def batch(topic: str, partition: int, *segments: Segment) -> RecordBatch:
        return RecordBatch(topic, partition, BatchBuilder(100, 0), list(segments))

    offsets = {
        batch("t", 0, Segment("a", 0, 4, 4), Segment("b", 0, 1, 6)): 100,
        batch("t", 0, Segment("a", 5, 5, 0)): 107,
        batch("t", 1, Segment("a", 6, 6, 0)): -1,
        batch("dead", 0, Segment("b", 2, 2, 0, is_letter=True)): 5,
    }
    assert last_offsets(offsets) == {"a": (("t", 0, 107),), "b": (("t", 0, 106),)}


# -- without transactions ----------------------------------------------------------------------------------


def without_transactions() -> Setting:
    made = setting()
    return replace(made, options=replace(made.options, transactions=False))


def bodies_of(made: Plan) -> list[bytes | None]:
    return [
        message.whole for batch in made.batches for segment in batch.segments for message in segment.messages
    ]


def test_what_is_stored_already_is_left_out_and_covered_all_the_same() -> None:
    line, state, rules = Line(), fresh_state(), without_transactions()
    line.put(ORDERS, 0, b"0", b"1", b"2", b"3")
    first = plan(line.deliveries, state, rules, NOW)
    (sent,) = first.batches
    sent.segments = [replace(sent.segments[0], positions=[1, 2])]
    rules.stored.add(sent)
    made = plan(line.deliveries, state, rules, NOW)
    assert bodies_of(made) == [b"0", b"3"]
    assert made.covered[ORDERS.identity].runs == [(0, 3)]
    ((_, receipt),) = made.answers
    assert isinstance(receipt, Receipt)
    assert (receipt.verdict, receipt.next, receipt.duplicates) == (Verdict.STORED, 4, 0)
    made.committed()
    assert not rules.stored.of(ORDERS.identity)


def test_a_letter_that_is_stored_already_is_left_out() -> None:
    line, state, rules = Line(), fresh_state(), without_transactions()
    rules = replace(rules, topics={**rules.topics, "dead": TopicRules("dead", 1, 1_000)})
    rules.letters.keep(Letter("b", "orders", ORDERS.identity, 1, "LOOP: why", Message(b"x")))
    line.put(ORDERS, 0, b"a", refused=(1,))
    first = plan(line.deliveries, state, rules, NOW)
    assert first.batches.records == 2
    for batch in first.batches:
        rules.stored.add(batch)
    assert plan(line.deliveries, state, rules, NOW).batches.records == 0


def test_without_transactions_nothing_is_probed_and_the_order_is_kept() -> None:
    line, state, rules = Line(), fresh_state(), without_transactions()
    line.put(ORDERS, 0, *[b"%d" % n for n in range(10)])
    rules.isolation.narrow(ORDERS.identity, 4, 6, 3)
    made = plan(line.deliveries, state, rules, NOW)
    assert not made.is_probe
    assert [batch.builder.record_count() for batch in made.batches] == [4, 1, 1, 1, 3]
    assert bodies_of(made) == [b"%d" % n for n in range(10)]
