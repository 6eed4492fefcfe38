"""MULTICAST queues and their leases."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bridge.errors import AddressNotFound, QueueNotFound, StaleLease, TooBusy
from bridge.journal.journal import Journal
from bridge.journal.values.options import LEASES
from bridge.journal.values.store import Page
from tests.integration.journal.helpers import (
    KIB,
    MIB,
    PATIENCE_S,
    QUEUE,
    ManualClock,
    acknowledgement,
    bodies,
    browsed,
    check_file,
    consume,
    lease,
    opened,
    rows,
    send,
    submission,
    transact,
)


async def fill(journal: Journal, count: int = 10, address: str = "orders") -> None:
    """Messages "0", "1"... in one transaction."""
    await transact(journal, *(submission(str(place), None, address) for place in range(count)))


def positions(page: Page) -> list[int]:
    return [delivered.position for delivered in page.messages]


async def test_every_queue_gets_every_message(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        assert await journal.create_queue("orders", "a", "earliest")
        assert await journal.create_queue("orders", "b", "earliest")
        assert not await journal.create_queue("orders", "b", "latest")
        await fill(journal, 5)
        assert await consume(journal, queue="a") == list("01234")
        assert await consume(journal, queue="b") == list("01234")


async def test_a_queue_begins_where_it_was_asked_to(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await fill(journal, 5)
        for name, start, expected in (
            ("earliest", "earliest", "01234"),
            ("latest", "latest", ""),
            ("third", 3, "34"),
            ("far", 1000, ""),
            ("below", -7, "01234"),
        ):
            await journal.create_queue("orders", name, start)  # type: ignore[arg-type]
            assert bodies((await lease(journal, queue=name)).messages) == list(expected), name
        await send(journal, "5")
        assert bodies((await lease(journal, queue="latest")).messages) == ["5"]
        assert bodies((await lease(journal, queue="far")).messages) == ["5"]


async def test_two_readers_share_a_queue_without_overlap(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await fill(journal)
        first, second = await asyncio.gather(lease(journal, most=6), lease(journal, most=6))
        assert sorted([*positions(first), *positions(second)]) == list(range(10))
        assert (await lease(journal)).lease is None


async def test_positions_of_an_address_between_those_of_others_are_read_in_order(tmp_path: Path) -> None:
    """P10: sparse positions, several blocks, pages that end within one."""
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        expected: list[int] = []
        for round_number in range(7):
            answer = await transact(journal, *(submission("x") for _ in range(round_number + 1)))
            first, last = answer.positions["orders"]
            expected += range(first, last + 1)
            await send(journal, "other", None, "elsewhere")
        found: list[int] = []
        while (page := await lease(journal, most=3)).lease is not None:
            found += positions(page)
            await journal.acknowledge(acknowledgement(page))
        assert found == expected
        assert (await journal.address("orders")).queues[0].lag == 0


async def test_a_lease_ends_at_its_time_and_its_messages_are_next_again_in_order(tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(tmp_path, clock) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await fill(journal)
        early = await lease(journal, most=3, lease_ms=1_000)
        late = await lease(journal, most=3, lease_ms=5_000)
        clock.advance(999)
        assert positions(await lease(journal, most=1)) == [6]
        clock.advance(1)
        assert positions(await lease(journal)) == [0, 1, 2, 7, 8, 9]
        with pytest.raises(StaleLease) as caught:
            await journal.acknowledge(acknowledgement(early))
        assert caught.value.found == early.lease
        await journal.acknowledge(acknowledgement(late))


async def test_a_released_lease_returns_before_what_came_later(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await fill(journal)
        first = await lease(journal, most=4)
        await lease(journal, most=2)
        await journal.release(acknowledgement(first))
        assert positions(await lease(journal)) == [0, 1, 2, 3, 6, 7, 8, 9]
        for end in (journal.release, journal.acknowledge):
            with pytest.raises(StaleLease):
                await end(acknowledgement(first))


async def test_a_partial_acknowledgement_returns_the_rest(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await fill(journal)
        page = await lease(journal, most=6)
        await journal.acknowledge(acknowledgement(page, upto=2))
        status = (await journal.address("orders")).queues[0]
        assert (status.next, status.lag, status.leased) == (3, 7, 0)
        assert positions(await lease(journal)) == list(range(3, 10))


async def test_acknowledging_in_another_order_than_reading(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await fill(journal)
        first, second, third = [await lease(journal, most=3) for _ in range(3)]
        await journal.acknowledge(acknowledgement(second))
        status = (await journal.address("orders")).queues[0]
        assert (status.next, status.lag, status.leased) == (0, 7, 6)
        await journal.release(acknowledgement(first))
        await journal.acknowledge(acknowledgement(third))
        assert await consume(journal) == ["0", "1", "2", "9"]


async def test_a_restart_keeps_leases_and_what_was_settled(tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(tmp_path, clock) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await fill(journal)
        pages = [await lease(journal, most=3, lease_ms=1_000) for _ in range(3)]
        await journal.acknowledge(acknowledgement(pages[1]))
    async with opened(tmp_path, clock) as journal:
        assert positions(await lease(journal, most=100)) == [9]
        await journal.acknowledge(acknowledgement(pages[2]))
        clock.advance(1_000)
        assert positions(await lease(journal)) == [0, 1, 2]


async def test_a_transaction_acknowledges_with_what_it_stores(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await fill(journal, 4)
        page = await lease(journal, most=3)
        done = acknowledgement(page, upto=0)
        await transact(journal, submission("done", None, "results"), acknowledge=[done])
        assert await browsed(journal, "results") == ["done"]
        assert await consume(journal) == ["1", "2", "3"]
        with pytest.raises(StaleLease):
            await transact(journal, submission("twice", None, "results"), acknowledge=[done])
        again = acknowledgement(await lease_after(journal, "4"))
        with pytest.raises(StaleLease):
            await transact(journal, acknowledge=[again, again])
        await transact(journal, acknowledge=[again])
        assert await browsed(journal, "results") == ["done"]


async def lease_after(journal: Journal, body: str) -> Page:
    await send(journal, body)
    return await lease(journal)


async def test_a_long_poll_wakes_for_the_first_message(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        waiting = asyncio.create_task(lease(journal, wait_ms=10_000))
        await lease(journal)  # goes through the same thread: the task's own first look is done
        await send(journal, "here")
        assert bodies((await asyncio.wait_for(waiting, PATIENCE_S)).messages) == ["here"]


async def test_a_long_poll_wakes_when_somebody_elses_lease_ends(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send(journal, "one")
        await lease(journal, lease_ms=50)
        page = await asyncio.wait_for(lease(journal, wait_ms=10_000), PATIENCE_S)
        assert bodies(page.messages) == ["one"]
        waiting = asyncio.create_task(lease(journal, wait_ms=10_000))
        await lease(journal)
        await journal.release(acknowledgement(page))
        assert bodies((await asyncio.wait_for(waiting, PATIENCE_S)).messages) == ["one"]


async def test_a_long_poll_ends_with_nothing_at_its_time(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        assert await lease(journal, wait_ms=20) == Page(None)


async def test_a_long_poll_learns_that_its_queue_is_gone(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        waiting = asyncio.create_task(lease(journal, wait_ms=10_000))
        await lease(journal)
        await journal.delete_queue("orders", QUEUE)
        with pytest.raises(QueueNotFound):
            await asyncio.wait_for(waiting, PATIENCE_S)


async def test_looking_for_messages_that_are_not_there_commits_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        before = journal.commits
        assert await lease(journal) == Page(None)
        assert journal.commits == before


async def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        with pytest.raises(AddressNotFound):
            await lease(journal, "nowhere")
        await send(journal, "x")
        for ask in (lease(journal), journal.delete_queue("orders", QUEUE)):
            with pytest.raises(QueueNotFound):
                await ask


@pytest.mark.parametrize("sizes", [[1000, 9, 9], [9, 9, 1000], [9] * 50, [1000] * 3])
async def test_a_page_holds_no_more_than_was_asked_for_and_all_that_was_leased(
    tmp_path: Path, sizes: list[int]
) -> None:
    """A lease of more than its page shows would be settled unread."""
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await transact(journal, *(submission(b"x" * size) for size in sizes))
        found: list[int] = []
        while (page := await lease(journal, most_bytes=100)).lease is not None:
            read = [len(delivered.message.body or b"") for delivered in page.messages]
            assert len(read) == 1 or sum(read) <= 100
            assert (await journal.address("orders")).queues[0].leased == len(read)
            found += read
            await journal.acknowledge(acknowledgement(page))
        assert found == sizes


async def test_many_large_messages_come_in_pages_of_the_size_asked_for(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        for place in range(5):
            await send(journal, bytes([place]) * 300 * KIB)
        pages = [await lease(journal, most_bytes=MIB) for _ in range(2)]
        assert [len(page.messages) for page in pages] == [3, 2]


async def test_a_queue_has_at_most_so_many_leases(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await fill(journal, LEASES + 1)
        await asyncio.gather(*(lease(journal, most=1) for _ in range(LEASES)))
        with pytest.raises(TooBusy) as caught:
            await lease(journal, most=1)
        assert (caught.value.limit, caught.value.found) == (LEASES, LEASES)


async def test_a_deleted_queue_is_gone_with_its_leases_and_its_name_is_free(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", "keeps", "earliest")
        await journal.create_queue("orders", QUEUE, "earliest")
        await fill(journal, 3)
        page = await lease(journal)
        await journal.delete_queue("orders", QUEUE)
        with pytest.raises(QueueNotFound):
            await journal.acknowledge(acknowledgement(page))
        made, _, again = await asyncio.gather(
            journal.create_queue("orders", QUEUE, "latest"),
            journal.delete_queue("orders", QUEUE),
            journal.create_queue("orders", QUEUE, "earliest"),
        )
        assert (made, again) == (True, True)
    async with opened(tmp_path) as journal:
        assert await consume(journal) == ["0", "1", "2"]
        assert [queue.name for queue in (await journal.address("orders")).queues] == ["keeps", QUEUE]
    assert len(rows(tmp_path, "SELECT * FROM queues")) == 2
    check_file(tmp_path)
