"""The file shrinks after its data, the log stays short, and neither is in the way of an answer."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from bridge.journal.journal import Journal
from bridge.journal.rules.commands import CommittedEvents
from bridge.journal.sqlite import reading_threads, reserve, vacuum
from bridge.journal.sqlite.database import FILE_NAME, connect_reader, connect_writer
from bridge.journal.sqlite.reader import find_address, find_blocks
from bridge.journal.sqlite.reading_threads import UnderWay
from bridge.journal.sqlite.vacuum import Space
from bridge.journal.values.stored_block import PAGE_BYTES
from bridge.journal.writer import rows
from bridge.messages.batch import Batch
from bridge.messages.block import encode_message, pack
from bridge.runtime.clock import SystemClock
from tests.harness.eventually import until
from tests.integration.journal.helpers import (
    KIB,
    MIB,
    QUEUE,
    STREAM,
    acknowledgement,
    batch,
    browsed,
    check_file,
    consume,
    deliver,
    lease,
    number,
    open_stream,
    opened,
    send,
    submission,
    target,
    text,
    transact,
)


@pytest.fixture(autouse=True)
def small_disk() -> None:
    """Here the disk is as large as it is."""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at the free list all the time, and keeps little of it."""
    monkeypatch.setattr(vacuum, "_LOOK_MS", 20)
    monkeypatch.setattr(vacuum, "_PAUSE_MS", 1)
    monkeypatch.setattr(vacuum, "SLACK_BYTES", MIB)
    monkeypatch.setattr(reserve, "CHECKPOINT_BYTES", 2 * MIB)


#: Of a disk that is large.
SHARES = reserve.Shares.of(1 << 40)


async def fill(journal: Journal, megabytes: int) -> None:
    await asyncio.gather(*(send(journal, bytes(128 * KIB)) for _ in range(megabytes * 8)))


async def until_file_is_below(directory: Path, size: int) -> None:
    await until(lambda: (directory / FILE_NAME).stat().st_size <= size, f"the file has at most {size} bytes")


@pytest.mark.usefixtures("impatient")
async def test_the_file_shrinks_after_its_messages_are_gone(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await fill(journal, 30)
        page = await lease(journal, most=10_000, most_bytes=1 << 40)
        await journal.acknowledge(acknowledgement(page, page.messages[-9].position))
        await until_file_is_below(tmp_path, 4 * MIB)
        assert len(await browsed(journal)) == 8
    check_file(tmp_path)


@pytest.mark.usefixtures("impatient")
async def test_pages_are_moved_from_the_end_into_holes(tmp_path: Path) -> None:
    """What is left lies at the end of the file, behind what is gone."""
    async with opened(tmp_path) as journal:
        await journal.create_queue("gone", QUEUE, "earliest")
        await asyncio.gather(*(send(journal, bytes(128 * KIB), None, "gone") for _ in range(80)))
        await fill(journal, 3)
        await consume(journal, "gone")
        await until_file_is_below(tmp_path, 6 * MIB)
        assert len(await browsed(journal)) == 24
    check_file(tmp_path)


@pytest.mark.usefixtures("impatient")
async def test_commits_come_in_between_the_steps_of_shrinking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    monkeypatch.setattr(vacuum, "crash_point", events.append)
    monkeypatch.setattr(rows, "crash_point", events.append)
    monkeypatch.setattr(vacuum, "_STEP_S", 0)  # every step is too long: they become as short as can be
    monkeypatch.setattr(vacuum, "_LEAST_PAGES", 8)
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await fill(journal, 12)
        await consume(journal)
        await until(lambda: "journal.before-trim" in events, "a trim begins")
        while (tmp_path / FILE_NAME).stat().st_size > 3 * MIB:
            await send(journal, "between", None, "others")
    assert events.count("journal.before-trim") > 5
    first = events.index("journal.before-trim")
    last = len(events) - events[::-1].index("journal.before-trim")
    assert events[first:last].count("journal.after-commit") > 5


async def test_answers_do_not_wait_for_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    monkeypatch.setattr(reserve, "CHECKPOINT_BYTES", 128 * KIB)
    monkeypatch.setattr(vacuum, "crash_point", events.append)
    monkeypatch.setattr(rows, "crash_point", events.append)
    async with opened(tmp_path) as journal:
        publish = journal._writer._publish

        def published(what: CommittedEvents) -> None:
            events.append("answered")
            publish(what)

        monkeypatch.setattr(journal._writer, "_publish", published)
        events.clear()
        for _ in range(4):
            await send(journal, bytes(64 * KIB))
    assert events.count("journal.before-checkpoint") >= 1
    assert all(
        after == "answered"
        for before, after in itertools.pairwise(events)
        if before == "journal.after-commit"
    )


async def test_the_log_grows_while_a_reader_stands_in_it_and_is_cut_back_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reserve, "CHECKPOINT_BYTES", MIB)
    monkeypatch.setattr(reserve, "LOG_BYTES", 2 * MIB)
    log = tmp_path / f"{FILE_NAME}-wal"
    async with opened(tmp_path) as journal:
        await fill(journal, 1)
        reader = connect_reader(tmp_path / FILE_NAME)
        reader.execute("BEGIN")
        (seen,) = reader.execute("SELECT sum(count) FROM blocks").fetchone()
        for _ in range(8):
            await fill(journal, 1)
        grown = log.stat().st_size
        assert grown > 8 * MIB
        assert reader.execute("SELECT sum(count) FROM blocks").fetchone() == (seen,)
        reader.execute("ROLLBACK")
        reader.close()
        for _ in range(6):
            await fill(journal, 1)
        assert log.stat().st_size < 6 * MIB
        assert (await journal.address("orders")).messages == 15 * 8
    check_file(tmp_path)


