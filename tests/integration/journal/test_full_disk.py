"""A disk that is really full: nothing stored is lost, readers go on, and so does all when there is room."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import DiskFull, JournalFailed
from bridge.journal import journal as journal_module
from bridge.journal.journal import Journal
from bridge.journal.sqlite import database, reserve
from bridge.journal.sqlite.database import FILE_NAME
from bridge.journal.sqlite.log_file import LogFile
from bridge.journal.sqlite.reserve import Reserve, Shares
from bridge.journal.values.store import Committed
from bridge.journal.values.stored_block import PAGE_BYTES
from bridge.journal.writer import disk_full, opening
from tests.integration.journal.failing import FailingConnection, once, sqlite_error
from tests.integration.journal.helpers import (
    MIB,
    PATIENCE_S,
    QUEUE,
    ManualClock,
    browsed,
    consume,
    opened,
    options,
    send,
    send_all,
)

ROOT = Path(__file__).parents[3]
DRIVER = "tests.integration.journal.full_disk_driver"
#: Mounts a small disk where nobody else sees it, and runs a command: for root, and users where they may.
SMALL_DISK = 'mount -t tmpfs -o size=40m tmpfs "$0" && head -c 12000000 /dev/zero > "$0/filler" && exec "$@"'


@pytest.fixture(autouse=True)
def small_disk() -> None:
    """Here the disk is as large as it is."""


def in_small_disk(directory: Path) -> list[str]:
    return ["unshare", "--mount", "--map-root-user", "sh", "-c", SMALL_DISK, str(directory)]


def can_mount() -> bool:
    try:
        command = [*in_small_disk(Path("/tmp")), "true"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


async def run_driver(command: list[str], directory: Path, limit: int) -> dict[str, Any]:
    """What the driver said, all together."""
    process = await asyncio.create_subprocess_exec(
        *command, sys.executable, "-m", DRIVER, str(directory), str(limit),
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    output, errors = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == 0, errors.decode()
    return {key: value for line in output.splitlines() for key, value in json.loads(line).items()}


#: A limit on file sizes is a full disk to SQLite, too, and works everywhere.
KINDS = ["file-size-limit", *(["small-disk"] if can_mount() else [])]


@pytest.mark.processes
@pytest.mark.parametrize("kind", KINDS)
async def test_a_full_disk_is_said_survived_and_left_by_itself(tmp_path: Path, kind: str) -> None:
    if kind == "small-disk":
        said = await run_driver(in_small_disk(tmp_path), tmp_path / "data", 0)
    else:
        said = await run_driver([], tmp_path / "data", 48 * MIB)
    assert said["code"] == "DISK_FULL"
    assert "no room on the disk of the journal" in said["detail"]
    assert str(tmp_path) not in said["detail"], "paths are for operators"
    assert said["stored"] > 50
    assert said["browsed"] >= said["stored"]
    assert said["read"] >= said["stored"] // 2
    assert said["in_order"]
    assert said["seconds"] < 5
    assert not said["disk_full"]
    assert said["kept"]


@pytest.mark.parametrize(
    ("disk_mib", "reserve_mib", "log_mib"),
    [(40, 4, 6.67), (320, 10, 16.67), (1024, 24, 40), (1 << 20, 24, 40)],
)
def test_small_disks_keep_less_aside(disk_mib: int, reserve_mib: float, log_mib: float) -> None:
    shares = Shares.of(disk_mib * MIB)
    assert shares.reserve == reserve_mib * MIB
    assert shares.log / MIB == pytest.approx(log_mib, abs=0.01)
    assert shares.checkpoint < shares.reserve


def test_the_reserve_is_there_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [160 * MIB]
    monkeypatch.setattr(reserve, "free_bytes", lambda _directory: free[0])
    kept = Reserve(tmp_path)
    path = tmp_path / reserve.FILE_NAME
    assert not kept.is_allocated
    assert kept.ensure()
    assert path.stat().st_size == kept.shares.reserve
    assert kept.release()
    assert not path.exists()
    assert not kept.release()
    free[0] = kept.shares.reserve - 1
    assert not kept.ensure()
    assert not path.exists()


def test_what_a_killed_process_kept_aside_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Reserve(tmp_path).ensure()
    monkeypatch.setattr(reserve, "free_bytes", lambda _directory: 0)
    assert Reserve(tmp_path).is_allocated
    os.truncate(tmp_path / reserve.FILE_NAME, MIB)  # of an earlier version
    assert not Reserve(tmp_path).ensure()


@pytest.mark.parametrize(("number", "is_allocated"), [(errno.EOPNOTSUPP, True), (errno.ENOSPC, False)])
def test_a_file_system_that_cannot_allocate_is_not_a_full_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_allocated: bool
) -> None:
    def refuse(_descriptor: int, _offset: int, _size: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    assert Reserve(tmp_path).ensure() is is_allocated
    monkeypatch.delattr(os, "posix_fallocate")
    assert Reserve(tmp_path).ensure()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Says how much is free on the disk, which has room for the reserve."""

    def say(free: int) -> None:
        monkeypatch.setattr(disk_full, "free_bytes", lambda _directory: free)

    return say


