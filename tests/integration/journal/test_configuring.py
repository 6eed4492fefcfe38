"""Settings of addresses that change while the journal is open."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bridge.errors import Conflict
from bridge.journal.journal import Journal
from bridge.journal.rules.commands import BridgeCommand, ConfigureCommand
from bridge.journal.values.options import AddressPolicy, BridgeQueue, JournalOptions
from tests.integration.journal.helpers import PATIENCE_S, ManualClock, opened, options, send, send_all

KIB = 1024


async def configure(journal: Journal, directory: Path, policy: AddressPolicy, **changes: object) -> None:
    await journal.submit(ConfigureCommand, options=options(directory, policy, **changes))


async def test_a_higher_limit_lets_what_waits_for_room_in(tmp_path: Path) -> None:
    async with opened(options(tmp_path, AddressPolicy(max_size_bytes=KIB))) as journal:
        await send(journal, bytes(KIB - 200))
        await send(journal, bytes(200))
        waiting = asyncio.create_task(send(journal, "late"))
        await journal.addresses()
        await asyncio.sleep(0)
        assert not waiting.done()
        await configure(journal, tmp_path, AddressPolicy(max_size_bytes=4 * KIB))
        assert (await asyncio.wait_for(waiting, PATIENCE_S)).stored
        assert (await journal.address("orders")).max_bytes == 4 * KIB


async def test_an_id_cache_has_the_new_size_now_and_after_a_restart(tmp_path: Path) -> None:
    async with opened(options(tmp_path, AddressPolicy(id_cache_size=4))) as journal:
        await send_all(journal, ["a", "b", "c"])
        await journal.resize_id_cache("orders", 3)
        await configure(journal, tmp_path, AddressPolicy(id_cache_size=2))
        assert await send_all(journal, ["b", "c", "a"]) == [False, False, True]
        await configure(journal, tmp_path, AddressPolicy(id_cache_size=2, retain_time_ms=5))
        await journal.resize_id_cache("orders", 9)
        await configure(journal, tmp_path, AddressPolicy(id_cache_size=2))
        assert (await journal.address("orders")).id_cache_capacity == 9  # an operator's holds still
    async with opened(options(tmp_path, AddressPolicy(id_cache_size=2))) as journal:
        assert (await journal.address("orders")).id_cache_capacity == 9


async def test_what_was_retained_goes_once_it_is_not_to_be(tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(options(tmp_path, AddressPolicy(retain_time_ms=-1)), clock) as journal:
        await journal.create_queue("orders", "all", "latest")
        await send(journal, "a")
        page = await journal.lease("orders", "all", most=1, wait_ms=0, lease_ms=1000, most_bytes=KIB)
        assert page.lease is not None
        await journal.delete_queue("orders", "all")
        await journal.create_queue("orders", "next", "latest")
        await send(journal, "b")
        assert (await journal.address("orders")).messages == 2
        await configure(journal, tmp_path, AddressPolicy())
        await send(journal, "c")
        assert (await journal.address("orders")).messages == 2  # "a" is gone


async def test_a_routing_type_that_differs_changes_nothing_at_all(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await send(journal, "a")
        wanted = {"new": ["all"], "orders": []}
        with pytest.raises(Conflict, match=r"addresses\.orders\.routing-type: orders is MULTICAST"):
            await configure(journal, tmp_path, AddressPolicy(5, routing_type="ANYCAST"), addresses=wanted)
        status = await journal.address("orders")
        assert (status.routing_type, status.max_bytes) == ("MULTICAST", 1 << 30)
        assert [one.address for one in await journal.addresses()] == ["orders"]


async def test_declared_addresses_and_queues_are_made_and_others_stay(tmp_path: Path) -> None:
    before = options(tmp_path, addresses={"orders": ["all"]})
    async with opened(before) as journal:
        await configure(journal, tmp_path, AddressPolicy(), addresses={"new": ["red"]},
                        queue_filters={"new": {"red": "colour = 'red'"}})  # fmt: skip
        found = {one.address: [(q.name, q.filter) for q in one.queues] for one in await journal.addresses()}
        assert found == {"orders": [("all", "")], "new": [("red", "colour = 'red'")]}


async def test_a_bridge_that_is_put_in_place_of_another_keeps_its_queue_and_its_place(tmp_path: Path) -> None:
    def reads(*names: str) -> BridgeQueue:
        return BridgeQueue("b", names, lambda name: name in names)

    async with opened(JournalOptions(tmp_path, bridges=[reads("orders")])) as journal:
        await send(journal, "a")
        await journal.submit(BridgeCommand, action="put", bridge=reads("orders", "stock"))
        await send(journal, "b", address="stock")
        lags = {lag.address: lag.messages for lag in await journal.bridge_lags()}
        assert lags == {"orders": 1, "stock": 1}
        await journal.submit(BridgeCommand, action="put", bridge=reads("stock"))
        assert [(one.address, one.messages) for one in await journal.orphans()] == [("orders", 1)]
        await journal.submit(BridgeCommand, action="put", bridge=BridgeQueue("c", ["stock"], "stock".__eq__))
        assert {lag.bridge for lag in await journal.bridge_lags()} == {"b", "c"}
