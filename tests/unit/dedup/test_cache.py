"""The circular ID cache, scenario by scenario: Artemis's cases and what design rules 3 and 4 add."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dedup import ring
from dedup.cache import IdCache, repeated


def numbered(first: int, end: int) -> list[bytes]:
    """IDs of 16 bytes, the kind that large caches keep as integers."""
    return [b"message-%08d" % number for number in range(first, end)]


def send(cache: IdCache, *ids: bytes | None) -> list[int]:
    """Plain sends, each a unit of its own; the indices that were stored."""
    return [index for index, value in enumerate(ids) if value is None or not cache.check_and_add([value])]


def transaction(cache: IdCache, ids: Sequence[bytes]) -> bool:
    """One transaction and its commit; False: it carries a known ID, nothing was stored."""
    overlay = cache.overlay()
    if overlay.known(ids):
        return False
    overlay.add(ids)
    overlay.commit()
    return True


@pytest.fixture(params=[10**9, 0], ids=["small", "large"], autouse=True)
def representation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every scenario with the keys of small caches and with those of large ones."""
    monkeypatch.setattr(ring, "COMPACT_CAPACITY", request.param)


def test_the_first_copy_is_kept() -> None:
    """D1."""
    assert send(IdCache(10), None, b"a", b"a", b"a", b"b", b"b", b"a") == [0, 1, 4]


def test_messages_without_an_id_leave_the_cache_alone() -> None:
    """D2."""
    cache = IdCache(10)
    assert send(cache, None, None) == [0, 1]
    assert (len(cache), cache.accepted) == (0, 0)


def test_any_bytes_are_told_apart() -> None:
    """D3: text and bytes are one ID by then (`producer_id`); here no two spellings meet."""
    ids = [b"\x00", b"\x00\x00", b"\xff", b"", bytes(15), bytes(16), bytes(17), b"\xff" * 16, bytes(24)]
    cache = IdCache(20)
    assert send(cache, *ids) == list(range(len(ids)))
    assert cache.check_and_add(ids) == list(range(len(ids)))
    assert list(cache) == ids


def test_caches_are_per_address_and_the_window_is_exact() -> None:
    """D4, D5."""
    for cache in (IdCache(10), IdCache(10), IdCache(10)):
        old, new = numbered(0, 10), numbered(10, 20)
        assert send(cache, *old) == list(range(10))
        assert send(cache, *old) == []
        assert send(cache, *new) == list(range(10))
        assert send(cache, *new) == []
        assert send(cache, *old) == list(range(10))


def test_the_next_id_overwrites_the_oldest() -> None:
    """D6."""
    cache = IdCache(3)
    assert send(cache, b"a", b"b", b"c", b"d") == [0, 1, 2, 3]
    assert send(cache, b"b", b"c", b"d", b"a", b"b") == [3, 4]
    assert list(cache) == [b"d", b"a", b"b"]
    assert (cache.accepted, cache.evicted) == (6, 3)


def test_a_rejected_id_grows_no_younger() -> None:
    """First in, first out by acceptance: not by last use."""
    cache = IdCache(2)
    assert send(cache, b"a", b"b", b"a", b"c", b"a") == [0, 1, 3, 4]


def test_each_address_has_its_own_size() -> None:
    """D8."""
    assert len(send(IdCache(2), b"1", b"2", b"1")) == 2
    assert len(send(IdCache(1), b"1", b"2", b"1")) == 3


def test_a_negative_size_is_refused() -> None:
    """D9."""
    with pytest.raises(ValueError, match="at least 0; found -1"):
        IdCache(-1)
    cache = IdCache(3)
    cache.check_and_add([b"a"])
    with pytest.raises(ValueError, match="at least 0; found -1"):
        cache.resize(-1)
    assert list(cache) == [b"a"]


def test_a_cache_that_is_off_lets_everything_pass_and_stores_nothing() -> None:
    """D10, D11."""
    cache = IdCache(0)
    assert send(cache, None, b"a", b"a1", b"a", b"a", b"b", b"b", b"a") == list(range(8))
    overlay = cache.overlay()
    overlay.add([b"a", b"a"])
    overlay.add([b"a"])
    assert (overlay.known([b"a"]), overlay.added) == ([], [])
    overlay.commit()
    cache.load([b"a"], accepted=9)
    assert (len(cache), b"a" in cache, list(cache), cache.accepted) == (0, False, [], 9)


def test_a_full_ring_survives_a_restart() -> None:
    """D14."""
    cache = IdCache(5)
    cache.load(numbered(0, 5))
    assert send(cache, *numbered(0, 5)) == []
    assert send(cache, b"new") == [0]
    assert list(cache) == [*numbered(1, 5), b"new"]


