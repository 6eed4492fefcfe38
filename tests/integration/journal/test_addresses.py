"""Addresses: what they hold, what they let go, how much they take."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bridge.errors import AddressFull, AddressNotFound, Conflict, MessageTooLarge, NotFound, Stopping
from bridge.journal.sqlite.reader import Orphan
from bridge.journal.values.options import CALL_TIMEOUT_MS, AddressPolicy, BridgeQueue
from tests.harness.eventually import until
from tests.integration.journal.helpers import (
    KIB,
    PATIENCE_S,
    QUEUE,
    ManualClock,
    acknowledgement,
    alter_queues,
    bodies,
    browsed,
    check_file,
    consume,
    lease,
    number,
    opened,
    options,
    policies,
    rows,
    send,
    submission,
    transact,
)


async def test_positions_are_contiguous_for_each_commit_and_never_reused(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        mixed = [submission(name, None, name) for name in "xyxxy"]
        answers = await asyncio.gather(*(transact(journal, *mixed) for _ in range(5)))
        taken: list[int] = []
        for answer in answers:
            for name, count in (("x", 3), ("y", 2)):
                first, last = answer.positions[name]
                assert last - first + 1 == count
                taken += range(first, last + 1)
        assert sorted(taken) == list(range(25))
    async with opened(tmp_path) as journal:
        await journal.delete_address("x")
        assert (await send(journal, "next", None, "z")).positions == {"z": (25, 25)}


async def test_browsing_changes_nothing_and_goes_on_after_a_position(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        for place in range(5):
            await send(journal, str(place))
        page = await journal.browse("orders", after=1, most=2, most_bytes=KIB)
        assert (bodies(page), [delivered.position for delivered in page]) == (["2", "3"], [2, 3])
        assert bodies(await journal.browse("orders", after=-1, most=9, most_bytes=1)) == ["0"]
        assert await journal.browse("orders", after=4, most=9, most_bytes=KIB) == []
        assert bodies([await journal.message("orders", 3)]) == ["3"]
        with pytest.raises(NotFound):
            await journal.message("orders", 5)
        with pytest.raises(AddressNotFound):
            await journal.browse("nowhere", after=0, most=1, most_bytes=1)
        assert await consume(journal) == list("01234")


async def test_what_every_queue_has_passed_goes_and_the_counters_are_exact(tmp_path: Path) -> None:
    """P4, P8, P9."""
    async with opened(tmp_path) as journal:
        for name in ("fast", "slow"):
            await journal.create_queue("orders", name, "earliest")
        for place in range(200):
            await send(journal, str(place))
        await transact(journal, *(submission(str(place)) for place in range(200, 300)))
        assert len(await consume(journal, queue="fast")) == 300
        assert (await journal.address("orders")).messages == 300
        page = await lease(journal, queue="slow", most=150)
        await journal.acknowledge(acknowledgement(page, queue="slow"))
        await journal.release(acknowledgement(await lease(journal, queue="slow"), queue="slow"))
        status = await journal.address("orders")
        assert (status.messages, status.first, status.next) == (150, 150, 300)
        check_file(tmp_path)
        assert await consume(journal, queue="slow") == [str(place) for place in range(150, 300)]
        status = await journal.address("orders")
        assert (status.messages, status.bytes, status.first, status.next) == (0, 0, 300, 300)
    assert number(tmp_path, "SELECT count(*) FROM blocks") == 0
    check_file(tmp_path)


async def test_more_than_one_step_of_trimming_goes_on_without_further_commits(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await asyncio.gather(*(send(journal, bytes(150 * KIB)) for _ in range(100)))
        page = await lease(journal, most=1_000, most_bytes=1 << 30)
        assert number(tmp_path, "SELECT count(*) FROM blocks") == 100
        await journal.acknowledge(acknowledgement(page))

        await until(lambda: number(tmp_path, "SELECT count(*) FROM blocks") == 0, "no block is left")
        assert (await journal.address("orders")).messages == 0
    check_file(tmp_path)


async def test_trimming_goes_on_where_a_restart_interrupted_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send(journal, "x")
    alter_queues(tmp_path, "next = 1")
    async with opened(tmp_path) as journal:
        await until(lambda: number(tmp_path, "SELECT count(*) FROM blocks") == 0, "no block is left")
        assert (await journal.address("orders")).bytes == 0


async def test_an_address_without_queues_keeps_its_messages(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await send(journal, "kept")
        await journal.create_queue("orders", QUEUE, "earliest")
        await journal.delete_queue("orders", QUEUE)
        await send(journal, "too")
        await journal.create_queue("orders", QUEUE, "earliest")
        assert await consume(journal) == ["kept", "too"]


async def test_deleting_the_queue_that_held_messages_back_lets_them_go(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        for name in ("reads", "stands"):
            await journal.create_queue("orders", name, "earliest")
        await send(journal, "x")
        await consume(journal, queue="reads")
        assert (await journal.address("orders")).messages == 1
        await journal.delete_queue("orders", "stands")
        assert (await journal.address("orders")).messages == 0


async def test_a_deleted_address_is_gone_and_its_name_begins_anew(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await asyncio.gather(*(send(journal, bytes(150 * KIB)) for _ in range(100)))
        await journal.create_queue("orders", QUEUE, "earliest")
        _, answer = await asyncio.gather(journal.delete_address("orders"), send(journal, "new"))
        assert answer.positions == {"orders": (100, 100)}
        assert await browsed(journal) == ["new"]
        assert [status.address for status in await journal.addresses()] == ["orders"]
        assert (await journal.address("orders")).queues == []
        with pytest.raises(AddressNotFound):
            await journal.delete_address("nowhere")
    async with opened(tmp_path) as journal:
        assert await browsed(journal) == ["new"]
        await until(lambda: number(tmp_path, "SELECT count(*) FROM addresses") == 1, "one address is left")
    check_file(tmp_path)


async def test_an_address_that_a_bridge_reads_is_not_deleted(tmp_path: Path) -> None:
    bridge = BridgeQueue("to-hub", ["orders"], lambda _address: True)
    async with opened(options(tmp_path, bridges=[bridge])) as journal:
        with pytest.raises(Conflict, match="to-hub"):
            await journal.delete_address("orders")
        assert [status.address for status in await journal.addresses()] == ["orders"]


async def test_a_bridge_has_a_queue_on_every_address_that_it_selects_from_its_first_message_on(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as journal:
        await send(journal, "before", None, "orders.old")
        await send(journal, "other", None, "invoices")
    bridge = BridgeQueue("to-hub", ["orders.named"], lambda address: address.startswith("orders."))
    async with opened(options(tmp_path, bridges=[bridge])) as journal:
        await send(journal, "first", None, "orders.new")
        assert {status.address for status in await journal.addresses()} == {
            "invoices", "orders.named", "orders.new", "orders.old",
        }  # fmt: skip
    found = rows(
        tmp_path,
        "SELECT a.name, q.next, q.bridge FROM queues q JOIN addresses a USING (address_id) ORDER BY 1",
    )
    assert found == [("orders.named", 2, "to-hub"), ("orders.new", 2, "to-hub"), ("orders.old", 0, "to-hub")]


async def test_queues_of_a_bridge_that_is_gone_are_kept_and_named(tmp_path: Path) -> None:
    bridge = BridgeQueue("to-hub", ["orders"], lambda address: address == "orders")
    async with opened(options(tmp_path, bridges=[bridge])) as journal:
        await send(journal, "waits")
        assert await journal.orphans() == []
    async with opened(tmp_path) as journal:
        (orphan,) = await journal.orphans()
        assert orphan == Orphan("to-hub", "orders", 1, "the bridge is not in the settings")
        await journal.create_queue("orders", QUEUE, "earliest")
        assert await consume(journal) == ["waits"]
        assert (await journal.address("orders")).messages == 1


async def test_declared_addresses_and_queues_are_there_from_the_start(tmp_path: Path) -> None:
    given = options(tmp_path, AddressPolicy(auto_create=False), addresses={"orders": ["a", "b"], "empty": ()})
    for _ in range(2):
        async with opened(given) as journal:
            status = await journal.addresses()
            assert [(one.address, [queue.name for queue in one.queues]) for one in status] == [
                ("empty", []), ("orders", ["a", "b"]),
            ]  # fmt: skip
            with pytest.raises(AddressNotFound, match="auto-create-addresses"):
                await journal.create_queue("other", "q", "earliest")


#: A body that fills a limit of 1 KiB when it is encoded.
FULL = KIB - 7

# -- limits ------------------------------------------------------------------------------------------


async def test_a_message_above_the_addresss_limit_is_refused_for_good(tmp_path: Path) -> None:
    policy = policies(AddressPolicy(), small=AddressPolicy(max_size_bytes=KIB))
    async with opened(options(tmp_path, policy)) as journal:
        with pytest.raises(MessageTooLarge) as caught:
            await transact(journal, submission("fits"), submission(bytes(KIB), None, "small"))
        assert (caught.value.limit, caught.value.key) == (KIB, "max-size-bytes")
        assert isinstance(caught.value.found, int)
        assert caught.value.found > KIB
        assert await journal.addresses() == []


async def test_below_its_limit_an_address_takes_a_transaction_whole(tmp_path: Path) -> None:
    policy = AddressPolicy(max_size_bytes=4 * KIB, full_policy="FAIL")
    async with opened(options(tmp_path, policy)) as journal:
        await transact(journal, *(submission(bytes(KIB)) for _ in range(10)))
        assert (await journal.address("orders")).messages == 10
        with pytest.raises(AddressFull):
            await send(journal, "one more")


async def test_a_restart_without_the_limit_finds_everything(tmp_path: Path) -> None:
    """P7."""
    async with opened(
        options(tmp_path, AddressPolicy(max_size_bytes=200 * KIB, full_policy="FAIL"))
    ) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        for _ in range(4):
            await transact(journal, *(submission(bytes(5 * KIB)) for _ in range(10)))
        with pytest.raises(AddressFull):
            await send(journal, "no")
    async with opened(tmp_path) as journal:
        await send(journal, "yes")
        assert len(await consume(journal)) == 41


async def test_with_block_what_waits_goes_in_order_when_room_comes(tmp_path: Path) -> None:
    async with opened(options(tmp_path, AddressPolicy(max_size_bytes=4 * KIB))) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await transact(journal, *(submission(bytes(KIB)) for _ in range(4)))
        waiting = [asyncio.create_task(send(journal, f"late-{place}", f"id-{place}")) for place in range(3)]
        again = asyncio.create_task(send(journal, "again", "id-0"))
        page = await lease(journal)  # behind the sends: they have been decided
        assert not any(task.done() for task in [*waiting, again])
        await journal.acknowledge(acknowledgement(page))
        answers = await asyncio.wait_for(asyncio.gather(*waiting, again), PATIENCE_S)
        assert [answer.stored for answer in answers] == [True, True, True, False]
        assert await consume(journal) == ["late-0", "late-1", "late-2"]


async def test_with_block_a_message_waits_until_its_deadline(tmp_path: Path) -> None:
    given = options(tmp_path, AddressPolicy(max_size_bytes=KIB), call_timeout_ms=50)
    async with opened(given) as journal:
        await send(journal, bytes(FULL))
        with pytest.raises(AddressFull) as caught:
            await asyncio.wait_for(send(journal, "late", "a"), PATIENCE_S)
        assert caught.value.limit == KIB
        await journal.delete_address("orders")
        assert (await send(journal, "now", "a")).stored


async def test_with_block_a_bridge_that_reads_the_address_says_how_long_a_message_waits(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    bridge = BridgeQueue("to-hub", ["orders"], "orders".__eq__, call_timeout_ms=3_000)
    given = options(tmp_path, AddressPolicy(max_size_bytes=KIB), bridges=[bridge])
    async with opened(given, clock) as journal:

        async def decided() -> None:
            """Everything that was sent before, by the time that it is."""
            await asyncio.create_task(send(journal, b"", address="elsewhere"))

        for address in ("orders", "others"):
            await send(journal, bytes(FULL), address=address)
        read, unread = (
            asyncio.create_task(send(journal, "late", address=one)) for one in ("orders", "others")
        )
        await decided()
        clock.advance(2_999)
        await decided()
        assert not read.done()
        clock.advance(1)
        await decided()
        with pytest.raises(AddressFull):
            await asyncio.wait_for(read, PATIENCE_S)
        assert not unread.done()
        clock.advance(CALL_TIMEOUT_MS)
        await decided()
        with pytest.raises(AddressFull):
            await asyncio.wait_for(unread, PATIENCE_S)


async def test_readers_of_a_full_address_and_writers_of_others_go_on(tmp_path: Path) -> None:
    policy = policies(AddressPolicy(), full=AddressPolicy(max_size_bytes=KIB))
    async with opened(options(tmp_path, policy)) as journal:
        await journal.create_queue("full", QUEUE, "earliest")
        await transact(journal, *(submission(bytes(FULL), None, "full") for _ in range(2)))
        waiting = asyncio.create_task(send(journal, "waits", None, "full"))
        assert (await send(journal, "goes")).stored
        assert len((await lease(journal, "full")).messages) == 2
        assert not waiting.done()
        waiting.cancel()


async def test_closing_answers_what_waits_for_room(tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(options(tmp_path, AddressPolicy(max_size_bytes=KIB)), clock) as journal:
        await send(journal, bytes(FULL))
        waiting = asyncio.create_task(send(journal, "waits"))
        await journal.create_queue("orders", QUEUE, "earliest")
        await journal.close()
        with pytest.raises((Stopping, AddressFull)):
            await waiting
        with pytest.raises(Stopping):
            await send(journal, "too late")
