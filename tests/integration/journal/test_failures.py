"""SQLite errors while the journal runs: what is unknown is said so, and memory is the file's image again."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import sqlite3
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from bridge.errors import BridgeError, Fenced, JournalUnavailable, TargetUnavailable
from bridge.journal.journal import Journal
from bridge.journal.rules import client_transactions
from bridge.journal.rules.commands import BridgeCommand, CommitCommand, ForgetCommand, SettleCommand
from bridge.journal.rules.commit_group import Group
from bridge.journal.sqlite import database, reserve
from bridge.journal.sqlite.database import FILE_NAME
from bridge.journal.sqlite.vacuum import Space
from bridge.journal.values.options import AddressPolicy, BridgeQueue
from bridge.journal.values.store import Committed
from bridge.journal.writer import blocked_commands, disk_full, opening
from bridge.messages.batch import Batch
from tests.harness.eventually import until
from tests.harness.rounds import rounds
from tests.integration.journal.failing import (
    FailingConnection,
    caught_up,
    fail_with,
    file,
    memory,
    once,
    sqlite_error,
    together,
)
from tests.integration.journal.helpers import (
    PATIENCE_S,
    QUEUE,
    ManualClock,
    acknowledgement,
    batch,
    browsed,
    check_file,
    consume,
    deliver,
    lease,
    open_stream,
    opened,
    options,
    rows,
    send,
    submission,
    target,
    transact,
)

IOERR = sqlite3.SQLITE_IOERR_FSYNC
FULL = sqlite3.SQLITE_FULL


@pytest.mark.parametrize(
    "word", ["BEGIN", "INSERT INTO blocks", "INSERT INTO ids", "UPDATE sequence", "COMMIT"]
)
async def test_an_error_before_the_commit_counts_stores_nothing_of_the_whole_group(
    tmp_path: Path, word: str
) -> None:
    """R27, D43: the duplicate's answer waits for the first copy's, and shares it."""
    async with opened(tmp_path) as journal:
        await send(journal, "before", "0")
        trouble = once(word, IOERR if word == "COMMIT" else sqlite3.SQLITE_IOERR_READ)
        answers = await together(
            journal,
            trouble,
            send(journal, "1", "a"),
            send(journal, "2", "a"),
            transact(journal, submission("3")),
        )
        assert [type(answer) for answer in answers] == [JournalUnavailable] * 3
        assert "whether this was stored is unknown" in str(answers[0])
        assert (await send(journal, "4", "a")).positions == {"orders": (1, 1)}
        assert memory(journal) == file(journal)
        assert await browsed(journal) == ["before", "4"]
    check_file(tmp_path)


async def test_a_commit_that_went_through_and_said_no_is_known_when_it_is_asked_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        fail_with(journal, once("COMMIT", IOERR, after=True))
        with pytest.raises(JournalUnavailable):
            await send(journal, "1", "a")
        assert not (await send(journal, "1", "a")).stored
        assert (await send(journal, "2")).positions == {"orders": (1, 1)}
        assert memory(journal) == file(journal)
        assert await consume(journal) == ["1", "2"]


@pytest.mark.parametrize("after", [False, True])
async def test_an_acknowledgement_in_doubt_is_settled_or_stale_but_never_half(
    tmp_path: Path, after: bool
) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        for body in "123":
            await send(journal, body)
        page = await lease(journal, most=2)
        fail_with(journal, once("COMMIT", IOERR, after=after))
        with pytest.raises(JournalUnavailable):
            await transact(journal, submission("done", None, "results"), acknowledge=[acknowledgement(page)])
        await caught_up(journal)
        assert memory(journal) == file(journal)
        if after:
            assert await browsed(journal, "results") == ["done"]
            assert await consume(journal) == ["3"]
        else:
            await journal.release(acknowledgement(page))
            assert await consume(journal) == ["1", "2", "3"]
            assert [status.address for status in await journal.addresses()] == ["orders"]


async def test_no_batch_is_taken_behind_one_whose_commit_failed(tmp_path: Path) -> None:
    """A stream never seen would take the next batch as its start."""
    async with opened(tmp_path) as journal:
        end = target(journal)
        await open_stream(end)
        fail_with(journal, once("COMMIT", IOERR))
        with pytest.raises(TargetUnavailable):
            await deliver(end, batch({0: "a"}, upto=1))
        (receipt,) = await deliver(end, batch({1: "b"}, upto=2))
        assert receipt.verdict.value == "not-now"
        assert (await open_stream(end)).next is None
        await deliver(end, batch({0: "a"}, upto=1), batch({1: "b"}, upto=2))
        assert await browsed(journal) == ["a", "b"]


async def test_an_epoch_that_was_not_committed_fences_nobody(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        end, other = target(journal), target(journal)
        await open_stream(end)
        fail_with(journal, once("COMMIT", IOERR))
        with pytest.raises(TargetUnavailable):
            await open_stream(other)
        await deliver(end, batch({0: "a"}, upto=1))
        assert memory(journal) == file(journal)


@pytest.mark.parametrize("word", ["INSERT INTO blocks", "COMMIT"])
async def test_a_full_disk_is_waited_for_and_nothing_is_doubled(tmp_path: Path, word: str) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        end = target(journal)
        await open_stream(end)
        answers = await asyncio.wait_for(
            together(
                journal, once(word, FULL),
                send(journal, "1", "a"), send(journal, "2", "a"), deliver(end, batch({0: "b"}, upto=1)),
                deliver(end, batch({1: "c"}, upto=2)), journal.create_queue("orders", "made", "earliest"),
            ),
            PATIENCE_S,
        )  # fmt: skip
        assert (answers[0].stored, answers[1].stored, answers[4]) == (True, False, True)
        assert not journal.disk_full
        assert sorted(await consume(journal)) == ["1", "b", "c"]
        assert memory(journal) == file(journal)
    check_file(tmp_path)


def refuse_files(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let the disk refuse every other file, too, with this error."""
    error = OSError(number, os.strerror(number))
    for module in (database, reserve):
        monkeypatch.setattr(module, "write_error", lambda _directory, _at: error)


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.EFBIG, errno.ENOSPC])
async def test_a_write_error_of_a_quota_is_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    async with opened(tmp_path) as journal:
        refuse_files(monkeypatch, number)
        fail_with(journal, once("COMMIT", sqlite3.SQLITE_IOERR_WRITE))
        assert (await asyncio.wait_for(send(journal, "1"), PATIENCE_S)).stored
        assert await browsed(journal) == ["1"]


