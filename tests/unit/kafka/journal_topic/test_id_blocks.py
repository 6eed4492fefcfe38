"""Blocks of duplicate IDs: what a transaction writes, and what is read back."""

from __future__ import annotations

import pytest

from bridge.kafka.journal_topic.id_blocks import (
    BLOCK_IDS,
    MOST_ID_BYTES,
    AddressIds,
    block_ids,
    merged,
    slots_of,
    stored_ids,
)
from bridge.kafka.journal_topic.records import IdBlock, id_record
from dedup.cache import IdCache

Slots = dict[int, IdBlock]


def ids(first: int, last: int) -> list[bytes]:
    return [b"id-%d" % number for number in range(first, last)]


def address(capacity: int, slots: Slots | None = None, *, persist: bool = True) -> AddressIds:
    return AddressIds(IdCache(capacity), persist=persist, stored=slots)


def add(known: AddressIds, slots: Slots, new: list[bytes]) -> list[int]:
    """Add in one transaction; the slots that it wrote."""
    overlay = known.cache.overlay()
    overlay.add(new)
    writes = known.writes(overlay)
    known.commit(overlay)
    for slot, block in writes:
        if block is None:
            del slots[slot]
        else:
            slots[slot] = block
    return [slot for slot, _ in writes]


@pytest.mark.parametrize(("capacity", "slots"), [(0, 0), (1, 2), (128, 2), (129, 3), (20_000, 158)])
def test_a_ring_has_one_slot_more_than_it_fills(capacity: int, slots: int) -> None:
    assert slots_of(capacity, BLOCK_IDS) == slots


def test_the_block_being_filled_is_written_anew_and_a_full_one_never() -> None:
    slots: Slots = {}
    known = address(1_000)
    assert add(known, slots, ids(0, 100)) == [0]
    assert add(known, slots, ids(100, BLOCK_IDS)) == [0]
    assert add(known, slots, ids(BLOCK_IDS, 300)) == [1, 2]
    assert add(known, slots, ids(300, 301)) == [2]
    assert slots[2].first == 2 * BLOCK_IDS
    assert stored_ids(slots) == (ids(0, 301), 301)


def test_what_is_written_grows_with_what_is_added_not_with_the_ring() -> None:
    slots: Slots = {}
    known = address(20_000)
    add(known, slots, ids(0, 20_000))
    for number in range(20_000, 20_300):
        assert len(add(known, slots, ids(number, number + 1))) == 1


def test_d20_rounds_of_the_ring_keep_exactly_the_newest() -> None:
    slots: Slots = {}
    known = address(300)
    for start in range(0, 3_000, 70):
        add(known, slots, ids(start, start + 70))
        again = address(300, dict(slots))
        assert list(again.cache) == list(known.cache)
        assert again.cache.accepted == known.cache.accepted
        assert len(slots) <= slots_of(300, BLOCK_IDS)


def test_a_transaction_with_more_ids_than_the_ring_holds_writes_only_those_that_stay() -> None:
    slots: Slots = {}
    known = address(300)
    add(known, slots, ids(0, 10))
    assert len(add(known, slots, ids(10, 10_000))) <= slots_of(300, BLOCK_IDS)
    assert list(address(300, slots).cache) == ids(9_700, 10_000)


def test_d18_a_smaller_ring_keeps_the_newest_and_deletes_the_other_slots_at_once() -> None:
    slots: Slots = {}
    add(address(1_000), slots, ids(0, 1_000))
    known = address(200, slots)
    before = known.unwritten
    overlay = known.cache.overlay()
    overlay.add(ids(1_000, 1_001))
    for slot, block in known.writes(overlay):
        slots.pop(slot, None)
        if block is not None:
            slots[slot] = block
    known.commit(overlay)
    assert (before, known.unwritten) == (True, False)
    assert set(slots) <= set(range(slots_of(200, BLOCK_IDS)))
    assert list(address(1_000, slots).cache) == ids(801, 1_001)


def test_d18_a_little_smaller_ring_forgets_for_good_too() -> None:
    """Both sizes have as many slots, and the oldest block holds IDs that no longer count."""
    slots: Slots = {}
    add(address(120), slots, ids(0, 120))
    known = address(100, slots)
    add(known, slots, [])
    assert list(address(120, slots).cache) == ids(20, 120)


def test_a_larger_ring_keeps_all() -> None:
    slots: Slots = {}
    add(address(200), slots, ids(0, 500))
    known = address(1_000, slots)
    assert list(known.cache) == ids(300, 500)
    add(known, slots, ids(500, 501))
    assert list(address(1_000, slots).cache) == ids(300, 501)


@pytest.mark.parametrize("ids_of", [lambda s: address(0, s), lambda s: address(1_000, s, persist=False)])
def test_d17_d23_ids_that_are_not_kept_are_deleted_and_not_loaded(ids_of: object) -> None:
    assert callable(ids_of)
    slots: Slots = {}
    add(address(1_000), slots, ids(0, 300))
    known = ids_of(slots)
    assert list(known.cache) == []
    assert known.unwritten
    add(known, slots, [])
    assert slots == {}
    assert not known.unwritten


def test_without_persistence_ids_are_known_and_nothing_is_written() -> None:
    slots: Slots = {}
    known = address(10, persist=False)
    assert add(known, slots, ids(0, 5)) == []
    assert list(known.cache) == ids(0, 5)


def test_ids_that_do_not_come_together_from_one_lane_share_the_room() -> None:
    assert merged([ids(0, 5), ids(10, 15)], 4) == [b"id-13", b"id-3", b"id-14", b"id-4"]
    assert merged([ids(0, 5), ids(10, 11)], 4) == [b"id-2", b"id-3", b"id-10", b"id-4"]


def test_nothing_is_forgotten_where_all_ids_fit_and_each_is_there_once() -> None:
    found = merged([ids(0, 5), ids(3, 8), []], 100)
    assert sorted(found) == ids(0, 8)
    assert merged([], 10) == []
    assert merged([ids(0, 5)], 0) == []


@pytest.mark.parametrize("most", [1, 16 * 1024, 84_000, 10**6, 10**9])
def test_a_block_of_the_longest_ids_fits_the_record_whatever_the_topic_takes(most: int) -> None:
    per_block = block_ids(most)
    assert 1 <= per_block <= BLOCK_IDS
    known = AddressIds(IdCache(1_000), persist=True, per_block=per_block)
    overlay = known.cache.overlay()
    overlay.add([b"%0*d" % (MOST_ID_BYTES, number) for number in range(300)])
    values = [id_record("", "a", slot, block)[1] or b"" for slot, block in known.writes(overlay)]
    assert max(map(len, values)) <= max(most, MOST_ID_BYTES + 20) + 64


@pytest.mark.parametrize("capacity", [1, 2, 3, 100, 128, 300])
@pytest.mark.parametrize(("before", "after"), [(128, 2), (2, 128), (3, 2)])
def test_blocks_of_another_size_are_laid_anew_and_nothing_is_forgotten(
    capacity: int, before: int, after: int
) -> None:
    """The journal topic takes less than it did, or more."""
    slots: Slots = {}
    known = AddressIds(IdCache(capacity), persist=True, per_block=before)
    for start in range(0, 400, 7):
        add(known, slots, ids(start, start + 7))
    again = AddressIds(IdCache(capacity), persist=True, stored=slots, per_block=after)
    assert again.unwritten
    for start in range(1_000, 1_050, 3):
        add(again, slots, ids(start, start + 3))
        read = AddressIds(IdCache(capacity), persist=True, stored=slots, per_block=after)
        assert list(read.cache) == list(again.cache)
        assert not read.unwritten
