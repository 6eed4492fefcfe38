"""Cutting a batch: what is left covers the rest, with exactly the messages that belong there (rule 1)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.messages import block, positions
from bridge.messages.batch import Batch
from bridge.messages.message import Message

STREAM = "journal:4f1c:orders:0"


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """A batch with holes, refused positions and messages whose body is their position."""
    from_ = draw(st.integers(0, 50))
    upto = from_ + draw(st.integers(1, 20))
    taken = sorted(draw(st.sets(st.integers(from_, upto - 1))))
    empty = [position for position in range(from_, upto) if position not in taken]
    refused = tuple(sorted(draw(st.sets(st.sampled_from(empty))))) if empty else ()
    ids = tuple(
        (index, f"id-{position}".encode()) for index, position in enumerate(taken) if position % 3 == 0
    )
    encoded = [block.encode_message(Message(str(position).encode())) for position in taken]
    held = positions.join((position, position) for position in taken)
    packed = block.pack(encoded, ids).stamped(STREAM, held) if encoded else None
    return Batch(STREAM, from_, upto, held, packed, checksum=7, refused=refused, events=(100, 200))


def bodies(batch: Batch) -> list[bytes | None]:
    return [message.whole for message in batch.block.messages()] if batch.block else []


@given(batches(), st.data())
def test_what_is_left_after_a_cut_covers_the_rest_and_nothing_else(batch: Batch, data: st.DataObject) -> None:
    next_position = data.draw(st.integers(batch.from_, batch.upto - 1))
    rest = batch.after(next_position)
    expected = [position for position in positions.positions(batch.runs) if position >= next_position]
    assert (rest.from_, rest.upto, rest.stream) == (next_position, batch.upto, batch.stream)
    assert list(positions.positions(rest.runs)) == expected
    assert bodies(rest) == [str(position).encode() for position in expected]
    assert rest.count == len(expected) == positions.count(rest.runs)
    assert rest.refused == tuple(position for position in batch.refused if position >= next_position)
    assert (rest.checksum, rest.events) == (batch.checksum, batch.events)
    if rest.block is not None:
        assert [expected[index] for index, _ in rest.block.ids] == [
            place for place in expected if place % 3 == 0
        ]
        assert [(first, last) for _, first, last in rest.block.origins] == list(rest.runs)


@given(batches(), st.data())
def test_cutting_twice_is_cutting_once(batch: Batch, data: st.DataObject) -> None:
    first = data.draw(st.integers(batch.from_, batch.upto - 1))
    second = data.draw(st.integers(first, batch.upto - 1))
    assert batch.after(first).after(second) == batch.after(second)


@given(batches())
def test_a_target_that_has_nothing_of_it_gets_all_of_it(batch: Batch) -> None:
    assert batch.after(batch.from_) is batch


def test_coverage_alone_carries_nothing_and_can_be_cut() -> None:
    covered = Batch(STREAM, 10, 20, refused=(11, 15))
    assert (covered.count, covered.size) == (0, 0)
    rest = covered.after(12)
    assert (rest.from_, rest.upto, rest.runs, rest.block, rest.refused) == (12, 20, (), None, (15,))


def test_a_cut_behind_the_last_message_leaves_coverage_alone() -> None:
    packed = block.pack([block.encode_message(Message(b"5"))])
    batch = Batch(STREAM, 5, 10, ((5, 5),), packed)
    assert batch.size == packed.size
    rest = batch.after(6)
    assert (rest.from_, rest.upto, rest.runs, rest.block) == (6, 10, (), None)


@given(batches(), st.sets(st.integers(0, 80)))
def test_without_positions_they_are_covered_and_empty(batch: Batch, dropped: set[int]) -> None:
    held = list(positions.positions(batch.runs))
    left = batch.without(dropped)
    kept = [position for position in held if position not in dropped]
    assert (left.from_, left.upto, left.checksum) == (batch.from_, batch.upto, batch.checksum)
    assert list(positions.positions(left.runs)) == kept
    assert bodies(left) == [str(position).encode() for position in kept]
    assert left.refused == tuple(sorted({*batch.refused, *(set(held) & dropped)}))
