from __future__ import annotations

import random

import pytest

from bridge.journal.batching import Cutter
from bridge.journal.values.stored_block import StoredBlock
from bridge.messages import hops
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.block import Block, encode_message, merge, pack
from bridge.messages.message import Message
from bridge.relay.stages import LoopGuard

STREAM = "journal:i:orders:0"
OWN = hops.hop("to-hub", "edge")
GUARD = LoopGuard("to-hub", 2, lambda: "edge")


def guarded(batch: Batch) -> Batch:
    return GUARD(batch, "orders")


OTHER = hops.hop("to-edge", "hub")


def cutter_of(batch_bytes: int, large_bytes: int, *, stamp: bool = True) -> Cutter:
    return Cutter(batch_bytes, large_bytes, stamp)


def stored(first: int, sizes: list[int], *, ids: tuple[int, ...] = (), origin: str = "") -> StoredBlock:
    """A block of messages with encodings of these sizes, producers' IDs at these indices."""
    encoded = [
        encode_message(Message(b"x" * (size - len(encode_message(Message(b"x" * 100))) + 100)))
        for size in sizes
    ]
    block = pack(encoded, tuple((index, b"id%d" % (first + index)) for index in ids))
    if origin:
        block = block.stamped(origin, ((first, first + len(sizes) - 1),))
    return StoredBlock(first, 1000 + first, block)


def shape(batches: list[Batch]) -> list[tuple[int, int, int]]:
    return [(batch.from_, batch.upto, batch.count) for batch in batches]


def test_small_blocks_travel_together_without_being_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [stored(n, [100]) for n in range(10)]

    def opened(_: Block) -> None:
        raise AssertionError("opened")

    monkeypatch.setattr(Block, "messages", opened)
    (batch,) = cutter_of(2000, 2000, stamp=True).cut(STREAM, blocks, 0)
    assert (batch.from_, batch.upto, batch.runs, batch.count) == (0, 10, ((0, 9),), 10)
    assert batch.events == (1000, 1009)
    assert batch.block is not None
    assert batch.checksum == batch.block.checksum == blocks[-1].block.checksum
    assert batch.block.origins == ((STREAM, 0, 9),)


def test_a_batch_ends_where_the_next_block_does_not_fit() -> None:
    blocks = [stored(n * 4, [100] * 4) for n in range(5)]
    assert shape(cutter_of(1000, 1000, stamp=True).cut(STREAM, blocks, 0)) == [
        (0, 8, 8),
        (8, 16, 8),
        (16, 20, 4),
    ]


def test_no_more_batches_are_cut_than_are_asked_for() -> None:
    """And where the last of them ends, the next cut begins."""
    blocks = [stored(n * 4, [100] * 4) for n in range(5)]
    cutter = cutter_of(250, 1000, stamp=True)
    first = cutter.cut(STREAM, blocks, 0, most=3)
    rest = cutter.cut(STREAM, blocks, first[-1].upto)
    assert len(first) == 3
    assert shape([*first, *rest]) == shape(cutter.cut(STREAM, blocks, 0))


def test_gaps_in_the_sequence_are_covered_and_empty() -> None:
    blocks = [stored(10, [100] * 2), stored(20, [100] * 3)]
    (batch,) = cutter_of(1000, 1000, stamp=True).cut(STREAM, blocks, 5)
    assert (batch.from_, batch.upto, batch.runs) == (5, 23, ((10, 11), (20, 22)))
    assert batch.block is not None
    assert batch.block.origins == ((STREAM, 10, 11), (STREAM, 20, 22))


def test_a_large_message_travels_alone_wherever_it_stands() -> None:
    """B17, B18"""
    sizes = [100, 100, 600, 100, 600, 600, 100]
    cutter = cutter_of(500, 500, stamp=True)
    alone = [(0, 2, 2), (2, 3, 1), (3, 4, 1), (4, 5, 1), (5, 6, 1), (6, 7, 1)]
    assert shape(cutter.cut(STREAM, [stored(0, sizes)], 0)) == alone
    assert shape(cutter.cut(STREAM, [stored(n, [size]) for n, size in enumerate(sizes)], 0)) == alone


def test_a_block_above_the_largest_batch_is_divided() -> None:
    batches = cutter_of(350, 1000, stamp=True).cut(STREAM, [stored(0, [100] * 8)], 0)
    assert shape(batches) == [(0, 3, 3), (3, 6, 3), (6, 8, 2)]


def test_the_first_batch_begins_and_the_last_ends_within_a_block() -> None:
    blocks = [stored(0, [100] * 4, ids=(0, 1, 2, 3)), stored(4, [100] * 4, ids=(0, 3))]
    (batch,) = cutter_of(2000, 2000, stamp=True).cut(STREAM, blocks, 2, 7)
    assert (batch.from_, batch.upto, batch.runs) == (2, 7, ((2, 6),))
    assert batch.block is not None
    assert batch.block.ids == ((0, b"id2"), (1, b"id3"), (2, b"id4"))
    assert batch.block.origins == ((STREAM, 2, 6),)


