"""The delivery log's copier, where the journal fails for a moment."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from bridge.delivery_log import SegmentLimits, SegmentWriter
from bridge.node import outbox
from bridge.node.outbox import OutboxCopier
from tests.harness.eventually import until
from tests.integration.journal.failing import caught_up, fail_with, once
from tests.integration.journal.helpers import opened, send


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "GATHER_S", 0.01)
    monkeypatch.setattr(outbox, "TICK_S", 0.05)


def segments(directory: Path) -> SegmentWriter:
    return SegmentWriter(
        directory,
        "node",
        SegmentLimits(roll_interval_ms=60_000),
        last_number=directory.parent / "delivery-log.number",
    )


def lines(directory: Path) -> list[bytes]:
    return [line for path in sorted(directory.glob("*.jsonl*")) for line in path.read_bytes().splitlines()]


async def test_copier_goes_on_after_the_journal_failed_for_a_moment(tmp_path: Path) -> None:
    """Design 7: every line reaches its segment, though one answer of the journal was 'unknown'."""
    directory = tmp_path / "log"
    async with opened(tmp_path / "data") as journal:
        copier = OutboxCopier(journal, segments(directory))
        await copier.start()
        fail_with(journal, once("DELETE FROM outbox", sqlite3.SQLITE_IOERR))
        await send(journal, "m0")
        await until(lambda: copier.failing, "the copier has failed")
        await caught_up(journal)
        await send(journal, "m1")
        await until(lambda: len(lines(directory)) >= 2, "two lines are copied")
        await copier.stop()
        assert len(lines(directory)) == 2


async def test_copier_stops_cleanly_though_the_journal_failed(tmp_path: Path) -> None:
    """A shutdown whose log cannot be emptied still closes the journal (`Node.stop` calls both)."""
    async with opened(tmp_path / "data") as journal:
        copier = OutboxCopier(journal, segments(tmp_path / "log"))
        await copier.start()
        fail_with(journal, once("DELETE FROM outbox", sqlite3.SQLITE_IOERR))
        await send(journal, "m0")
        await until(lambda: copier.failing, "the copier has failed")
        await copier.stop()
        assert len(lines(tmp_path / "log")) == 1


async def test_lines_wait_while_their_files_cannot_be_written(tmp_path: Path) -> None:
    """In the journal, where the disk is their limit; senders go on, and no line is lost."""
    directory = tmp_path / "log"
    async with opened(tmp_path / "data") as journal:
        files = segments(directory)
        copier = OutboxCopier(journal, files)
        await copier.start()
        write, files.write = files.write, _no_space  # type: ignore[method-assign]
        for number in range(5):
            await send(journal, f"m{number}")
        await until(lambda: copier.failing, "the copier has failed")
        assert lines(directory) == []
        assert len(await journal.lines(0, 10, 1 << 20)) == 5
        files.write = write  # type: ignore[method-assign]
        await until(lambda: len(lines(directory)) == 5, "all lines are copied")
        await caught_up(journal)
        await copier.stop()


def _no_space(lines: Sequence[bytes]) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
