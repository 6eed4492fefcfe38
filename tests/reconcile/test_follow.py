"""`--follow` says once what comes and once what goes, whatever ends it in between."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dedup.reconcile.alert_log import AlertLog
from dedup.reconcile.alerts import Trouble
from dedup.reconcile.errors import BadInput
from dedup.reconcile.follow import follow
from tests.reconcile.conftest import line, write_log

LATE_AFTER_MS = 60_000
#: When the lines' messages were stored at the source, and when they are late.
EVENT_MS = 1_700_000_000_000
LATER_MS = EVENT_MS + LATE_AFTER_MS + 1


def lost(first: int, last: int) -> Trouble:
    return Trouble("lost", "orders-to-hub", "journal:1:orders:0", "store-1", "orders", None, first, last)


class Killed(Exception):
    """The process ends here."""


class DyingOut(io.StringIO):
    """Takes so many lines; with the next one the process ends."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self._left = lines

    def write(self, text: str) -> int:
        if self._left == 0:
            raise Killed
        self._left -= 1
        return super().write(text)


class Watcher:
    """Starts `follow` again and again with one checkpoint; each time it takes what is there."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self.logs = directory / "logs"
        self.logs.mkdir()
        self.checkpoint = directory / "checkpoint"

    def alert_log(self, out: io.StringIO) -> AlertLog:
        return AlertLog(self._spark, f"{self.checkpoint}/alerts", [str(self.logs)], out)

    def look(self) -> list[tuple[str, str, list[int] | None]]:
        """What is said then: alert, state, positions or ID."""
        out = io.StringIO()
        follow(
            self._spark, [str(self.logs)], late_after_ms=LATE_AFTER_MS, checkpoint=str(self.checkpoint),
            out=out, is_endless=False, now_ms=lambda: LATER_MS,
        )  # fmt: skip
        return [said(json.loads(text)) for text in out.getvalue().splitlines()]


def said(alert: dict[str, Any]) -> tuple[str, str, list[int] | None]:
    return alert["alert"], alert["state"], alert["positions"] or alert["id"]


@pytest.fixture
def watcher(spark: SparkSession, tmp_path: Path) -> Watcher:
    return Watcher(spark, tmp_path)


def test_what_stays_open_is_raised_when_it_is_late_and_resolved_when_it_arrives(watcher: Watcher) -> None:
    # Nothing is there yet, but an alert that was saved when the process ended; it is over.
    with pytest.raises(Killed):
        watcher.alert_log(DyingOut(0)).say([lost(0, 3)], batch=0, now_ms=0)
    assert watcher.look() == [("lost", "raised", [0, 3]), ("lost", "resolved", [0, 3])]
    fresh = line("sent", 20, 30, events=[LATER_MS - 1_000, LATER_MS])
    write_log(watcher.logs, [line("sent", 0, 10), line("sent", 10, 20), fresh], node="eu")
    growing = write_log(watcher.logs, [line("received", 0, 10)], suffix=".jsonl.open")
    assert watcher.look() == [("late", "raised", [10, 19])]
    # The file that is being written grows; then its node completes it.
    with growing.open("a") as file:
        file.write("\n" + json.dumps(line("received", 10, 20, runs=[[10, 14], [16, 19]])) + "\n")
    assert watcher.look() == [("lost", "raised", [15, 15]), ("late", "resolved", [10, 19])]
    growing.rename(growing.with_suffix(""))
    assert watcher.look() == []


def test_what_a_store_has_lost_is_late_and_compressed_files_are_read(watcher: Watcher) -> None:
    write_log(watcher.logs, [line("sent", 0, 20), line("sent", 20, 30, store="other/1")], node="eu")
    plain = write_log(watcher.logs.parent, [line("received", 0, 10)])
    (watcher.logs / f"{plain.name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
    # The bridge has gone on at another store, whose log is not there: what that one has is not late, but
    # unknown.
    assert watcher.look() == [("late", "raised", [10, 19])]


def test_a_file_that_is_no_log_is_named(watcher: Watcher) -> None:
    path = write_log(watcher.logs, ['{"v":2}'])
    with pytest.raises(BadInput, match=f"{path.name}: line 1"):
        watcher.look()


def numbers(out: io.StringIO) -> list[int]:
    return [json.loads(text)["number"] for text in out.getvalue().splitlines()]


def test_alerts_that_a_crash_kept_from_being_written_are_written_at_the_next_start(
    spark: SparkSession, tmp_path: Path
) -> None:
    place, logs = str(tmp_path), ["logs"]
    dying = DyingOut(1)
    with pytest.raises(Killed):
        AlertLog(spark, place, logs, dying).say([lost(0, 3), lost(8, 9)], batch=0, now_ms=0)
    again = io.StringIO()
    log = AlertLog(spark, place, logs, again)
    log.say_again()
    assert (numbers(dying), numbers(again)) == ([1], [1, 2])
    # What was written is not written again, and the numbers go on.
    after = io.StringIO()
    log = AlertLog(spark, place, logs, after)
    log.say_again()
    log.say([lost(8, 9)], batch=1, now_ms=0)
    assert numbers(after) == [3]


def test_a_checkpoint_of_other_logs_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    AlertLog(spark, str(tmp_path), ["logs"], io.StringIO()).say([lost(0, 3)], batch=0, now_ms=0)
    with pytest.raises(BadInput, match="this checkpoint follows logs; found others"):
        AlertLog(spark, str(tmp_path), ["others"], io.StringIO())


FOLLOW = """
import sys
from dedup.reconcile.follow import follow
from dedup.reconcile.session import session
spark = session("local[1]", "follow")
spark.conf.set("spark.sql.shuffle.partitions", "1")
follow(spark, [sys.argv[1]], late_after_ms=10**13, checkpoint=sys.argv[2], out=sys.stdout)
"""


@pytest.mark.spark_long
def test_a_ctrl_c_ends_it_quietly_in_the_middle_of_a_batch(watcher: Watcher, tmp_path: Path) -> None:
    write_log(watcher.logs, [line("sent", 0, 10)], node="eu")
    write_log(watcher.logs, [line("received", 0, 10, runs=[[0, 3], [5, 9]])])
    arguments: list[str | Path] = [
        "reconcile",
        "--logs",
        watcher.logs,
        "--output",
        tmp_path / "watch",
        "--follow",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "bridge", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["alert"] == "lost"
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to Java, too
        _, told = process.communicate(timeout=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 130
    assert [text for text in told.splitlines() if not text.startswith("WARNING: Using incubator")] == []


@pytest.mark.spark_long
def test_after_a_kill_it_goes_on_where_it_was(watcher: Watcher) -> None:
    write_log(watcher.logs, [line("sent", 0, 10)], node="eu")
    write_log(watcher.logs, [line("received", 0, 10, runs=[[0, 3], [5, 9]])])
    process = subprocess.Popen(
        [sys.executable, "-c", FOLLOW, str(watcher.logs), str(watcher.checkpoint)],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert said(first) == ("lost", "raised", [4, 4])
        write_log(watcher.logs, [line("sent", 10, 20)], node="eu", number=2)
        write_log(watcher.logs, [line("received", 10, 20, runs=[[10, 18]])], number=2)
        second = json.loads(process.stdout.readline())
    finally:
        # With the Java process that it started.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert (second["number"], said(second)) == (2, ("lost", "raised", [19, 19]))
    write_log(watcher.logs, [line("sent", 20, 30)], node="eu", number=3)
    write_log(watcher.logs, [line("received", 20, 30, runs=[[20, 27]])], number=3)
    new = watcher.look()
    assert [each for each in new if each != said(second)] == [("lost", "raised", [28, 29])]