def test_a_smaller_cache_after_a_restart_keeps_the_newest() -> None:
    """D18."""
    cache = IdCache(150)
    assert cache.check_and_add(numbered(0, 200)) == []
    stored = list(cache)
    smaller = IdCache(100)
    smaller.load(stored, accepted=cache.accepted)
    assert not transaction(smaller, numbered(150, 200))
    assert list(smaller) == numbered(100, 200)
    assert transaction(smaller, numbered(50, 100))
    assert smaller.accepted == 250


def test_reloading_keeps_number_and_age() -> None:
    """D20."""
    stored: list[bytes] = []
    for start in (0, 100):
        cache = IdCache(10)
        cache.load(stored)
        assert cache.check_and_add(numbered(start, start + 100)) == []
        stored = list(cache)
        assert stored == numbered(start + 90, start + 100)
    cache = IdCache(10)
    cache.load(stored)
    assert send(cache, b"next", numbered(190, 191)[0]) == [0, 1]


def test_resizing_keeps_the_newest_and_reports_what_it_dropped() -> None:
    """D21, D22."""
    cache = IdCache(60)
    cache.check_and_add(numbered(0, 70))
    assert cache.resize(30) == 30
    assert (cache.capacity, list(cache), cache.accepted) == (30, numbered(40, 70), 70)
    assert cache.resize(50) == 0
    assert cache.check_and_add(numbered(70, 95)) == []
    assert list(cache) == numbered(45, 95)
    assert cache.resize(0) == 50
    assert send(cache, b"a", b"a") == [0, 1]


def test_ids_that_were_stored_beyond_the_capacity_are_trimmed_oldest_first() -> None:
    """D24: killed between storing a new ID and deleting the one overwritten."""
    cache = IdCache(10)
    cache.load(numbered(0, 13), accepted=113)
    assert list(cache) == numbered(3, 13)
    assert cache.accepted == 113


def test_more_ids_than_fit_in_memory_at_once_are_let_go_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """D24, after years without trimming."""
    monkeypatch.setattr("dedup.cache.LOAD_CHUNK", 7)
    monkeypatch.setattr("dedup.cache.LOAD_SURPLUS", 20)
    for capacity in (0, 10):
        cache = IdCache(capacity)
        cache.load(iter(numbered(0, 1_000)))
        assert list(cache) == numbered(1_000 - capacity, 1_000)


def test_an_id_stored_twice_is_as_old_as_its_last_record() -> None:
    """Accepted again after it was overwritten; the cache has been enlarged since."""
    cache = IdCache(3)
    cache.load([b"a", b"b", b"a"])
    assert (list(cache), cache.accepted) == ([b"b", b"a"], 3)
    assert send(cache, b"c", b"d", b"a", b"b") == [0, 1, 3]


def test_only_an_empty_cache_is_loaded_and_only_with_numbers_that_fit() -> None:
    cache = IdCache(3)
    with pytest.raises(ValueError, match="at least the 2 IDs loaded; found 1"):
        cache.load([b"a", b"b"], accepted=1)
    cache.load([b"a", b"b"])
    with pytest.raises(ValueError, match="only an empty cache can be loaded; found 2 IDs"):
        cache.load([b"c"])
    assert list(cache) == [b"a", b"b"]


def test_a_transaction_never_committed_leaves_nothing() -> None:
    """D31."""
    cache = IdCache(10)
    cache.overlay().add([b"a"])
    assert transaction(cache, [b"a"])
    assert list(cache) == [b"a"]


def test_rolling_back_frees_the_id_and_committing_takes_it() -> None:
    """D32."""
    cache = IdCache(10)
    rolled_back = cache.overlay()
    rolled_back.add([b"a"])
    assert transaction(cache, [b"a"])
    assert not transaction(cache, [b"a"])


def test_a_transaction_sent_again_is_rejected_whole() -> None:
    """D33."""
    cache = IdCache(10)
    assert transaction(cache, [b"a", b"b"])
    assert cache.overlay().known([b"a", b"new", b"b"]) == [0, 2]
    assert not transaction(cache, [b"a", b"b"])
    assert list(cache) == [b"a", b"b"]


def test_one_id_twice_in_a_transaction_is_found_and_never_added() -> None:
    """D38."""
    assert repeated([b"a", b"b", b"a", b"c", b"a", b"b"]) == [2, 4, 5]
    assert repeated([b"a", b"b"]) == repeated([]) == []
    overlay = IdCache(10).overlay()
    with pytest.raises(ValueError, match="only once; found it again at index 1"):
        overlay.add([b"a", b"a"])
    assert overlay.added == []


