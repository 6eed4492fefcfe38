"""The file shrinks after its data, the log stays short, and neither is in the way of an answer."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from bridge.clock import SystemClock
from bridge.journal import database, rows, space
from bridge.journal.database import FILE_NAME, connect_reader, connect_writer
from bridge.journal.journal import Journal
from bridge.journal.space import Space
from bridge.journal.units import Told
from tests.integration.journal.helpers import (
    KIB,
    MIB,
    QUEUE,
    acknowledgement,
    browsed,
    check_file,
    consume,
    eventually,
    lease,
    number,
    opened,
    send,
)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at the free list all the time, and keeps little of it."""
    monkeypatch.setattr(space, "_LOOK_MS", 20)
    monkeypatch.setattr(space, "_PAUSE_MS", 1)
    monkeypatch.setattr(space, "SLACK_BYTES", MIB)
    monkeypatch.setattr(space, "CHECKPOINT_BYTES", 2 * MIB)


async def fill(journal: Journal, megabytes: int) -> None:
    await asyncio.gather(*(send(journal, bytes(128 * KIB)) for _ in range(megabytes * 8)))


async def until_file_is_below(directory: Path, size: int) -> None:
    await eventually(lambda: (directory / FILE_NAME).stat().st_size <= size)


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
    monkeypatch.setattr(space, "crash_point", events.append)
    monkeypatch.setattr(rows, "crash_point", events.append)
    monkeypatch.setattr(space, "_STEP_S", 0)  # every step is too long: they become as short as can be
    monkeypatch.setattr(space, "_LEAST_PAGES", 8)
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await fill(journal, 12)
        await consume(journal)
        await eventually(lambda: "journal.before-trim" in events)
        while (tmp_path / FILE_NAME).stat().st_size > 3 * MIB:
            await send(journal, "between", None, "others")
    assert events.count("journal.before-trim") > 5
    first = events.index("journal.before-trim")
    last = len(events) - events[::-1].index("journal.before-trim")
    assert events[first:last].count("journal.after-commit") > 5


async def test_answers_do_not_wait_for_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    monkeypatch.setattr(space, "CHECKPOINT_BYTES", 128 * KIB)
    monkeypatch.setattr(space, "crash_point", events.append)
    monkeypatch.setattr(rows, "crash_point", events.append)
    async with opened(tmp_path) as journal:
        tell = journal._writer._tell

        def told(what: Told) -> None:
            events.append("told")
            tell(what)

        monkeypatch.setattr(journal._writer, "_tell", told)
        events.clear()
        for _ in range(4):
            await send(journal, bytes(64 * KIB))
    assert events.count("journal.before-checkpoint") >= 1
    assert all(
        after == "told" for before, after in itertools.pairwise(events) if before == "journal.after-commit"
    )


async def test_the_log_grows_while_a_reader_stands_in_it_and_is_cut_back_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space, "CHECKPOINT_BYTES", MIB)
    monkeypatch.setattr(database, "WAL_KEEP_BYTES", 2 * MIB)
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


async def test_a_clean_stop_leaves_no_log_and_no_reserve(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await fill(journal, 1)
    assert names(tmp_path) == ["journal.lock", "journal.sqlite"]


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def test_an_idle_journal_stops_looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "_LOOK_MS", 1)
    async with opened(tmp_path) as journal:
        await send(journal, "x")
        await eventually(lambda: journal._writer._idle_seconds() is None)


@pytest.fixture
def holey(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A writer's connection to a file of which most is free."""
    connection = connect_writer(tmp_path / FILE_NAME, create=True)
    connection.execute("CREATE TABLE filler (body BLOB)")
    connection.executemany("INSERT INTO filler VALUES (zeroblob(1000000))", [()] * 40)
    connection.execute("DELETE FROM filler")
    yield connection
    connection.close()


@pytest.mark.parametrize(("seconds", "ends_at"), [(1.0, 16), (0.0, 1024), (0.008, 128)])
def test_a_step_is_as_long_as_its_time(
    holey: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, ends_at: int
) -> None:
    ticks = itertools.count(step=seconds)
    monkeypatch.setattr(space, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    shrinking = Space(holey, tmp_path / FILE_NAME, SystemClock(), 0)
    for _ in range(4):
        shrinking._step()
    assert shrinking._step_pages == ends_at


def test_one_step_frees_as_many_pages_as_it_says(holey: sqlite3.Connection, tmp_path: Path) -> None:
    """`execute` alone would free a single one."""
    shrinking = Space(holey, tmp_path / FILE_NAME, SystemClock(), 0)
    before = shrinking.free_bytes
    shrinking._step()
    assert before - shrinking.free_bytes == 128 * database.PAGE_BYTES
    assert number(tmp_path, "PRAGMA auto_vacuum") == 2
