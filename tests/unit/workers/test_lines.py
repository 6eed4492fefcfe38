"""Delivery-log lines on their way from a worker to its supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from bridge.workers import lines as lines_module
from bridge.workers.channel import MOST_LINE_BYTES, ChannelBroken, Lines, Written
from bridge.workers.lines import PIECE_CHARS, LinesIn, LinesOut
from tests.fakes.workers import channels


class Log:
    """What the supervisor wrote; holds writes up, and fails, as a test wants."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.error = ""
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def write(self, lines: Sequence[str]) -> None:
        await self.go_on.wait()
        if self.error:
            raise OSError(self.error)
        self.lines += lines


@asynccontextmanager
async def connected(log: Log) -> AsyncIterator[LinesOut]:
    """A worker's end whose supervisor writes to `log`."""
    ours, theirs = channels()
    out, into = LinesOut(), LinesIn(log.write, ours)
    out.attach(theirs)

    async def supervise() -> None:
        while isinstance(message := await ours.receive(), Lines):
            into.take(message)

    async def listen() -> None:
        while isinstance(message := await theirs.receive(), Written):
            out.written(message)
        out.lost()

    tasks = [asyncio.create_task(supervise()), asyncio.create_task(listen())]
    try:
        yield out
    finally:
        await theirs.close()
        await ours.close()
        await asyncio.gather(*tasks)
        await into.end()


async def test_a_write_returns_when_the_supervisor_has_written() -> None:
    log = Log()
    async with connected(log) as out:
        log.go_on.clear()
        writing = asyncio.create_task(out.write(["a", "b\nc"]))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not writing.done()
        log.go_on.set()
        await writing
    assert log.lines == ["a", "b", "c"]


async def test_lines_longer_than_a_message_travel_in_pieces_and_are_not_mixed() -> None:
    log = Log()
    long = ['"\\"€\x7f' * PIECE_CHARS, "x" * (3 * PIECE_CHARS), "y" * PIECE_CHARS]
    assert len(long[0]) > MOST_LINE_BYTES // 2
    async with connected(log) as out:
        await asyncio.gather(*[out.write([line]) for line in long])
    assert sorted(log.lines) == sorted(long)


async def test_a_writer_that_is_cancelled_leaves_the_channel_whole() -> None:
    log = Log()
    async with connected(log) as out:
        log.go_on.clear()
        forsaken = asyncio.create_task(out.write(["x" * (3 * PIECE_CHARS)]))
        await asyncio.sleep(0)
        forsaken.cancel()
        log.go_on.set()
        await out.write(["a"])
    assert [line[:1] for line in log.lines] == ["x", "a"]


async def test_a_supervisor_that_cannot_write_says_why_and_can_be_asked_again() -> None:
    log = Log()
    async with connected(log) as out:
        log.error = "no room"
        with pytest.raises(OSError, match="no room"):
            await out.write(["a"])
        log.error = ""
        await out.write(["a"])
    assert log.lines == ["a"]


async def test_whoever_waits_when_the_supervisor_goes_fails_and_whoever_comes_later() -> None:
    log = Log()
    async with connected(log) as out:
        log.go_on.clear()
        waiting = asyncio.create_task(out.write(["a"]))
        await asyncio.sleep(0)
        out.lost()
        with pytest.raises(OSError, match="gone"):
            await waiting
        with pytest.raises(OSError, match="gone"):
            await out.write(["b"])
        log.go_on.set()


async def test_without_a_delivery_log_lines_are_answered_and_dropped() -> None:
    ours, theirs = channels()
    into = LinesIn(None, ours)
    into.take(Lines(1, "a", False))
    assert await theirs.receive() == Written(1)


async def test_pieces_that_do_not_belong_together_break_the_channel() -> None:
    ours, _ = channels()
    into = LinesIn(None, ours)
    into.take(Lines(1, "a", True))
    with pytest.raises(ChannelBroken, match="mixed"):
        into.take(Lines(2, "b", False))


async def test_a_worker_cannot_fill_its_supervisors_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "MOST_CHARS", 10)
    ours, _ = channels()
    into = LinesIn(None, ours)
    into.take(Lines(1, "12345", True))
    with pytest.raises(ChannelBroken, match="too many"):
        into.take(Lines(1, "678901", True))
