"""A used directory never starts empty, or at an earlier state, without a word."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.errors import JournalDamaged
from bridge.journal.journal import Journal
from bridge.journal.sqlite import identity_file
from bridge.journal.sqlite.database import FILE_NAME
from bridge.journal.sqlite.identity_file import forget_reached, read_reached
from bridge.journal.values.options import JournalOptions
from tests.fakes.backup import copy_journal
from tests.integration.journal.helpers import (
    KIB,
    QUEUE,
    acknowledgement,
    browsed,
    consume,
    lease,
    number,
    opened,
    send,
    send_all,
)

WAL = f"{FILE_NAME}-wal"
SENT = [f"{place}." + "." * 20 * KIB for place in range(20)]


async def killed(directory: Path) -> Path:
    """The files of a node that was killed after 20 messages; the log has the last 10 of them."""
    async with opened(directory / "running") as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send_all(journal, SENT[:10])
        journal._writer._space.checkpoint()
        await send_all(journal, SENT[10:])
        shutil.copytree(directory / "running", directory / "killed")
    return directory / "killed"


async def closed(directory: Path) -> Path:
    """The files of a node that was stopped after 20 messages."""
    async with opened(directory / "stopped") as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send_all(journal, SENT)
    return directory / "stopped"


def empty_the_file(directory: Path) -> None:
    (directory / FILE_NAME).write_bytes(b"")


def remove_the_file(directory: Path) -> None:
    (directory / FILE_NAME).unlink()


def remove_all_but_the_lock(directory: Path) -> None:
    for path in directory.glob("journal.sqlite*"):
        path.unlink()


def remove_the_log(directory: Path) -> None:
    (directory / WAL).unlink()


def remove_the_log_and_its_index(directory: Path) -> None:
    for path in directory.glob("journal.sqlite-*"):
        path.unlink()


def empty_the_log(directory: Path) -> None:
    (directory / WAL).write_bytes(b"")


def garble_the_logs_header(directory: Path) -> None:
    with (directory / WAL).open("r+b") as file:
        file.seek(8)
        file.write(b"\xff" * 8)


def garble_the_log_within(directory: Path) -> None:
    with (directory / WAL).open("r+b") as file:
        file.seek(32 + 3 * (16384 + 24) + 1000)
        file.write(b"\xff" * 100)


@pytest.mark.parametrize(
    "harm",
    [
        empty_the_file,
        remove_the_file,
        remove_all_but_the_lock,
        remove_the_log,
        remove_the_log_and_its_index,
        empty_the_log,
        garble_the_logs_header,
        garble_the_log_within,
    ],
)
async def test_a_killed_journal_that_lacks_commits_is_refused_until_that_is_accepted(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    directory = await killed(tmp_path)
    harm(directory)
    for _ in range(2):
        with pytest.raises(JournalDamaged, match="core-bridge journal accept-loss") as caught:
            await Journal.open(JournalOptions(directory))
        assert FILE_NAME in caught.value.detail
    forget_reached(directory)
    async with opened(directory) as journal:
        assert (await send(journal, "new")).stored


@pytest.mark.parametrize("harm", [empty_the_file, remove_the_file, remove_all_but_the_lock])
async def test_a_stopped_journal_that_was_emptied_is_refused(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    directory = await closed(tmp_path)
    harm(directory)
    with pytest.raises(JournalDamaged, match="it held positions up to 20"):
        await Journal.open(JournalOptions(directory))


async def test_a_kill_and_a_stop_lack_nothing(tmp_path: Path) -> None:
    for directory in (await killed(tmp_path), await closed(tmp_path)):
        for _ in range(2):
            async with opened(directory) as journal:
                assert await browsed(journal) == SENT
                assert not (await send(journal, "again", SENT[15])).stored


@pytest.mark.parametrize("name", [f"{FILE_NAME}-shm"])
async def test_the_logs_index_is_made_anew(tmp_path: Path, name: str) -> None:
    directory = await killed(tmp_path)
    (directory / name).write_bytes(b"\xff" * 32768)
    async with opened(directory) as journal:
        assert await browsed(journal) == SENT


async def test_acknowledgements_that_a_removed_log_held_are_missed(tmp_path: Path) -> None:
    """They move no position."""
    async with opened(tmp_path / "running") as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send_all(journal, SENT)
        journal._writer._space.checkpoint()
        await journal.acknowledge(acknowledgement(await lease(journal)))
        shutil.copytree(tmp_path / "running", tmp_path / "killed")
    remove_the_log(tmp_path / "killed")
    with pytest.raises(JournalDamaged, match="what readers have leased or acknowledged since"):
        await Journal.open(JournalOptions(tmp_path / "killed"))


async def test_an_older_file_put_back_alone_is_refused_and_a_whole_backup_opens(tmp_path: Path) -> None:
    directory = await closed(tmp_path)
    shutil.copytree(directory, tmp_path / "backup")
    async with opened(directory) as journal:
        await send(journal, "after the backup", "after")
    shutil.copy(tmp_path / "backup" / FILE_NAME, directory)
    with pytest.raises(JournalDamaged, match="ends at position 20, and had come to 21"):
        await Journal.open(JournalOptions(directory))
    shutil.rmtree(directory)
    shutil.copytree(tmp_path / "backup", directory)
    async with opened(directory) as journal:
        assert await browsed(journal) == SENT


async def test_another_nodes_file_is_refused(tmp_path: Path) -> None:
    directory = await closed(tmp_path)
    async with opened(tmp_path / "other") as journal:
        await send_all(journal, SENT * 2, map(str, range(40)))
    shutil.copy(tmp_path / "other" / FILE_NAME, directory)
    with pytest.raises(JournalDamaged, match="is another node's"):
        await Journal.open(JournalOptions(directory))


async def test_a_copy_without_the_identity_file_opens_and_gets_one(tmp_path: Path) -> None:
    async with opened(tmp_path / "first") as journal:
        await send_all(journal, SENT)
        copy_journal(tmp_path / "first", tmp_path / "copy")
    assert read_reached(tmp_path / "copy") is None
    async with opened(tmp_path / "copy") as journal:
        assert await browsed(journal) == SENT
    reached = read_reached(tmp_path / "copy")
    assert reached is not None
    assert reached.sequence == 20


@pytest.mark.parametrize("content", [b"", b"core-bridge journal 1 x 1 1 1 1 00000000\n", b"\xff" * 100])
async def test_an_identity_file_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes) -> None:
    directory = await closed(tmp_path)
    (directory / identity_file.FILE_NAME).write_bytes(content)
    with pytest.raises(JournalDamaged, match=r"journal\.identity is damaged"):
        await Journal.open(JournalOptions(directory))


async def test_a_log_that_sqlite_has_copied_and_removed_is_no_loss(tmp_path: Path) -> None:
    """As when someone looks into a killed node's file with `sqlite3`."""
    directory = await killed(tmp_path)
    assert number(directory, "SELECT count(*) FROM blocks") == 20
    assert not (directory / WAL).exists()
    async with opened(directory) as journal:
        assert await consume(journal) == SENT


async def test_a_queue_that_is_gone_is_no_loss(tmp_path: Path) -> None:
    async with opened(tmp_path / "running") as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await journal.delete_queue("orders", QUEUE)
        shutil.copytree(tmp_path / "running", tmp_path / "killed")
    async with opened(tmp_path / "killed") as journal:
        assert (await send(journal, "x")).stored


async def test_a_journal_goes_on_where_its_identity_file_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(identity_file, "opener", refuse)
    async with opened(tmp_path) as journal:
        assert (await send(journal, "x")).stored
    assert read_reached(tmp_path) is None
