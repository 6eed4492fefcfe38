"""Queues with a filter: what is addressed to them, read, counted and trimmed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.errors import Conflict, FilterRefused, JournalFailed, TooBusy
from bridge.journal.journal import Journal
from bridge.journal.rules import queue_filters, queues
from bridge.journal.rules.commands import MoveCommand
from bridge.journal.rules.moves import read_movable
from bridge.journal.values.options import FILTERED_QUEUES, AddressPolicy, BridgeQueue
from bridge.journal.values.routing import Destination
from bridge.journal.values.store import QueueStatus, Sent, Transaction
from bridge.messages.block import encode_message, pack
from bridge.messages.message import Message
from tests.integration.journal.helpers import (
    KIB,
    ManualClock,
    acknowledgement,
    alter_queues,
    batch,
    bodies,
    browsed,
    check_file,
    consume,
    deliver,
    lease,
    number,
    open_stream,
    opened,
    options,
    rows,
    send,
    target,
    transact,
)

RED, BLUE = "colour = 'red'", "colour = 'blue'"


def coloured(body: str, colour: str, address: str = "orders") -> Sent:
    return Sent.of(address, Message(body.encode(), headers=(("colour", colour.encode()),)))


async def paint(journal: Journal, *pairs: tuple[str, str]) -> None:
    """Messages (body, colour) in one transaction."""
    await transact(journal, *(coloured(*pair) for pair in pairs))


async def alternate(journal: Journal, first: int, end: int) -> None:
    """Numbered messages in one transaction, even ones red and odd ones blue."""
    await paint(journal, *((str(place), "red" if place % 2 == 0 else "blue") for place in range(first, end)))


async def status(journal: Journal, queue: str, address: str = "orders") -> QueueStatus:
    found: Sequence[QueueStatus] = (await journal.address(address)).queues
    return next(one for one in found if one.name == queue)


async def test_each_queue_gets_what_its_filter_takes_once_and_in_order(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", "red", "earliest", RED)
        await journal.create_queue("orders", "blue", "earliest", BLUE)
        await journal.create_queue("orders", "all", "earliest")
        await alternate(journal, 0, 10)
        await paint(journal, ("green", "green"))
        lags = [(await status(journal, queue)).lag for queue in ("red", "blue", "all")]
        assert lags == [5, 5, 11]
        assert await consume(journal, queue="red") == list("02468")
        assert await consume(journal, queue="blue") == list("13579")
        assert await consume(journal, queue="all") == [*"0123456789", "green"]
        assert (await journal.address("orders")).messages == 0
    check_file(tmp_path)


async def test_without_a_filter_blocks_have_no_routes_and_no_message_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("asked")

    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", "all", "earliest")
        await journal.create_queue("other", "red", "earliest", RED)
        with monkeypatch.context() as patched:
            patched.setattr(queue_filters, "taken", fail)
            patched.setattr(queues, "addressed_stretches", fail)
            await alternate(journal, 0, 4)
            assert await consume(journal, queue="all") == list("0123")
        await paint(journal, ("kept", "red"))
    assert rows(tmp_path, "SELECT DISTINCT routes FROM blocks") == [(None,)]
    assert rows(tmp_path, "SELECT name, messages FROM queues ORDER BY name") == [("all", None), ("red", 0)]


async def test_a_filter_sees_address_and_duplicate_id(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue(
            "orders", "q", "earliest", "AMQAddress = 'orders' AND AMQDuplicateId = 'b'"
        )
        for body in "abc":
            await send(journal, body, body)
        assert await consume(journal) == ["b"]


async def test_what_bridges_bring_is_filtered(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", "q", "earliest", "colour IS NULL")
        end = target(journal)
        await open_stream(end)
        await deliver(end, batch({0: "a", 1: "b"}, 2))
        await paint(journal, ("c", "red"))
        assert await consume(journal) == ["a", "b"]


async def test_a_move_takes_what_is_addressed_to_its_queue_and_is_filtered_where_it_arrives(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", "red", "earliest", RED)
        await journal.create_queue("orders", "all", "earliest")
        await journal.create_queue("late", "q", "earliest", "number > 2")
        headers = [
            (("colour", b"red" if place % 2 == 0 else b"blue"), ("number", b"%d" % place))
            for place in range(8)
        ]
        await transact(
            journal,
            *(Sent.of("orders", Message(b"%d" % place, headers=one)) for place, one in enumerate(headers)),
        )
        incarnation = journal.identity.incarnation
        found = (
            await journal.read(read_movable, ("orders", "red"), Destination("late"), incarnation)
        ).messages
        assert sum(one.block.count for one in found) == 4
        await journal.submit(MoveCommand, address="orders", queue="red", messages=found)
        assert await browsed(journal, "late") == list("46")  # its one queue does not need the others
        assert await consume(journal, "late") == list("46")
        assert (await status(journal, "red")).lag == 0
        assert await consume(journal, queue="red") == []
        assert await consume(journal, queue="all") == list("01234567")
    check_file(tmp_path)


async def test_nothing_waits_for_a_queue_to_which_nothing_is_addressed(tmp_path: Path) -> None:
    """Its `next` moves with what arrives, and stays there over a restart."""
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", "red", "earliest", RED)
        await journal.create_queue("orders", "all", "earliest")
        for place in range(20):
            await paint(journal, (str(place), "blue"))
        await consume(journal, queue="all")
        assert (await journal.address("orders")).messages == 0
    async with opened(tmp_path) as journal:
        assert (await status(journal, "red")).next == (await journal.address("orders")).next
        await paint(journal, ("r", "red"))
        assert await consume(journal, queue="red") == ["r"]
    check_file(tmp_path)


async def test_a_message_that_was_settled_frees_what_follows_it_up_to_the_next_of_its_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_filters, "PASSED_BLOCKS", 3)
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", "red", "earliest", RED)
        await paint(journal, ("first", "red"))
        for place in range(20):
            await paint(journal, (str(place), "blue"))
        await paint(journal, ("last", "red"))
        await journal.acknowledge(acknowledgement(await lease(journal, queue="red", most=1), queue="red"))
        await send(journal, "other", None, "other")  # whatever commits come in between
        async with asyncio.timeout(20):
            while (await journal.address("orders")).messages > 1:
                await send(journal, "other", None, "other")
        assert await consume(journal, queue="red") == ["last"]


async def test_what_no_queue_takes_is_counted_and_trimmed(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", "red", "earliest", RED)
        await journal.create_queue("orders", "blue", "earliest", BLUE)
        await paint(journal, ("0", "green"), ("1", "red"), ("2", "green"))
        found = await journal.address("orders")
        assert found.unrouted == 2
        assert await consume(journal, queue="red") == ["1"]
        assert (await journal.address("orders")).messages == 0
        await journal.create_queue("orders", "all", "latest")
        await paint(journal, ("3", "green"))
        assert (await journal.address("orders")).unrouted == 2
    async with opened(tmp_path) as journal:
        assert (await journal.address("orders")).unrouted == 0


async def test_a_bridge_takes_what_no_filter_does(tmp_path: Path) -> None:
    bridge = BridgeQueue("edge-to-hub", ["orders"], lambda address: address == "orders")
    async with opened(options(tmp_path, bridges=[bridge])) as journal:
        await journal.create_queue("orders", "red", "earliest", RED)
        await paint(journal, ("0", "green"))
        found = await journal.address("orders")
        assert (found.unrouted, found.messages) == (0, 1)
        assert [(one.name, one.lag) for one in found.bridges] == [("edge-to-hub", 1)]


async def test_part_of_a_lease_is_settled_and_the_rest_comes_again(tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(tmp_path, clock) as journal:
        await journal.create_queue("orders", "red", "earliest", RED)
        await alternate(journal, 0, 12)
        page = await lease(journal, queue="red", most=4)
        assert bodies(page.messages) == list("0246")
        other = await lease(journal, queue="red", most=1)
        assert bodies(other.messages) == ["8"]
        await journal.acknowledge(acknowledgement(page, page.messages[1].position, queue="red"))
        assert (await status(journal, "red")).lag == 4
        await journal.release(acknowledgement(other, queue="red"))
        again = await lease(journal, queue="red", lease_ms=1000)
        assert bodies(again.messages) == ["4", "6", "8", "10"]
        clock.advance(1001)
        assert await consume(journal, queue="red") == ["4", "6", "8", "10"]
        assert (await status(journal, "red")).lag == 0
    check_file(tmp_path)


async def test_a_transaction_settles_a_lease_of_a_filtered_queue(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", "red", "earliest", RED)
        await alternate(journal, 0, 4)
        page = await lease(journal, queue="red")
        await transact(journal, coloured("4", "red"), acknowledge=[acknowledgement(page, queue="red")])
        assert (await status(journal, "red")).lag == 1
        assert await consume(journal, queue="red") == ["4"]
    check_file(tmp_path)


async def test_another_filter_acts_on_what_arrives_from_then_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", "q", "earliest", RED)
        await paint(journal, ("0", "red"), ("1", "blue"))
        assert not await journal.create_queue("orders", "q", "earliest", BLUE)
        await paint(journal, ("2", "red"), ("3", "blue"))
        assert not await journal.create_queue("orders", "q", "earliest")  # it keeps its filter
        assert (await status(journal, "q")).filter == BLUE
        await paint(journal, ("4", "red"))
        assert not await journal.create_queue("orders", "q", "earliest", "")
        await paint(journal, ("5", "red"), ("6", "blue"))
        assert (await status(journal, "q")).lag == 4
        assert await consume(journal, queue="q") == list("0356")
        await paint(journal, ("7", "green"))
    assert rows(tmp_path, "SELECT filter, messages FROM queues") == [("", None)]  # positions say it again
    check_file(tmp_path)


async def test_a_queue_that_gets_a_filter_keeps_its_messages_and_leases(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", "q", "earliest")
        for place in range(6):
            await paint(journal, (str(place), "blue"))
            await send(journal, "between", None, "other")
        page = await lease(journal, most=4)
        await journal.create_queue("orders", "q", "earliest", RED)
        await alternate(journal, 6, 8)
        assert (await status(journal, "q")).lag == 7
        await journal.acknowledge(acknowledgement(page, page.messages[1].position))
        assert (await status(journal, "q")).lag == 5
        assert await consume(journal) == list("23456")
    check_file(tmp_path)


async def test_a_queue_made_later_takes_what_is_stored_whatever_its_filter_says(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", "red", "earliest", RED)
        await alternate(journal, 0, 4)
        for name, condition, start in (
            ("all", None, 0),
            ("blue", BLUE, 0),
            ("from", BLUE, 2),
            ("late", BLUE, "latest"),
        ):
            await journal.create_queue("orders", name, start, condition)  # type: ignore[arg-type]
        lags = {one.name: one.lag for one in (await journal.address("orders")).queues}
        assert lags == {"red": 2, "all": 4, "blue": 4, "from": 2, "late": 0}
        await alternate(journal, 4, 6)
        assert await consume(journal, queue="blue") == list("01235")
        assert await consume(journal, queue="from") == list("235")
        assert await consume(journal, queue="late") == list("5")
        assert await consume(journal, queue="all") == list("012345")
    check_file(tmp_path)


async def test_what_a_queue_left_out_stays_left_out_when_it_is_made_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", "all", "earliest")
        await journal.create_queue("orders", "red", "earliest", RED)
        await alternate(journal, 0, 6)
        await journal.delete_queue("orders", "red")
        await journal.create_queue("orders", "red", 1)
        assert (await status(journal, "red")).lag == 2
        await alternate(journal, 6, 8)
        assert await consume(journal, queue="red") == list("2467")
        assert (await status(journal, "red")).lag == 0
    check_file(tmp_path)


async def test_declared_filters_act_from_each_start_on(tmp_path: Path) -> None:
    def declared(conditions: Mapping[str, str]) -> object:
        return options(tmp_path, addresses={"orders": ["q"]}, queue_filters={"orders": conditions})

    async with opened(declared({"q": RED})) as journal:  # type: ignore[arg-type]
        await alternate(journal, 0, 4)
        queue_id = number(tmp_path, "SELECT queue_id FROM queues")
    async with opened(declared({"q": BLUE})) as journal:  # type: ignore[arg-type]
        await alternate(journal, 4, 8)
    async with opened(declared({})) as journal:  # type: ignore[arg-type]
        await alternate(journal, 8, 10)
        assert await consume(journal) == [*"02", *"57", *"89"]
    assert number(tmp_path, "SELECT queue_id FROM queues") == queue_id
    check_file(tmp_path)


async def test_a_refused_condition_makes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        with pytest.raises(FilterRefused, match="line 1, column 9: expected a name"):
            await journal.create_queue("orders", "q", "earliest", "colour >")
        assert await journal.addresses() == []


async def test_a_condition_that_joins_long_headers_holds_no_commit(tmp_path: Path) -> None:
    # Of 15 kB, joined 2,000 times, a text of 30 MB would be made, and copied as often.
    condition = "+".join(["x"] * 2_000) + " = 'q'"
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", "q", "earliest", condition)
        for _ in range(20):
            await transact(journal, Sent.of("orders", Message(b"", headers=(("x", b"a" * 15_000),))))
        assert journal.counts.not_evaluated == {("orders", "q"): 20}


async def test_a_stored_condition_that_is_refused_now_is_said(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", "q", "earliest", RED)
    alter_queues(tmp_path, "filter = 'colour ='")
    with pytest.raises(JournalFailed, match="the queue q of orders has a filter that this version refuses"):
        async with opened(tmp_path):
            pass


async def test_an_address_has_at_most_so_many_queues_with_a_filter(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        for place in range(FILTERED_QUEUES):
            await journal.create_queue("orders", f"q{place}", "earliest", f"n = {place}")
        with pytest.raises(Conflict, match="the most there may be"):
            await journal.create_queue("orders", "one-more", "earliest", RED)
        await journal.create_queue("orders", "all", "earliest")
        with pytest.raises(Conflict, match="the most there may be"):
            await journal.create_queue("orders", "all", "earliest", RED)
        await journal.create_queue("orders", "q0", "earliest", RED)  # one that has a filter may change it
        await paint(journal, ("0", "red"))
        assert (await status(journal, "q0")).lag == 1


async def test_a_queue_has_at_most_so_many_leased_stretches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "LEASED_INTERVALS", 5)
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", "red", "earliest", RED)
        await alternate(journal, 0, 20)
        first = await lease(journal, queue="red", most=3)
        second = await lease(journal, queue="red", most=100)
        assert [len(first.messages), len(second.messages)] == [3, 2]
        with pytest.raises(TooBusy):
            await lease(journal, queue="red")
        await journal.acknowledge(acknowledgement(first, queue="red"))
        assert bodies((await lease(journal, queue="red", most=1)).messages) == ["10"]


async def test_a_lease_that_passes_over_many_blocks_goes_on_in_another_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "PASSED_BLOCKS", 4)
    monkeypatch.setattr(queue_filters, "PASSED_BLOCKS", 1)
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", "keep", "earliest")
        await journal.create_queue("orders", "red", "earliest", RED)
        await paint(journal, ("first", "red"))
        for place in range(30):
            await paint(journal, (str(place), "blue"))
        await paint(journal, ("last", "red"))
        first = await lease(journal, queue="red", most=1)
        assert bodies((await lease(journal, queue="red")).messages) == ["last"]
        assert bodies(first.messages) == ["first"]


async def test_a_full_address_has_room_when_its_filtered_queue_is_read(tmp_path: Path) -> None:
    policy = AddressPolicy(max_size_bytes=64 * KIB, full_policy="FAIL")
    async with opened(options(tmp_path, policy)) as journal:
        await journal.create_queue("orders", "red", "earliest", RED)
        for _ in range(200):
            await paint(journal, ("x" * KIB, "blue"))
        await paint(journal, ("r", "red"))
        assert await consume(journal, queue="red") == ["r"]


async def test_many_stretches_of_one_block_are_read_with_their_ids(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", "red", "earliest", RED)
        sent = [
            Sent.of(
                "orders",
                Message(b"%d" % place, headers=(("colour", b"red" if place % 3 == 0 else b"blue"),)),
                b"id-%d" % place,
            )
            for place in range(3000)
        ]
        await journal.commit(Transaction(sent))
        page = await lease(journal, queue="red", most=1000)
        assert [one.duplicate_id for one in page.messages] == [
            b"id-%d" % place for place in range(0, 3000, 3)
        ]
        assert [one.position for one in page.messages] == list(range(0, 3000, 3))
        assert number(tmp_path, "SELECT length(cursor) FROM queues") < 40_000


async def test_stamped_ids_of_single_messages_are_their_own(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", "red", "earliest", RED)
        await journal.create_queue("orders", "all", "earliest")
        end = target(journal)
        await open_stream(end)
        encoded = [
            encode_message(Message(b"%d" % place, headers=(("colour", b"red" if place % 2 else b"blue"),)))
            for place in range(6)
        ]
        whole = batch({place: str(place) for place in range(6)}, 6)
        stamped = pack(encoded, (), (("journal:feed:orders:0", 0, 5),))
        await deliver(end, replace(whole, block=stamped, checksum=stamped.checksum))
        every = {one.position: one.duplicate_id for one in (await lease(journal, queue="all")).messages}
        red = {one.position: one.duplicate_id for one in (await lease(journal, queue="red")).messages}
        assert red == {place: every[place] for place in every if place % 2}
        assert len(red) == 3
