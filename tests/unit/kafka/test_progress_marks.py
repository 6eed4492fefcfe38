"""What is believed of a committed offset."""

from __future__ import annotations

import pytest

from bridge.kafka.progress import Kind, Mark, read_mark


@pytest.mark.parametrize("kind", [Kind.START, Kind.SETTLED])
def test_a_mark_is_read_as_it_was_written(kind: Kind) -> None:
    mark = Mark(7, kind, "topic-id", "kafka:x")
    assert read_mark(7, mark.metadata()) == mark
    assert " " not in mark.metadata()


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
