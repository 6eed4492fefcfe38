"""Records as messages, and where batches are cut."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.kafka.records.decoding import BatchOptions, checksum_of, is_stamp, make_batches
from bridge.messages import hops
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.block import encode_message
from bridge.messages.message import Header, Message
from bridge.relay.stages import LoopGuard
from dedup.ids import Stamp

STREAM = "kafka:c:t:0"
OPTIONS = BatchOptions(stamp=True, batch_bytes=10_000, large_bytes=5_000, max_id_bytes=10)
STAMP = Stamp("journal:x:orders:0").text(5).encode()


@dataclass
class Record:
    """As aiokafka's."""

    offset: int
    value: bytes | None = b"v"
    key: bytes | None = None
    headers: Sequence[Header] = ()
    timestamp: int = 7


def made(*records: Record, options: BatchOptions = OPTIONS, upto: int | None = None) -> list[Batch]:
    end = records[-1].offset + 1 if upto is None else upto
    return make_batches(options, STREAM, records, records[0].offset, end)


def only(
    record: Record, options: BatchOptions = OPTIONS
) -> tuple[Message, tuple[tuple[int, bytes], ...], str]:
    """The message, its ID and why it is refused."""
    (batch,) = made(record, options=options)
    assert batch.block is not None
    (message,) = batch.block.messages()
    return message, batch.block.ids, dict(batch.refusals).get(record.offset, "")


def test_without_records_there_is_coverage_alone_with_the_checksum_of_what_is_below() -> None:
    assert make_batches(OPTIONS, STREAM, (), 4, 9, 77) == [Batch(STREAM, 4, 9, checksum=77)]


def test_markers_and_holes_are_covered_and_only_records_are_in_the_runs() -> None:
    (batch,) = make_batches(OPTIONS, STREAM, [Record(3), Record(4), Record(8, timestamp=9)], 1, 12)
    assert (batch.from_, batch.upto, batch.runs) == (1, 12, ((3, 4), (8, 8)))
    assert batch.events == (7, 9)
    assert batch.block is not None
    assert batch.block.origins == ((STREAM, 3, 4), (STREAM, 8, 8))


def test_what_is_not_to_be_stamped_names_no_origin() -> None:
    (batch,) = made(Record(0), options=replace(OPTIONS, stamp=False))
    assert batch.block is not None
    assert batch.block.origins == ()


def test_the_checksum_is_of_the_message_as_it_was_read_whatever_the_bridge_adds() -> None:
    record = Record(0, b"body", b"key", (("a", b"1"),))
    (batch,) = made(record)
    as_read = Message(b"body", b"key", (("a", b"1"),), 7)
    assert batch.checksum == checksum_of(record) == zlib.crc32(encode_message(as_read))


# -- headers -----------------------------------------------------------------------------------------------


def test_headers_keep_order_and_repetition_and_hops_travel_beside_the_messages() -> None:
    other = hops.hop("other", "kafka:d")
    headers = (("a", b"1"), (hops.HEADER, other), ("a", None), ("b", b""))
    (batch,) = made(Record(0), Record(1, headers=headers), Record(2, headers=headers), Record(3))
    assert batch.block is not None
    assert batch.block.messages()[1].headers == (("a", b"1"), ("a", None), ("b", b""))
    assert batch.block.hops == ((1, b""), (2, other), (1, b""))
    assert batch.refusals == ()


def test_hops_are_cut_with_the_records() -> None:
    other = hops.hop("other", "kafka:d")
    records = [Record(n, b"x" * 900, headers=[(hops.HEADER, other)] if n % 4 else ()) for n in range(20)]
    batches = made(*records)
    assert len(batches) > 1
    values = [
        value
        for batch in batches
        if batch.block is not None
        for count, value in batch.block.hops
        for _ in range(count)
    ]
    assert values == [other if n % 4 else b"" for n in range(20)]


def test_of_several_headers_with_hops_the_last_counts_and_none_is_carried() -> None:
    first, last = hops.hop("a", "y"), hops.hop("b", "y")
    (batch,) = made(Record(0, headers=[(hops.HEADER, first), (hops.HEADER, last)]))
    assert batch.block is not None
    assert (batch.block.hops, batch.block.messages()[0].headers) == (((1, last),), ())


def test_what_is_no_hop_is_refused_by_the_guard() -> None:
    (batch,) = made(Record(0, headers=[(hops.HEADER, b"no hop")]))
    ((position, reason),) = LoopGuard("orders", 2, lambda: "kafka:c")(batch, "orders").refusals
    assert position == 0
    assert reason.startswith("INVALID_HOPS:")


def test_a_producers_id_is_named_beside_the_block_and_stays_where_it_was() -> None:
    headers = (("_AMQ_DUPL_ID", b"id"), ("x", b""), ("_AMQ_DUPL_ID", b"id"))
    (batch,) = made(Record(0), Record(1, headers=headers), Record(2, headers=headers))
    assert batch.block is not None
    assert batch.block.ids == ((1, b"id"), (2, b"id"))
    assert batch.block.messages()[1].headers == headers


