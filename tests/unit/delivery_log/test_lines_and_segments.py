"""Delivery-log lines byte for byte, and their files through crashes, full disks and time."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import resource
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from bridge import delivery_log
from bridge.delivery_log import LineWriter, SegmentLimits, SegmentWriter
from bridge.delivery_log.segments import AGED_PER_TICK
from bridge.errors import DeliveryLogFailed
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.block import FreshBlock
from bridge.messages.message import Message
from bridge.runtime import fault_injection, logs
from bridge.runtime.file_lock import LockHeld

#: 2013-01-01T05:17:00Z.
START_MS = 1_357_017_420_000


WRITER = LineWriter(node="edge", node_id="4f1c", bridge="orders-to-hub", lane=0, target="hub", store="77aa:1")


def a_line(*, bridge: str | None = "orders-to-hub", **changed: Any) -> bytes:
    writer = msgspec.structs.replace(WRITER, bridge=bridge)
    values: dict[str, Any] = {
        "side": "sent",
        "stream": "journal:4f1c:orders:0",
        "address": "orders",
        "from_": 0,
        "upto": 122,
        "runs": ((0, 99), (101, 120)),
        "refused": (100,),
        "ids": [(17, b"2013-01-01T10:00:00Z/UA/1545")],
        "events": (START_MS, START_MS + 5),
        "committed": START_MS + 9,
        "duplicates": 3,
        "recovered": False,
    }
    return delivery_log.Line(writer=writer, **(values | changed)).encode()


def test_a_line_is_the_contracts_byte_for_byte() -> None:
    assert a_line() == (
        b'{"v":1,"side":"sent","node":"edge","node-id":"4f1c","bridge":"orders-to-hub","lane":0,'
        b'"stream":"journal:4f1c:orders:0","address":"orders","target":"hub","store":"77aa:1",'
        b'"from":0,"upto":122,"runs":[[0,99],[101,120]],"refused":[100],"count":120,'
        b'"ids":[[17,"2013-01-01T10:00:00Z/UA/1545"]],"events":[1357017420000,1357017420005],'
        b'"committed":1357017420009,"duplicates":3,"recovered":false}'
    )


def test_what_clients_sent_has_no_bridge_and_a_rejected_duplicate_says_so() -> None:
    sent = json.loads(a_line(side="received", bridge=None, recovered=True))
    assert (sent["bridge"], sent["side"], sent["recovered"], "verdict" in sent) == (
        None,
        "received",
        True,
        False,
    )
    rejected = json.loads(a_line(runs=(), refused=(), ids=[(None, b"a"), (7, b"b")], verdict="duplicate"))
    assert (rejected["verdict"], rejected["count"], rejected["ids"]) == (
        "duplicate",
        0,
        [[None, "a"], [7, "b"]],
    )


@pytest.mark.parametrize(
    ("duplicate_id", "written"),
    [
        (b"plain", "plain"),
        ("Zürich".encode(), "Zürich"),
        (b'a"\n\x00', 'a"\n\x00'),
        (b"\xff\x00\x01", {"base64": "/wAB"}),
        (b"\xed\xa0\x80", {"base64": "7aCA"}),
    ],
)
def test_an_id_is_text_where_it_is_text_and_base64_elsewhere(duplicate_id: bytes, written: object) -> None:
    line = a_line(ids=[(2**50, duplicate_id)])
    assert json.loads(line)["ids"] == [[2**50, written]]
    assert b"\n" not in line


@pytest.mark.parametrize("indices", [range(40), range(0, 40, 2), (0, 21), (39,), ()])
@pytest.mark.parametrize("rejected", [(), (0, 2), (39,)])
def test_the_ids_of_a_batch_have_its_positions_and_rejected_ones_are_known(
    indices: Sequence[int], rejected: Collection[int]
) -> None:
    runs = ((3, 12), (20, 49))
    positions = [*range(3, 13), *range(20, 50)]
    ids = tuple((index, b"id-%d" % index) for index in indices)
    batch = Batch("s", 0, 60, runs, FreshBlock([Message(b"x")] * 40, ids), events=(1, 2))
    line = delivery_log.Line.of_batch(
        "received", WRITER, "orders", batch, committed=3, duplicates=len(rejected), rejected=rejected
    )
    assert line.ids == [(positions[index], value) for index, value in ids if index not in rejected]
    assert list(run_arithmetic.positions(line.known)) == [positions[index] for index in rejected]
    assert json.loads(line.encode())["count"] == 40


class FakeClock:
    """Both clocks, moved by hand."""

    def __init__(self) -> None:
        self.ms = START_MS
        #: What the wall clock is ahead of the truth.
        self.wrong_ms = 0

    def wall_ms(self) -> int:
        return self.ms + self.wrong_ms

    def monotonic_ms(self) -> int:
        return self.ms - START_MS + 5


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def writer(
    directory: Path, clock: FakeClock | None = None, node: str = "edge", **limits: int
) -> SegmentWriter:
    opened = SegmentWriter(
        directory,
        node,
        SegmentLimits(**({"roll_interval_ms": 60_000, "roll_size": 1_000_000} | limits)),
        last_number=last_number(directory, node),
        clock=clock,
    )
    opened.open()
    return opened


def last_number(directory: Path, node: str = "edge") -> Path:
    return directory.parent / f"{directory.name}.{quote(node, safe='')}.number"


def crash(log: SegmentWriter) -> None:
    """What the end of its process does."""
    log._lock.release()


def numbered(first: int, last: int, padding: int = 0) -> list[bytes]:
    return [b'{"v":1,"n":%d,"pad":"%s"}' % (number, b"x" * padding) for number in range(first, last)]


def written_at(path: Path, ms: int) -> None:
    os.utime(path, (ms / 1000, ms / 1000))


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.suffix != ".lock")


def numbers(directory: Path) -> list[int]:
    """What the lines of all files say, in the order of the files; fails on a line that is not whole."""
    return [
        msgspec.json.decode(text)["n"]
        for name in files(directory)
        for text in (directory / name).read_bytes().removesuffix(b"\n").split(b"\n")
    ]


def test_a_file_is_open_until_a_clean_stop_and_named_after_node_time_and_number(
    tmp_path: Path, clock: FakeClock
) -> None:
    log = writer(tmp_path / "made" / "here", clock)
    assert files(tmp_path / "made" / "here") == []
    log.write(numbered(0, 2))
    log.write(numbered(2, 3))
    assert files(tmp_path / "made" / "here") == ["edge-20130101T051700-000001.jsonl.open"]
    log.close()
    assert files(tmp_path / "made" / "here") == ["edge-20130101T051700-000001.jsonl"]
    assert (tmp_path / "made/here/edge-20130101T051700-000001.jsonl").read_bytes() == (
        b'{"v":1,"n":0,"pad":""}\n{"v":1,"n":1,"pad":""}\n{"v":1,"n":2,"pad":""}\n'
    )


def test_nothing_written_leaves_no_file(tmp_path: Path) -> None:
    log = writer(tmp_path)
    log.write([])
    log.tick()
    log.close()
    assert files(tmp_path) == []


def test_lines_are_on_disk_when_write_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[bool, int]] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        state = os.fstat(handle)
        synced.append((stat.S_ISDIR(state.st_mode), state.st_size))
        real(handle)

    log = writer(tmp_path)
    monkeypatch.setattr(os, "fsync", fsync)
    log.write(numbered(0, 10))
    size = (tmp_path / files(tmp_path)[0]).stat().st_size
    # The file's name, what remembers its number and that one's name, the lines.
    assert [is_directory for is_directory, _ in synced] == [True, False, True, False]
    assert synced[-1] == (False, size)
    log.close()
    assert synced[-1][0], "the new name has to be durable too"


def test_a_file_is_completed_when_it_is_old_even_if_nothing_more_comes(
    tmp_path: Path, clock: FakeClock
) -> None:
    log = writer(tmp_path, clock, roll_interval_ms=60_000)
    log.write(numbered(0, 1))
    clock.ms += 59_999
    log.tick()
    assert files(tmp_path) == ["edge-20130101T051700-000001.jsonl.open"]
    clock.ms += 1
    log.tick()
    assert files(tmp_path) == ["edge-20130101T051700-000001.jsonl"]
    clock.ms += 60_000
    log.tick()
    assert len(files(tmp_path)) == 1


def test_a_write_to_an_old_file_goes_to_a_new_one(tmp_path: Path, clock: FakeClock) -> None:
    log = writer(tmp_path, clock, roll_interval_ms=60_000)
    log.write(numbered(0, 1))
    clock.ms += 61_000
    log.write(numbered(1, 2))
    assert files(tmp_path) == ["edge-20130101T051700-000001.jsonl", "edge-20130101T051801-000002.jsonl.open"]
    assert numbers(tmp_path) == [0, 1]


def test_a_file_stays_below_its_size_unless_one_write_alone_is_larger(tmp_path: Path) -> None:
    log = writer(tmp_path, roll_size=1000)
    for number in range(30):
        log.write(numbered(number, number + 1, padding=100))
    log.write(numbered(30, 50, padding=100))
    log.close()
    sizes = [(tmp_path / name).stat().st_size for name in files(tmp_path)]
    assert [size <= 1000 for size in sizes] == [True] * (len(sizes) - 1) + [False]
    assert min(sizes[:-2]) > 800
    assert numbers(tmp_path) == list(range(50))


def test_numbers_go_on_after_a_restart_and_are_never_used_again(tmp_path: Path, clock: FakeClock) -> None:
    for start in range(3):
        log = writer(tmp_path, clock, retention_time_ms=0)
        log.write(numbered(start, start + 1))
        log.close()
        written_at(tmp_path / files(tmp_path)[-1], clock.ms)
        clock.ms += 10 * 86_400_000
    log = writer(tmp_path, clock, retention_time_ms=0)
    # However old, the last complete file stays: it remembers the number.
    assert [name[-12:] for name in files(tmp_path)] == ["000003.jsonl"]
    log.write(numbered(3, 4))
    assert [name[-17:-6] for name in files(tmp_path)][-1:] == ["000004.json"]


@pytest.mark.parametrize(
    "torn",
    [b"", b"{", b'{"v":1,"n":7', b'{"v":1,"n":7,"pad":"x"}', b"\0" * 4096, b"\0" * 512 + b'{"v":1,"n":9}\n'],
)
def test_a_file_that_a_crash_left_open_loses_its_torn_end_and_nothing_else(
    torn: bytes, tmp_path: Path
) -> None:
    crashed = writer(tmp_path)
    crashed.write(numbered(0, 5))
    with (tmp_path / files(tmp_path)[0]).open("ab") as file:
        file.write(torn)
    crash(crashed)
    again = writer(tmp_path)
    assert [name.endswith(".jsonl") for name in files(tmp_path)] == [True]
    assert numbers(tmp_path) == list(range(5))
    again.write(numbered(5, 6))
    assert numbers(tmp_path) == list(range(6))
    assert files(tmp_path)[1].endswith("-000002.jsonl.open")


#: Of lost pages after a loss of power: the size of a page, and what is found in its place.
PAGE = 512


@pytest.mark.parametrize("filler", [b"\0", b"x", b'"', b"7", b"\n", b"\xff"])
@pytest.mark.parametrize("lost", range(1, 6))
def test_a_page_that_was_lost_in_the_middle_of_the_last_write_is_never_read_as_lines(
    lost: int, filler: bytes, tmp_path: Path
) -> None:
    """Pages of one write reach the disk in any order; what stands in the lost one's place is anything."""
    crashed = writer(tmp_path)
    crashed.write(numbered(0, 3))
    path = tmp_path / files(tmp_path)[0]
    good = path.stat().st_size
    crashed.write(numbered(3, 60, padding=40))
    data = bytearray(path.read_bytes())
    start = good + lost * PAGE
    assert len(data) > start + PAGE
    data[start : start + PAGE] = filler * PAGE
    path.write_bytes(data)
    crash(crashed)
    writer(tmp_path)
    found = numbers(tmp_path)
    whole = data[:start].count(b"\n")
    assert found == list(range(whole)), "all lines before the lost page, and none behind it"