@pytest.mark.parametrize(
    ("number", "reason"),
    [(errno.EIO, "Input/output error"), (errno.EROFS, "the file system is read-only"), (0, "bytes are free")],
)
@pytest.mark.parametrize("word", ["INSERT INTO blocks", "COMMIT"])
async def test_a_write_error_of_a_broken_disk_is_no_full_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, number: int, reason: str
) -> None:
    """SQLite has one code for all of them: 69 GiB were free, and the node said that its disk is full."""
    async with opened(tmp_path) as journal:
        if number:
            refuse_files(monkeypatch, number)
        fail_with(journal, once(word, sqlite3.SQLITE_IOERR_WRITE))
        with pytest.raises(JournalUnavailable, match=reason) as caught:
            await send(journal, "1", "a")
        assert str(tmp_path) not in caught.value.detail, "a path of the server goes to no client"
        assert not journal.disk_full
        await caught_up(journal)
        assert (await send(journal, "1", "a")).stored


async def test_a_disk_that_takes_no_write_is_broken_until_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening the file again succeeds on a disk that can be read only: the node said that it is ready."""
    clock = ManualClock()
    connect = database.connect_writer
    broken = [True]

    def plan(sql: str) -> tuple[sqlite3.Error, bool] | None:
        return (sqlite_error(sqlite3.SQLITE_IOERR_WRITE), False) if broken and sql == "COMMIT" else None

    def connected(path: Path, *, create: bool) -> sqlite3.Connection:
        return cast(sqlite3.Connection, FailingConnection(connect(path, create=create), plan))

    async with opened(options(tmp_path), clock) as journal:
        await send(journal, "1")
        refuse_files(monkeypatch, errno.EROFS)
        monkeypatch.setattr(opening, "connect_writer", connected)
        fail_with(journal, plan)
        for _ in range(3):
            with pytest.raises(JournalUnavailable, match="the file system is read-only"):
                await send(journal, "2")
            assert journal.broken.endswith("the file system is read-only")
            clock.advance(1000)
        broken.clear()
        await caught_up(journal)
        assert (await send(journal, "3")).stored


async def test_a_log_that_another_process_has_locked_is_copied_later(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await send(journal, "1")
        space = journal._writer._space
        failing = once("PRAGMA wal_checkpoint", sqlite3.SQLITE_BUSY)
        space._connection = FailingConnection(space._connection, failing)  # type: ignore[assignment]
        space._message_bytes = space._shares.checkpoint
        await send(journal, "2")
        await send(journal, "3")  # behind the turn that could not copy the log
        assert journal._writer._space is space, "the file stays open"
        assert not journal.broken
        assert not journal.damaged
        assert await browsed(journal) == ["1", "2", "3"]


async def test_an_io_error_of_a_checkpoint_is_said_and_not_taken_for_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as journal:
        await send(journal, "1")
        refuse_files(monkeypatch, errno.EIO)
        space = journal._writer._space
        failing = once("PRAGMA wal_checkpoint", sqlite3.SQLITE_IOERR_WRITE)
        space._connection = FailingConnection(space._connection, failing)  # type: ignore[assignment]
        space._message_bytes = space._shares.checkpoint
        await send(journal, "2")
        await until(lambda: bool(journal.damaged), "the error is said")
        assert journal.damaged == ["disk I/O error: Input/output error"]
        await caught_up(journal)
        assert await browsed(journal) == ["1", "2"]


async def test_a_disk_that_was_full_for_the_first_commit_after_an_opening_has_room_again(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as journal:
        await send(journal, "1")
        fail_with(journal, once("BEGIN", sqlite3.SQLITE_IOERR_READ))
        with pytest.raises(JournalUnavailable):
            await send(journal, "2")
        await caught_up(journal)
        fail_with(journal, once("COMMIT", FULL))
        await asyncio.wait_for(send(journal, "3"), PATIENCE_S)
        assert await browsed(journal) == ["1", "3"]


async def test_a_page_that_cannot_be_looked_up_is_answered_and_the_next_one_works(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send(journal, "1")
        fail_with(journal, once("SELECT", sqlite3.SQLITE_IOERR_READ))
        with pytest.raises(JournalUnavailable):
            await lease(journal)
        assert await consume(journal) == ["1"]


async def test_nothing_is_answered_or_seen_before_the_disk_has_it(tmp_path: Path) -> None:
    """P3."""
    entered, gate = threading.Event(), threading.Event()

    def disk_is_held(sql: str) -> None:
        if sql == "COMMIT":
            entered.set()
            gate.wait()

    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        fail_with(journal, disk_is_held)
        sending = asyncio.create_task(send(journal, "1", "a"))
        again = asyncio.create_task(send(journal, "2", "a"))
        try:
            await asyncio.to_thread(entered.wait)
            assert await browsed(journal) == []
            assert (await journal.address("orders")).messages == 0
            assert not sending.done()
            assert not again.done()
        finally:
            gate.set()
        assert ((await sending).stored, (await again).stored) == (True, False)
        assert await consume(journal) == ["1"]


def defect(_group: Group, _command: CommitCommand) -> None:
    raise KeyError("a defect")


async def test_a_defect_in_a_rule_leaves_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as journal:
        with monkeypatch.context() as patch:
            patch.setattr(client_transactions, "commit", defect)
            with pytest.raises(JournalUnavailable) as caught:
                await asyncio.wait_for(send(journal, "1"), PATIENCE_S)
        assert isinstance(caught.value.__cause__, KeyError)
        assert (await send(journal, "2")).positions == {"orders": (0, 0)}


async def test_a_file_that_went_away_is_opened_again_when_it_is_back(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    async with opened(tmp_path) as journal:
        await send(journal, "1", "a")
        path.rename(tmp_path / "elsewhere")
        fail_with(journal, once("BEGIN", sqlite3.SQLITE_IOERR_READ))
        for _ in range(2):
            with pytest.raises(JournalUnavailable):
                await asyncio.wait_for(send(journal, "2", "b"), PATIENCE_S)
        assert journal.broken
        (tmp_path / "elsewhere").rename(path)
        await check_opened_again(journal)


async def test_a_file_that_is_away_as_its_room_is_measured_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is done twice a second and not at each commit: the node had to be restarted, once."""
    monkeypatch.setattr(disk_full, "RETRY_MS", 0)
    path = tmp_path / FILE_NAME
    async with opened(tmp_path) as journal:
        await send(journal, "1", "a")
        path.rename(tmp_path / "elsewhere")
        with pytest.raises(JournalUnavailable, match=r"the journal failed .*No such file"):
            await asyncio.wait_for(send(journal, "2", "b"), PATIENCE_S)
        assert journal.broken
        (tmp_path / "elsewhere").rename(path)
        await check_opened_again(journal)


