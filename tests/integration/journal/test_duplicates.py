"""Duplicate detection as clients see it: Artemis's cases on a real file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bridge.errors import AddressFull, AddressNotFound, DuplicateIdRejected
from bridge.journal.rules.commands import ConfigureCommand
from bridge.journal.values.options import AddressPolicy
from bridge.journal.values.store import Committed, Transaction
from tests.integration.journal.helpers import (
    KIB,
    QUEUE,
    acknowledgement,
    bodies,
    browsed,
    check_file,
    consume,
    lease,
    number,
    opened,
    options,
    policies,
    send,
    send_all,
    submission,
    transact,
)

DIGITS = [str(number) for number in range(10)]
NEW = [f"new-{number}" for number in range(10)]


async def test_the_first_copy_is_kept_and_every_send_succeeds(tmp_path: Path) -> None:
    """D1."""
    ids = [None, "a", "a", "a", "b", "b", "a"]
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        answers = [await send(journal, f"m{place}", value) for place, value in enumerate(ids)]
        assert [answer.stored for answer in answers] == [True, True, False, False, True, False, False]
        assert [dict(answer.positions) for answer in answers if not answer.stored] == [{}] * 4
        assert await consume(journal) == ["m0", "m1", "m4"]


async def test_messages_without_id_are_never_duplicates(tmp_path: Path) -> None:
    """D2."""
    async with opened(tmp_path) as journal:
        assert await asyncio.gather(send(journal, "same"), send(journal, "same"))
        assert await browsed(journal) == ["same", "same"]
        assert (await journal.address("orders")).id_cache_entries == 0


@pytest.mark.parametrize("value", [b"\x00", b"\xff\xfe", b"a\x00b", bytes(range(24)), "é".encode()])
async def test_an_id_is_its_bytes_also_after_a_restart(tmp_path: Path, value: bytes) -> None:
    """D3."""
    async with opened(tmp_path) as journal:
        assert (await send(journal, "first", value)).stored
        assert not (await send(journal, "again", value)).stored
        assert (await send(journal, "longer", value + b"\x00")).stored
    async with opened(tmp_path) as journal:
        assert not (await send(journal, "again", value)).stored
        delivered = await journal.browse("orders", after=-1, most=1, most_bytes=1)
        assert delivered[0].duplicate_id == value


async def test_caches_belong_to_addresses_and_forget_in_the_order_of_acceptance(tmp_path: Path) -> None:
    """D4, D5."""
    async with opened(options(tmp_path, AddressPolicy(id_cache_size=10))) as journal:
        for address in ("x", "y", "z"):
            for sent, stored in ((DIGITS, 10), (DIGITS, 0), (NEW, 10), (NEW, 0), (DIGITS, 10)):
                assert sum(await send_all(journal, sent, address=address)) == stored
            assert await browsed(journal, address) == DIGITS + NEW + DIGITS


@pytest.mark.parametrize("together", [False, True], ids=["one-commit-each", "one-commit"])
async def test_a_rejected_id_does_not_grow_younger(tmp_path: Path, together: bool) -> None:
    """D6. Also where all of it goes into one commit, and the cache is judged before it changes."""
    async with opened(options(tmp_path, AddressPolicy(id_cache_size=3))) as journal:
        ids = "abcdbcdab"
        if together:
            answers = await asyncio.gather(*(send(journal, value, value) for value in ids))
            stored = [answer.stored for answer in answers]
        else:
            stored = await send_all(journal, ids)
        assert stored == [True] * 4 + [False] * 3 + [True] * 2


async def test_a_size_per_address_goes_before_the_global_one(tmp_path: Path) -> None:
    """D8, D9: unset inherits, 0 disables that address only."""
    policy = policies(
        AddressPolicy(id_cache_size=2), one=AddressPolicy(id_cache_size=1), off=AddressPolicy(id_cache_size=0)
    )
    async with opened(options(tmp_path, policy)) as journal:
        for address, expected in (("any", 2), ("one", 3), ("off", 3)):
            assert sum(await send_all(journal, ["1", "2", "1"], address=address)) == expected
        sizes = {status.address: status.id_cache_capacity for status in await journal.addresses()}
        assert sizes == {"any": 2, "one": 1, "off": 0}


async def test_a_cache_of_size_0_lets_everything_pass_and_stores_no_id(tmp_path: Path) -> None:
    """D10. One ID twice in one transaction, too."""
    ids = [None, "a", "a1", "a", "a", "b", "b", "a"]
    async with opened(options(tmp_path, AddressPolicy(id_cache_size=0))) as journal:
        for place, value in enumerate(ids):
            assert (await send(journal, str(place), value)).stored
        await transact(journal, submission("8", "a"), submission("9", "a"), duplicate_id=b"own")
        await transact(journal, submission("10"), duplicate_id=b"own")
        assert await browsed(journal) == [str(place) for place in range(11)]
    assert number(tmp_path, "SELECT count(*) FROM ids") == 0


async def test_consuming_a_message_never_frees_its_id(tmp_path: Path) -> None:
    """D13."""
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        assert await send_all(journal, "a") == [True]
        assert await consume(journal) == ["a"]
        assert await send_all(journal, "a") == [False]
    async with opened(tmp_path) as journal:
        assert await send_all(journal, "a") == [False]


async def test_an_id_is_freed_by_nothing_but_the_commit_of_its_message(tmp_path: Path) -> None:
    """D31, D32: what a failed transaction carried was never remembered."""
    policy = policies(AddressPolicy(), no=AddressPolicy(auto_create=False))
    async with opened(options(tmp_path, policy)) as journal:
        with pytest.raises(AddressNotFound):
            await transact(journal, submission("1", "a"), submission("2", address="no"))
        assert await journal.addresses() == []
        assert (await transact(journal, submission("3", "a"))).stored
        with pytest.raises(DuplicateIdRejected):
            await transact(journal, submission("4", "a"))
        assert await browsed(journal) == ["3"]


async def test_a_transaction_sent_again_is_rejected_by_its_messages_ids(tmp_path: Path) -> None:
    """D33, D15, also after a restart."""
    again = [submission("1", "a"), submission("2", "b")]
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await transact(journal, *again)
        with pytest.raises(DuplicateIdRejected) as caught:
            await transact(journal, *again)
        assert caught.value.duplicates == ((0, "orders", b"a"), (1, "orders", b"b"))
        assert await consume(journal) == ["1", "2"]
    async with opened(tmp_path) as journal:
        with pytest.raises(DuplicateIdRejected):
            await transact(journal, *again)
        assert await consume(journal) == []


async def test_a_transaction_whose_answer_was_lost_is_sent_again_safely(tmp_path: Path) -> None:
    """D35: an ID on the first message only is enough."""
    again = [submission("0", "a"), *(submission(str(place)) for place in range(1, 100))]
    async with opened(tmp_path) as journal:
        sending = asyncio.create_task(transact(journal, *again))
        await asyncio.sleep(0)
        sending.cancel()
    async with opened(tmp_path) as journal:
        with pytest.raises(DuplicateIdRejected):
            await transact(journal, *again)
        assert await browsed(journal) == [str(place) for place in range(100)]


async def test_one_known_id_rejects_the_whole_transaction_with_its_acknowledgements(tmp_path: Path) -> None:
    """D34, D37."""
    async with opened(tmp_path) as journal:
        await journal.create_queue("y", QUEUE, "earliest")
        await send(journal, "first", "a", "x")
        await send(journal, "other", None, "y")
        page = await lease(journal, "y")
        held = acknowledgement(page, address="y")
        with pytest.raises(DuplicateIdRejected):
            await transact(
                journal,
                submission("again", "a", "x"),
                *(submission(name, None, "x") for name in "123"),
                acknowledge=[held],
            )
        assert await browsed(journal, "x") == ["first"]
        await journal.release(held)
        assert bodies((await lease(journal, "y")).messages) == ["other"]
        assert (await transact(journal, submission("new", "b", "x"))).stored


async def test_one_id_twice_in_a_transaction_is_rejected_or_skipped(tmp_path: Path) -> None:
    """D38."""
    async with opened(tmp_path) as journal:
        twice = [submission("1", "a"), submission("2"), submission("3", "a")]
        with pytest.raises(DuplicateIdRejected) as caught:
            await transact(journal, *twice)
        assert caught.value.duplicates == ((2, "orders", b"a"),)
        assert await journal.addresses() == []
        answer = await transact(journal, *twice, on_duplicate="skip")
        assert (answer.skipped, dict(answer.positions)) == ([2], {"orders": (0, 1)})
        assert await browsed(journal) == ["1", "2"]


async def test_skip_stores_the_others_and_says_which_were_left_out(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await send(journal, "0", "a")
        answer = await transact(
            journal, submission("1"), submission("2", "a"), submission("3", "b"), on_duplicate="skip"
        )
        assert answer == Committed(True, {"orders": (1, 2)}, [1])
        assert await browsed(journal) == ["0", "1", "3"]
        nothing = await transact(journal, submission("4", "a"), on_duplicate="skip")
        assert nothing == Committed(True, {}, [0])


async def test_a_transactions_own_id_is_remembered_by_every_address_that_it_touches(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        both = [submission("1", None, "x"), submission("2", None, "y")]
        assert (await transact(journal, *both, duplicate_id=b"t")).positions == {"x": (0, 0), "y": (1, 1)}
        assert await transact(journal, *both, duplicate_id=b"t") == Committed(False)
        for address in ("x", "y"):
            only = submission("3", None, address)
            assert not (await transact(journal, only, duplicate_id=b"t")).stored
            assert not (await send(journal, "4", b"t", address)).stored
        mixed = [submission("5", None, "z"), submission("6", None, "y")]
        assert not (await transact(journal, *mixed, duplicate_id=b"t")).stored
        assert [status.address for status in await journal.addresses()] == ["x", "y"]


async def test_a_transactions_own_id_may_be_that_of_one_of_its_messages(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        assert (await transact(journal, submission("1", "t"), duplicate_id=b"t")).stored
        assert not (await send(journal, "2", "t")).stored
        assert (await journal.address("orders")).id_cache_entries == 1


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "transactions"])
async def test_many_at_once_with_one_id_store_exactly_one(tmp_path: Path, plain: bool) -> None:
    """D39, D40."""
    async with opened(tmp_path) as journal:
        sends = [journal.commit(Transaction([submission(str(n), "a")], plain=plain)) for n in range(50)]
        answers = await asyncio.gather(*sends, return_exceptions=True)
        stored = [answer for answer in answers if isinstance(answer, Committed) and answer.stored]
        assert len(stored) == 1
        assert all(isinstance(answer, Committed | DuplicateIdRejected) for answer in answers)
        assert len(await browsed(journal)) == 1


async def test_an_id_that_the_address_had_no_room_for_is_not_remembered(tmp_path: Path) -> None:
    """D44, policy FAIL."""
    policy = AddressPolicy(max_size_bytes=3 * KIB, full_policy="FAIL")
    async with opened(options(tmp_path, policy)) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        for _ in range(3):
            await send(journal, b"x" * KIB)
        with pytest.raises(AddressFull) as caught:
            await send(journal, "late", "a")
        assert (caught.value.limit, caught.value.key) == (3 * KIB, "max-size-bytes")
        page = await lease(journal, most=1)
        await journal.acknowledge(acknowledgement(page))
        assert (await send(journal, "late", "a")).stored
        assert (await journal.address("orders")).messages == 3
    check_file(tmp_path)


async def test_a_message_to_an_address_without_queues_waits_for_one(tmp_path: Path) -> None:
    """D45: the ID is remembered because the message is kept; the resend is a duplicate of it, not lost."""
    async with opened(tmp_path) as journal:
        await send(journal, "kept", "a")
        await journal.create_queue("orders", QUEUE, "earliest")
        assert not (await send(journal, "again", "a")).stored
        assert await consume(journal) == ["kept"]


async def test_an_id_sent_to_an_unknown_address_is_not_remembered(tmp_path: Path) -> None:
    """D46: nor in memory, until a restart."""
    known = options(tmp_path, AddressPolicy(auto_create=False), addresses={"orders": ()})
    async with opened(options(tmp_path, AddressPolicy(auto_create=False))) as journal:
        with pytest.raises(AddressNotFound) as caught:
            await send(journal, "1", "a")
        assert caught.value.found == "orders"
        await journal.submit(ConfigureCommand, options=known)  # the settings are loaded again
        assert (await send(journal, "2", "a")).stored


async def test_large_messages_with_one_id_arrive_once_and_whole(tmp_path: Path) -> None:
    """D50."""
    body = bytes(range(256)) * 1200
    async with opened(tmp_path) as journal:
        answers = await asyncio.gather(*(send(journal, body, "a") for _ in range(10)))
        assert [answer.stored for answer in answers].count(True) == 1
        (delivered,) = await journal.browse("orders", after=-1, most=10, most_bytes=1 << 30)
        assert delivered.message.body == body
    assert number(tmp_path, "SELECT count(*) FROM blocks") == 1