def test_a_line_with_a_part_cut_out_of_it_is_not_whole() -> None:
    line = a_line() + b"\n"
    assert delivery_log.is_whole(line)
    for start in range(1, len(line) - 3):
        torn = line[:start] + b"\0" * 2 + line[start + 2 :]
        assert not delivery_log.is_whole(torn), torn
    for end in range(len(line)):
        assert not delivery_log.is_whole(line[:end])


def test_an_open_file_without_a_whole_line_goes_and_gives_its_number_back(tmp_path: Path) -> None:
    (tmp_path / "edge-20130101T051700-000007.jsonl.open").write_bytes(b'{"v":1,')
    log = writer(tmp_path)
    assert files(tmp_path) == []
    log.write(numbered(0, 1))
    assert files(tmp_path)[0].endswith("-000007.jsonl.open")


def test_a_number_is_missing_only_where_a_file_was_removed(tmp_path: Path) -> None:
    log = writer(tmp_path)
    with file_size_limit(10), pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        log.write(numbered(0, 1))
    log.close()
    for start in range(2):
        log = writer(tmp_path)
        log.write(numbered(start, start + 1))
        log.close()
    assert [name[-12:] for name in files(tmp_path)] == ["000001.jsonl", "000002.jsonl"]


def test_nodes_that_share_a_directory_leave_each_others_files_alone(tmp_path: Path, clock: FakeClock) -> None:
    others = {"edge-1": b'{"v":1,"torn', "ed": b"x", "a/b": b"y"}
    for node, content in others.items():
        other = writer(tmp_path, clock, node=node)
        other.write([b'{"v":1}'])
        with max(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime_ns).open("ab") as file:
            file.write(content)
    (tmp_path / "notes.txt").write_text("mine")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    log = writer(tmp_path, clock, retention_size=0, retention_time_ms=0)
    log.write(numbered(0, 1))
    log.close()
    assert {path: path.read_bytes() for path in before} == before
    assert "edge-20130101T051700-000001.jsonl" in files(tmp_path)
    assert "a%2Fb-20130101T051700-000001.jsonl.open" in files(tmp_path)