def test_two_open_transactions_with_one_id_let_only_one_through() -> None:
    """D39: the units of a group are checked one after the other."""
    overlay = IdCache(10).overlay()
    overlay.add([b"x", b"a"])
    assert overlay.known([b"a", b"y"]) == [0]
    with pytest.raises(ValueError, match="only unknown IDs"):
        overlay.add([b"y", b"a"])
    assert overlay.added == [b"x", b"a"]


def test_what_was_found_unknown_is_looked_up_again_once_it_is_added_or_changed() -> None:
    cache = IdCache(10)
    cache.check_and_add([b"old"])
    overlay = cache.overlay()
    unit = [b"a"]
    assert overlay.known(unit) == []
    for changed in ([b"a", b"old"], [b"old"]):
        unit[:] = changed
        with pytest.raises(ValueError, match="found a known one"):
            overlay.add(unit)
    unit[:] = [b"a"]
    overlay.add(unit)
    with pytest.raises(ValueError, match="found a known one at index 0"):
        overlay.add(unit)
    overlay.commit()
    assert list(cache) == [b"old", b"a"]


def test_a_unit_that_fails_is_not_remembered_and_its_neighbours_are() -> None:
    """D44: what the store refused is simply not added."""
    cache = IdCache(10)
    overlay = cache.overlay()
    overlay.add([b"before"])
    assert overlay.known([b"refused"]) == []
    overlay.add([b"after"])
    assert overlay.known([b"refused"]) == []
    overlay.commit()
    assert list(cache) == [b"before", b"after"]


def test_an_uncommitted_id_already_overwrites_the_oldest() -> None:
    cache = IdCache(3)
    cache.check_and_add([b"a", b"b", b"c"])
    overlay = cache.overlay()
    overlay.add([b"d"])
    assert overlay.known([b"a", b"b", b"c", b"d"]) == [1, 2, 3]
    overlay.add([b"a"])
    assert overlay.known([b"a", b"b", b"c", b"d"]) == [0, 2, 3]
    assert list(cache) == [b"a", b"b", b"c"]
    overlay.commit()
    assert list(cache) == [b"c", b"d", b"a"]


def test_a_group_may_bring_more_than_the_cache_holds() -> None:
    cache = IdCache(3)
    cache.load([b"x"], accepted=41)
    overlay = cache.overlay()
    overlay.add(numbered(0, 5))
    assert overlay.known(numbered(0, 5)) == [2, 3, 4]
    overlay.add(numbered(0, 2))
    assert overlay.known(numbered(0, 5)) == [0, 1, 4]
    assert (overlay.first, list(overlay.added)) == (41, numbered(0, 5) + numbered(0, 2))
    overlay.commit()
    assert list(cache) == [*numbered(4, 5), *numbered(0, 2)]
    assert cache.accepted == 48


def test_clearing_forgets_every_id_and_running_numbers_go_on() -> None:
    """D55: the size read is that of the entries, not the capacity."""
    cache = IdCache(10)
    assert send(cache, b"a", b"a", b"b") == [0, 2]
    assert (len(cache), cache.clear(), len(cache)) == (2, 2, 0)
    assert send(cache, b"a") == [0]
    assert cache.accepted == 3


@pytest.mark.parametrize("change", ["clear", "resize", "check_and_add", "other overlay", "commit"])
def test_an_overlay_notices_that_the_cache_has_changed_under_it(change: str) -> None:
    cache = IdCache(10)
    cache.check_and_add([b"a"])
    overlay, other = cache.overlay(), cache.overlay()
    overlay.add([b"b"])
    match change:
        case "clear":
            cache.clear()
        case "resize":
            cache.resize(5)
        case "check_and_add":
            cache.check_and_add([b"c"])
        case "other overlay":
            other.add([b"d"])
            other.commit()
        case _:
            overlay.commit()
    before = list(cache)
    for call in (lambda: overlay.known([b"x"]), lambda: overlay.add([b"x"]), overlay.commit):
        with pytest.raises(RuntimeError, match="changed under this overlay"):
            call()
    assert list(cache) == before


def test_a_batch_that_holds_known_and_repeated_ids_is_taken_one_by_one() -> None:
    cache = IdCache(3)
    cache.check_and_add([b"a", b"b", b"c"])
    # d overwrites a, so that a is new again and overwrites b.
    assert cache.check_and_add([b"c", b"d", b"a", b"d", b"b"]) == [0, 3]
    assert list(cache) == [b"d", b"a", b"b"]
    assert cache.check_and_add([]) == []


def test_a_batch_larger_than_the_cache_leaves_its_newest() -> None:
    cache = IdCache(3)
    assert cache.check_and_add(numbered(0, 10)) == []
    assert list(cache) == numbered(7, 10)
