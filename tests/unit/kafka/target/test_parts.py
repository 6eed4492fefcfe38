"""Deliveries that are larger than a transaction over a slow line: their parts, and the one answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bridge.errors import TargetUnavailable
from bridge.kafka.target.delivery import Delivery, OpenStream
from bridge.kafka.target.delivery_queue import DeliveryQueue
from bridge.kafka.target.parts import cut, cut_batch
from bridge.messages.batch import Batch
from bridge.messages.block import FreshBlock
from bridge.messages.message import Message
from bridge.messages.positions import Runs, positions
from bridge.relay.ports import Receipt, Stream
from dedup.verdict import Verdict

STREAM = "journal:incarnation:orders:0"
OPENED = OpenStream(Stream(STREAM, "orders", "orders", "run"), epoch=1)
#: Holes at 12 to 19 and at 23.
RUNS: Runs = ((10, 11), (20, 22), (24, 24))


def batch(size: int = 1_000, runs: Runs = RUNS) -> Batch:
    places = list(positions(runs))
    messages = [Message(b"%d" % place + b"x" * size) for place in places]
    block = FreshBlock(messages, ()).stamped(STREAM, runs)
    return Batch(STREAM, 8, 30, runs, block, 77, refused=(9, 15, 23, 28))


def delivery(one: Batch) -> Delivery:
    return Delivery(one, OPENED, asyncio.get_running_loop().create_future())


def stored(part: Delivery, **fields: object) -> Receipt:
    return replace(Receipt(STREAM, Verdict.STORED, part.batch.upto), **fields)  # type: ignore[arg-type]


async def soon() -> None:
    """Let callbacks run."""
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("most", "count"), [(10**9, 1), (2_500, 3), (1_500, 6), (1, 6)])
def test_the_parts_cover_what_the_batch_covers_and_hold_what_it_holds(most: int, count: int) -> None:
    whole = batch()
    parts = cut_batch(whole, most)
    assert len(parts) == count
    assert [part.from_ for part in parts] == [8, *(part.upto for part in parts[:-1])]
    assert (parts[-1].upto, parts[-1].checksum) == (30, 77)
    assert [place for part in parts for place in positions(part.runs)] == list(positions(RUNS))
    assert [place for part in parts for place in part.refused] == [9, 15, 23, 28]
    assert whole.block is not None
    held = [message for part in parts if part.block is not None for message in part.block.messages()]
    assert held == whole.block.messages()
    for part in parts:
        assert part.size <= most or part.count == 1
        assert all(part.from_ <= place < part.upto for place in positions(part.runs))


def test_coverage_without_messages_is_one_part() -> None:
    one = Batch(STREAM, 8, 30)
    assert cut_batch(one, 1) == [one]


async def test_the_answer_is_there_when_every_part_is_stored() -> None:
    whole = delivery(batch())
    first, second, third = cut(whole, 2_500)
    first.future.set_result(stored(first, duplicates=2, repeated=1, dead_lettered=(10,)))
    second.future.set_result(stored(second, verdict=Verdict.DUPLICATE, duplicates=2))
    await soon()
    assert not whole.future.done()
    third.future.set_result(stored(third, dead_lettered=(22, 24), committed=5))
    await soon()
    assert whole.future.result() == Receipt(
        STREAM, Verdict.STORED, 30, duplicates=4, repeated=1, dead_lettered=(10, 22, 24), committed=5
    )


async def test_a_batch_whose_parts_were_all_covered_is_a_duplicate() -> None:
    whole = delivery(batch())
    for part in cut(whole, 2_500):
        part.future.set_result(stored(part, verdict=Verdict.DUPLICATE))
    await soon()
    assert whole.future.result().verdict is Verdict.DUPLICATE


@pytest.mark.parametrize("verdict", [Verdict.REFUSED, Verdict.NOT_NOW])
async def test_a_part_that_is_not_taken_answers_for_the_batch_and_none_behind_it_is_kept(
    verdict: Verdict,
) -> None:
    whole = delivery(batch())
    first, second, third = cut(whole, 2_500)
    first.future.set_result(stored(first))
    answer = Receipt(STREAM, verdict, first.batch.upto, 20, "a reason")
    second.future.set_result(answer)
    await soon()
    assert whole.future.result() == answer
    assert third.future.cancelled()


async def test_answers_count_in_the_order_of_the_parts_also_where_one_was_cut_again() -> None:
    """The line got slower; the answer of what was cut again is there one step after those of its parts."""
    whole = delivery(batch())
    first, *rest = cut(whole, 2_500)
    for part in [*cut(first, 1), *rest]:
        part.future.set_result(stored(part))
    await soon()
    assert (whole.future.result().verdict, whole.future.result().next) == (Verdict.STORED, 30)

    whole = delivery(batch())
    first, *rest = cut(whole, 2_500)
    refused = Receipt(STREAM, Verdict.REFUSED, 8, 10, "TOO_LARGE: it is")
    for part, verdict in zip(cut(first, 1), (refused, refused), strict=True):
        part.future.set_result(verdict)
    for part in rest:
        part.future.set_result(Receipt(STREAM, Verdict.NOT_NOW, 8, reason="NOT_NOW: one before it"))
    await soon()
    assert whole.future.result() == refused


async def test_an_error_of_a_part_is_that_of_the_batch() -> None:
    whole = delivery(batch())
    first, *rest = cut(whole, 2_500)
    first.future.set_exception(TargetUnavailable("gone"))
    await soon()
    assert str(whole.future.exception()) == "gone"
    assert all(part.future.cancelled() for part in rest)


async def test_parts_that_nobody_waits_for_any_more_are_not_stored() -> None:
    queue = DeliveryQueue()
    future = queue.put(batch(), OPENED)
    after = queue.put(replace(batch(), from_=30, upto=40, runs=((30, 35),)), OPENED)
    (first,) = queue.take(2_500)
    assert (first.batch.from_, first.batch.upto) == (8, 20)
    future.cancel()
    await soon()
    assert [one.batch.from_ for one in queue.take(10**9)] == [30]
    after.cancel()


async def test_parts_share_transactions_again_where_the_line_got_better() -> None:
    queue = DeliveryQueue()
    future = queue.put(batch(), OPENED)
    taken = [queue.take(most) for most in (1_500, 2_500, 10**9)]
    assert [len(deliveries) for deliveries in taken] == [1, 2, 3]
    for part in (one for deliveries in taken for one in deliveries):
        assert not future.done()
        part.future.set_result(stored(part))
        await soon()
    assert future.result().next == 30
    assert queue.is_idle


async def test_who_waits_for_a_batch_of_which_parts_are_stored_is_told_of_the_end() -> None:
    queue = DeliveryQueue()
    future = queue.put(batch(), OPENED)
    (first,) = queue.take(2_500)
    first.future.set_result(stored(first))
    await soon()
    queue.fail(TargetUnavailable("gone"))
    assert queue.take() == []
    assert str(future.exception()) == "gone"
