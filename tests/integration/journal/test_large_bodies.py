"""Large bodies in the journal: chunks first, then their message; nothing of one that has no message."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import AddressFull, JournalDamaged, JournalUnavailable, MessageTooLarge, NotFound, TooBusy
from bridge.journal.journal import Journal
from bridge.journal.sqlite import pages
from bridge.journal.uploads import UPLOADS_MOST, BodyUpload
from bridge.journal.values.options import AddressPolicy
from bridge.journal.values.routing import Destination, Placement, Routing, Undo
from bridge.journal.values.store import Committed, Delivered, Sent, Transaction
from bridge.messages.batch import Batch
from bridge.messages.block import encode_message, pack
from bridge.messages.message import CHUNK_BYTES, DIGEST_BYTES, LargeBody, LargeBodyApart, Message
from bridge.messages.stream_names import forward_log
from dedup.verdict import Verdict
from tests.fakes.routing import Alone, Routed
from tests.harness.eventually import until
from tests.integration.journal.failing import caught_up, fail_with, once, sqlite_error, together
from tests.integration.journal.helpers import (
    KIB,
    QUEUE,
    STREAM,
    acknowledgement,
    browsed,
    deliver,
    lease,
    number,
    open_stream,
    opened,
    options,
    policies,
    send,
    target,
)

CHUNKS = [bytes([one]) * 40 * KIB for one in range(5)]
BODY = b"".join(CHUNKS)
HEADERS = (("kind", b"film"),)


async def upload(journal: Journal, chunks: Sequence[bytes] = CHUNKS, address: str = "orders") -> BodyUpload:
    """Chunks that are durable, of a message that is not there yet."""
    one = journal.upload(address, sum(map(len, chunks)))
    for chunk in chunks:
        await one.add(chunk)
    return one


async def commit(
    journal: Journal, one: BodyUpload, duplicate_id: bytes | None = None, address: str = "orders"
) -> Committed:
    """Its message; the upload has ended then."""
    kept = one.kept
    submission = Sent.of(address, Message(kept.body, b"key", HEADERS), duplicate_id)
    try:
        return await journal.commit(Transaction((submission,), plain=True, large=kept))
    finally:
        one.give_up()


async def send_large(
    journal: Journal, duplicate_id: bytes | None = None, address: str = "orders"
) -> Committed:
    return await commit(journal, await upload(journal, address=address), duplicate_id, address)


async def body_of(journal: Journal, delivered: Delivered) -> bytes:
    assert isinstance(delivered.message.body, LargeBody)
    assert delivered.large is not None
    found = bytearray()
    chunk = 0
    while len(found) < delivered.message.body.size:
        found += await journal.read_chunk(delivered.large, chunk)
        chunk += 1
    return bytes(found)


async def messages(journal: Journal, address: str = "orders") -> list[Delivered]:
    return list(await journal.browse(address, after=-1, most=1000, most_bytes=1 << 40))


def chunks_in(directory: Path) -> tuple[int, int]:
    """Chunks in the file, and large bodies that no block has."""
    chunks = number(directory, "SELECT count(*) FROM chunks")
    return chunks, number(directory, "SELECT count(*) FROM loose_bodies")


def bytes_in(directory: Path) -> tuple[int, int]:
    """Bytes of the chunks in the file, and large bodies that no block has."""
    found = number(directory, "SELECT coalesce(sum(length(bytes)), 0) FROM chunks")
    return found, number(directory, "SELECT count(*) FROM loose_bodies")


async def gone(directory: Path) -> None:
    await until(lambda: chunks_in(directory) == (0, 0), "the chunks are gone")


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """No page takes these bodies into its messages, except where a case says so."""
    monkeypatch.setattr(pages, "LARGE_IN_PAGE_BYTES", 0)


async def test_a_large_body_is_stored_once_read_chunk_by_chunk_and_survives_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await send(journal, "before")
        committed = await send_large(journal)
        await send(journal, "after")
        assert committed.positions == {"orders": (1, 1)}
    async with opened(tmp_path) as journal:
        before, large, after = await messages(journal)
        assert (before.message.whole, after.message.whole) == (b"before", b"after")
        digest = blake2b(BODY, digest_size=DIGEST_BYTES).digest()
        assert large.message == Message(LargeBody(len(BODY), digest), b"key", HEADERS)
        assert await body_of(journal, large) == BODY
        assert large.large is not None
        with pytest.raises(JournalDamaged, match="of chunks: it is missing"):
            await journal.read_chunk(large.large, len(CHUNKS))
    assert chunks_in(tmp_path) == (len(CHUNKS), 0)


async def test_a_page_has_a_large_body_that_it_has_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "LARGE_IN_PAGE_BYTES", len(BODY))
    async with opened(tmp_path) as journal:
        await send_large(journal)
        (found,) = await messages(journal)
        assert found.message == Message(BODY, b"key", HEADERS)
        assert found.large is None


async def test_no_reader_sees_a_body_before_its_message_and_a_broken_upload_leaves_nothing(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as journal:
        await send(journal, "another")
        one = await upload(journal, CHUNKS[:3])
        assert await browsed(journal) == ["another"]
        assert (await journal.address("orders")).messages == 1
        assert chunks_in(tmp_path) == (3, 1)
        one.give_up()
        await gone(tmp_path)
        assert await browsed(journal) == ["another"]


async def test_an_upload_that_the_process_did_not_end_goes_when_the_journal_opens(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await send_large(journal)
        await upload(journal, CHUNKS[:2])
    assert chunks_in(tmp_path) == (len(CHUNKS) + 2, 1)
    async with opened(tmp_path) as journal:
        await until(lambda: chunks_in(tmp_path) == (len(CHUNKS), 0), "the loose body is gone")
        (found,) = await messages(journal)
        assert await body_of(journal, found) == BODY
        await send_large(journal)  # with a number of its own
        assert [await body_of(journal, one) for one in await messages(journal)] == [BODY, BODY]


async def test_a_body_whose_message_is_a_duplicate_goes(tmp_path: Path) -> None:
    """D50"""
    async with opened(tmp_path) as journal:
        assert (await send_large(journal, b"film-1")).stored
        assert not (await send_large(journal, b"film-1")).stored
        await until(lambda: chunks_in(tmp_path) == (len(CHUNKS), 0), "the second body is gone")
        (found,) = await messages(journal)
        assert found.duplicate_id == b"film-1"
        assert await body_of(journal, found) == BODY


async def test_a_body_is_stored_once_for_all_queues_and_goes_when_the_last_has_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        for queue in ("first", "second"):
            await journal.create_queue("orders", queue, "earliest")
        await send_large(journal)
        read = []
        for left, queue in ((len(CHUNKS), "first"), (0, "second")):
            page = await lease(journal, queue=queue)
            read.append(page.messages[0])
            assert await body_of(journal, read[-1]) == BODY
            await journal.acknowledge(acknowledgement(page, queue=queue))
            await until(lambda left=left: chunks_in(tmp_path) == (left, 0), f"{left} chunks")  # type: ignore[misc]
        with pytest.raises(NotFound):
            await body_of(journal, read[-1])


async def test_an_address_that_is_deleted_takes_its_bodies_along(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await send_large(journal)
        await journal.delete_address("orders")
        await gone(tmp_path)


async def test_a_large_message_has_a_page_and_a_lease_like_any_other(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send_large(journal)
        await send(journal, "small")
        page = await lease(journal, most_bytes=1)
        assert [one.message.body for one in page.messages] == [page.messages[0].message.body]
        second = await lease(journal)
        assert [one.message.body for one in second.messages] == [b"small"]  # not held up by the large one
        await journal.release(acknowledgement(page))
        again = await lease(journal)
        assert [one.position for one in again.messages] == [0]


async def test_chunks_count_for_the_address_and_a_message_above_its_limit_is_refused_first(
    tmp_path: Path,
) -> None:
    policy = AddressPolicy(max_size_bytes=len(BODY) + 40 * KIB, full_policy="FAIL")
    async with opened(options(tmp_path, policy)) as journal:
        too_large = journal.upload("orders", len(BODY) + 41 * KIB)
        with pytest.raises(MessageTooLarge, match="holds at most"):
            await too_large.add(CHUNKS[0])
        await send_large(journal)
        assert (await journal.address("orders")).bytes >= len(BODY)
        await send_large(journal)  # below its limit an address takes a message whole
        third = journal.upload("orders", len(BODY))
        with pytest.raises(AddressFull):
            await third.add(CHUNKS[0])
        assert chunks_in(tmp_path) == (2 * len(CHUNKS), 0)


async def test_an_upload_to_a_full_address_waits_for_room_before_it_sends_a_chunk(tmp_path: Path) -> None:
    policy = AddressPolicy(max_size_bytes=len(BODY))
    async with opened(options(tmp_path, policy)) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send(journal, b"x" * (len(BODY) - 20))
        sending = asyncio.create_task(upload(journal, CHUNKS[:1]))
        await asyncio.sleep(0)
        await send(journal, "to another", address="other")  # the writer has seen the chunk by now
        assert chunks_in(tmp_path) == (0, 0)
        await journal.acknowledge(acknowledgement(await lease(journal)))
        (await sending).give_up()


async def test_a_large_message_that_a_router_places_elsewhere_asks_for_room_there(tmp_path: Path) -> None:
    """A full address takes it, as it takes a small one; a full place refuses it, once it is placed."""
    full = AddressPolicy(max_size_bytes=300, full_policy="FAIL")
    places = [Destination("elsewhere")]
    router = Routed(lambda routing: [Placement(one, routing.indices) for one in places])
    given = options(tmp_path, policies(AddressPolicy(), orders=full, there=full), router=router)
    async with opened(given) as journal:
        for address in ("orders", "there"):
            places[:] = [Destination(address)]
            while address not in journal.full_addresses():
                await send(journal, "." * 100)
        places[:] = [Destination("elsewhere")]
        assert (await send(journal, "small")).elsewhere == {"orders": 1}
        assert (await send_large(journal)).elsewhere == {"orders": 1}
        small, large = await messages(journal, "elsewhere")
        assert small.message.whole == b"small"
        assert await body_of(journal, large) == BODY
        places[:] = [Destination("there")]
        with pytest.raises(MessageTooLarge, match="there holds at most"):
            await send_large(journal)
        await until(lambda: chunks_in(tmp_path) == (len(CHUNKS), 0), "what was refused goes")


async def test_a_large_copy_that_another_node_places_elsewhere_asks_for_room_there(tmp_path: Path) -> None:
    full = AddressPolicy(max_size_bytes=300, full_policy="FAIL")
    log = Destination(forward_log("0c", "orders"), "$cluster.0c", only=("q",))

    class Onward(Alone):
        def __call__(self, _routing: Routing) -> None:
            return None

        def queue_here(self, _name: str) -> str | None:
            return None

        def onward(self, _address: str, _name: str, _undo: Undo) -> Destination:
            return log

    given = options(tmp_path, policies(AddressPolicy(), orders=full), router=Onward())
    async with opened(given) as journal:
        while "orders" not in journal.full_addresses():
            await send(journal, "." * 100)
        end = target(journal, "$cluster.0b", places=True)
        await open_stream(end)
        one = end.upload(STREAM, 0, len(BODY), 0)
        for chunk in CHUNKS:
            await one.add(chunk)
        block = pack([encode_message(Message(one.kept.body))], queues=((1, ("0.0/0c/q",)),), large=one.kept)
        (receipt,) = await deliver(end, Batch(STREAM, 0, 1, ((0, 0),), block, block.checksum))
        one.give_up()
        assert receipt.verdict is Verdict.STORED
        (large,) = await messages(journal, log.address)
        assert await body_of(journal, large) == BODY


async def test_a_large_message_that_found_no_room_on_the_disk_waits_for_some(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        one = await upload(journal)
        fail_with(journal, once("COMMIT", sqlite3.SQLITE_FULL))
        assert (await commit(journal, one)).stored
        (large,) = await messages(journal)
        assert await body_of(journal, large) == BODY


async def test_a_body_stays_whose_sender_leaves_while_its_message_is_stored(tmp_path: Path) -> None:
    """The body is given up in the group that stores its message."""
    async with opened(tmp_path) as journal:
        one = await upload(journal)

        async def leaves() -> None:
            committing = asyncio.create_task(commit(journal, one))
            await asyncio.sleep(0)
            committing.cancel()
            await asyncio.wait([committing])

        await together(journal, lambda _sql: None, leaves())
        await caught_up(journal)
        (large,) = await messages(journal)
        assert await body_of(journal, large) == BODY
        assert chunks_in(tmp_path) == (len(CHUNKS), 0)


async def test_uploads_have_a_limit(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        uploads = [await upload(journal, [b"x"]) for _ in range(UPLOADS_MOST)]
        with pytest.raises(TooBusy) as caught:
            await upload(journal, [b"x"])
        assert caught.value.limit == UPLOADS_MOST
        uploads.pop().give_up()
        await upload(journal, [b"x"])


async def test_a_chunk_that_is_abandoned_on_its_way_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer is busy: the sender leaves before it comes to the chunk, which is held no more."""
    async with opened(tmp_path) as journal:
        waiting: list[Any] = []
        submit = journal._writer.submit
        monkeypatch.setattr(journal._writer, "submit", waiting.append)
        one = journal.upload("orders", 0)
        adding = asyncio.create_task(one.add(bytes(CHUNK_BYTES)))
        await asyncio.sleep(0)
        one.abandon()
        with pytest.raises(ConnectionAbortedError):
            await adding
        (command,) = waiting
        assert not command.chunk
        monkeypatch.setattr(journal._writer, "submit", submit)
        submit(command)
        one.give_up()
        assert (await send_large(journal)).stored
        assert chunks_in(tmp_path) == (len(CHUNKS), 0)