def test_files_are_deleted_by_age(tmp_path: Path, clock: FakeClock) -> None:
    log = writer(tmp_path, clock, retention_time_ms=100_000, roll_interval_ms=10_000)
    for number in range(5):
        log.write(numbered(number, number + 1))
        written_at(tmp_path / files(tmp_path)[-1], clock.ms)
        clock.ms += 30_000
        log.tick()
    assert numbers(tmp_path) == [2, 3, 4]
    clock.ms += 35_000
    log.close()
    again = writer(tmp_path, clock, retention_time_ms=100_000)
    assert numbers(tmp_path) == [2, 3, 4], "the time in which no node ran is made up for, not at once"
    clock.ms += 5_000
    again.tick()
    assert numbers(tmp_path) == [3, 4]
    clock.ms += 10_000_000
    again.tick()
    assert numbers(tmp_path) == [4]


DAY_MS = 86_400_000
HOUR_MS = 3_600_000


def a_week(directory: Path, clock: FakeClock) -> SegmentWriter:
    """A hundred complete files, one an hour and a half, none of them a week old."""
    log = writer(directory, clock, roll_size=1, retention_time_ms=7 * DAY_MS)
    for number in range(100):
        log.write(numbered(number, number + 1))
        if number:
            written_at(directory / files(directory)[number - 1], clock.ms)
        clock.ms += 90 * 60_000
        log.tick()
    log.close()
    written_at(directory / files(directory)[-1], clock.ms)
    log = writer(directory, clock, retention_time_ms=7 * DAY_MS)
    assert len(files(directory)) == 100
    return log


