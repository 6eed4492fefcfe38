"""Lines of Kafka lanes: what the log gets, and what the journal record can carry of it."""

from __future__ import annotations

import json

import pytest

from bridge.delivery_log import LineWriter
from bridge.kafka.journal_topic.records import LEAST_BATCH_BYTES, RESERVED_BYTES
from bridge.kafka.source.sent_log import sent_line
from bridge.kafka.target import received_lines as lines
from bridge.kafka.target.coverage import Covered
from bridge.kafka.target.received_lines import received_lines
from bridge.messages.batch import Batch
from bridge.messages.block import encode_message, pack
from bridge.messages.message import Message
from bridge.relay.ports import Receipt, Stream
from dedup.verdict import Verdict

ORDERS = Stream("kafka:c:t:0", "orders", "eu.orders", "3", 1)
WRITER = LineWriter(node="edge", node_id="u", bridge="b", lane=3, target="hub", store="s")


def batch(from_: int, upto: int, *ids: bytes, refused: tuple[int, ...] = ()) -> Batch:
    block = pack([encode_message(Message(b"x"))] * (upto - from_), tuple(enumerate(ids)))
    return Batch(ORDERS.identity, from_, upto, ((from_, upto - 1),), block, 1, refused, (5, 6))


def covered(*batches: Batch) -> Covered:
    made = Covered(ORDERS, batches[0].from_)
    for one in batches:
        made.add(one, ())
    return made


def test_a_sent_line_names_the_source_and_what_the_receipt_says() -> None:
    receipt = Receipt(ORDERS.identity, Verdict.STORED, 4, duplicates=1, committed=9, clock_offset_ms=-250)
    fields = json.loads(sent_line(batch(2, 4, b"A", b"\xff"), receipt, ORDERS, WRITER, recovered=False))
    assert (fields["side"], fields["address"], fields["target"], fields["store"]) == (
        "sent",
        "orders",
        "hub",
        "s",
    )
    assert (fields["lane"], fields["from"], fields["upto"], fields["runs"]) == (3, 2, 4, [[2, 3]])
    assert fields["ids"] == [[2, "A"], [3, {"base64": "/w=="}]]
    assert (fields["events"], fields["committed"], fields["duplicates"]) == ([5, 6], 9, 1)
    assert (fields["recovered"], fields["clock-offset"]) == (False, -250)


def test_without_a_measured_offset_the_key_is_not_written() -> None:
    receipt = Receipt(ORDERS.identity, Verdict.STORED, 4)
    assert "clock-offset" not in json.loads(sent_line(batch(2, 4), receipt, ORDERS, WRITER, recovered=True))


def test_a_received_line_names_the_target_and_covers_all_batches() -> None:
    written, carried = received_lines(covered(batch(0, 2), batch(2, 3, b"C")), WRITER, 77)
    (line,) = written
    assert carried == line
    fields = json.loads(line)
    assert (fields["side"], fields["address"], fields["from"], fields["upto"]) == (
        "received",
        "eu.orders",
        0,
        3,
    )
    assert (fields["runs"], fields["ids"], fields["committed"]) == ([[0, 2]], [[2, "C"]], 77)


def test_a_received_line_says_what_was_known_and_whether_ids_were_looked_up() -> None:
    made = Covered(ORDERS, 0)
    made.add(batch(0, 3, b"A", b"A"), {1})
    made.add(batch(3, 4), {0})
    fields, _ = map(json.loads, received_lines(made, WRITER, 77)[0])
    assert (fields["known"], fields["duplicates"], fields["ids"]) == ([[1, 1], [3, 3]], 2, [[0, "A"]])
    assert "unchecked" not in fields
    made = Covered(ORDERS, 0, unchecked=True)
    made.add(batch(0, 3, b"A"), ())
    (line,), _ = received_lines(made, WRITER, 77)
    assert (json.loads(line)["unchecked"], "known" in json.loads(line)) == (True, False)


@pytest.mark.parametrize("value", [b"x" * 1_000, b'"' * 1_000, ("\u6f22" * 200).encode()])
def test_a_record_carries_a_long_line_without_its_ids_and_the_log_gets_all_of_it(value: bytes) -> None:
    count = lines.MOST_CARRIED_BYTES // len(value) + 1
    written, carried = received_lines(covered(batch(0, count, *[value] * count)), WRITER, 77)
    assert len(json.loads(written[0])["ids"]) == count
    fields = json.loads(carried)
    assert fields["ids"] == []
    assert {**json.loads(written[0]), "ids": []} == fields


@pytest.mark.parametrize("value", [b"x" * 1_000, b'"' * 1_000, ("\u6f22" * 200).encode()])
def test_what_is_carried_fits_a_record_however_it_is_written(value: bytes) -> None:
    """Characters are up to four bytes, and quotes within JSON within JSON too."""
    for count in range(10, 2_000, 100):
        _, carried = received_lines(covered(batch(0, count, *[value] * count)), WRITER, 77)
        assert len(json.dumps(carried, ensure_ascii=False).encode()) <= lines.MOST_CARRIED_BYTES


def test_a_record_carries_nothing_of_a_line_that_is_too_long_even_so() -> None:
    made = covered(batch(0, 1))
    made.upto = 10**9
    made.runs = [(10**6 + 2 * number, 10**6 + 2 * number) for number in range(60_000)]
    written, carried = received_lines(made, WRITER, 77)
    assert len(written[0]) > lines.MOST_CARRIED_BYTES
    assert carried == ""


def test_where_the_journal_topic_takes_little_the_record_carries_less_and_the_log_the_same() -> None:
    of = covered(batch(0, 100, *(b"%0500d" % number for number in range(100))))
    whole, carried = received_lines(of, WRITER, 77)
    assert [carried] == list(whole)
    same, bare = received_lines(of, WRITER, 77, LEAST_BATCH_BYTES)
    assert same == whole
    assert json.loads(bare)["ids"] == []
    assert len(bare) <= LEAST_BATCH_BYTES - RESERVED_BYTES
