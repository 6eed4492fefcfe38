"""Queues and addresses that come with their readers and go when they are not used any more."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import AddressNotFound, Conflict, QueueNotFound
from bridge.journal.journal import Journal
from bridge.journal.rules import unused as rules
from bridge.journal.rules.commands import DeleteUnusedCommand
from bridge.journal.unused import AT_ONCE, UnusedRemover
from bridge.journal.values.options import (
    AddressPolicy,
    BridgeQueue,
    JournalOptions,
    SharedNames,
    UnusedPolicy,
)
from bridge.messages.addresses import QueueName
from tests.harness.eventually import until
from tests.integration.journal.failing import file, memory
from tests.integration.journal.helpers import (
    ManualClock,
    acknowledgement,
    check_file,
    consume,
    lease,
    opened,
    options,
    rows,
    send,
    send_all,
)

QUEUES_MS, ADDRESSES_MS = 60_000, 600_000


def going(directory: Path, routing_type: str = "MULTICAST", **changes: Any) -> JournalOptions:
    """Both go by themselves, with what is changed here."""
    policy = UnusedPolicy(
        **{"create_queues": True, "delete_queues": True, "delete_addresses": True} | changes
    )
    return options(directory, AddressPolicy(routing_type=routing_type, unused=policy))  # type: ignore[arg-type]


class Watched:
    """A remover, and time that passes in looks."""

    def __init__(self, journal: Journal, clock: ManualClock) -> None:
        self.journal, self.clock = journal, clock
        self.remover = UnusedRemover(journal)

    async def passes(self, ms: int) -> list[str]:
        """What is there after this time: addresses, and queues as address/queue."""
        await self.remover.look()
        self.clock.advance(ms)
        await self.remover.look()
        found = await self.journal.addresses()
        return [one.address for one in found] + [
            f"{one.address}/{q.name}" for one in found for q in one.queues
        ]


async def test_a_reader_makes_its_queue_and_both_go_when_it_has_left(tmp_path: Path) -> None:
    """D27: what comes with a reader leaves no ID behind."""
    clock = ManualClock()
    async with opened(going(tmp_path), clock) as journal:
        here = Watched(journal, clock)
        await send_all(journal, "ab")
        assert await consume(journal) == ["a", "b"], "from the earliest message on"
        assert await here.passes(QUEUES_MS - 1) == ["orders", "orders/q"]
        assert not (await send(journal, "a", "a")).stored, "its IDs are there as long as the address"
        assert await here.passes(1) == ["orders"]
        assert await here.passes(ADDRESSES_MS - 1) == ["orders"]
        assert not (await send(journal, "a", "a")).stored
        assert await here.passes(1) == []
        assert memory(journal) == file(journal)
        check_file(tmp_path)
        assert (await send(journal, "a", "a")).stored, "the IDs went with the address"


async def test_a_reader_that_comes_back_restarts_the_delay_and_one_that_waits_keeps_the_queue(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with opened(going(tmp_path), clock) as journal:
        here = Watched(journal, clock)
        assert await consume(journal) == []
        assert await here.passes(QUEUES_MS - 1) == ["orders", "orders/q"]
        assert await consume(journal) == []
        assert await here.passes(QUEUES_MS - 1) == ["orders", "orders/q"]
        waiting = asyncio.create_task(lease(journal, wait_ms=10_000_000))
        await until(lambda: journal.presence.waits("orders", "q"), "a reader waits")
        assert await here.passes(10 * QUEUES_MS) == ["orders", "orders/q"]
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert await here.passes(QUEUES_MS) == ["orders"]


async def test_what_waits_or_is_leased_keeps_its_queue(tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(going(tmp_path), clock) as journal:
        here = Watched(journal, clock)
        await consume(journal)
        await send(journal, "a")
        assert await here.passes(10 * ADDRESSES_MS) == ["orders", "orders/q"]
        page = await lease(journal, lease_ms=100 * ADDRESSES_MS)
        assert await here.passes(10 * ADDRESSES_MS) == ["orders", "orders/q"]
        await journal.acknowledge(acknowledgement(page))
        assert await here.passes(QUEUES_MS) == ["orders"]


@pytest.mark.parametrize(("count", "there"), [(1, True), (2, False), (-1, False)])
async def test_so_many_messages_may_go_with_a_queue(tmp_path: Path, count: int, there: bool) -> None:
    clock = ManualClock()
    async with opened(going(tmp_path, queues_message_count=count), clock) as journal:
        here = Watched(journal, clock)
        await consume(journal)
        await send_all(journal, "ab")
        found = await here.passes(QUEUES_MS)
        assert ("orders/q" in found) == there
        await send(journal, "after")
        assert "orders" in await here.passes(2 * ADDRESSES_MS), "it holds a message that went with no queue"
        assert await consume(journal, queue="later") == (["a", "b", "after"] if there else ["after"])
        assert memory(journal) == file(journal)
    check_file(tmp_path)


async def test_an_address_goes_where_all_of_its_messages_went_with_its_queues(tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(going(tmp_path, queues_message_count=-1), clock) as journal:
        here = Watched(journal, clock)
        await send_all(journal, "ab")
        page = await lease(journal, most=1)
        await journal.acknowledge(acknowledgement(page))
        assert await here.passes(QUEUES_MS) == ["orders"]
        assert await here.passes(ADDRESSES_MS) == []
    check_file(tmp_path)


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_reader_that_comes_back_goes_on_where_its_queue_went(tmp_path: Path, restarts: bool) -> None:
    """What it has settled is stored for another queue all the same."""
    clock = ManualClock()
    async with opened(going(tmp_path), clock) as journal:
        await journal.create_queue("orders", "slow", "earliest")
        here = Watched(journal, clock)
        await send_all(journal, "ab")
        assert await consume(journal) == ["a", "b"]
        assert await here.passes(QUEUES_MS) == ["orders", "orders/slow"]
        await send_all(journal, "c")
        if not restarts:
            assert await consume(journal) == ["c"]
    async with opened(going(tmp_path), clock) as journal:
        assert await consume(journal) == ([] if not restarts else ["c"])
        assert await consume(journal, queue="slow") == ["a", "b", "c"]
        assert memory(journal) == file(journal)
    check_file(tmp_path)


async def test_what_only_retain_time_keeps_goes_with_the_queue_and_does_not_come_again(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    kept = replace(going(tmp_path).policy("orders"), retain_time_ms=2 * QUEUES_MS)
    async with opened(options(tmp_path, kept), clock) as journal:
        here = Watched(journal, clock)
        await send_all(journal, "a")
        assert await consume(journal) == ["a"]
        assert await here.passes(QUEUES_MS) == ["orders"]
        assert (await journal.address("orders")).messages == 1
        assert await consume(journal, queue="another") == []
        assert await here.passes(QUEUES_MS) == ["orders"]
        await send_all(journal, "b")
        assert await consume(journal) == ["b"]
        assert await here.passes(10 * ADDRESSES_MS) == ["orders"], "the queue went with this look"
        assert await here.passes(10 * ADDRESSES_MS) == [], "what was kept for a while is gone"


async def test_so_many_queues_that_went_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "GONE_QUEUES", 2)
    clock = ManualClock()
    async with opened(going(tmp_path), clock) as journal:
        await journal.create_queue("orders", "slow", "earliest")
        here = Watched(journal, clock)
        await send_all(journal, "a")
        for name in ("x", "y", "z"):
            assert await consume(journal, queue=name) == ["a"]
        assert await here.passes(QUEUES_MS) == ["orders", "orders/slow", "orders/z"]
        assert await consume(journal, queue="slow") == ["a"]
        await here.passes(QUEUES_MS)
        assert await here.passes(QUEUES_MS) == ["orders", "orders/slow"], "nothing that they read is stored"


@pytest.mark.parametrize("skip", [False, True])
async def test_what_was_never_used_stays_unless_that_is_not_asked(tmp_path: Path, skip: bool) -> None:
    clock = ManualClock()
    given = going(tmp_path, "ANYCAST", queues_skip_usage_check=skip, queues_message_count=-1)
    async with opened(given, clock) as journal:
        here = Watched(journal, clock)
        await send(journal, "a")
        found = await here.passes(10 * ADDRESSES_MS)
        assert found == ([] if skip else ["orders", "orders/orders"])


async def test_a_queue_that_was_made_by_hand_stays_unless_created_ones_go_too(tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(going(tmp_path), clock) as journal:
        here = Watched(journal, clock)
        await journal.create_queue("orders", "q", "earliest")
        await consume(journal)
        assert await here.passes(10 * ADDRESSES_MS) == ["orders", "orders/q"]
    async with opened(going(tmp_path, delete_created_queues=True), clock) as journal:
        here = Watched(journal, clock)
        assert await here.passes(QUEUES_MS) == ["orders"]
        assert await here.passes(10 * ADDRESSES_MS) == ["orders"], "the address was made by hand"


async def test_a_queue_that_is_made_by_hand_afterwards_stays(tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(going(tmp_path), clock) as journal:
        here = Watched(journal, clock)
        await consume(journal)
        await journal.create_queue("orders", "q", "earliest")
        assert await here.passes(10 * ADDRESSES_MS) == ["orders", "orders/q"]


async def test_what_the_settings_declare_stays(tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(going(tmp_path), clock) as journal:
        await consume(journal)
    given = going(tmp_path)
    declared = options(tmp_path, given.policy, addresses={"orders": ["q"]})
    async with opened(declared, clock) as journal:
        here = Watched(journal, clock)
        assert await here.passes(10 * ADDRESSES_MS) == ["orders", "orders/q"]


async def test_an_address_that_goes_with_a_lease_that_has_ended_leaves_a_file_that_opens(
    tmp_path: Path,
) -> None:
    clock, given = ManualClock(), going(tmp_path, "ANYCAST", queues_message_count=-1)
    async with opened(given, clock) as journal:
        here = Watched(journal, clock)
        await send(journal, "a")
        await lease(journal, queue="orders", lease_ms=1_000)
        assert await here.passes(QUEUES_MS + ADDRESSES_MS) == []
        await send(journal, "b", address="news")  # what the address had is trimmed
        assert rows(tmp_path, "SELECT name FROM queues") == [("news",)]
    async with opened(given, clock) as journal:
        assert [one.address for one in await journal.addresses()] == ["news"]


async def test_an_anycast_address_goes_with_its_queue_after_both_delays(tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(going(tmp_path, "ANYCAST"), clock) as journal:
        here = Watched(journal, clock)
        await send(journal, "a", "a")
        assert await here.passes(10 * ADDRESSES_MS) == ["orders", "orders/orders"]
        assert await consume(journal, queue="orders") == ["a"]
        assert await here.passes(QUEUES_MS + ADDRESSES_MS - 1) == ["orders", "orders/orders"]
        assert await here.passes(1) == []
        assert (await send(journal, "a", "a")).stored


async def test_a_restart_begins_the_delay_anew_and_forgets_no_use(tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(going(tmp_path), clock) as journal:
        await consume(journal)
    async with opened(going(tmp_path), clock) as journal:
        here = Watched(journal, clock)
        assert await here.passes(QUEUES_MS - 1) == ["orders", "orders/q"]
        assert await here.passes(1) == ["orders"]


async def test_what_a_bridge_reads_stays(tmp_path: Path) -> None:
    clock, given = ManualClock(), going(tmp_path)
    shared = SharedNames([QueueName("orders", "q")])
    own = BridgeQueue("own", [], lambda name: name == "news")
    shares = BridgeQueue("shares", [], lambda _name: False, shared=shared)
    async with opened(options(tmp_path, given.policy, bridges=[own, shares]), clock) as journal:
        here = Watched(journal, clock)
        for address in ("orders", "news"):
            await consume(journal, address)
        assert await here.passes(10 * ADDRESSES_MS) == ["news", "orders", "orders/q"]


async def test_a_message_or_a_reader_that_comes_first_wins(tmp_path: Path) -> None:
    """Decided in one turn of the writer, in the order of the commands."""
    async with opened(going(tmp_path), ManualClock()) as journal:
        await consume(journal)
        sent = asyncio.ensure_future(send(journal, "a"))
        await asyncio.sleep(0)
        deleted = journal.send(DeleteUnusedCommand, address="orders", queue="q")
        assert (await sent).stored
        assert await deleted.future is False
        page = await lease(journal)
        assert await journal.submit(DeleteUnusedCommand, address="orders", queue="q") is False
        await journal.acknowledge(acknowledgement(page))
        assert await journal.submit(DeleteUnusedCommand, address="orders", queue="q") is True
        with pytest.raises(QueueNotFound):
            await journal.acknowledge(acknowledgement(page))
        assert await journal.submit(DeleteUnusedCommand, address="gone", queue=None) is False


async def test_a_reader_makes_nothing_where_the_settings_do_not_say_so(tmp_path: Path) -> None:
    async with opened(going(tmp_path, create_queues=False)) as journal:
        with pytest.raises(AddressNotFound):
            await lease(journal)
        await send(journal, "a")
        with pytest.raises(QueueNotFound):
            await lease(journal)
    async with opened(going(tmp_path, "ANYCAST")) as journal:
        await send(journal, "a", address="work")
        with pytest.raises(Conflict, match="it has one queue, of its own name"):
            await lease(journal, "work", "other")


async def test_at_most_so_many_go_after_one_look(tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(going(tmp_path), clock) as journal:
        here = Watched(journal, clock)
        for number in range(AT_ONCE + 1):
            await consume(journal, queue=f"q{number}")
        assert len(await here.passes(QUEUES_MS)) == 2
        assert await here.passes(0) == ["orders"]
