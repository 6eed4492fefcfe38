"""The journal as a target: coverage, epochs, and what a batch that is not taken does to those behind it."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from bridge.errors import Fenced, OutOfSequence, TargetUnavailable
from bridge.journal.journal import Journal
from bridge.journal.values.options import AddressPolicy
from bridge.messages.batch import Batch
from bridge.messages.block import encode_message, pack
from bridge.messages.message import MESSAGE_SLACK, Message
from bridge.relay.ports import Receipt
from tests.integration.journal.helpers import (
    BRIDGE,
    KIB,
    PATIENCE_S,
    QUEUE,
    STREAM,
    acknowledgement,
    batch,
    bodies,
    browsed,
    check_file,
    consume,
    deliver,
    lease,
    open_stream,
    opened,
    options,
    policies,
    rows,
    send,
    target,
)


def verdicts(receipts: list[Receipt]) -> list[tuple[str, int]]:
    return [(receipt.verdict.value, receipt.next) for receipt in receipts]


async def test_a_stream_never_seen_takes_its_first_batch_as_its_start(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        end = target(journal)
        assert (await open_stream(end)).next is None
        receipts = await deliver(end, batch({5: "a", 6: "b"}, upto=9))
        assert verdicts(receipts) == [("stored", 9)]
        state = await open_stream(end)
        assert (state.next, state.run) == (9, "run-1")
        assert state.checksum == batch({6: "b"}, upto=9).checksum
    async with opened(tmp_path) as journal:
        assert (await open_stream(target(journal))).next == 9
        assert await browsed(journal) == ["a", "b"]


async def test_a_batch_that_is_covered_is_a_duplicate(tmp_path: Path) -> None:
    """D41: the second link's copy is answered like a success, and stores nothing."""
    async with opened(tmp_path) as journal:
        end = target(journal)
        await open_stream(end)
        again = batch({0: "a", 1: "b"}, upto=2)
        receipts = await deliver(end, again, again)
        assert verdicts(receipts) == [("stored", 2), ("duplicate", 2)]
        assert receipts[1].duplicates == 2
        assert await browsed(journal) == ["a", "b"]


