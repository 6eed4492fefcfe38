"""The sent side of a Kafka source's log: what waits for the disk, and what waits for that."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from bridge.delivery_log import LineWriter
from bridge.errors import SourceUnavailable
from bridge.kafka.source import sent_log
from bridge.kafka.source.sent_log import SentLog
from bridge.messages.batch import Batch
from bridge.relay.ports import Receipt, Stream
from dedup.verdict import Verdict

STREAM = Stream("kafka:c:t:0", "orders", "eu.orders", "3", 1)


class Disk:
    """Writes when it is let."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.error = ""
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def write(self, lines: Sequence[str]) -> None:
        await self.go_on.wait()
        if self.error:
            raise OSError(self.error)
        self.calls.append([json.loads(line)["upto"] for line in lines])


class Confirmed:
    """A log, and what its source may say to the group."""

    def __init__(self, disk: Disk) -> None:
        self.log = SentLog(disk.write, LineWriter(node="n", node_id="u", bridge="b", lane=0, target="t"))
        self.written: list[int] = []

    def add(self, from_: int, upto: int) -> None:
        receipt = Receipt(STREAM.identity, Verdict.STORED, upto)
        batch = Batch(STREAM.identity, from_, upto)
        self.log.add(batch, receipt, STREAM, "s", lambda: self.written.append(upto), recovered=False)


async def turns(number: int = 10) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_the_group_is_told_once_the_lines_are_on_disk_and_lines_gather_meanwhile() -> None:
    disk = Disk()
    source = Confirmed(disk)
    disk.go_on.clear()
    source.add(0, 1)
    await turns()
    source.add(1, 2)
    source.add(2, 3)
    await turns()
    assert source.written == []
    disk.go_on.set()
    await source.log.flush()
    assert disk.calls == [[1], [2, 3]]
    assert source.written == [1, 2, 3]


async def test_coverage_of_nothing_is_no_line_but_is_told_in_its_turn() -> None:
    disk = Disk()
    source = Confirmed(disk)
    source.add(0, 1)
    source.add(1, 1)
    await source.log.flush()
    assert source.written == [1, 1]
    assert [upto for call in disk.calls for upto in call] == [1]


async def test_after_a_failure_nothing_is_told_and_flush_tries_again() -> None:
    disk = Disk()
    source = Confirmed(disk)
    disk.error = "no room"
    source.add(0, 1)
    await turns()
    with pytest.raises(SourceUnavailable, match="no room"):
        await source.log.room()
    with pytest.raises(SourceUnavailable, match="no room"):
        await source.log.flush()
    assert source.written == []
    disk.error = ""
    await source.log.flush()
    await source.log.room()
    assert (disk.calls, source.written) == ([[1]], [1])


async def test_confirmations_wait_while_too_much_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_log, "MOST_WAITING_BYTES", 1000)
    disk = Disk()
    source = Confirmed(disk)
    disk.go_on.clear()
    for number in range(10):
        source.add(number, number + 1)
    waiting = asyncio.create_task(source.log.room())
    await turns()
    assert not waiting.done()
    disk.go_on.set()
    await waiting


async def test_closing_writes_what_waits_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_log, "CLOSE_TIMEOUT_MS", 10)
    disk = Disk()
    source = Confirmed(disk)
    source.add(0, 1)
    await source.log.close()
    assert (disk.calls, source.written) == ([[1]], [1])
    disk.go_on.clear()
    source.add(1, 2)
    await source.log.close()
    disk.go_on.set()
    await turns()
    assert source.written == [1], "what was not written is recovered at the next opening"


async def test_what_a_store_has_lost_is_a_line_of_its_own_and_on_disk_at_once() -> None:
    lines: list[dict[str, Any]] = []

    async def write(texts: Sequence[str]) -> None:
        lines.extend(map(json.loads, texts))

    log = SentLog(write, LineWriter(node="n", node_id="u", bridge="b", lane=0, target="t"))
    await log.missing(STREAM, ((3, 9), (20, 20)), "store-1")
    shown = [(line["side"], line["verdict"], line["store"], line["from"], line["upto"]) for line in lines]
    assert shown == [("sent", "missing", "store-1", 3, 10), ("sent", "missing", "store-1", 20, 21)]
    assert all(line["runs"] == [] and line["stream"] == STREAM.identity for line in lines)
