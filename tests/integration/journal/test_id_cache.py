"""ID caches over restarts, resizing and clearing: what the file keeps is what the cache held."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bridge.errors import AddressNotFound, DuplicateIdRejected, JournalUnavailable
from bridge.journal.rules.commands import ConfigureCommand
from bridge.journal.values.options import AddressPolicy
from tests.integration.journal.failing import caught_up, fail_with, file, memory, once
from tests.integration.journal.helpers import (
    QUEUE,
    browsed,
    consume,
    number,
    opened,
    options,
    rows,
    send,
    send_all,
    submission,
    transact,
)


def names(first: int, end: int) -> list[str]:
    return [f"id-{place:03}" for place in range(first, end)]


async def test_a_full_ring_survives_a_restart(tmp_path: Path) -> None:
    """D14."""
    given = options(tmp_path, AddressPolicy(id_cache_size=5))
    async with opened(given) as journal:
        assert all(await send_all(journal, names(0, 5)))
    async with opened(given) as journal:
        assert not any(await send_all(journal, names(0, 5)))
        assert journal.identity.ids_dropped == {}


async def test_ids_that_are_not_persisted_are_forgotten_at_a_restart(tmp_path: Path) -> None:
    """D16."""
    given = options(tmp_path, persist_id_cache=False)
    for _ in range(2):
        async with opened(given) as journal:
            assert await send_all(journal, ["a", "b", "a"]) == [True, True, False]
            await transact(journal, submission("c", "c"))
    assert number(tmp_path, "SELECT count(*) FROM ids") == 0


async def test_a_start_without_persistence_deletes_what_was_stored(tmp_path: Path) -> None:
    """D17."""
    async with opened(options(tmp_path)) as journal:
        assert await send_all(journal, "ab") == [True, True]
    async with opened(options(tmp_path, persist_id_cache=False)) as journal:
        assert number(tmp_path, "SELECT count(*) FROM ids") == 0
        await send_all(journal, ["b"])
    async with opened(options(tmp_path)) as journal:
        assert await send_all(journal, "aab") == [True, False, True]
    async with opened(options(tmp_path)) as journal:
        assert await send_all(journal, "ab") == [False, False]


async def test_a_smaller_cache_keeps_the_newest_and_says_how_many_it_dropped(tmp_path: Path) -> None:
    """D18."""
    async with opened(options(tmp_path, AddressPolicy(id_cache_size=150))) as journal:
        for start in range(0, 200, 50):
            await transact(journal, *(submission(name, name) for name in names(start, start + 50)))
    smaller = options(tmp_path, AddressPolicy(id_cache_size=100))
    async with opened(smaller) as journal:
        assert journal.identity.ids_dropped == {"orders": 50}
        with pytest.raises(DuplicateIdRejected):
            await transact(journal, *(submission(name, name) for name in names(150, 200)))
        assert len(await browsed(journal)) == 200
    async with opened(smaller) as journal:
        assert journal.identity.ids_dropped == {}
        assert all(await send_all(journal, names(50, 52)))
        assert not any(await send_all(journal, names(110, 120)))


async def test_surplus_rows_are_not_reported_as_dropped(tmp_path: Path) -> None:
    """D24: a row goes when all of its IDs have been overwritten, so the file may hold more than the cache."""
    given = options(tmp_path, AddressPolicy(id_cache_size=10))
    async with opened(given) as journal:
        await transact(journal, *(submission(name, name) for name in names(0, 8)))
        await transact(journal, *(submission(name, name) for name in names(8, 15)))
    assert number(tmp_path, "SELECT sum(count) FROM ids") == 15
    async with opened(given) as journal:
        assert journal.identity.ids_dropped == {}
        assert all(await send_all(journal, names(0, 5)))


async def test_reloading_finds_exactly_the_newest_in_their_order(tmp_path: Path) -> None:
    """D20."""
    given = options(tmp_path, AddressPolicy(id_cache_size=10))
    for start in (0, 100):
        async with opened(given) as journal:
            await asyncio.gather(*(send(journal, name, name) for name in names(start, start + 100)))
        async with opened(given) as journal:
            assert (await journal.address("orders")).id_cache_entries == 10
            assert not any(await send_all(journal, names(start + 90, start + 100)))
    async with opened(given) as journal:
        assert await send_all(journal, ["one more", "id-190", "id-191"]) == [True, True, True]
        assert await send_all(journal, ["id-193", "id-199"]) == [False, False]
    # A row goes when all of its IDs have been overwritten: at most one commit's are there besides.
    assert number(tmp_path, "SELECT count(*) FROM ids WHERE first + count <= 203 - 10") == 0


async def test_a_size_set_by_an_operator_is_remembered_until_the_settings_change(tmp_path: Path) -> None:
    """D21, D22: at once, and over restarts; the settings' next word goes before it."""
    given = options(tmp_path)
    async with opened(given) as journal:
        await send_all(journal, ["x"])
        await journal.resize_id_cache("orders", 50_000)
        await journal.resize_id_cache("orders", 30)
        assert all(await send_all(journal, names(0, 60)))
    async with opened(given) as journal:
        status = await journal.address("orders")
        assert (status.id_cache_capacity, status.id_cache_entries, status.messages) == (30, 30, 61)
        assert await send_all(journal, [names(0, 60)[-1], names(0, 60)[29]]) == [False, True]
    assert number(tmp_path, "SELECT sum(count) FROM ids") == 30
    async with opened(options(tmp_path, AddressPolicy(id_cache_size=40))) as journal:
        assert (await journal.address("orders")).id_cache_capacity == 40
    async with opened(given) as journal:
        assert (await journal.address("orders")).id_cache_capacity == 20_000