async def test_an_error_as_the_room_is_measured_answers_those_that_are_blocked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocked_commands, "RETRY_MS", 60_000)
    monkeypatch.setattr(disk_full, "RETRY_MS", 0)
    async with opened(options(tmp_path, AddressPolicy(1_000, "BLOCK"))) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        for value in "ab":  # the address is full with the second
            await send(journal, "x" * 600, value)
        blocked = asyncio.create_task(send(journal, "y" * 600, "c"))
        await until(lambda: journal._writer.blocked_bytes, "one is blocked")
        errors = iter([sqlite3.OperationalError("disk I/O error")])

        def room(space: Space, free: int) -> int:
            for error in errors:
                raise error
            return measured(space, free)

        measured = Space.room
        with monkeypatch.context() as patch:
            patch.setattr(Space, "room", room)
            answers = await asyncio.gather(blocked, send(journal, "z", "d", "others"), return_exceptions=True)
        assert [type(answer) for answer in answers] == [JournalUnavailable] * 2
        await caught_up(journal)
        assert (await send(journal, "z", "d", "others")).stored
        assert memory(journal) == file(journal)


async def test_another_journal_in_the_files_place_is_not_taken_for_it(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    async with opened(there):
        pass
    async with opened(here) as journal:
        await send(journal, "1")
        (here / FILE_NAME).rename(tmp_path / "aside")
        for name in ("-wal", "-shm"):
            (here / f"{FILE_NAME}{name}").rename(tmp_path / f"aside{name}")
        (there / FILE_NAME).rename(here / FILE_NAME)
        fail_with(journal, once("BEGIN", sqlite3.SQLITE_IOERR_READ))
        with pytest.raises(JournalUnavailable):
            await send(journal, "2")
        with pytest.raises(JournalUnavailable, match="not the one that was open"):
            await until_stored(journal, "2", None, tries=3)
        assert (tmp_path / "aside").exists()


async def check_opened_again(journal: Journal) -> None:
    """A journal with one message, whose file is back, stores a second one."""
    assert (await until_stored(journal, "2", "b")).positions == {"orders": (1, 1)}
    assert not journal.broken
    assert memory(journal) == file(journal)


async def until_stored(journal: Journal, body: str, value: str | None, tries: int = 100) -> Committed:
    """As a client would: ask again with the same ID."""
    for left in range(tries, 0, -1):
        try:
            return await send(journal, body, value)
        except JournalUnavailable:
            if left == 1:
                raise
        await asyncio.sleep(0.05)
    raise AssertionError("not reached")


class Clients:
    """Clients, readers and one bridge that go on whatever they are told."""

    def __init__(self, journal: Journal, rng: random.Random) -> None:
        self.journal = journal
        self.rng = rng
        self.number = 0
        self.covered = 0
        self.stored: set[str] = set()
        self.doubtful: set[str] = set()

    async def send(self) -> None:
        self.number += 1
        name = str(self.rng.randint(max(0, self.number - 8), self.number))
        try:
            await send(self.journal, name, name)
            self.stored.add(name)
        except JournalUnavailable:
            self.doubtful.add(name)

    async def transact(self) -> None:
        self.number += 1
        await transact(
            self.journal, *(submission(f"t-{self.number}", None, address) for address in ("orders", "others"))
        )

    async def read(self) -> None:
        page = await lease(self.journal, most=self.rng.randint(1, 5), lease_ms=self.rng.choice([1, 60_000]))
        if page.lease is not None:
            end = self.rng.choice([self.journal.acknowledge, self.journal.release])
            await end(acknowledgement(page, self.rng.choice([None, page.messages[0].position])))

    async def deliver(self) -> None:
        end = target(self.journal)
        at = (await open_stream(end, address="bridged")).next or 0
        await deliver(end, *(batch({place: str(place)}, upto=place + 1) for place in range(at, at + 3)))
        self.covered = max(self.covered, at + 3)

    async def administer(self) -> None:
        name = self.rng.choice("abc")
        if await self.journal.create_queue("orders", name, "latest"):
            return
        await self.journal.delete_queue("orders", name)

    async def resize(self) -> None:
        await self.journal.resize_id_cache("orders", self.rng.choice([20, 30]))


async def test_memory_is_the_files_image_after_whatever_fails(tmp_path: Path, rng: random.Random) -> None:
    """Random work with random errors at random statements, before and after they ran."""
    given = options(tmp_path, AddressPolicy(id_cache_size=25))
    async with opened(given) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        work = Clients(journal, rng)
        kinds: list[Any] = [work.send, work.send, work.send, work.transact, work.read, work.deliver,
                            work.administer, work.resize]  # fmt: skip
        for _ in range(rounds(120)):
            at = rng.randint(0, 40)

            def plan(sql: str, countdown: list[int] = [at]) -> tuple[sqlite3.Error, bool] | None:  # noqa: B006
                countdown[0] -= 1
                if countdown[0] != 0:
                    return None
                code = rng.choice([sqlite3.SQLITE_IOERR_READ] * 9 + [FULL])
                return sqlite_error(code), code != FULL and sql == "COMMIT" and rng.random() < 0.5

            fail_with(journal, plan)
            tasks = [rng.choice(kinds)() for _ in range(rng.randint(1, 6))]
            answers = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), PATIENCE_S)
            allowed = (BridgeError, TargetUnavailable, Fenced)
            assert all(answer is None or isinstance(answer, allowed) for answer in answers), answers
            await until_stored(journal, "probe", None)
            assert memory(journal) == file(journal)
        found = await browsed(journal, "bridged") if covered(tmp_path) else []
        assert found == [str(place) for place in range(covered(tmp_path))]
        assert covered(tmp_path) >= work.covered
    check_file(tmp_path)


