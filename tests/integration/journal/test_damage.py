"""What cannot be opened or read is said clearly, and left as it is."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bridge.errors import JournalDamaged, JournalFailed
from bridge.journal.journal import Journal
from bridge.journal.sqlite import reader
from bridge.journal.sqlite.database import FILE_NAME, SCHEMA_VERSION
from bridge.journal.values.options import JournalOptions
from bridge.journal.values.stored_block import PAGE_BYTES
from tests.harness.eventually import until
from tests.integration.journal.helpers import (
    KIB,
    PATIENCE_S,
    QUEUE,
    alter_queues,
    browsed,
    consume,
    opened,
    send,
    submission,
    transact,
)

ROOT = Path(__file__).parents[3]
NOBODY = 65534


def damage(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


async def filled(directory: Path) -> Path:
    """A journal of some pages; answers its file."""
    async with opened(directory) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        for place in range(40):
            await send(journal, str(place) + "." * 20 * KIB, f"id-{place}")
    return directory / FILE_NAME


def message_page(path: Path) -> int:
    """Where the page is on which a block in the middle begins."""
    return path.read_bytes().index(b"15" + b"." * 100) // PAGE_BYTES * PAGE_BYTES


def broken_header(path: Path) -> None:
    damage(path, 0, b"not a database at all")


def broken_schema_page(path: Path) -> None:
    damage(path, 100, b"\xff" * 400)


def broken_small_tables(path: Path) -> None:
    damage(path, PAGE_BYTES, b"\xff" * (PAGE_BYTES * 12))


def truncated(path: Path) -> None:
    os.truncate(path, PAGE_BYTES + 100)


def one_of_another_program(path: Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE customers (name TEXT)")
    connection.close()


def cursor_of_garbage(path: Path) -> None:
    alter_queues(path.parent, "cursor = x'c1c1c1'")


@pytest.mark.parametrize(
    "harm",
    [
        broken_header,
        broken_schema_page,
        broken_small_tables,
        truncated,
        one_of_another_program,
        cursor_of_garbage,
    ],
)
async def test_a_damaged_file_is_refused_by_name_and_left_as_it_is(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    path = await filled(tmp_path)
    harm(path)
    before = hashlib.sha256(path.read_bytes()).digest()
    for _ in range(2):  # the lock is free again after the first
        with pytest.raises(JournalFailed) as caught:
            await Journal.open(JournalOptions(tmp_path))
        assert str(path) in caught.value.detail
        assert "damaged" in caught.value.detail or "not a journal" in caught.value.detail
    assert hashlib.sha256(path.read_bytes()).digest() == before


async def test_a_file_of_a_later_version_is_refused_with_both_versions(tmp_path: Path) -> None:
    path = await filled(tmp_path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
    connection.commit()
    connection.close()
    with pytest.raises(JournalFailed) as caught:
        await Journal.open(JournalOptions(tmp_path))
    assert (caught.value.found, caught.value.limit) == (99, SCHEMA_VERSION)


async def test_a_damaged_page_of_messages_is_said_to_who_reads_it_and_the_rest_goes_on(
    tmp_path: Path,
) -> None:
    path = await filled(tmp_path)
    damage(path, message_page(path), b"\xff" * 64)
    async with opened(tmp_path) as journal:
        with pytest.raises(JournalDamaged, match=r"orders: positions 15 to 15 cannot be read"):
            await consume(journal)
        assert (await send(journal, "new", None, "elsewhere")).stored
        assert await browsed(journal, "elsewhere") == ["new"]
        assert (await asyncio.wait_for(send(journal, "new", "id-1"), PATIENCE_S)).stored is False


async def test_blocks_that_cannot_be_deleted_do_not_stop_what_comes(tmp_path: Path) -> None:
    """Trimming walks over the damaged page again and again: alone, after the first time."""
    path = await filled(tmp_path)
    damage(path, message_page(path), b"\xff" * 64)
    async with opened(tmp_path) as journal:
        await journal.delete_address("orders")
        await until(lambda: bool(journal.damaged), "trimming has met the page")
        for place in range(5):
            await transact(journal, submission(str(place), None, "elsewhere"))
        assert await browsed(journal, "elsewhere") == list("01234")


# -- the directory -------------------------------------------------------------------------------------


async def test_a_second_journal_on_the_directory_is_told_who_has_it(tmp_path: Path) -> None:
    """R23: one process at a time runs a node's bridges."""
    async with opened(tmp_path):
        with pytest.raises(JournalFailed, match=f"in use by another process .pid {os.getpid()}."):
            await Journal.open(JournalOptions(tmp_path))
    async with opened(tmp_path) as journal:
        assert (await send(journal, "x")).stored


