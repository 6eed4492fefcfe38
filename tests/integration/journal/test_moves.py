"""Messages moved from a queue to another address: each is there once, whatever happens in between."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import AddressFull, AddressNotFound, JournalUnavailable, QueueNotFound, StaleLease
from bridge.journal.journal import Journal
from bridge.journal.rules import moves
from bridge.journal.rules.commands import MoveCommand, Moved
from bridge.journal.rules.moves import read_movable
from bridge.journal.values.options import AddressPolicy, BridgeQueue
from bridge.journal.values.routing import Destination
from tests.harness.eventually import until
from tests.integration.journal.failing import caught_up, fail_with, file, memory, once, together
from tests.integration.journal.helpers import (
    QUEUE,
    ManualClock,
    acknowledgement,
    bodies,
    browsed,
    check_file,
    consume,
    lease,
    opened,
    options,
    policies,
    send,
    send_all,
    stored,
    submission,
    transact,
)

PEER = Destination("$peer.a/orders", "peer-a")
ELSEWHERE = Destination("elsewhere")


async def movable(journal: Journal, to: Destination = PEER, queue: str = QUEUE) -> list[Moved]:
    found = await journal.look(read_movable, ("orders", queue), to, journal.identity.incarnation)
    return found.messages


async def move(journal: Journal, messages: list[Moved], queue: str = QUEUE, **fields: Any) -> list[int]:
    moved: list[int] = await journal.submit(
        MoveCommand, address="orders", queue=queue, messages=messages,
        size=sum(one.block.size for one in messages), deadline_ms=journal.deadline_ms(), **fields,
    )  # fmt: skip
    return moved


async def move_all(journal: Journal, to: Destination = PEER) -> int:
    """Move until nothing is free; answers the number of commands."""
    commands = 0
    while messages := await movable(journal, to):
        assert await move(journal, messages) == [one.first for one in messages]
        commands += 1
    return commands


async def test_what_is_moved_is_at_its_destination_once_and_settled_where_it_was(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await journal.create_queue("orders", "other", "earliest")
        assert await send_all(journal, "abc")
        await send(journal, "between", address="another")
        await transact(journal, submission("d"), submission("e", "e"))
        assert await move_all(journal) == 1
        assert await browsed(journal, PEER.address) == list("abcde")
        assert await consume(journal) == []
        assert await consume(journal, queue="other") == list("abcde"), "another queue keeps its messages"
        assert [one.name for one in (await journal.address(PEER.address)).bridges] == ["peer-a"]
        assert memory(journal) == file(journal)
    check_file(tmp_path)
    async with opened(tmp_path) as journal:
        assert await browsed(journal, PEER.address) == list("abcde")
        assert await move_all(journal) == 0


async def test_moved_messages_keep_their_ids_and_their_origins(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await journal.create_queue("elsewhere", QUEUE, "earliest")
        await send(journal, "with", "its id")
        await send(journal, "without")
        (first, second) = await journal.browse("orders", after=-1, most=9, most_bytes=1 << 20)
        await move_all(journal, ELSEWHERE)
        moved = await journal.browse("elsewhere", after=-1, most=9, most_bytes=1 << 20)
        assert [one.message for one in moved] == [first.message, second.message]
        assert moved[0].duplicate_id == b"its id"
        stamped = moved[1].duplicate_id
        assert stamped is not None
        back = Destination("orders")
        found = await journal.look(read_movable, ("elsewhere", QUEUE), back, journal.identity.incarnation)
        await journal.submit(MoveCommand, address="elsewhere", queue=QUEUE, messages=found.messages)
        returned = await journal.browse("orders", after=moved[1].position, most=9, most_bytes=1 << 20)
        assert [one.duplicate_id for one in returned] == [b"its id", stamped], "the first place counts"
        assert await consume(journal) == ["with", "without"], "known IDs come home unchecked"
        assert (await send(journal, "new there", "its id", "elsewhere")).stored, "and none was learnt"


async def test_leased_messages_are_not_moved(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send_all(journal, "abcd")
        messages = await movable(journal)
        page = await lease(journal, most=2)
        assert await move(journal, messages) == [one.first for one in messages[2:]]
        assert await browsed(journal, PEER.address) == ["c", "d"]
        await journal.release(acknowledgement(page))
        assert await move_all(journal) == 1
        assert await browsed(journal, PEER.address) == ["c", "d", "a", "b"]
        assert await consume(journal) == []


async def test_a_block_of_which_one_message_is_leased_stays_whole(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await transact(journal, *map(submission, "abc"))
        messages = await movable(journal)
        page = await lease(journal, most=1)
        assert await move(journal, messages) == []
        assert await move_all(journal) == 1, "read again, the rest is moved"
        await journal.acknowledge(acknowledgement(page))
        assert await browsed(journal, PEER.address) == ["b", "c"]


async def test_after_a_move_the_acknowledgement_of_an_ended_lease_is_late(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with opened(tmp_path, clock) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send(journal, "a")
        messages = await movable(journal)
        page = await lease(journal, lease_ms=1_000)
        clock.advance(1_001)
        assert await move(journal, messages) == [0]
        with pytest.raises(StaleLease):
            await journal.acknowledge(acknowledgement(page))
        assert await browsed(journal, PEER.address) == bodies(page.messages)
        assert await consume(journal) == []


@pytest.mark.parametrize("lease_first", [True, False])
async def test_a_lease_and_a_move_in_one_group_never_have_the_same_message(
    tmp_path: Path, lease_first: bool
) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send(journal, "a")
        messages = await movable(journal)
        work = [lease(journal), move(journal, messages)]
        answers = await together(journal, lambda _sql: None, *(work if lease_first else work[::-1]))
        page, moved = answers if lease_first else answers[::-1]
        assert (bodies(page.messages), moved) == ((["a"], []) if lease_first else ([], [0]))


async def test_moving_the_same_messages_twice_moves_them_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send_all(journal, "ab")
        messages = await movable(journal)
        first, second = await asyncio.gather(move(journal, messages), move(journal, messages))
        assert (first, second) == ([0, 1], [])
        assert await move(journal, [*messages, *messages]) == []
        assert await browsed(journal, PEER.address) == ["a", "b"]


async def test_a_command_has_a_limit_and_order_holds_over_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "MOVE_MESSAGES", 3)
    monkeypatch.setattr(moves, "MOVE_BYTES", 1_000)
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        names = [str(number) for number in range(10)]
        await transact(journal, *map(submission, names[:7]))
        await send_all(journal, names[7:])
        large = ["." * 600, "." * 2_000, ".", ". ."]
        await transact(journal, *map(submission, large))
        assert await move_all(journal) == 7
        assert await browsed(journal, PEER.address) == [*names, *large]
        assert await consume(journal) == []
        await until(lambda: not stored(journal, "orders"), "all are trimmed")
    check_file(tmp_path)


async def test_if_one_destination_is_full_nothing_is_moved(tmp_path: Path) -> None:
    full = AddressPolicy(max_size_bytes=300, full_policy="FAIL")
    async with opened(options(tmp_path, policies(AddressPolicy(), elsewhere=full))) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send_all(journal, "ab")
        while "elsewhere" not in journal.full_addresses():
            await send(journal, "." * 100, address="elsewhere")
        first, second = await movable(journal, ELSEWHERE)
        with pytest.raises(AddressFull):
            await move(journal, [replace(first, to=PEER), second])
        with pytest.raises(AddressNotFound):
            await journal.address(PEER.address)
        assert await consume(journal) == ["a", "b"]


async def test_if_not_all_destinations_may_be_made_nothing_is_moved(tmp_path: Path) -> None:
    async with opened(options(tmp_path, max_addresses=2)) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send_all(journal, "ab")
        first, second = await movable(journal, ELSEWHERE)
        for to in (Destination("third"), PEER):
            with pytest.raises(AddressNotFound, match="max-addresses"):
                await move(journal, [replace(first, to=to), second])
            assert [one.address for one in await journal.addresses()] == ["orders"]
        assert await consume(journal) == ["a", "b"]


async def test_a_blocked_move_goes_on_when_there_is_room(tmp_path: Path) -> None:
    clock = ManualClock()
    small = AddressPolicy(max_size_bytes=300)
    async with opened(options(tmp_path, policies(AddressPolicy(), elsewhere=small)), clock) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await journal.create_queue("elsewhere", QUEUE, "earliest")
        await send_all(journal, "ab")
        while "elsewhere" not in journal.full_addresses():
            await send(journal, "." * 100, address="elsewhere")
        moving = asyncio.create_task(move(journal, await movable(journal, ELSEWHERE)))
        await until(lambda: journal._writer._blocked.idle_seconds is not None, "it is blocked")
        assert not moving.done()
        read = await consume(journal, "elsewhere")
        clock.advance(1_000)
        await send(journal, "anything", address="x")
        assert await moving == [0, 1]
        read += await consume(journal, "elsewhere")
        assert [body for body in read if body != "." * 100] == ["a", "b"]
        assert await consume(journal) == []


@pytest.mark.parametrize("word", ["INSERT INTO blocks", "INSERT INTO queues", "COMMIT"])
async def test_a_move_on_a_full_disk_is_blocked_and_done_once(tmp_path: Path, word: str) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send_all(journal, "ab")
        messages = await movable(journal)
        fail_with(journal, once(word, sqlite3.SQLITE_FULL))
        moving = asyncio.create_task(move(journal, messages))
        await until(lambda: journal.disk_full, "the disk is full")
        assert await moving == [0, 1]
        assert await browsed(journal, PEER.address) == ["a", "b"]
        assert await consume(journal) == []
        assert memory(journal) == file(journal)


@pytest.mark.parametrize("stored", [True, False])
async def test_a_move_whose_commit_is_in_doubt_is_whole_or_not_at_all(tmp_path: Path, stored: bool) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send_all(journal, "ab")
        messages = await movable(journal)
        fail_with(journal, once("COMMIT", sqlite3.SQLITE_IOERR, after=stored))
        with pytest.raises(JournalUnavailable):
            await move(journal, messages)
        await caught_up(journal)
        assert await move(journal, messages) == ([] if stored else [0, 1])
        assert await browsed(journal, PEER.address) == ["a", "b"]
        assert await consume(journal) == []


async def test_nothing_is_moved_from_a_bridges_queue_or_from_one_that_is_not_there(tmp_path: Path) -> None:
    """A bridge's source reads ahead of its queue: what it has read would be sent although it was moved."""
    bridge = BridgeQueue("edge-to-hub", ("orders",), lambda name: name == "orders")
    async with opened(options(tmp_path, bridges=[bridge])) as journal:
        await send(journal, "a")
        messages = await movable(journal, queue="$bridge.edge-to-hub")
        for queue in ("$bridge.edge-to-hub", "no-such-queue"):
            with pytest.raises(QueueNotFound):
                await move(journal, messages, queue)
        assert await movable(journal, queue="no-such-queue") == []
        with pytest.raises(AddressNotFound):
            await journal.submit(MoveCommand, address="nowhere", queue=QUEUE, messages=messages)