def covered(directory: Path) -> int:
    return int(rows(directory, "SELECT coalesce(max(next), 0) FROM positions")[0][0])


async def test_a_read_fails_with_its_own_error_where_sqlite_has_ended_the_transaction(tmp_path: Path) -> None:
    def read(connection: sqlite3.Connection) -> None:
        connection.execute("ROLLBACK")  # SQLite does, of itself
        raise sqlite_error(IOERR)

    async with opened(tmp_path) as journal:
        with pytest.raises(JournalUnavailable, match="disk I/O error"):
            await journal.look(read)
        assert await journal.addresses() == []


async def test_a_bridge_that_is_forgotten_with_its_last_settlement_leaves_nothing(tmp_path: Path) -> None:
    bridge = BridgeQueue("b", ["orders"], lambda name: name == "orders")
    async with opened(options(tmp_path, bridges=[bridge])) as journal:
        await send(journal, "m")
        await journal.submit(BridgeCommand, action="remove", bridge=bridge)
        stream = f"journal:{journal.identity.incarnation}:orders:0"
        settled: dict[str, Any] = {"target": "t", "store": "s", "committed": 0, "duplicates": 0}
        answers = await together(
            journal,
            lambda _sql: None,
            journal.submit(
                SettleCommand,
                bridge="b",
                address="orders",
                batch=Batch(stream, 0, 1),
                recovered=False,
                **settled,
            ),
            journal.submit(ForgetCommand, bridge="b", address=None, really=True),
        )
        assert answers[0] is None
        assert answers[1].queues == ["orders"]
        assert memory(journal) == file(journal)
        assert rows(tmp_path, "SELECT name FROM queues WHERE bridge = 'b'") == []
        assert rows(tmp_path, "SELECT * FROM settled") == []