@pytest.mark.parametrize("days", [8, -8, 30_000, -15_000])
def test_a_clock_that_is_wrong_for_a_tick_deletes_nothing(
    tmp_path: Path, clock: FakeClock, days: int
) -> None:
    log = a_week(tmp_path, clock)
    clock.wrong_ms = days * DAY_MS
    log.tick()
    log.write(numbered(100, 101))
    log.close()
    clock.wrong_ms = 0
    for _ in range(60):
        clock.ms += 1_000
        log.tick()
    assert len(files(tmp_path)) == 101


@pytest.mark.parametrize("days", [8, 30_000])
def test_a_clock_that_is_wrong_at_a_start_deletes_nothing(
    tmp_path: Path, clock: FakeClock, days: int
) -> None:
    log = a_week(tmp_path, clock)
    log.close()
    clock.wrong_ms = days * DAY_MS
    log = writer(tmp_path, clock, retention_time_ms=7 * DAY_MS)
    for _ in range(60):
        clock.ms += 1_000
        log.tick()
    assert len(files(tmp_path)) == 100


def test_a_clock_that_was_set_forward_is_believed_within_hours_and_a_few_files_a_tick(
    tmp_path: Path, clock: FakeClock
) -> None:
    log = a_week(tmp_path, clock)
    clock.wrong_ms = 8 * DAY_MS
    for _ in range(8):
        clock.ms += HOUR_MS
        before = len(files(tmp_path))
        log.tick()
        assert before - len(files(tmp_path)) <= AGED_PER_TICK
    for _ in range(10):
        log.tick()
    assert len(files(tmp_path)) == 1