async def test_the_log_begins_anew_under_steady_browsing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is always somebody who reads; the log grew for as long as that went on, once."""
    monkeypatch.setattr(reserve, "CHECKPOINT_BYTES", MIB)
    monkeypatch.setattr(reserve, "LOG_BYTES", 4 * MIB)
    async with opened(tmp_path) as journal:
        await fill(journal, 8)
        ended = asyncio.Event()

        async def browse() -> None:
            while not ended.is_set():
                assert len(await browsed(journal)) >= 64

        browsing = [asyncio.create_task(browse()) for _ in range(4)]
        for _ in range(12):
            await fill(journal, 1)
        ended.set()
        await asyncio.gather(*browsing)
        # A group of commits goes beyond the four fifths at which it is copied.
        assert (tmp_path / f"{FILE_NAME}-wal").stat().st_size <= 6 * MIB


def test_a_read_transaction_that_lasts_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_threads, "READ_S", 0.01)
    under_way = UnderWay()
    assert under_way.let_end()
    with under_way.one():
        assert not under_way.let_end()
    assert under_way.let_end()


async def test_a_clean_stop_leaves_no_log_and_no_reserve(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await fill(journal, 1)
    assert names(tmp_path) == ["journal.identity", "journal.lock", "journal.sqlite"]


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def test_an_idle_journal_stops_looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum, "_LOOK_MS", 1)
    async with opened(tmp_path) as journal:
        await send(journal, "x")
        await until(lambda: journal._writer._idle_seconds() is None, "nothing is left to do")


@pytest.fixture
def holey(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A writer's connection to a file of which most is free."""
    connection = connect_writer(tmp_path / FILE_NAME, create=True)
    connection.execute("CREATE TABLE filler (body BLOB)")
    connection.executemany("INSERT INTO filler VALUES (zeroblob(1000000))", [()] * 40)
    connection.execute("DELETE FROM filler")
    yield connection
    connection.close()


@pytest.mark.parametrize(("seconds", "ends_at"), [(1.0, 16), (0.0, 170), (0.008, 128)])
def test_a_step_is_as_long_as_its_time(
    holey: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, ends_at: int
) -> None:
    ticks = itertools.count(step=seconds)
    monkeypatch.setattr(vacuum, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    shrinking = Space(holey, tmp_path / FILE_NAME, SystemClock(), SHARES, lambda: True, lambda _place: None)
    for _ in range(4):
        shrinking._step()
    assert shrinking._step_pages == ends_at


def test_one_step_frees_as_many_pages_as_it_says(holey: sqlite3.Connection, tmp_path: Path) -> None:
    """`execute` alone would free a single one."""
    shrinking = Space(holey, tmp_path / FILE_NAME, SystemClock(), SHARES, lambda: True, lambda _place: None)
    before = number(tmp_path, "PRAGMA freelist_count")
    shrinking._step()
    assert before - number(tmp_path, "PRAGMA freelist_count") == 128
    assert number(tmp_path, "PRAGMA auto_vacuum") == 2


@pytest.mark.parametrize("kind", ["posts", "transaction", "bridge"])
@pytest.mark.parametrize("size", [4, 1000, 6000, 9000, 20_000])
async def test_an_address_holds_what_its_messages_take_of_the_file(
    tmp_path: Path, kind: str, size: int
) -> None:
    """IDs, origins, rows and what is left of a page count, too: 5.4 MB were counted once of 36 MiB."""
    count = 200
    body = "x" * size
    async with opened(tmp_path) as journal:
        if kind == "posts":
            for place in range(count):
                await send(journal, body, f"id-{place}")
        elif kind == "transaction":
            await transact(journal, *(submission(body, f"id-{place}") for place in range(count)))
        else:
            end = target(journal)
            await open_stream(end)
            block = pack(
                [encode_message(text(body))] * count,
                origins=tuple((f"journal:0123456789abcdef:a{n % 7}:0", n, n) for n in range(count)),
            )
            await deliver(end, Batch(STREAM, 0, count, ((0, count - 1),), block, block.checksum))
        counted = (await journal.address("orders")).bytes
    taken = number(tmp_path, "SELECT sum(pgsize) FROM dbstat WHERE name IN ('blocks', 'blocks_by_address')")
    assert counted == pytest.approx(taken, rel=0.1, abs=3 * PAGE_BYTES)


async def test_a_page_is_read_as_fast_at_the_start_as_at_the_end(tmp_path: Path) -> None:
    """What is behind a page is not looked at: 80 ms for 100 messages before 60,000 small blocks, once."""
    async with opened(tmp_path) as journal:
        end = target(journal)
        await open_stream(end)
        await deliver(end, *(batch({place: "x"}, upto=place + 1) for place in range(1000)))
        row = await journal.read(find_address, "orders")
        assert row is not None
        steps = []

        def count_steps(connection: sqlite3.Connection, start: int, most: int) -> int:
            steps.append(0)

            def count() -> None:
                steps[-1] += 1

            connection.set_progress_handler(count, 10)
            try:
                return len(find_blocks(connection, row.address_id, start, row.next, 16 * MIB, most))
            finally:
                connection.set_progress_handler(None, 0)

        assert await journal.read(count_steps, 0, 20) == 20
        assert await journal.read(count_steps, 980, 20) == 20
        assert steps[0] < steps[1] * 2
        assert await journal.read(count_steps, 0, 5000) == 1000
        messages = await journal.browse("orders", after=-1, most=100, most_bytes=16 * MIB)
        assert [message.position for message in messages] == list(range(100))
