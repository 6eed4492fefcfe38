"""A copier's way through the files: in order, durable lines only, over restarts, rolls and retention."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.delivery_log import UNLIMITED, SegmentLimits, SegmentWriter, Tail, tail
from bridge.runtime.clock import Clock, SystemClock


def writer(
    directory: Path,
    node: str = "edge",
    roll_size: int = 1_000_000,
    retention_size: int = UNLIMITED,
    clock: Clock | None = None,
) -> SegmentWriter:
    limits = SegmentLimits(roll_size=roll_size, retention_size=retention_size)
    made = SegmentWriter(directory, node, limits, last_number=last_number(directory, node), clock=clock)
    made.open()
    return made


def last_number(directory: Path, node: str = "edge") -> Path:
    return directory.parent / f"{directory.name}.{node}.number"


class Tomorrow(SystemClock):
    def wall_ms(self) -> int:
        return super().wall_ms() + 86_400_000


def numbered(first: int, last: int) -> list[bytes]:
    return [b'{"v":1,"n":%d}' % number for number in range(first, last)]


class Told(list[str]):
    """What a tail says that it has passed over."""

    def __call__(self, text: str) -> None:
        self.append(text)


def nothing_passed_over(text: str) -> None:
    pytest.fail(f"passed over: {text}")


def following(log: SegmentWriter, passed_over: Callable[[str], None] = nothing_passed_over) -> Tail:
    return Tail(log, passed_over)


def crash(log: SegmentWriter) -> None:
    """What the end of its process does."""
    log._lock.release()


def copied(follower: Tail) -> list[bytes]:
    """Everything there is, each reading confirmed."""
    found: list[bytes] = []
    while lines := follower.read():
        found += lines
        follower.advance()
    return found


def test_lines_of_complete_files_and_of_the_open_one_come_in_order_and_once(tmp_path: Path) -> None:
    log = writer(tmp_path, roll_size=100)
    follower = following(log)
    assert follower.read() == []
    for number in range(30):
        log.write(numbered(number, number + 1))
    assert copied(follower) == numbered(0, 30)
    log.write(numbered(30, 31))
    assert copied(follower) == numbered(30, 31)
    log.close()
    assert copied(follower) == []


def test_what_was_not_confirmed_is_read_again_also_after_a_restart(tmp_path: Path) -> None:
    log = writer(tmp_path)
    log.write(numbered(0, 3))
    follower = following(log)
    assert follower.read() == follower.read() == numbered(0, 3)
    follower.advance()
    log.write(numbered(3, 5))
    assert follower.read() == numbered(3, 5)
    log.close()
    again = writer(tmp_path)
    again.write(numbered(5, 6))
    assert copied(following(again)) == numbered(3, 6)


def test_what_a_write_that_failed_left_behind_is_not_read(tmp_path: Path) -> None:
    log = writer(tmp_path)
    log.write(numbered(0, 2))
    (path,) = tmp_path.glob("*.open")
    with path.open("ab") as file:
        file.write(b'{"v":1,"n":77}\n')
    assert copied(following(log)) == numbered(0, 2)


def test_files_that_were_deleted_are_passed_over_and_named_and_other_nodes_files_are_not_read(
    tmp_path: Path,
) -> None:
    log, other = writer(tmp_path, roll_size=1), writer(tmp_path, node="edge-2")
    other.write([b'{"v":1,"other":1}'])
    told = Told()
    follower = following(log, told)
    for number in range(6):
        log.write(numbered(number, number + 1))
    assert follower.read() == numbered(0, 1)
    follower.advance()
    for number in (1, 2, 3, 5):
        next(tmp_path.glob(f"edge-20*-00000{number}.jsonl")).unlink()
    assert copied(follower) == [*numbered(3, 4), *numbered(5, 6)]
    assert told == [
        "file 2 was deleted before it was copied",
        "file 3 was deleted before it was copied",
        "file 5 was deleted before it was copied",
    ]


def test_what_retention_deletes_before_it_is_copied_is_named_and_what_was_copied_is_not(
    tmp_path: Path,
) -> None:
    log = writer(tmp_path, roll_size=1, retention_size=0)
    told = Told()
    follower = following(log, told)
    log.write(numbered(0, 1))
    log.write(numbered(1, 2))
    assert copied(follower) == numbered(0, 2)
    for number in range(2, 8):
        log.write(numbered(number, number + 1))
    log.tick()
    assert copied(follower) == numbered(6, 8)
    assert told == ["files 2 to 6 were deleted before they were copied; of file 2 all before byte 14 was"]
    log.close()
    assert copied(follower) == []
    again = writer(tmp_path, roll_size=1, retention_size=0)
    again.write(numbered(8, 9))
    again.write(numbered(9, 10))
    again.tick()
    assert copied(following(again)) == numbered(8, 10), "all of the files that are gone was copied"


@pytest.mark.parametrize("what", ["*.jsonl*", "*"])
@pytest.mark.parametrize("running", [True, False])
def test_a_log_that_was_cleared_is_copied_from_its_next_line_on(
    tmp_path: Path, what: str, running: bool
) -> None:
    directory = tmp_path / "log"
    log = writer(directory)
    log.write(numbered(0, 9))
    told = Told()
    follower = following(log, told)
    assert copied(follower) == numbered(0, 9)
    if not running:
        log.close()
        assert copied(follower) == []
    for path in directory.glob(what):
        path.unlink()
    if not running:
        log = writer(directory)
        follower = following(log, told)
    log.write(numbered(9, 10))
    log.write(numbered(10, 11))
    assert copied(follower) == numbered(9, 11)
    assert len(told) == (1 if running else 0), "what was complete was copied, of the open one it is not known"


@pytest.mark.parametrize("lines", [1, 5, 9])
def test_a_log_that_lost_its_numbers_too_is_copied_from_its_beginning(tmp_path: Path, lines: int) -> None:
    """As by a version that did not remember them, or with another data directory."""
    log = writer(tmp_path / "log", roll_size=50)
    log.write(numbered(0, 5))
    told = Told()
    assert copied(following(log, told)) == numbered(0, 5)
    crash(log)
    for path in (*(tmp_path / "log").glob("edge*"), last_number(tmp_path / "log")):
        path.unlink()
    log = writer(tmp_path / "log", clock=Tomorrow())
    if lines > 1:  # else it is seen before there is a file
        log.write(numbered(50, 50 + lines - 1))
    follower = following(log, told)
    before = copied(follower)
    log.write(numbered(50 + lines - 1, 50 + lines))
    found = before + copied(follower)
    assert found == numbered(50, 50 + lines)
    assert ["a log that was cleared" in text for text in told] == [True]


def test_a_number_that_leads_to_another_file_is_seen_by_its_name(tmp_path: Path) -> None:
    log = writer(tmp_path)
    log.write(numbered(0, 3))
    told = Told()
    assert copied(following(log, told)) == numbered(0, 3)
    crash(log)
    (path,) = tmp_path.glob("*.open")
    path.write_bytes(b"\n".join([*numbered(50, 59), b""]))
    path.rename(tmp_path / "edge-20130101T051700-000001.jsonl.open")
    again = writer(tmp_path)
    assert copied(following(again, told)) == numbered(50, 59)
    (text,) = told
    assert text.startswith("file 1, up to which lines were copied, is of a log that was cleared")


def test_a_place_of_an_earlier_version_holds(tmp_path: Path) -> None:
    log = writer(tmp_path)
    log.write(numbered(0, 3))
    (tmp_path / ".edge.copied").write_bytes(b'{"number":1,"offset":28}')
    assert copied(following(log)) == numbered(2, 3)


def test_a_file_that_gets_its_final_name_while_it_is_being_read_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = writer(tmp_path)
    log.write(numbered(0, 3))
    real = tail._lines

    def after_the_rename(path: Path, start: int, end: int) -> list[bytes]:
        log.close()
        return real(path, start, end)

    monkeypatch.setattr(tail, "_lines", after_the_rename)
    assert following(log).read() == numbered(0, 3)


def test_a_line_longer_than_a_reading_comes_whole(tmp_path: Path) -> None:
    log = writer(tmp_path)
    long = b'{"v":1,"pad":"%s"}' % (b"x" * 3 * tail.READ_BYTES)
    log.write([*numbered(0, 1), long, *numbered(1, 2)])
    assert copied(following(log)) == [*numbered(0, 1), long, *numbered(1, 2)]


def test_a_memory_that_cannot_be_read_begins_with_the_first_file(tmp_path: Path) -> None:
    log = writer(tmp_path)
    log.write(numbered(0, 2))
    assert copied(following(log)) == numbered(0, 2)
    (tmp_path / ".edge.copied").write_text("torn")
    assert copied(following(log)) == numbered(0, 2)