async def test_a_journal_opened_on_a_full_disk_takes_no_messages_and_is_read(
    tmp_path: Path, disk: Callable[[int], None]
) -> None:
    clock = ManualClock()
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send_all(journal, ["a", "b"])
    disk(MIB)
    async with opened(options(tmp_path, call_timeout_ms=0), clock) as journal:
        assert journal.disk_full
        with pytest.raises(DiskFull, match="kept for reading"):
            await send(journal, "c")
        assert await consume(journal) == ["a", "b"]
        assert not journal.standstill
        disk(1024 * MIB)
        clock.advance(1000)
        await send(journal, "d")
        assert not journal.disk_full


async def test_a_message_too_large_for_what_is_left_waits_alone(
    tmp_path: Path, disk: Callable[[int], None]
) -> None:
    async with opened(options(tmp_path, call_timeout_ms=0)) as journal:
        await send(journal, "before")
        journal._writer._room._believed_until_ms = 0
        disk(12 * MIB)
        large, small = await asyncio.gather(
            send(journal, bytes(60 * MIB)), send(journal, "small"), return_exceptions=True
        )
        assert isinstance(large, DiskFull), large
        assert "too much for what is left" in large.detail
        assert isinstance(small, Committed), small
        assert not journal.disk_full


async def test_the_disk_is_full_before_the_last_of_it_is_taken(
    tmp_path: Path, disk: Callable[[int], None]
) -> None:
    async with opened(options(tmp_path, call_timeout_ms=0)) as journal:
        await send(journal, "before")
        journal._writer._room._believed_until_ms = 0
        disk(MIB)
        with pytest.raises(DiskFull):
            await send(journal, "x")
        assert journal.disk_full
        assert await browsed(journal) == ["before"]


async def test_others_that_take_the_rest_of_a_full_disk_leave_the_reserve(
    tmp_path: Path, disk: Callable[[int], None]
) -> None:
    """The log can be copied with what was kept aside, and reading goes on."""
    disk(MIB)
    clock = ManualClock()
    async with opened(options(tmp_path, call_timeout_ms=0), clock) as journal:
        assert journal.disk_full
        kept, space = journal._writer._room, journal._writer._space
        assert (tmp_path / reserve.FILE_NAME).exists()
        full = once("PRAGMA wal_checkpoint", sqlite3.SQLITE_FULL)
        space._connection = FailingConnection(space._connection, full)  # type: ignore[assignment]
        space._message_bytes = kept.shares.checkpoint
        assert await journal.create_queue("orders", QUEUE, "earliest")
        await journal.create_queue("orders", "other", "earliest")  # behind the turn that copied the log
        assert not (tmp_path / reserve.FILE_NAME).exists()
        assert space.stuck is None
        assert journal.disk_full
        disk(1024 * MIB)
        clock.advance(1000)
        await send(journal, "x")
        assert (tmp_path / reserve.FILE_NAME).exists()


async def test_how_much_of_the_log_is_in_use_is_what_sqlite_says(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        space = journal._writer._space
        log = LogFile(tmp_path / FILE_NAME, PAGE_BYTES)
        for _ in range(3):
            await send_all(journal, ["x" * 40_000] * 20, map(str, range(20)))
            reader = database.connect_reader(tmp_path / FILE_NAME)
            _, frames, _ = reader.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            reader.close()
            assert log.used() == frames * (PAGE_BYTES + 24) + 32
            assert space._log_bytes >= log.used()
            assert log.size >= 40 * MIB
            space.checkpoint()
            await journal.clear_id_cache("orders")


def test_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    log = LogFile(tmp_path / FILE_NAME, PAGE_BYTES)
    assert (log.size, log.used()) == (0, 0)
    assert log.ensure(1), "there is room for it, once a commit has made it"
    assert not log.ensure(1 << 60)
    log._path.write_bytes(bytes(1000))
    assert log.used() == 0
    assert log.ensure(1)


async def test_an_opening_without_room_gives_up_the_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def cannot_grow(path: Path, *rest: Any) -> Any:
        tries.append(Reserve(path.parent).is_allocated)
        if tries[-1]:
            raise database.open_failure(path, sqlite_error(sqlite3.SQLITE_FULL))
        return opening.prepare(path, *rest)

    assert Reserve(tmp_path).ensure()
    monkeypatch.setattr(journal_module, "prepare", cannot_grow)
    async with opened(tmp_path) as journal:
        await send(journal, "x")
    assert tries == [True, False]
    monkeypatch.setattr(reserve.Reserve, "release", lambda _self: False)
    assert Reserve(tmp_path).ensure()
    with pytest.raises(JournalFailed, match="cannot grow; make room on its disk"):
        await Journal.open(options(tmp_path))
