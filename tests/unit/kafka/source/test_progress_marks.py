"""What is believed of a committed offset."""

from __future__ import annotations

import pytest

from bridge.kafka.source.progress import Kind, Mark, read_mark, show_a_start
from bridge.relay.stays import MOST_RUNS, Stays


@pytest.mark.parametrize("kind", [Kind.START, Kind.SETTLED])
def test_a_mark_is_read_as_it_was_written(kind: Kind) -> None:
    mark = Mark(7, kind, "topic-id", "kafka:x")
    assert read_mark(7, mark.metadata()) == mark
    assert " " not in mark.metadata()
    first = Mark(7, kind, "topic-id", "kafka:x", of=3)
    assert read_mark(7, first.metadata()) == first
    moved = Mark(7, kind, "topic-id", "kafka:x", stays=Stays(7, {"a": ((0, 6),)}).encode())
    assert read_mark(7, moved.metadata()) == moved


def test_a_mark_with_as_many_stays_as_are_kept_is_what_a_broker_takes() -> None:
    """`offset.metadata.max.bytes` is 4,096 unless somebody has changed it."""
    far = 2**50
    past = {f"{number:032x}:{number:032x}": ((far - 1, far),) for number in range(MOST_RUNS)}
    mark = Mark(far, Kind.SETTLED, "x" * 22, "0" * 65, stays=Stays(far, past, far).encode())
    assert len(mark.metadata()) < 4_096


def test_what_older_versions_wrote_of_a_new_stream_is_where_it_begins() -> None:
    assert read_mark(7, '{"v":1,"kind":"lines","topic":"t","store":""}') == Mark(7, Kind.START, "t")


def test_marks_show_a_start_when_all_of_them_are_there() -> None:
    first, second, later = (Mark(at, Kind.START, f"t{at}", of=of) for at, of in ((1, 2), (2, 2), (3, 0)))
    settled, foreign = Mark(9, Kind.SETTLED, "t", "kafka:x"), Mark(9, Kind.FOREIGN)
    assert not show_a_start([])
    assert not show_a_start([first])
    for found in ([first, second], [first, later], [first, settled], [foreign]):
        assert show_a_start(found)


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        "",
        "x",
        "[]",
        "7",
        '"v"',
        "{}",
        '{"v":2,"kind":"settled","topic":"t","store":"s"}',
        '{"v":1,"kind":"?","topic":"t","store":"s"}',
        '{"v":1,"kind":"settled"}',
    ],
)
def test_what_others_have_committed_says_nothing(metadata: str | None) -> None:
    assert read_mark(7, metadata) == Mark(7, Kind.FOREIGN)