def test_a_file_of_the_future_does_not_keep_those_behind_it(tmp_path: Path, clock: FakeClock) -> None:
    log = a_week(tmp_path, clock)
    log.close()
    written_at(tmp_path / files(tmp_path)[0], clock.ms + 40_000 * DAY_MS)
    log = writer(tmp_path, clock, retention_time_ms=7 * DAY_MS)
    clock.ms += 2 * DAY_MS
    log.tick()
    assert numbers(tmp_path)[0] == AGED_PER_TICK


def test_files_are_deleted_by_size_from_the_oldest_on_and_the_open_one_never(tmp_path: Path) -> None:
    log = writer(tmp_path, roll_size=1, retention_size=350)
    for number in range(9):
        log.write(numbered(number, number + 1, padding=80))
    log.tick()
    assert numbers(tmp_path) == [5, 6, 7, 8]
    assert files(tmp_path)[-1].endswith(".open")
    assert sum((tmp_path / name).stat().st_size for name in files(tmp_path)[:-1]) <= 350


def test_a_file_that_somebody_took_away_does_not_stop_retention(tmp_path: Path) -> None:
    log = writer(tmp_path, roll_size=1, retention_size=0)
    for number in range(4):
        log.write(numbered(number, number + 1))
    (tmp_path / files(tmp_path)[0]).unlink()
    log.tick()
    assert numbers(tmp_path) == [2, 3]


@pytest.fixture
def logged() -> io.StringIO:
    """What is logged meanwhile, as JSON."""
    stream = io.StringIO()
    logs.configure("info", "json", "edge", stream)
    return stream


def removed(logged: io.StringIO) -> list[str]:
    """The names of files that were said to have been taken away."""
    events = [json.loads(line) for line in logged.getvalue().splitlines()]
    return [Path(event["file"]).name for event in events if event["event"] == "delivery-log-removed"]