async def test_bodies_that_were_given_up_go_many_at_a_step(tmp_path: Path) -> None:
    """They once went one a commit, and senders that left brought more: the file grew to gigabytes."""
    async with opened(tmp_path) as journal:
        for one in [await upload(journal) for _ in range(20)]:
            one.give_up()
        commits = journal._writer.commits
        await gone(tmp_path)
        assert journal._writer.commits - commits < 5


async def test_a_message_whose_body_has_not_come_whole_is_not_stored(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        one = await upload(journal)
        kept = one.kept
        one.give_up()
        for claimed in (kept, kept._replace(body=LargeBody(kept.body.size + 1, kept.body.digest))):
            submission = Sent.of("orders", Message(claimed.body))
            with pytest.raises(JournalUnavailable, match="send it again"):
                await journal.commit(Transaction((submission,), plain=True, large=claimed))
        await gone(tmp_path)


async def test_an_upload_does_not_go_on_after_the_file_was_opened_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        one = await upload(journal, CHUNKS[:2])
        journal._writer.state.uploads.clear()  # as when the state is loaded again
        with pytest.raises(JournalUnavailable, match="send it again"):
            await one.add(CHUNKS[2])


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR])
async def test_an_upload_goes_on_after_a_commit_that_failed_with_what_is_stored_of_it(
    tmp_path: Path, code: int
) -> None:
    """A chunk that found no room waits for some. Of one whose fate is unknown its sender hears."""
    async with opened(tmp_path) as journal:
        going_on, failing = await upload(journal, CHUNKS[:2]), await upload(journal, CHUNKS[:1])
        failed: list[str] = []

        def plan(sql: str) -> tuple[sqlite3.Error, bool] | None:
            if sql != "COMMIT" or failed:
                return None
            failed.append(sql)
            return sqlite_error(code), False

        fail_with(journal, plan)
        if code == sqlite3.SQLITE_FULL:
            await failing.add(CHUNKS[1])
            assert failing.kept.body.size == 2 * 40 * KIB
        else:
            with pytest.raises(JournalUnavailable):
                await failing.add(CHUNKS[1])
        assert failed
        failing.give_up()
        for chunk in CHUNKS[2:]:
            await going_on.add(chunk)
        assert (await commit(journal, going_on)).stored
        (found,) = await messages(journal)
        assert await body_of(journal, found) == BODY
        await until(lambda: chunks_in(tmp_path) == (len(CHUNKS), 0), "the other one is gone")


async def test_what_needs_a_body_whole_fails_on_a_large_one_and_does_not_take_it_for_empty(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as journal:
        await send_large(journal)
        (found,) = await messages(journal)
        with pytest.raises(LargeBodyApart, match=str(len(BODY))):
            _ = found.message.whole
