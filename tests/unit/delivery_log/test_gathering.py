"""Lines of many lanes on their way to one disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import cast

import pytest

from bridge.delivery_log import GatheringWriter, LogThread, SegmentWriter


class Disk:
    """Writes when it is let, one call after the other."""

    def __init__(self) -> None:
        self.calls: list[list[bytes]] = []
        self.fails: OSError | None = None
        self.go_on = threading.Event()
        self.go_on.set()
        self.began = threading.Event()

    def write(self, lines: Sequence[bytes]) -> None:
        self.began.set()
        assert self.go_on.wait(10)
        if self.fails is not None:
            raise self.fails
        self.calls.append(list(lines))


def over(disk: Disk) -> GatheringWriter:
    return GatheringWriter(LogThread(cast(SegmentWriter, disk)))


async def began(disk: Disk) -> None:
    assert await asyncio.to_thread(disk.began.wait, 10)


async def test_what_comes_while_a_write_runs_goes_together_into_the_next_in_order() -> None:
    disk = Disk()
    log = over(disk)
    disk.go_on.clear()
    writing = [asyncio.create_task(log.write(["a", "b"]))]
    await began(disk)
    writing += [asyncio.create_task(log.write([text])) for text in ("c", "d")]
    await asyncio.sleep(0)
    assert not any(task.done() for task in writing)
    disk.go_on.set()
    await asyncio.gather(*writing)
    assert disk.calls == [[b"a", b"b"], [b"c", b"d"]]


async def test_nothing_is_no_write() -> None:
    disk = Disk()
    await over(disk).write([])
    assert disk.calls == []


async def test_a_failure_is_everybodys_whose_lines_were_in_it_and_the_next_call_tries_again() -> None:
    disk = Disk()
    log = over(disk)
    disk.fails = OSError("no room")
    for failed in await asyncio.gather(log.write(["a"]), log.write(["b"]), return_exceptions=True):
        assert isinstance(failed, OSError)
    disk.fails = None
    await log.write(["a"])
    assert disk.calls == [[b"a"]]


async def test_lines_of_a_caller_that_was_cancelled_are_written_and_nobody_else_waits_for_him() -> None:
    disk = Disk()
    log = over(disk)
    disk.go_on.clear()
    forsaken = asyncio.create_task(log.write(["a"]))
    await began(disk)
    other = asyncio.create_task(log.write(["b"]))
    await asyncio.sleep(0)
    forsaken.cancel()
    with pytest.raises(asyncio.CancelledError):
        await forsaken
    disk.go_on.set()
    await other
    assert disk.calls == [[b"a"], [b"b"]]