@pytest.mark.parametrize("how", ["deleted", "moved away"])
def test_after_the_directory_was_taken_away_no_line_is_written_into_the_void(
    tmp_path: Path, logged: io.StringIO, how: str
) -> None:
    directory = tmp_path / "log"
    away = (tmp_path / f"away-{number}" for number in range(2))

    def take_away() -> None:
        shutil.rmtree(directory) if how == "deleted" else directory.rename(next(away))

    log = writer(directory)
    log.write(numbered(0, 1))
    take_away()
    log.write(numbered(1, 2))
    assert numbers(directory) == [1]
    assert [name[-17:] for name in removed(logged)] == ["000001.jsonl.open"]
    log.write(numbered(2, 3))
    take_away()
    log.tick()
    log.write(numbered(3, 4))
    log.close()
    assert [name[-12:] for name in files(directory)] == ["000003.jsonl"]
    assert numbers(directory) == [3]
    assert len(removed(logged)) == 2


def test_numbers_of_a_log_that_was_cleared_are_not_used_again(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    for start in range(3):
        log = writer(directory)
        log.write(numbered(start, start + 1))
        log.close()
        shutil.rmtree(directory)
    log = writer(directory)
    log.write(numbered(3, 4))
    crash(log)
    shutil.rmtree(directory)
    log = writer(directory)
    log.write(numbered(4, 5))
    log.close()
    assert [name[-12:] for name in files(directory)] == ["000005.jsonl"]


@pytest.mark.parametrize("damage", [b"", b"seven", b"\xff"])
def test_what_remembers_the_number_may_be_gone_or_damaged(tmp_path: Path, damage: bytes) -> None:
    """The files still say it, as they did before there was anything else."""
    log = writer(tmp_path / "log")
    log.write(numbered(0, 1))
    log.close()
    last_number(tmp_path / "log").write_bytes(damage)
    log = writer(tmp_path / "log")
    assert last_number(tmp_path / "log").read_bytes() == b"1\n", "from now on it is remembered"
    log.write(numbered(1, 2))
    assert [name[-17:-5] for name in files(tmp_path / "log")][1] == "000002.jsonl"


def test_a_number_that_cannot_be_remembered_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = writer(tmp_path)
    with monkeypatch.context() as patch:

        def broken(*_: object) -> None:
            raise OSError(errno.ENOSPC, "full")

        patch.setattr(Path, "rename", broken)
        with pytest.raises(OSError, match="full"):
            log.write(numbered(0, 1))
        assert files(tmp_path) == []
    log.write(numbered(0, 1))
    assert [name[-17:] for name in files(tmp_path)] == ["000001.jsonl.open"]


# ------------------------------------------------------------------ one process a log


def test_a_second_writer_of_one_nodes_log_is_refused_and_one_of_another_node_is_not(tmp_path: Path) -> None:
    first = writer(tmp_path)
    with pytest.raises(DeliveryLogFailed, match=rf"pid {os.getpid()}.*node\.name.*delivery-log\.directory"):
        writer(tmp_path)
    writer(tmp_path, node="edge-2")
    first.close()
    second = writer(tmp_path)
    with pytest.raises(LockHeld, match=r"\.edge\.lock is locked"):
        first.write(numbered(0, 1))
    second.write(numbered(0, 1))
    second.close()
    first.write(numbered(1, 2))
    assert [name[-17:] for name in files(tmp_path)][-1] == "000002.jsonl.open", (
        "it looks at what is there now"
    )


def test_a_lock_whose_file_was_removed_is_taken_again(tmp_path: Path) -> None:
    first = writer(tmp_path)
    first.write(numbered(0, 1))
    (tmp_path / ".edge.lock").unlink()
    first.tick()
    with pytest.raises(DeliveryLogFailed, match="another process"):
        writer(tmp_path)
    (tmp_path / ".edge.lock").unlink()
    second = writer(tmp_path)
    for call in (first.tick, lambda: first.write(numbered(1, 2))):
        with pytest.raises(LockHeld):
            call()
    second.write(numbered(2, 3))
    assert numbers(tmp_path) == [0, 2]


def test_a_look_at_the_directory_that_failed_is_made_again_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = writer(tmp_path)
    log.write(numbered(0, 1))
    log.close()
    with monkeypatch.context() as patch:

        def broken(_: Path) -> bytes:
            raise OSError(errno.EIO, "broken")

        patch.setattr(Path, "read_bytes", broken)
        with pytest.raises(OSError, match="broken"):
            log.write(numbered(1, 2))
    log.write(numbered(1, 2))
    assert [name[-17:] for name in files(tmp_path)][-1] == "000002.jsonl.open"


def test_a_directory_that_cannot_be_used_is_named_with_its_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DeliveryLogFailed, match=r"file/log \(delivery-log\.directory\), cannot be used"):
        writer(tmp_path / "file" / "log")


