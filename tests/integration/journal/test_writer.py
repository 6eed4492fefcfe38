"""The writer under faults of its own, of its peers and of its disk: who else suffers, and who hangs."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import sqlite3
import struct
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import (
    BridgeError,
    JournalUnavailable,
    Malformed,
    QueueNotFound,
    TargetRefused,
    TargetUnavailable,
    TooBusy,
)
from bridge.journal.values.options import AddressPolicy, JournalOptions
from bridge.messages.batch import Batch
from bridge.messages.block import Block, encode_message, pack
from bridge.messages.message import Message
from bridge.relay.ports import Stream
from tests.harness.eventually import until
from tests.integration.journal.failing import caught_up, fail_with, file, memory, once, together
from tests.integration.journal.helpers import (
    MIB,
    QUEUE,
    STREAM,
    ManualClock,
    batch,
    browsed,
    consume,
    deliver,
    lease,
    open_stream,
    opened,
    options,
    send,
    target,
)

PATIENCE_S = 5.0


@pytest.mark.parametrize("where", ["keep_up", "_shrink"])
async def test_fault_in_the_writers_upkeep_hangs_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Whoever waits gets an answer, whatever befell the thread (no caller may hang)."""
    async with opened(tmp_path) as journal:
        await send(journal, "before")
        failed: list[int] = []

        def fails() -> None:
            if not failed:
                failed.append(1)
                raise OSError(5, "Input/output error")

        if where == "_shrink":
            journal._writer._space._look_at_ms = 0
        monkeypatch.setattr(journal._writer._space, where, fails)
        for body in ("during", "after"):
            try:
                async with asyncio.timeout(1):
                    with contextlib.suppress(BridgeError):  # an answer, too
                        await send(journal, body)
            except TimeoutError:
                pytest.fail("the writer's thread is gone, and a client waits for ever")
        await until(lambda: bool(failed), "the writer has failed")


async def test_ids_that_are_not_persisted_survive_a_full_disk(tmp_path: Path) -> None:
    """Rule 3; D16 forgets them with a restart, not because the disk was full for a moment."""
    clock = ManualClock()
    async with opened(options(tmp_path, persist_id_cache=False), clock) as journal:
        assert (await send(journal, "m", "a")).stored
        fail_with(journal, once("INSERT INTO blocks", sqlite3.SQLITE_FULL))
        waiting = asyncio.create_task(send(journal, "n", "b"))
        await asyncio.sleep(0.05)
        clock.advance(1_000)
        again = asyncio.create_task(send(journal, "m again", "a"))
        await asyncio.wait_for(asyncio.wait([waiting, again]), PATIENCE_S)
        assert not again.result().stored
        assert await browsed(journal) == ["m", "n"]


async def test_ids_that_are_not_persisted_survive_an_unknown_commit(tmp_path: Path) -> None:
    """Rule 3: a failed commit forgets what it brought, and nothing else."""
    async with opened(options(tmp_path, persist_id_cache=False)) as journal:
        assert (await send(journal, "m", "a")).stored
        fail_with(journal, once("COMMIT", sqlite3.SQLITE_IOERR))
        with pytest.raises(JournalUnavailable):
            await send(journal, "n", "b")
        await caught_up(journal)
        assert not (await send(journal, "m again", "a")).stored


async def test_ids_that_are_not_persisted_are_known_though_their_commit_was_in_doubt(tmp_path: Path) -> None:
    """Rule 3: the commit was said to have failed, and was one: its IDs count with its messages."""
    async with opened(options(tmp_path, persist_id_cache=False)) as journal:
        assert (await send(journal, "m", "a")).stored
        fail_with(journal, once("COMMIT", sqlite3.SQLITE_IOERR, after=True))
        with pytest.raises(JournalUnavailable):
            await send(journal, "n", "b")
        await caught_up(journal)
        assert not (await send(journal, "n again", "b")).stored
        assert await browsed(journal) == ["m", "n"]


async def test_own_name_over_a_link_is_refused(tmp_path: Path) -> None:
    """Contract: names starting with `$` are the node's own; what is answered STORED is there."""
    async with opened(tmp_path) as journal:
        with pytest.raises(TargetRefused, match="node's own"):
            await open_stream(target(journal), address="$deleted.99")


def damaged() -> Block:
    """A block as a faulty peer may send it: the frame's fields agree, the messages cannot be read."""
    body = b"\xdd" + struct.pack(">I", 2) + b"\xc1" * (17 * MIB)
    return Block(2, body, len(body) - 5, 0, ((0, b"a"),))


async def test_unreadable_batch_of_a_peer_fails_no_client(tmp_path: Path) -> None:
    """A group's other commands do not pay for one that cannot be decided."""
    async with opened(tmp_path) as journal:
        end = target(journal)
        await open_stream(end)
        bad = Batch(STREAM, 0, 2, ((0, 1),), damaged())
        answers = await together(journal, lambda _sql: None, send(journal, "m", "a"), deliver(end, bad))
        assert isinstance(answers[1], BaseException)
        assert not isinstance(answers[0], BaseException), answers[0]
        assert not journal.broken


async def test_unreadable_batch_is_not_stored_for_readers_to_break_on(tmp_path: Path) -> None:
    """A block whose messages cannot be read is never answered STORED: everything behind it would jam."""
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        end = target(journal)
        await open_stream(end)
        body = b"\xdd" + struct.pack(">I", 2) + b"\xc1" * 100
        bad = Batch(STREAM, 0, 2, ((0, 1),), Block(2, body, 100, 0))
        with contextlib.suppress(BridgeError):
            await deliver(end, bad)
        await send(journal, "behind it")
        assert await consume(journal) == ["behind it"]