def test_what_came_over_another_bridge_keeps_its_origin_and_travels_with_the_rest() -> None:
    blocks = [stored(0, [100] * 2), stored(2, [100] * 2, origin="journal:else:where:0"), stored(4, [100])]
    (batch,) = cutter_of(2000, 2000, stamp=True).cut(STREAM, blocks, 0)
    assert batch.block is not None
    assert batch.block.origins == ((STREAM, 0, 1), ("journal:else:where:0", 2, 3), (STREAM, 4, 4))


def test_without_stamping_an_origin_is_passed_on_and_none_is_made() -> None:
    """B25"""
    blocks = [stored(0, [100] * 2), stored(2, [100] * 2, origin="journal:else:where:0"), stored(4, [100])]
    batches = cutter_of(2000, 2000, stamp=False).cut(STREAM, blocks, 0)
    assert shape(batches) == [(0, 2, 2), (2, 4, 2), (4, 5, 1)]
    assert [batch.block.origins if batch.block else None for batch in batches] == [
        (),
        (("journal:else:where:0", 2, 3),),
        (),
    ]


def test_nothing_is_nothing() -> None:
    cutter = cutter_of(2000, 2000, stamp=True)
    assert cutter.cut(STREAM, [], 5) == []
    assert cutter.cut(STREAM, [stored(0, [100] * 3)], 3) == []


def test_however_blocks_lie_batches_keep_every_message_and_the_limit(rng: random.Random) -> None:
    for _ in range(200):
        blocks: list[StoredBlock] = []
        first = rng.randrange(5)
        for _ in range(rng.randrange(1, 6)):
            sizes = [rng.choice((100, 120, 300, 700)) for _ in range(rng.randrange(1, 6))]
            ids = tuple(index for index in range(len(sizes)) if rng.random() < 0.3)
            blocks.append(stored(first, sizes, ids=ids))
            first += len(sizes) + rng.choice((0, 0, 7))
        at = rng.randrange(first)
        batches = cutter_of(500, 400, stamp=True).cut(STREAM, blocks, at)
        whole = merge([one.block for one in blocks])
        everything = [
            (position, message)
            for one in blocks
            for position, message in zip(range(one.first, one.end), one.block.messages(), strict=True)
        ]
        ids_at = dict(
            zip((p for p, _ in everything), [dict(whole.ids).get(n) for n in range(whole.count)], strict=True)
        )
        found = []
        for earlier, batch in zip([None, *batches], batches, strict=False):
            assert batch.from_ == (earlier.upto if earlier else at)
            assert batch.block is not None
            named = dict(batch.block.ids)
            # What every batch has once is not counted: the head, and the first message's ID.
            assert batch.size <= 500 + 5 + len(named.get(0, b"")) or batch.count == 1
            assert batch.block.largest < 400 or batch.count == 1
            places = list(run_arithmetic.positions(batch.runs))
            found += list(zip(places, batch.block.messages(), strict=True))
            assert [named.get(index) for index in range(batch.count)] == [ids_at[place] for place in places]
        assert found == [(position, message) for position, message in everything if position >= at]


# -- hops --------------------------------------------------------------------------------------------------


def passed(block: StoredBlock, *values: bytes) -> StoredBlock:
    """The same, come through these bridges."""
    return block._replace(block=block.block.hopped(((block.block.count, b"".join(values)),)))


def test_every_message_takes_the_bridges_hop_without_being_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [stored(0, [100, 100]), passed(stored(2, [100]), OTHER), stored(3, [100])]

    def opened(_: Block) -> None:
        raise AssertionError("opened")

    monkeypatch.setattr(Block, "messages", opened)
    monkeypatch.setattr(Block, "encoded", opened)
    (batch,) = map(guarded, cutter_of(2000, 2000).cut(STREAM, blocks, 0))
    assert batch.block is not None
    assert batch.block.hops == ((2, OWN), (1, OTHER + OWN), (1, OWN))
    assert batch.refusals == ()


def test_what_has_come_this_way_before_is_refused_with_its_positions_and_the_rest_is_not() -> None:
    third = hops.hop("third", "store")
    blocks = [
        stored(5, [100, 100]),
        passed(stored(20, [100, 100, 100]), OWN, OTHER),
        passed(stored(30, [100]), OTHER, third),
    ]
    (batch,) = map(guarded, cutter_of(2000, 2000).cut(STREAM, blocks, 5))
    assert [(position, rule.split(":")[0]) for position, rule in batch.refusals] == [
        (20, "LOOP"), (21, "LOOP"), (22, "LOOP"), (30, "TOO_MANY_HOPS"),
    ]  # fmt: skip
    taken_up = guarded(cutter_of(2000, 2000).cut(STREAM, blocks, 22)[0])
    assert [position for position, _ in taken_up.refusals] == [22, 30]


def test_the_hops_of_small_messages_count_in_a_batch() -> None:
    """Or a batch of them would not fit into a frame of the link, at any attempt."""
    many = hops.HOP_BYTES * hops.HOPS_MOST
    blocks = [passed(stored(n, [100]), bytes([n]) * many) for n in range(4)]
    weight = 100 + 5 + many + 2 * hops.HOP_BYTES
    assert shape(cutter_of(2 * weight + 100, 2000).cut(STREAM, blocks, 0)) == [(0, 2, 2), (2, 4, 2)]