def test_a_caller_that_was_cancelled_does_not_get_in_the_way_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = writer(tmp_path)
    log.write(numbered(0, 1))
    syncing, go_on = threading.Event(), threading.Event()
    real = os.fsync

    def slow(handle: int) -> None:
        syncing.set()
        assert go_on.wait(10)
        real(handle)

    monkeypatch.setattr(os, "fsync", slow)
    with ThreadPoolExecutor(2) as threads:
        forsaken = threads.submit(log.write, numbered(1, 3))
        assert syncing.wait(10)
        following = threads.submit(log.write, numbered(1, 3))
        assert not following.done()
        go_on.set()
        forsaken.result(10)
        following.result(10)
    log.close()
    assert numbers(tmp_path) == [0, 1, 2, 1, 2]


@contextmanager
def file_size_limit(limit: int) -> Iterator[None]:
    """A disk on which no file can grow beyond `limit` bytes, as the kernel sees it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_takes_nothing_leaves_nothing_torn_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    log = writer(tmp_path)
    log.write(numbered(0, 3))
    size = (tmp_path / files(tmp_path)[0]).stat().st_size
    with file_size_limit(size + 100):
        for _ in range(2):
            with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
                log.write(numbered(3, 40))
            assert numbers(tmp_path) == [0, 1, 2]
        log.write(numbered(3, 4))
    log.write(numbered(4, 40))
    assert numbers(tmp_path) == list(range(40))


def test_a_disk_too_full_for_a_first_line_leaves_no_file_behind_a_stop(tmp_path: Path) -> None:
    log = writer(tmp_path)
    with file_size_limit(10), pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        log.write(numbered(0, 1))
    log.close()
    assert files(tmp_path) == []


@pytest.mark.parametrize("fails_too", [False, True])
def test_after_a_failed_sync_the_lines_are_written_again_from_the_last_good_end(
    fails_too: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = writer(tmp_path)
    log.write(numbered(0, 2))
    with monkeypatch.context() as patch:

        def broken(*_: int) -> None:
            raise OSError(errno.EIO, "broken")

        patch.setattr(os, "fsync", broken)
        if fails_too:
            patch.setattr(os, "ftruncate", broken)
        with pytest.raises(OSError, match="broken"):
            log.write(numbered(2, 50))
    log.write(numbered(60, 61))
    log.close()
    assert numbers(tmp_path) == [0, 1, 60]


def test_a_roll_that_fails_is_made_again_and_no_line_is_lost(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = writer(tmp_path, clock)
    log.write(numbered(0, 1))
    clock.ms += 60_000
    with monkeypatch.context() as patch:

        def broken(*_: object) -> None:
            raise OSError(errno.ENOSPC, "full")

        patch.setattr(Path, "rename", broken)
        for call in (log.tick, lambda: log.write(numbered(1, 2)), log.close):
            with pytest.raises(OSError, match="full"):
                call()
    log.write(numbered(1, 2))
    assert numbers(tmp_path) == [0, 1]
    assert [name.endswith(".open") for name in files(tmp_path)] == [False, True]


PROGRAM = """
import sys
from pathlib import Path
from bridge.delivery_log import SegmentLimits, SegmentWriter
log = SegmentWriter(Path(sys.argv[1]), "edge", SegmentLimits(roll_size=200), last_number=Path(sys.argv[3]))
log.open()
for number in range(int(sys.argv[2]), int(sys.argv[2]) + 12):
    log.write([b'{"v":1,"n":%d}' % number] * 3)
    print(number, flush=True)
