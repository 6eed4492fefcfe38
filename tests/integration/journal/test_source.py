"""The journal as a source: streams that appear at a bad moment, and settlements that fail or overtake."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from bridge.journal.batching import Cutter
from bridge.journal.journal import Journal
from bridge.journal.source import JournalSource
from bridge.journal.values.options import BridgeQueue, BridgeSelection, JournalOptions
from bridge.journal.values.store import Transaction
from bridge.messages.batch import Batch
from bridge.relay.ports import Receipt, StreamState
from dedup.verdict import Verdict
from tests.harness.eventually import until
from tests.integration.journal.failing import fail_with, sqlite_error
from tests.integration.journal.helpers import BRIDGE, ManualClock, browsed, opened, send, submission

STORE = "store:0"
PATIENCE_S = 5.0


def bridged(directory: Path) -> JournalOptions:
    """A journal with one bridge that reads every address."""
    return JournalOptions(directory, bridges=[BridgeQueue(BRIDGE, ["orders"], lambda _name: True)])


def source_of(journal: Journal, batch_bytes: int = 1 << 20) -> JournalSource:
    return JournalSource(
        journal,
        BridgeSelection(BRIDGE, lambda _name: True, str),
        Cutter(batch_bytes, 100 * 1024, stamp=True),
        target_name="hub",
    )


async def sent_lines(journal: Journal) -> list[dict[str, Any]]:
    lines = [msgspec.json.decode(line) for _, line in await journal.lines(0, 1000)]
    return [line for line in lines if line["side"] == "sent"]


def chained(lines: Sequence[dict[str, Any]]) -> bool:
    """Each line begins where the one before it ended."""
    return all(before["upto"] == line["from"] for before, line in pairwise(lines))


async def test_address_made_while_the_target_is_asked_is_not_forgotten(tmp_path: Path) -> None:
    """Design 4, 'OPEN per stream, also for streams that appear later'."""
    async with opened(bridged(tmp_path)) as journal:
        source = source_of(journal)
        streams = await source.streams()
        await send(journal, "m", address="new")  # while the target's answer is on its way
        await source.open({stream.identity: StreamState(None) for stream in streams}, STORE)
        assert await asyncio.wait_for(source.read(), PATIENCE_S) == []


async def test_settlement_behind_a_failed_one_leaves_no_gap_in_the_sent_lines(tmp_path: Path) -> None:
    """Design 7: lines chain, and what no line says is written as `recovered` at the next opening.

    The second is handed over before the first one's error is known, as the pump does all the time.
    """
    async with opened(bridged(tmp_path)) as journal:
        for number in range(2):
            await send(journal, str(number))
        source = source_of(journal, batch_bytes=1)
        (stream,) = await source.streams()
        await source.open({stream.identity: StreamState(None)}, STORE)
        batches: list[Batch] = []
        while len(batches) < 2:
            batches += await source.read()
        committing, gate = threading.Event(), threading.Event()

        def plan(sql: str) -> tuple[sqlite3.Error, bool] | None:
            if sql != "COMMIT" or committing.is_set():
                return None
            committing.set()
            gate.wait()
            return sqlite_error(sqlite3.SQLITE_IOERR), False

        fail_with(journal, plan)
        receipt = Receipt(stream.identity, Verdict.STORED, 0)
        await source.settled(batches[0], receipt)
        await asyncio.to_thread(committing.wait)
        await source.settled(batches[1], receipt)
        gate.set()
        await source.close()
        again = source_of(journal)
        word = StreamState(batches[1].upto, journal.identity.session_id, batches[1].checksum)
        await again.open({stream.identity: word}, STORE)
        await again.close()
        lines = await sent_lines(journal)
        assert lines[0]["from"] == batches[0].from_
        assert chained(lines)


async def test_settlement_that_waits_for_room_is_not_overtaken(tmp_path: Path) -> None:
    """Design 7: lines chain on a healthy run; a full disk that has room again loses none."""
    clock = ManualClock()
    async with opened(bridged(tmp_path), clock) as journal:
        for number in range(2):
            await send(journal, str(number))
        source = source_of(journal, batch_bytes=1)
        (stream,) = await source.streams()
        await source.open({stream.identity: StreamState(None)}, STORE)
        batches: list[Batch] = []
        while len(batches) < 2:
            batches += await source.read()
        full = [1]

        def plan(sql: str) -> tuple[sqlite3.Error, bool] | None:
            if full and sql.startswith("INSERT INTO settled"):
                full.clear()
                return sqlite_error(sqlite3.SQLITE_FULL, "database or disk is full"), False
            return None

        fail_with(journal, plan)
        receipt = Receipt(stream.identity, Verdict.STORED, 0)
        await source.settled(batches[0], receipt)  # no room: it is held
        await until(lambda: journal.disk_full, "the disk is full")
        await source.settled(batches[1], receipt)  # comes while the first is held
        await asyncio.wait_for(asyncio.wait([source._settling[-1]]), PATIENCE_S)
        clock.advance(1_000)
        await send(journal, "wakes the writer")
        await source.close()
        lines = await sent_lines(journal)
        assert [(line["from"], line["upto"]) for line in lines] == [
            (batch.from_, batch.upto) for batch in batches
        ]
        assert await browsed(journal) == ["wakes the writer"]


async def test_messages_of_one_address_come_before_the_backlog_of_another(tmp_path: Path) -> None:
    """Design 5 of the journal: addresses take turns by bytes."""
    async with opened(bridged(tmp_path)) as journal:
        for _ in range(40):
            await send(journal, "x" * 10_000, address="telemetry")
        await send(journal, "quiet", address="alarms")
        source = source_of(journal)
        streams = await source.streams()
        await source.open({stream.identity: StreamState(None) for stream in streams}, STORE)
        alarms = next(stream.identity for stream in streams if stream.address == "alarms")
        source.fit(25_000)
        for _ in range(4):
            await source.read()
        await send(journal, "fire", address="alarms")
        first = await source.read()
        assert first[0].stream == alarms
        assert sum(batch.size for batch in first) <= 25_000
        await source.close()


async def test_backlogs_of_two_addresses_share_what_is_read(tmp_path: Path) -> None:
    """By bytes: the address of small messages is not read as often as if each batch were a turn."""
    async with opened(bridged(tmp_path)) as journal:
        for _ in range(30):
            await send(journal, "x" * 10_000, address="large")
            await send(journal, "x" * 1_000, address="small")
        source = source_of(journal, batch_bytes=1)
        streams = await source.streams()
        await source.open({stream.identity: StreamState(None) for stream in streams}, STORE)
        source.fit(1)
        counts: Counter[str] = Counter()
        for _ in range(22):
            counts.update(batch.stream for batch in await source.read())
        assert sorted(counts.values()) == [2, 20]
        await source.close()


async def test_what_was_read_in_advance_is_cut_again_when_the_line_has_become_slow_or_fast(
    tmp_path: Path,
) -> None:
    async with opened(bridged(tmp_path)) as journal:
        for _ in range(4):
            await journal.commit(Transaction([submission("x" * 1_000) for _ in range(50)]))
        source = source_of(journal)
        (stream,) = await source.streams()
        await source.open({stream.identity: StreamState(None)}, STORE)
        batches: list[Batch] = []
        for most in (4_000, 4_100, 40_000, 5_000, 100_000, 1_000_000):
            source.fit(most)
            batches += await source.read()
            assert batches[-1].size <= most
        assert batches[0].from_ == 0
        assert all(before.upto == after.from_ for before, after in pairwise(batches))
        assert sum(batch.count for batch in batches) == 200
        assert batches[2].size > 30_000
        await source.close()