@pytest.mark.parametrize("name", ["_AMQ_DUPL_ID", "_HQ_DUPL_ID"])
@pytest.mark.parametrize(
    "values", [(b"a", b"b"), (b"a", None), (b"a", b"b", b"a", b"a"), (b"a", STAMP), (b"a", STAMP, b"b")]
)
def test_two_different_ids_of_one_name_are_refused(name: str, values: tuple[bytes | None, ...]) -> None:
    headers = [(name, value) for value in values]
    message, ids, problem = only(Record(0, headers=headers))
    assert (ids, problem) == ((), f"INVALID_DUPLICATE_ID: the values of {name} must not differ")
    assert message.headers == tuple(headers)
    assert only(Record(0, headers=headers), replace(OPTIONS, stamp=False))[1:] == ((), "")


def test_a_stamp_that_was_copied_before_a_producers_id_is_none() -> None:
    headers = [("_AMQ_DUPL_ID", STAMP), ("_AMQ_DUPL_ID", b"own")]
    assert only(Record(0, headers=headers))[1:] == (((0, b"own"),), "")
    assert only(Record(0, headers=[("_AMQ_DUPL_ID", STAMP)] * 2))[1:] == ((), "")


def test_the_name_of_hornetq_is_the_other_one_for_an_id() -> None:
    for headers in ([("_HQ_DUPL_ID", b"a")], [("_HQ_DUPL_ID", b"a"), ("_AMQ_DUPL_ID", b"a")]):
        assert only(Record(0, headers=headers))[1:] == (((0, b"a"),), "")
    both = [("_AMQ_DUPL_ID", b"a"), ("_HQ_DUPL_ID", b"b")]
    _, ids, problem = only(Record(0, headers=both))
    assert (ids, problem) == ((), "INVALID_DUPLICATE_ID: _AMQ_DUPL_ID and _HQ_DUPL_ID must not differ")
    assert only(Record(0, headers=both), replace(OPTIONS, stamp=False))[1:] == ((), "")


def test_an_id_that_a_bridge_stamped_is_no_producers() -> None:
    message, ids, problem = only(Record(0, headers=[("_AMQ_DUPL_ID", STAMP)]))
    assert (ids, problem, message.header("_AMQ_DUPL_ID")) == ((), "", STAMP)
    assert is_stamp(STAMP)
    for other in (STAMP.upper(), STAMP[:-1] + b"\xff", b"short", None):
        assert not is_stamp(other)


def test_impossible_ids_are_refused_with_both_numbers() -> None:
    for value, found in ((b"", 0), (None, 0), (b"x" * 11, 11)):
        _, ids, problem = only(Record(0, headers=[("_AMQ_DUPL_ID", value)]))
        assert (ids, problem) == (
            (), f"INVALID_DUPLICATE_ID: a duplicate ID must have 1 to 10 bytes; found {found}",
        )  # fmt: skip
    assert only(Record(0, headers=[("_AMQ_DUPL_ID", b"x" * 10)]))[1:] == (((0, b"x" * 10),), "")


def test_without_duplicate_detection_no_id_is_refused() -> None:
    options = replace(OPTIONS, stamp=False)
    assert only(Record(0, headers=[("_AMQ_DUPL_ID", b"")]), options)[1:] == ((), "")


# -- cutting -----------------------------------------------------------------------------------------------


def test_ids_and_refusals_are_in_the_batch_of_their_message() -> None:
    options = replace(OPTIONS, batch_bytes=1)
    good, bad = ("_AMQ_DUPL_ID", b"id"), ("_AMQ_DUPL_ID", b"")
    batches = made(Record(0), Record(1, headers=[good]), Record(2, headers=[bad]), options=options)
    assert [batch.block.ids for batch in batches if batch.block] == [(), ((0, b"id"),), ()]
    assert [[position for position, _ in batch.refusals] for batch in batches] == [[], [], [2]]


records_strategy = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 12_000), st.booleans()), min_size=1, max_size=40
)


@given(records_strategy, st.integers(0, 5), st.integers(0, 5))
def test_batches_follow_one_another_and_hold_every_record_once(
    steps: list[tuple[int, int, bool]], before: int, behind: int
) -> None:
    offset = before
    records: list[Record] = []
    for step, size, keyed in steps:
        offset += step
        records.append(Record(offset, b"x" * size, b"key" if keyed else None))
    batches = make_batches(OPTIONS, STREAM, records, before, offset + 1 + behind)
    assert (batches[0].from_, batches[-1].upto) == (before, offset + 1 + behind)
    assert all(one.upto == other.from_ for one, other in itertools.pairwise(batches))
    places: list[int] = []
    for batch in batches:
        block = batch.block
        assert block is not None
        assert run_arithmetic.count(batch.runs) == block.count
        assert block.count == 1 or len(block.body) <= OPTIONS.batch_bytes
        assert block.count == 1 or block.largest < OPTIONS.large_bytes + 100
        places += run_arithmetic.positions(batch.runs)
    assert places == [record.offset for record in records]