async def test_a_batch_cut_anew_stores_only_what_is_beyond_next(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        end = target(journal)
        await open_stream(end)
        await deliver(end, batch({0: "a", 3: "b"}, upto=5))
        receipts = await deliver(end, batch({0: "a", 3: "b", 6: "c", 9: "d"}, upto=10))
        assert (verdicts(receipts), receipts[0].duplicates) == ([("stored", 10)], 2)
        assert await browsed(journal) == ["a", "b", "c", "d"]


async def test_a_batch_beyond_next_stores_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        end = target(journal)
        await open_stream(end)
        await deliver(end, batch({0: "a"}, upto=1))
        with pytest.raises(OutOfSequence) as caught:
            await deliver(end, batch({2: "c"}, upto=3))
        assert (caught.value.limit, caught.value.found) == (1, 2)
        assert (await open_stream(end)).next == 1
        assert await browsed(journal) == ["a"]


async def test_coverage_without_messages_is_committed(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        end = target(journal)
        await open_stream(end)
        receipts = await deliver(end, batch({}, upto=7, from_=3), batch({8: "x"}, upto=9, from_=7))
        assert verdicts(receipts) == [("stored", 7), ("stored", 9)]
    async with opened(tmp_path) as journal:
        assert (await open_stream(target(journal))).next == 9
        assert await browsed(journal) == ["x"]


async def test_streams_and_bridges_are_counted_apart(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        first, second = target(journal, "one"), target(journal, "two")
        for end, stream in ((first, STREAM), (first, "other"), (second, STREAM)):
            await open_stream(end, stream)
            receipts = await deliver(end, batch({0: "a"}, upto=1, stream=stream))
            assert verdicts(receipts) == [("stored", 1)]
        assert await browsed(journal) == ["a", "a", "a"]


async def test_a_newer_link_fences_the_older_one_of_its_stream_only(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        older, newer = target(journal), target(journal)
        await open_stream(older)
        await open_stream(older, "other")
        await deliver(older, batch({0: "a"}, upto=1))
        assert (await open_stream(newer)).next == 1
        with pytest.raises(Fenced):
            await deliver(older, batch({1: "zombie"}, upto=2))
        await deliver(older, batch({0: "b"}, upto=1, stream="other"))
        await deliver(newer, batch({1: "c"}, upto=2))
        assert await browsed(journal) == ["a", "b", "c"]


async def test_epochs_go_on_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        older = target(journal)
        first = await open_stream(older)
    async with opened(tmp_path) as journal:
        second = await open_stream(target(journal))
    assert second.epoch > first.epoch


async def test_a_stream_that_was_not_opened_is_not_delivered(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        with pytest.raises(TargetUnavailable):
            await deliver(target(journal), batch({0: "a"}, upto=1))


# -- what is not taken -------------------------------------------------------------------------------


async def test_nothing_behind_a_batch_that_got_not_now_is_taken_before_the_stream_is_opened_again(
    tmp_path: Path,
) -> None:
    """Not even where the stream was never seen, and the next batch could be its start."""
    policy = AddressPolicy(max_size_bytes=KIB, full_policy="FAIL")
    async with opened(options(tmp_path, policy)) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send(journal, bytes(KIB - 7))
        end = target(journal)
        await open_stream(end)
        receipts = await deliver(end, batch({0: "a"}, upto=1))
        assert verdicts(receipts) == [("not-now", 0)]
        assert receipts[0].reason.startswith("ADDRESS_FULL")
        await journal.acknowledge(acknowledgement(await lease(journal)))
        assert verdicts(await deliver(end, batch({1: "b"}, upto=2))) == [("not-now", 0)]
        assert (await open_stream(end)).next is None
        assert verdicts(await deliver(end, batch({0: "a"}, upto=1), batch({1: "b"}, upto=2))) == [
            ("stored", 1), ("stored", 2),
        ]  # fmt: skip
        assert await consume(journal) == ["a", "b"]


async def test_an_address_that_is_not_there_is_not_now_until_it_is_made(tmp_path: Path) -> None:
    given = options(tmp_path, policies(AddressPolicy(), orders=AddressPolicy(auto_create=False)))
    async with opened(given) as journal:
        end = target(journal)
        await open_stream(end)
        receipts = await deliver(end, batch({0: "a"}, upto=1), batch({1: "b"}, upto=2))
        assert verdicts(receipts) == [("not-now", 0), ("not-now", 0)]
        assert receipts[0].reason.startswith("ADDRESS_NOT_FOUND")
        assert await journal.addresses() == []


async def test_batches_that_wait_for_room_keep_their_order(tmp_path: Path) -> None:
    """With BLOCK the first is held: those behind it wait with it, although the stream was never seen."""
    async with opened(options(tmp_path, AddressPolicy(max_size_bytes=KIB))) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send(journal, bytes(KIB - 7))
        end = target(journal)
        await open_stream(end)
        first = asyncio.create_task(deliver(end, batch({0: "a"}, upto=1)))
        second = asyncio.create_task(deliver(end, batch({1: "b"}, upto=2), batch({}, upto=4, from_=2)))
        page = await lease(journal)
        assert not first.done()
        assert not second.done()
        await journal.acknowledge(acknowledgement(page))
        assert verdicts(await asyncio.wait_for(first, PATIENCE_S)) == [("stored", 1)]
        assert verdicts(await asyncio.wait_for(second, PATIENCE_S)) == [("stored", 2), ("stored", 4)]
        assert await consume(journal) == ["a", "b"]


async def test_batches_that_waited_too_long_are_not_now_all_together(tmp_path: Path) -> None:
    given = options(tmp_path, AddressPolicy(max_size_bytes=KIB), call_timeout_ms=50)
    async with opened(given) as journal:
        await send(journal, bytes(KIB - 7))
        end = target(journal)
        await open_stream(end)
        receipts = await asyncio.wait_for(
            deliver(end, batch({0: "a"}, upto=1), batch({1: "b"}, upto=2)), PATIENCE_S
        )
        assert verdicts(receipts) == [("not-now", 0), ("not-now", 0)]
        await journal.delete_address("orders")
        assert verdicts(await deliver(end, batch({1: "b"}, upto=2))) == [("not-now", 0)]


async def test_a_replay_to_a_full_address_is_a_duplicate_all_the_same(tmp_path: Path) -> None:
    async with opened(options(tmp_path, AddressPolicy(max_size_bytes=KIB))) as journal:
        end = target(journal)
        await open_stream(end)
        again = batch({0: "x" * (KIB - 7)}, upto=1)
        assert verdicts(await deliver(end, again, again)) == [("stored", 1), ("duplicate", 1)]


async def test_a_new_link_opens_past_a_batch_that_the_old_one_left_waiting(tmp_path: Path) -> None:
    async with opened(options(tmp_path, AddressPolicy(max_size_bytes=KIB))) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send(journal, bytes(KIB - 7))
        older, newer = target(journal), target(journal)
        await open_stream(older)
        waiting = asyncio.create_task(deliver(older, batch({0: "old"}, upto=1)))
        await lease(journal)
        assert (await open_stream(newer)).next is None
        with pytest.raises(Fenced):
            await asyncio.wait_for(waiting, PATIENCE_S)


@pytest.mark.parametrize(
    "message",
    [
        Message(b"x", key=bytes(MESSAGE_SLACK + 2 * KIB)),
        Message(b"x", headers=(("note", bytes(MESSAGE_SLACK + 2 * KIB)),)),
        Message(b"x", headers=(("n", b"v"),) * MESSAGE_SLACK),
    ],
    ids=["key", "header", "headers"],
)
async def test_key_and_headers_of_a_message_count_as_its_body_does(tmp_path: Path, message: Message) -> None:
    """A peer that does not look itself could bring as much of them as a frame holds."""
    async with opened(options(tmp_path, max_message_bytes=KIB)) as journal:
        end = target(journal)
        await open_stream(end)
        fits = Message(bytes(KIB), key=bytes(KIB), headers=(("note", bytes(MESSAGE_SLACK - 2 * KIB)),))
        block = pack([encode_message(fits), encode_message(message)])
        (receipt,) = await deliver(end, Batch(STREAM, 0, 2, ((0, 1),), block, block.checksum))
        assert (verdicts([receipt]), receipt.position) == ([("refused", 0)], 1)
        assert receipt.reason.startswith("MESSAGE_TOO_LARGE: ")
        assert receipt.reason.endswith("bytes; the target takes 66560 with key and headers")
        await open_stream(end)
        alone = pack([encode_message(fits)])
        (receipt,) = await deliver(end, Batch(STREAM, 0, 1, ((0, 0),), alone, alone.checksum))
        assert verdicts([receipt]) == [("stored", 1)]


@pytest.mark.parametrize(("limit", "rule"), [("body", "the body has"), ("address", "orders holds at most")])
async def test_refused_names_the_first_position_that_can_never_be_taken(
    tmp_path: Path, limit: str, rule: str
) -> None:
    policy = AddressPolicy(max_size_bytes=KIB if limit == "address" else 1 << 30)
    given = options(tmp_path, policy, max_message_bytes=KIB if limit == "body" else 1 << 24)
    async with opened(given) as journal:
        end = target(journal)
        await open_stream(end)
        large = "x" * (KIB + 1)
        receipts = await deliver(
            end, batch({0: "a", 4: large, 6: large, 7: "b"}, upto=8), batch({8: "c"}, upto=9)
        )
        assert verdicts(receipts) == [("refused", 0), ("not-now", 0)]
        assert (receipts[0].position, rule in receipts[0].reason) == (4, True)
        assert receipts[0].reason.startswith("MESSAGE_TOO_LARGE")
        assert await journal.addresses() == []
        await open_stream(end)
        empty = batch({0: "a", 7: "b"}, upto=8)
        without = Batch(STREAM, 0, 8, empty.runs, empty.block, empty.checksum, refused=(4, 6))
        assert verdicts(await deliver(end, without)) == [("stored", 8)]
        assert await browsed(journal) == ["a", "b"]


async def test_a_large_message_that_was_covered_before_is_not_refused(tmp_path: Path) -> None:
    async with opened(options(tmp_path, max_message_bytes=KIB)) as journal:
        end = target(journal)
        await open_stream(end)
        await deliver(end, batch({}, upto=5, from_=0))
        large = batch({2: "x" * (KIB + 1), 6: "b"}, upto=7)
        assert verdicts(await deliver(end, large)) == [("stored", 7)]


# -- producers' IDs ----------------------------------------------------------------------------------


async def test_producers_ids_are_carried_and_not_asked_about_unless_told_to(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await send(journal, "direct", "a")
        plain, checking = target(journal, "plain"), target(journal, "checks", check_ids=True)
        await open_stream(plain)
        await open_stream(checking)
        again = batch({0: "bridged", 1: "none", 2: "new", 3: "twice"}, upto=4, ids={0: "a", 2: "b", 3: "b"})
        assert (await deliver(plain, again))[0].duplicates == 0
        assert await browsed(journal) == ["direct", "bridged", "none", "new", "twice"]
        receipts = await deliver(checking, again)
        assert (verdicts(receipts), receipts[0].duplicates) == ([("stored", 4)], 2)
        assert (await browsed(journal))[5:] == ["none", "new"]
        assert not (await send(journal, "direct", "b")).stored
        delivered = await journal.browse("orders", after=4, most=10, most_bytes=KIB)
        assert [one.duplicate_id for one in delivered] == [None, b"b"]


async def test_a_batch_of_known_messages_only_is_coverage(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await send(journal, "direct", "a")
        end = target(journal, check_ids=True)
        await open_stream(end)
        receipts = await deliver(end, batch({0: "again"}, upto=1, ids={0: "a"}))
        assert (verdicts(receipts), receipts[0].duplicates) == ([("stored", 1)], 1)
        assert await browsed(journal) == ["direct"]


async def test_a_cache_of_size_0_lets_producers_ids_of_a_bridge_pass(tmp_path: Path) -> None:
    """D11."""
    async with opened(options(tmp_path, AddressPolicy(id_cache_size=0))) as journal:
        end = target(journal, check_ids=True)
        await open_stream(end)
        await deliver(end, batch({0: "x", 1: "y"}, upto=2, ids={0: "a", 1: "a"}))
        assert await browsed(journal) == ["x", "y"]


async def test_a_cache_smaller_than_a_batch_lets_no_replay_of_a_bridge_pass(tmp_path: Path) -> None:
    """D58: four IDs, a cache of one, and the receipts are lost: all are sent again, one by one."""
    async with opened(options(tmp_path, AddressPolicy(id_cache_size=1))) as journal:
        end = target(journal, check_ids=True)
        await open_stream(end)
        ids = dict(enumerate("abcd"))
        await deliver(end, batch(dict(enumerate("wxyz")), upto=4, ids=ids))
        again = [batch({at: "wxyz"[at]}, upto=at + 1, ids={at: ids[at]}) for at in range(4)]
        receipts = await deliver(end, *again, batch({4: "new"}, upto=5, ids={4: "e"}))
        assert verdicts(receipts) == [("duplicate", 4)] * 4 + [("stored", 5)]
        assert await browsed(journal) == ["w", "x", "y", "z", "new"]


async def test_an_id_of_a_batch_that_was_not_taken_is_not_remembered(tmp_path: Path) -> None:
    """D44 over a bridge."""
    policy = AddressPolicy(max_size_bytes=KIB, full_policy="FAIL")
    async with opened(options(tmp_path, policy)) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send(journal, bytes(KIB - 7))
        end = target(journal, check_ids=True)
        await open_stream(end)
        await deliver(end, batch({0: "x"}, upto=1, ids={0: "a"}))
        await journal.acknowledge(acknowledgement(await lease(journal)))
        assert (await send(journal, "direct", "a")).stored


# -- what a reader of the target gets ------------------------------------------------------------------


async def test_a_stamped_id_shows_as_text_and_a_producers_own_goes_before_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        end = target(journal)
        await open_stream(end)
        block = pack(
            [encode_message(Message(b"x")), encode_message(Message(b"y"))], ((1, b"own"),), ((STREAM, 7, 8),)
        )
        await deliver(end, Batch(STREAM, 7, 9, ((7, 8),), block, block.checksum))
        first, second = await journal.browse("orders", after=-1, most=9, most_bytes=KIB)
        assert first.duplicate_id is not None
        assert len(first.duplicate_id) == 36
        assert second.duplicate_id == b"own"


async def test_clients_and_bridges_share_an_address_in_the_order_of_their_commits(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        end = target(journal)
        await open_stream(end)
        one, _, two = await asyncio.gather(
            send(journal, "1"), deliver(end, batch({0: "a", 1: "b"}, upto=2)), send(journal, "2")
        )
        found = await journal.browse("orders", after=-1, most=9, most_bytes=KIB)
        by_position = {delivered.position: bodies([delivered])[0] for delivered in found}
        assert by_position[one.positions["orders"][0]] == "1"
        assert by_position[two.positions["orders"][0]] == "2"
        assert sorted(by_position.values()) == ["1", "2", "a", "b"]
    check_file(tmp_path)


async def replays(journal: Journal, rng: random.Random, messages: dict[int, str], upto: int) -> None:
    """One sender that is cut off again and again, and cuts its batches anew each time."""
    position: int | None = 0
    while position is None or position < upto:
        end = target(journal)
        position = (await open_stream(end)).next
        at = position or 0
        batches: list[Batch] = []
        while at < upto and len(batches) < 4:
            stop = min(at + rng.randint(1, 7), upto)
            inside = {place: body for place, body in messages.items() if at <= place < stop}
            batches.append(batch(inside, upto=stop, from_=at))
            at = stop
        sending = [deliver(end, one) for one in batches]
        if batches and rng.random() < 0.5:  # a receipt that was lost: the same again, over the same link
            sending.append(deliver(end, batches[0]))
        answers = await asyncio.gather(*sending, return_exceptions=True)
        assert all(not isinstance(answer, BaseException) or isinstance(answer, Fenced) for answer in answers)


async def test_zombies_and_cuts_neither_lose_nor_double(tmp_path: Path, rng: random.Random) -> None:
    """Two senders of one stream fence each other all the time."""
    messages = {place: str(place) for place in sorted(rng.sample(range(300), 200))}
    async with opened(tmp_path) as journal:
        await asyncio.wait_for(
            asyncio.gather(*(replays(journal, random.Random(rng.random()), messages, 300) for _ in range(2))),
            PATIENCE_S,
        )
        assert await browsed(journal) == list(messages.values())
        assert (await open_stream(target(journal))).next == 300
    assert rows(tmp_path, "SELECT bridge, stream, next FROM positions") == [(BRIDGE, STREAM, 300)]
