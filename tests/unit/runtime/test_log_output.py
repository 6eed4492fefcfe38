"""Log lines to a reader that stands still, has ended, or comes late."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from bridge.runtime import log_output
from bridge.runtime.log_output import LOG_BUFFER_BYTES, BufferedOutput
from tests.harness.eventually import eventually


class Pipe(NamedTuple):
    reader: int
    writer: int


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    reader, writer = os.pipe()
    yield Pipe(reader, writer)
    os.close(writer)
    os.close(reader)


def read_until(pipe: Pipe, ending: bytes) -> list[str]:
    """The lines up to the one that ends so."""
    found = b""
    while not found.endswith(ending + b"\n"):
        found += os.read(pipe.reader, 1 << 16)
    return found.decode().splitlines()


def test_lines_come_in_their_order(pipe: Pipe) -> None:
    output = BufferedOutput(pipe.writer, "utf-8")
    for number in range(5_000):
        output.write(f"line {number}")
    assert read_until(pipe, b"line 4999") == [f"line {number}" for number in range(5_000)]
    assert output.dropped == 0


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_json_line_stays_one_whatever_the_streams_encoding_lacks(encoding: str, pipe: Pipe) -> None:
    line = {"a": "\xe9 \u20ac \U0001f600 \udcff"}
    BufferedOutput(pipe.writer, encoding).write(json.dumps(line, ensure_ascii=False))
    found = b""
    while not found.endswith(b"\n"):
        found += os.read(pipe.reader, 1 << 16)
    assert json.loads(found.decode(encoding)) == line


def stand_still(pipe: Pipe) -> int:
    """Fill the pipe, so that no write to it returns before something is read; returns its bytes."""
    os.set_blocking(pipe.writer, False)
    filled = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filled += os.write(pipe.writer, b"\n" * 4096)
    os.set_blocking(pipe.writer, True)
    return filled


def test_lines_beyond_the_buffer_are_dropped_and_a_line_says_how_many(pipe: Pipe) -> None:
    filled = stand_still(pipe)
    output = BufferedOutput(pipe.writer, "utf-8")
    output.dropped_line = "dropped {}".format
    for number in range(3 * LOG_BUFFER_BYTES // 1000):
        output.write(f"{number:0999}")
    held = LOG_BUFFER_BYTES // 1000
    assert output.dropped == 3 * LOG_BUFFER_BYTES // 1000 - held
    lines = read_until(pipe, b"dropped %d" % output.dropped)[filled:]
    assert [int(line) for line in lines[:-1]] == list(range(held))
    output.write("later")
    assert read_until(pipe, b"later") == ["later"]


def test_the_line_about_dropped_lines_stands_where_they_are_missing(pipe: Pipe) -> None:
    filled = stand_still(pipe)
    output = BufferedOutput(pipe.writer, "utf-8")
    output.dropped_line = "dropped {}".format
    line = "x" * 9_999
    while not output.dropped:
        output.write(line)
    os.read(pipe.reader, filled)

    def taken() -> bool:
        before = output.dropped
        output.write("after")
        return output.dropped == before

    eventually(taken, "there is room in the buffer")
    lines = read_until(pipe, b"after")
    assert lines[-2:] == [f"dropped {output.dropped}", "after"]
    assert set(lines[:-2]) == {line}


def test_a_reader_that_has_ended_costs_the_lines_and_not_the_caller() -> None:
    reader, writer = os.pipe()
    output = BufferedOutput(writer, "utf-8")
    os.close(reader)
    output.write("lost")
    eventually(lambda: output.dropped == 1, "the line is counted as dropped")
    os.close(writer)


def test_a_stream_that_another_process_made_non_blocking_gets_every_line(pipe: Pipe) -> None:
    os.set_blocking(pipe.writer, False)
    output = BufferedOutput(pipe.writer, "utf-8")
    lines = [f"{number:0999}" for number in range(500)]
    for line in lines:
        output.write(line)
    assert read_until(pipe, lines[-1].encode()) == lines


def test_a_text_that_the_stream_cannot_encode_is_written_with_escapes(pipe: Pipe) -> None:
    output = BufferedOutput(pipe.writer, "ascii")
    output.write("ü \ud800")
    assert read_until(pipe, b"ud800") == [r"\u00fc \ud800"]


def test_flush_waits_for_a_slow_reader_no_longer_than_its_limit(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_output, "LAST_LINES_WITHIN_S", 0.01)
    output = BufferedOutput(pipe.writer, "utf-8")
    line = "x" * 9_999
    for _ in range(20):
        output.write(line)
    output.flush()  # returns although nothing is read
    output.write("end")
    assert read_until(pipe, b"end")[:-1] == [line] * 20


@pytest.mark.processes
def test_the_last_lines_of_a_process_are_written() -> None:
    program = (
        "from bridge.runtime import logs; logs.configure('info', 'auto', 'n')\n"
        "for number in range(1000): logs.get().info('stopped', queued=number)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert [json.loads(line)["queued"] for line in done.stderr.splitlines()] == list(range(1000))