async def test_shrinking_drops_the_oldest_at_once(tmp_path: Path) -> None:
    """D22."""
    async with opened(tmp_path) as journal:
        await send_all(journal, names(0, 10))
        assert await journal.resize_id_cache("orders", 4) == 6
        assert await journal.resize_id_cache("orders", 8) == 0
        assert await send_all(journal, ["id-005", "id-006"]) == [True, False]
    async with opened(tmp_path) as journal:
        assert await send_all(journal, ["id-005", "id-006", "id-004"]) == [False, False, True]


async def test_a_start_with_size_0_forgets_for_good(tmp_path: Path) -> None:
    """D23: what a cache that was turned off did not see must not come back as known."""
    async with opened(tmp_path) as journal:
        await send_all(journal, "ab")
    async with opened(options(tmp_path, AddressPolicy(id_cache_size=0))) as journal:
        assert journal.identity.ids_dropped == {"orders": 2}
    assert number(tmp_path, "SELECT count(*) FROM ids") == 0
    async with opened(tmp_path) as journal:
        assert await send_all(journal, "ab") == [True, True]


async def test_clearing_counts_entries_and_forgets_them_on_disk_too(tmp_path: Path) -> None:
    """D55."""
    async with opened(tmp_path) as journal:
        await send_all(journal, "aab")
        assert (await journal.address("orders")).id_cache_entries == 2
        assert await journal.clear_id_cache("orders") == 2
        assert await journal.clear_id_cache("orders") == 0
        assert (await journal.address("orders")).id_cache_entries == 0
    async with opened(tmp_path) as journal:
        assert await send_all(journal, "aa") == [True, False]
    async with opened(tmp_path) as journal:
        assert await send_all(journal, "a") == [False]
        with pytest.raises(AddressNotFound):
            await journal.clear_id_cache("nowhere")
        with pytest.raises(AddressNotFound):
            await journal.resize_id_cache("nowhere", 1)


async def test_clearing_between_sends_of_one_commit_acts_where_it_stands(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        first, _, second, again = await asyncio.gather(
            send(journal, "1", "a"),
            journal.clear_id_cache("orders"),
            send(journal, "2", "a"),
            send(journal, "3", "a"),
        )
        assert (first.stored, second.stored, again.stored) == (True, True, False)


async def test_a_deleted_address_leaves_no_id(tmp_path: Path) -> None:
    """D25: 100 rounds; the ID belongs to the destination, and goes with it."""
    async with opened(tmp_path) as journal:
        for _ in range(100):
            await journal.create_queue("orders", QUEUE, "earliest")
            answers = await asyncio.gather(send(journal, "1", "a"), send(journal, "2", "a"))
            assert [answer.stored for answer in answers] == [True, False]
            await journal.delete_address("orders")
        assert await journal.addresses() == []
    for table in ("ids", "queues", "blocks", "addresses"):
        assert rows(tmp_path, f"SELECT * FROM {table}") == []
    async with opened(tmp_path) as journal:
        assert await journal.addresses() == []


async def test_ids_outlive_the_queues_of_their_address(tmp_path: Path) -> None:
    """D26."""
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send_all(journal, "a")
        await journal.delete_queue("orders", QUEUE)
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        assert await send_all(journal, "a") == [False]
        assert await consume(journal) == ["a"]


@pytest.mark.parametrize("persist", [True, False])
@pytest.mark.parametrize("change", ["clear", "resize", "delete"])
async def test_a_change_whose_commit_fails_forgets_no_id(tmp_path: Path, change: str, persist: bool) -> None:
    async with opened(options(tmp_path, persist_id_cache=persist)) as journal:
        await send_all(journal, ["a", "b", "c"])
        fail_with(journal, once("COMMIT", sqlite3.SQLITE_IOERR))
        changes: dict[str, Callable[[], Awaitable[object]]] = {
            "clear": lambda: journal.clear_id_cache("orders"),
            "resize": lambda: journal.resize_id_cache("orders", 1),
            "delete": lambda: journal.delete_address("orders"),
        }
        with pytest.raises(JournalUnavailable):
            await changes[change]()
        await caught_up(journal)
        assert (await journal.address("orders")).id_cache_entries == 3
        assert await send_all(journal, ["a", "b", "c"]) == [False, False, False]
        if persist:
            assert memory(journal) == file(journal)
        await changes[change]()
        assert await send_all(journal, ["a", "b"]) == [True, True]


async def test_settings_whose_commit_fails_forget_no_id(tmp_path: Path) -> None:
    given = options(tmp_path, persist_id_cache=False)
    async with opened(given) as journal:
        await send_all(journal, ["a", "b", "c"])
        fail_with(journal, once("COMMIT", sqlite3.SQLITE_IOERR))
        smaller = options(tmp_path, AddressPolicy(id_cache_size=1), persist_id_cache=False)
        with pytest.raises(JournalUnavailable):
            await journal.submit(ConfigureCommand, options=smaller)
        await caught_up(journal)
        assert await send_all(journal, ["a", "b", "c"]) == [False, False, False]
        await journal.submit(ConfigureCommand, options=smaller)
        assert await send_all(journal, ["c", "b"]) == [False, True]