log.close()
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    "place", [name for name in fault_injection.NAMES if name.startswith("delivery-log.")]
)
def test_a_kill_at_any_point_loses_no_line_that_was_written(
    place: str, tmp_path: Path, rng: random.Random
) -> None:
    times = rng.randint(1, 3)
    print(f"killed the {times}. time at {place}")
    killed = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), "0", str(last_number(tmp_path))],
        env=os.environ | {"CORE_BRIDGE_CRASH_AT": f"{place}:{times}"},
        capture_output=True,
        check=False,
        timeout=30,
    )
    assert killed.returncode == -9, killed.stderr
    answered = [int(text) for text in killed.stdout.split()]
    log = writer(tmp_path)
    found = numbers(tmp_path)
    assert not any(name.endswith(".open") for name in files(tmp_path))
    # Every line of a write that returned, at most one write beyond it, each three times and in order.
    assert found in (
        [n for n in answered for _ in range(3)],
        [n for n in [*answered, len(answered)] for _ in range(3)],
    )
    log.write(numbered(len(answered), 12))
    log.close()
    assert set(numbers(tmp_path)) == set(range(12))


# -- a file that another program cuts ------------------------------------------------------------------


def cut(logged: io.StringIO) -> list[int]:
    """The numbers of bytes that were logged as cut off."""
    events = [json.loads(line) for line in logged.getvalue().splitlines()]
    return [event["bytes"] for event in events if event["event"] == "delivery-log-cut"]


def test_lines_after_a_copytruncate_can_be_read(tmp_path: Path, logged: io.StringIO) -> None:
    log = writer(tmp_path)
    copies: list[bytes] = []
    for turn in range(3):
        log.write(numbered(turn, turn + 1))
        (path,) = tmp_path.glob("*.open")
        if turn < 2:
            copies.append(path.read_bytes())
            os.truncate(path, 0)
    log.close()
    (name,) = files(tmp_path)
    whole = b"".join(copies) + (tmp_path / name).read_bytes()
    assert whole.splitlines() == numbered(0, 3)
    assert cut(logged) == [len(copies[0]), len(copies[1])]


def test_a_file_that_was_cut_in_the_middle_of_a_line_goes_on_with_whole_lines(tmp_path: Path) -> None:
    log = writer(tmp_path)
    log.write(numbered(0, 3))
    (path,) = tmp_path.glob("*.open")
    os.truncate(path, path.stat().st_size - 5)
    log.write(numbered(3, 4))
    assert path.read_bytes().splitlines() == [*numbered(0, 2), *numbered(3, 4)]


def test_the_number_of_a_file_that_was_cut_to_nothing_is_not_used_again(tmp_path: Path) -> None:
    """Copies of it are elsewhere, under that number."""
    log = writer(tmp_path)
    log.write(numbered(0, 1))
    (path,) = tmp_path.glob("*.open")
    os.truncate(path, 0)
    log.close()
    log = writer(tmp_path)
    log.write(numbered(1, 2))
    log.close()
    first, second = files(tmp_path)
    assert (first[-12:], (tmp_path / first).read_bytes()) == ("000001.jsonl", b"")
    assert (second[-12:], (tmp_path / second).read_bytes().splitlines()) == ("000002.jsonl", numbered(1, 2))


def test_a_log_whose_last_file_could_not_be_completed_is_free_for_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = writer(tmp_path)
    log.write(numbered(0, 1))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", _broken)
        with pytest.raises(OSError, match="broken"):
            log.close()
    other = writer(tmp_path)
    other.open()
    assert [name[-12:] for name in files(tmp_path)] == ["000001.jsonl"]
    other.close()
    log.write(numbered(1, 2))
    log.close()
    assert numbers(tmp_path) == [0, 1]


def _broken(*_: object) -> None:
    raise OSError(errno.EIO, "the volume is broken")
