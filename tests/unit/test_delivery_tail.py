"""A copier's way through the files: in order, durable lines only, over restarts, rolls and retention."""

from __future__ import annotations

from pathlib import Path

from bridge.delivery_log import UNLIMITED, SegmentWriter, Tail, tail


def writer(directory: Path, node: str = "edge", roll_size: int = 1_000_000) -> SegmentWriter:
    made = SegmentWriter(
        directory, node, roll_interval_ms=UNLIMITED, roll_size=roll_size, retention_time_ms=UNLIMITED,
        retention_size=UNLIMITED,
    )  # fmt: skip
    made.open()
    return made


def numbered(first: int, last: int) -> list[bytes]:
    return [b'{"v":1,"n":%d}' % number for number in range(first, last)]


def copied(follower: Tail) -> list[bytes]:
    """Everything there is, each reading confirmed."""
    found: list[bytes] = []
    while lines := follower.read():
        found += lines
        follower.advance()
    return found


def test_lines_of_complete_files_and_of_the_open_one_come_in_order_and_once(tmp_path: Path) -> None:
    log = writer(tmp_path, roll_size=100)
    follower = Tail(log)
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
    follower = Tail(log)
    assert follower.read() == follower.read() == numbered(0, 3)
    follower.advance()
    log.write(numbered(3, 5))
    assert follower.read() == numbered(3, 5)
    log.close()
    again = writer(tmp_path)
    again.write(numbered(5, 6))
    assert copied(Tail(again)) == numbered(3, 6)


def test_what_a_write_that_failed_left_behind_is_not_read(tmp_path: Path) -> None:
    log = writer(tmp_path)
    log.write(numbered(0, 2))
    (path,) = tmp_path.glob("*.open")
    with path.open("ab") as file:
        file.write(b'{"v":1,"n":77}\n')
    assert copied(Tail(log)) == numbered(0, 2)


def test_a_file_that_was_deleted_is_passed_over_and_other_nodes_files_are_not_read(tmp_path: Path) -> None:
    log, other = writer(tmp_path, roll_size=1), writer(tmp_path, node="edge-2")
    other.write([b'{"v":1,"other":1}'])
    follower = Tail(log)
    for number in range(4):
        log.write(numbered(number, number + 1))
    assert follower.read() == numbered(0, 1)
    follower.advance()
    for path in sorted(tmp_path.glob("edge-2013*")) + sorted(tmp_path.glob("edge-*-000002.jsonl")):
        path.unlink()
    assert copied(follower) == numbered(2, 4)


def test_a_line_longer_than_a_reading_comes_whole(tmp_path: Path) -> None:
    log = writer(tmp_path)
    long = b'{"v":1,"pad":"%s"}' % (b"x" * 3 * tail.READ_BYTES)
    log.write([*numbered(0, 1), long, *numbered(1, 2)])
    assert copied(Tail(log)) == [*numbered(0, 1), long, *numbered(1, 2)]


def test_a_memory_that_cannot_be_read_begins_with_the_first_file(tmp_path: Path) -> None:
    log = writer(tmp_path)
    log.write(numbered(0, 2))
    assert copied(Tail(log)) == numbered(0, 2)
    (tmp_path / ".edge.copied").write_text("torn")
    assert copied(Tail(log)) == numbered(0, 2)