async def test_block_that_makes_its_largest_message_smaller_is_not_stored(tmp_path: Path) -> None:
    """Limits are held against `largest`: a peer must not get around them with it."""
    async with opened(tmp_path) as journal:
        end = target(journal)
        await open_stream(end)
        block = pack([encode_message(Message(b"x")), encode_message(Message(b"x" * 1000))])
        bad = Batch(STREAM, 0, 2, ((0, 1),), dataclasses.replace(block, largest=block.largest - 1))
        with pytest.raises(Malformed):
            await deliver(end, bad)
        assert not journal.broken


async def test_asking_for_queues_that_do_not_exist_leaves_nothing(tmp_path: Path) -> None:
    """Every buffer has a named limit: names that a client makes up must not pile up."""
    async with opened(tmp_path) as journal:
        await send(journal, "m")
        for one in range(10):
            with pytest.raises(QueueNotFound):
                await lease(journal, "orders", f"nobody-{one}")
        assert not journal.presence._last_ms


async def test_deleted_address_leaves_no_counts_and_no_reader(tmp_path: Path) -> None:
    """As above, for addresses that come and go."""
    async with opened(tmp_path) as journal:
        for one in range(10):
            name = f"short-lived-{one}"
            await journal.create_queue(name, QUEUE, "earliest")
            await send(journal, "m", address=name)
            assert await consume(journal, name) == ["m"]
            await journal.delete_address(name)
        assert not journal.presence._last_ms
        assert len(journal.counts.of_address) <= 1


async def test_batches_held_for_one_full_address_leave_room_for_clients_of_others(tmp_path: Path) -> None:
    """BLOCK holds those that send to the full address; `INBOX_BYTES` speaks of client messages."""
    by_name = {"full": AddressPolicy(max_size_bytes=MIB)}
    given = options(tmp_path, lambda name: by_name.get(name, AddressPolicy()))
    async with opened(given, ManualClock()) as journal:
        fill = pack([encode_message(Message(b"x" * 1000)) for _ in range(1_200)])
        ends, waiting = [], []
        for one in range(10):
            end = target(journal, f"bridge-{one}")
            stream = f"{STREAM}{one}"
            await end.open([Stream(stream, "orders", "full", "run")])
            if one == 0:
                await end.deliver([Batch(stream, 0, 1_200, ((0, 1_199),), fill)])
            ends.append((end, stream))
        big = pack([encode_message(Message(b"x" * 1000)) for _ in range(8_000)])
        for end, stream in ends[1:]:
            waiting.append(asyncio.create_task(end.deliver([Batch(stream, 0, 8_000, ((0, 7_999),), big)])))
        await asyncio.sleep(0.05)
        try:
            assert (await asyncio.wait_for(send(journal, "m", address="empty"), PATIENCE_S)).stored
        except TooBusy as error:
            pytest.fail(f"a client of another address was turned away: {error}")
        finally:
            for end, _ in ends:
                await end.close()
            await asyncio.gather(*waiting, return_exceptions=True)


async def test_lease_ends_in_its_time_though_the_wall_clock_went_back(tmp_path: Path) -> None:
    """Contract: when a lease ends unacknowledged its messages are next again."""

    class TwoClocks(ManualClock):
        back_ms = 0

        def wall_ms(self) -> int:
            return self.now_ms - self.back_ms

    clock = TwoClocks()
    async with opened(tmp_path, clock) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send(journal, "m")
        assert (await lease(journal, lease_ms=1_000)).lease is not None
        clock.back_ms = 3_600_000
        clock.advance(2_000)
        assert (await lease(journal)).lease is not None


async def test_nothing_behind_a_batch_lost_with_its_group_is_taken_on_a_stream_never_seen(
    tmp_path: Path,
) -> None:
    """Rule 1: another link's OPEN in the same failed group does not lift the block."""
    async with opened(tmp_path) as journal:
        end, other = target(journal), target(journal)
        await open_stream(end)
        await together(
            journal,
            once("COMMIT", sqlite3.SQLITE_IOERR),
            deliver(end, batch({0: "first"}, 1)),
            open_stream(other),
        )
        await caught_up(journal)
        try:
            (receipt,) = await deliver(end, batch({1: "second"}, 2))
        except TargetUnavailable:
            return
        assert receipt.verdict.value not in {"stored", "duplicate"}


async def test_group_of_everything_commits_or_fails_whole(tmp_path: Path) -> None:
    """Design 3: send, deliver, lease, new queue, deleted queue and a duplicate of the first, in one group."""
    given = JournalOptions(tmp_path)
    async with opened(given) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await journal.create_queue("orders", "gone", "earliest")
        await send(journal, "m0", "a")
        end = target(journal)
        await open_stream(end)

        def everything() -> list[Coroutine[Any, Any, Any]]:
            return [
                send(journal, "m1", "b"),
                deliver(end, batch({0: "d0"}, 1)),
                lease(journal),
                journal.create_queue("orders", "new", "latest"),
                journal.delete_queue("orders", "gone"),
                send(journal, "m2", "b"),
            ]

        before = file(journal)["addresses"]["orders"]
        failed = await together(journal, once("COMMIT", sqlite3.SQLITE_IOERR), *everything())
        assert all(isinstance(answer, BridgeError) for answer in failed)
        await caught_up(journal)
        assert memory(journal) == file(journal)
        assert memory(journal)["addresses"]["orders"] == before
        await open_stream(end)
        answers = await asyncio.gather(*everything())
        assert [answers[0].stored, answers[5].stored] == [True, False]
        assert sorted(await browsed(journal)) == ["d0", "m0", "m1"]
        names = {queue.name for queue in (await journal.address("orders")).queues}
        assert names == {QUEUE, "new"}
