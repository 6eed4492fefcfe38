"""Lines: bytes kept, batches cut, input that never ends."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.client.input_lines import Line, LineSplitter, LineTooLong, batches


def split(chunks: list[bytes], *, keep_empty: bool = False) -> list[Line]:
    splitter = LineSplitter(keep_empty=keep_empty)
    return [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.end()


def bodies(lines: list[Line]) -> list[bytes]:
    return [line.body for line in lines]


def test_the_newline_goes_and_every_other_byte_stays() -> None:
    assert bodies(split([b"a\r\n\xff\x00\n  b \nlast"])) == [b"a\r", b"\xff\x00", b"  b ", b"last"]


def test_empty_lines_are_skipped_and_still_counted() -> None:
    assert split([b"\na\n\n\nb\n"]) == [Line(2, b"a"), Line(5, b"b")]


def test_empty_lines_are_kept_when_asked_for() -> None:
    assert bodies(split([b"\na\n\n"], keep_empty=True)) == [b"", b"a", b""]


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=8))
def test_lines_do_not_depend_on_how_the_input_comes_in_chunks(data: bytes, cuts: list[int]) -> None:
    edges = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    chunks = [data[start:stop] for start, stop in itertools.pairwise(edges)]
    expected = data.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert bodies(split(chunks, keep_empty=True)) == expected


def test_a_line_without_an_end_is_refused_with_both_numbers() -> None:
    splitter = LineSplitter(max_bytes=10)
    splitter.feed(b"fine\n0123456789")
    with pytest.raises(LineTooLong, match="line 2 is longer than 10 bytes; found 11"):
        splitter.feed(b"0")


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)


async def collect(found: AsyncIterator[list[Line]]) -> list[list[bytes]]:
    return [bodies(batch) async for batch in found]


async def test_a_file_comes_in_full_batches_and_a_rest(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"".join(b"%d\n" % number for number in range(25)))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        found = await collect(batches(descriptor, LineSplitter(), most=10, most_bytes=10_000))
    finally:
        os.close(descriptor)
    assert [len(batch) for batch in found] == [10, 10, 5]
    assert [int(body) for batch in found for body in batch] == list(range(25))


async def test_a_batch_ends_before_its_bytes_exceed_the_limit(tmp_path: Path, rng: random.Random) -> None:
    lines = [b"x" * rng.randrange(1, 100) for _ in range(200)]
    path = tmp_path / "input"
    path.write_bytes(b"\n".join(lines))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        found = await collect(batches(descriptor, LineSplitter(), most=1000, most_bytes=90))
    finally:
        os.close(descriptor)
    assert [body for batch in found for body in batch] == lines
    assert all(sum(map(len, batch)) <= 90 or len(batch) == 1 for batch in found)
    assert len(found) < len(lines)


async def test_a_partial_batch_goes_when_the_input_falls_silent(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    found = batches(reader, LineSplitter(), most=500, most_bytes=10_000, idle_s=0.02)
    os.write(writer, b"one\ntwo\nhalf a l")
    assert bodies(await anext(found)) == [b"one", b"two"]
    os.write(writer, b"ine\n")
    os.close(writer)
    assert bodies(await anext(found)) == [b"half a line"]
    with pytest.raises(StopAsyncIteration):
        await anext(found)


async def test_a_silent_input_with_nothing_waiting_gives_no_empty_batch(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    found = batches(reader, LineSplitter(), most=500, most_bytes=10_000, idle_s=0.01)
    first = asyncio.ensure_future(anext(found))
    done, _ = await asyncio.wait({first}, timeout=0.05)
    assert not done
    os.write(writer, b"late\n")
    os.close(writer)
    assert bodies(await first) == [b"late"]


async def test_an_input_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(IsADirectoryError):
            await collect(batches(descriptor, LineSplitter(), most=5, most_bytes=100))
    finally:
        os.close(descriptor)