_OPEN = """
import asyncio, json, os, sys
from pathlib import Path
from bridge.errors import JournalFailed
from bridge.journal.journal import Journal
from bridge.journal.values.options import JournalOptions

async def main():
    try:
        journal = await Journal.open(JournalOptions(Path(sys.argv[1])))
    except JournalFailed as error:
        print(json.dumps([error.detail, str(error.found)]))
    else:
        await journal.close()
        print(json.dumps(["opened", ""]))

import tests.integration.journal.helpers  # everything is imported before rights are given up
import bridge.delivery_log, importlib.resources
importlib.resources.files("bridge.journal.sqlite").joinpath("schema.sql").read_text()
if os.getuid() == 0 and len(sys.argv) > 2:
    os.setgroups([])
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
asyncio.run(main())
"""


async def open_in_another_process(directory: Path, *arguments: str) -> list[str]:
    """What opening says; run as nobody where this is root, because root may write anywhere."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _OPEN, str(directory), *arguments, cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    output, errors = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == 0, errors.decode()
    answer: list[str] = json.loads(output)
    return answer


@pytest.mark.processes
async def test_a_second_process_is_told_who_has_the_directory(tmp_path: Path) -> None:
    async with opened(tmp_path):
        detail, found = await open_in_another_process(tmp_path)
    assert f"in use by another process (pid {os.getpid()})" in detail
    assert found == str(tmp_path)


@pytest.fixture
def public_directory() -> Iterator[Path]:
    """A directory that another user can reach, which pytest's own is not."""
    directory = Path(tempfile.mkdtemp(prefix="journal-"))
    directory.chmod(0o755)
    data = directory / "data"
    data.mkdir()
    try:
        yield data
    finally:
        data.chmod(0o755)
        shutil.rmtree(directory)


def make_read_only(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()
    directory.chmod(0o555)


def hand_over(*paths: Path) -> None:
    if os.getuid() == 0:
        for path in paths:
            os.chown(path, NOBODY, NOBODY)


@pytest.mark.processes
async def test_a_directory_that_cannot_be_written_is_named(public_directory: Path) -> None:
    hand_over(public_directory)
    assert await open_in_another_process(public_directory, str(NOBODY)) == ["opened", ""]
    make_read_only(public_directory)
    detail, found = await open_in_another_process(public_directory, str(NOBODY))
    assert detail == f"cannot write in the data directory {public_directory}: Permission denied"
    assert found == str(public_directory)


@pytest.mark.processes
async def test_a_journal_file_that_cannot_be_written_is_named(public_directory: Path) -> None:
    path = await filled(public_directory)
    hand_over(public_directory, *sorted(public_directory.glob("*")))  # noqa: ASYNC240
    path.chmod(0o444)
    detail, found = await open_in_another_process(public_directory, str(NOBODY))
    assert f"the journal {path} cannot be written" in detail
    assert found == str(path)
    path.chmod(0o644)
    assert await open_in_another_process(public_directory, str(NOBODY)) == ["opened", ""]


async def test_a_data_directory_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("something else")
    with pytest.raises(
        JournalFailed, match=r"cannot write in the data directory .*: it is a file; move it away"
    ):
        await Journal.open(JournalOptions(tmp_path / "data"))
    with pytest.raises(JournalFailed, match="Not a directory"):
        await Journal.open(JournalOptions(tmp_path / "data" / "below"))


async def test_messages_that_come_between_two_looks_are_no_damage(tmp_path: Path) -> None:
    """A browse looks where the address ends, and reads in another transaction."""
    async with opened(tmp_path) as journal:
        await send(journal, "a")
        row = await journal._row("orders")
        await send(journal, "b")
        assert await journal.look(reader.find_blocks, row.address_id, row.next, row.next, 1000) == []
        assert not journal.damaged
