"""The delivery log's copier, where the journal fails for a moment."""

from __future__ import annotations

import errno
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from bridge.delivery_log import LogThread, SegmentLimits, SegmentWriter, log_thread
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
        copier = OutboxCopier(journal, LogThread(segments(directory)))
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
        copier = OutboxCopier(journal, LogThread(segments(tmp_path / "log")))
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
        copier = OutboxCopier(journal, LogThread(files))
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


async def test_a_stop_does_not_wait_for_a_volume_that_hangs_and_the_next_start_writes_the_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: LogCapture
) -> None:
    """The loop goes on meanwhile, and threads that others wait in are free."""
    monkeypatch.setattr(outbox, "STOP_S", 0.2)
    monkeypatch.setattr(log_thread, "PATIENCE_S", 0.05)
    directory, answers = tmp_path / "log", threading.Event()
    async with opened(tmp_path / "data") as journal:
        files = segments(directory)
        copier = OutboxCopier(journal, LogThread(files))
        await copier.start()
        write = files.write
        hanging = threading.Event()

        def hang(lines: Sequence[bytes]) -> None:
            hanging.set()
            answers.wait()
            write(lines)

        files.write = hang  # type: ignore[method-assign]
        await send(journal, "m0")
        await until(hanging.is_set, "it hangs")
        await send(journal, "m1")
        await until(lambda: bool(waits(log)), "that was logged")
        assert waits(log) == [f"{directory} has not answered for 0.05 s"]
        await copier.stop()
        assert "the next start writes the rest" in waits(log)[-1]
        answers.set()
        again = OutboxCopier(journal, LogThread(files))
        files.write = write  # type: ignore[method-assign]
        await again.start()
        await until(lambda: len(set(lines(directory))) == 2, "both lines are there")
        await again.stop()


def waits(log: LogCapture) -> list[str]:
    return [entry["reason"] for entry in log.entries if entry["event"] == "delivery-log-waits"]


def _no_space(lines: Sequence[bytes]) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
