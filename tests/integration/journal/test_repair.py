"""What can be read of a damaged journal goes on, and what is lost is said, position by position."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import msgspec
import pytest

from bridge.errors import JournalDamaged
from bridge.journal.batching import Cutter
from bridge.journal.journal import Journal
from bridge.journal.source import JournalSource
from bridge.journal.sqlite import repair
from bridge.journal.sqlite.damage import PLACES_MOST, FoundDamage, is_damage
from bridge.journal.sqlite.database import FILE_NAME
from bridge.journal.values.options import BridgeQueue, BridgeSelection, JournalOptions
from bridge.journal.values.stored_block import PAGE_BYTES
from bridge.messages.batch import Batch
from bridge.relay.ports import Receipt, StreamState
from dedup.verdict import Verdict
from tests.integration.journal.failing import sqlite_error
from tests.integration.journal.helpers import (
    BRIDGE,
    KIB,
    QUEUE,
    acknowledgement,
    bodies,
    browsed,
    check_file,
    consume,
    lease,
    opened,
    send,
    send_all,
)

SENT = [f"{place:02}." + "." * 20 * KIB for place in range(40)]
IDS = [f"id-{place}" for place in range(40)]
COLUMNS = "(address_id, first, count, size, ordinal, largest)"
NOW_MS = 1_700_000_000_000


def with_bridge(directory: Path) -> JournalOptions:
    return JournalOptions(directory, bridges=[BridgeQueue(BRIDGE, ["orders"], "orders".__eq__)])


async def filled(directory: Path) -> Path:
    """A journal with 40 messages, a reader's queue that has had the first five, and a bridge."""
    async with opened(with_bridge(directory)) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send_all(journal, SENT, IDS)
        await journal.acknowledge(acknowledgement(await lease(journal, most=5)))
    return directory / FILE_NAME


def change(path: Path, *messages: str) -> None:
    """Change one byte within the body of each of these messages: SQLite notices nothing."""
    data = path.read_bytes()
    with path.open("r+b") as file:
        for message in messages:
            file.seek(data.index(message.encode() + b"." * 100) + 50)
            file.write(b"!")


def garble(path: Path, message: str) -> None:
    """Overwrite the beginning of the page on which a message begins, with its neighbours."""
    at = path.read_bytes().index(message.encode() + b"." * 100) // PAGE_BYTES * PAGE_BYTES
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff" * 64)


def root_page(path: Path, name: str) -> int:
    connection = sqlite3.connect(path)
    (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
    connection.close()
    return int(page)


def garble_tree(path: Path, name: str) -> None:
    """Overwrite the root of a table or an index."""
    page = root_page(path, name)
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(b"\xff" * PAGE_BYTES)


def skipped(path: Path) -> list[str]:
    findings = repair.examine(path)
    repair.save(path, findings, NOW_MS)
    return list(findings)


async def read_all(directory: Path) -> list[str]:
    async with opened(with_bridge(directory)) as journal:
        return await consume(journal)


async def test_a_changed_byte_of_a_body_is_noticed_and_not_served(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        await send_all(journal, ["before", "x" * 50 * KIB + "needle" + "." * 50 * KIB, "after"])
    change(tmp_path / FILE_NAME, "needle")
    async with opened(tmp_path) as journal:
        page = await lease(journal)
        assert bodies(page.messages) == ["before"]
        with pytest.raises(JournalDamaged, match=r"orders: positions 1 to 1 cannot be read .*checksum"):
            await lease(journal)
        assert len(journal.damaged) == 1
    assert skipped(tmp_path / FILE_NAME) == ["orders: 1 messages are lost, at positions 1 to 1"]
    async with opened(tmp_path) as journal:
        assert await consume(journal) == ["before", "after"], "the lease of the first is given out again"
        assert not journal.damaged
    check_file(tmp_path)


async def test_readers_get_what_lies_before_the_damage_and_then_its_place(tmp_path: Path) -> None:
    change(await filled(tmp_path), "15")
    async with opened(tmp_path) as journal:
        page = await lease(journal)
        assert bodies(page.messages) == SENT[5:15]
        await journal.acknowledge(acknowledgement(page))
        with pytest.raises(JournalDamaged, match="orders: positions 15 to 15 cannot be read"):
            await lease(journal)
        with pytest.raises(JournalDamaged, match="positions 15 to 15"):
            await journal.browse("orders", after=14, most=10, most_bytes=1 << 30)
        found = await journal.browse("orders", after=15, most=100, most_bytes=1 << 30)
        assert bodies(found) == SENT[16:]
        assert (await send(journal, "new", "new")).stored


@pytest.mark.parametrize(
    ("garbled", "lost"),
    [
        (["15"], ["orders: 1 messages are lost, at positions 15 to 15"]),
        (["20", "21", "22"], ["orders: 3 messages are lost, at positions 20 to 22"]),
        (
            ["10", "39"],
            [
                "orders: 1 messages are lost, at positions 10 to 10",
                "orders: 1 messages are lost, at positions 39 to 39",
            ],
        ),
        (["05"], ["orders: 1 messages are lost, at positions 5 to 5"]),
    ],
)
async def test_what_is_lost_is_said_exactly_and_passed_over(
    tmp_path: Path, garbled: list[str], lost: list[str]
) -> None:
    path = await filled(tmp_path)
    change(path, *garbled)
    assert list(repair.examine(path)) == lost, "and nothing is changed by looking"
    assert skipped(path) == lost
    left = [text for place, text in enumerate(SENT) if f"{place:02}" not in garbled]
    assert (tmp_path / repair.KEPT_NAME).exists()
    async with opened(with_bridge(tmp_path)) as journal:
        assert await browsed(journal) == left
        assert await consume(journal) == [text for text in left if text not in SENT[:5]]
        assert not (await send(journal, "again", IDS[15])).stored, "IDs are known"
        assert (await journal.address("orders")).messages == len(left)
    check_file(tmp_path)
    assert list(repair.examine(path)) == []


async def test_a_page_with_several_messages_is_lost_and_no_other(tmp_path: Path) -> None:
    path = await filled(tmp_path)
    garble(path, "15")
    findings = repair.examine(path)
    assert len(findings.lost) == 1
    (lost,) = findings.lost
    assert lost.first <= 15 < lost.upto
    assert lost.messages == lost.upto - lost.first
    repair.save(path, findings, NOW_MS)
    left = [text for place, text in enumerate(SENT) if not lost.first <= place < lost.upto]
    async with opened(with_bridge(tmp_path)) as journal:
        assert await browsed(journal) == left
    check_file(tmp_path)


@pytest.mark.parametrize(
    "tree", ["blocks_by_address", "blocks_with_routes", "sqlite_autoindex_queues_1", "sqlite_autoindex_ids_1"]
)
async def test_a_damaged_index_loses_nothing(tmp_path: Path, tree: str) -> None:
    path = await filled(tmp_path)
    garble_tree(path, tree)
    if tree.startswith("sqlite"):
        with pytest.raises(JournalDamaged, match="skip-damaged"):
            await Journal.open(JournalOptions(tmp_path))
    assert skipped(path) == []
    assert await read_all(tmp_path) == SENT[5:]


async def test_a_table_of_blocks_without_its_root_is_lost_as_a_whole_and_said(tmp_path: Path) -> None:
    path = await filled(tmp_path)
    garble_tree(path, "blocks")
    assert skipped(path) == ["orders: 40 messages are lost, at positions 0 to 39"]
    async with opened(with_bridge(tmp_path)) as journal:
        assert await consume(journal) == []
        assert (await send(journal, "new", "new")).positions == {"orders": (40, 40)}
        assert await consume(journal) == ["new"]


async def test_duplicate_ids_that_are_lost_are_counted(tmp_path: Path) -> None:
    path = await filled(tmp_path)
    garble_tree(path, "ids")
    with pytest.raises(JournalDamaged, match="skip-damaged"):
        await Journal.open(JournalOptions(tmp_path))
    assert skipped(path) == ["orders: 40 duplicate IDs are lost: a message that comes again is stored again"]
    assert await read_all(tmp_path) == SENT[5:]


@pytest.mark.parametrize("table", ["addresses", "queues", "meta", "sequence", "settled"])
async def test_a_journal_without_its_small_tables_is_refused_by_name(tmp_path: Path, table: str) -> None:
    path = await filled(tmp_path)
    garble_tree(path, table)
    for _ in range(2):
        with pytest.raises(JournalDamaged, match="is damaged"):
            await Journal.open(JournalOptions(tmp_path))
        with pytest.raises(JournalDamaged, match="cannot be saved"):
            repair.examine(path)


async def test_a_bridge_stops_at_the_damage_and_covers_it_as_a_gap_once_it_is_skipped(tmp_path: Path) -> None:
    path = await filled(tmp_path)
    change(path, "15", "39")
    async with opened(with_bridge(tmp_path)) as journal:
        source, _ = await source_of(journal)
        found: list[Batch] = []
        while not found or found[-1].upto < 15:
            found += await source.read()
        with pytest.raises(JournalDamaged, match="positions 15 to 15"):
            await source.read()
        await source.close()
    skipped(path)
    async with opened(with_bridge(tmp_path)) as journal:
        source, stream = await source_of(journal)
        found = []
        while not found or found[-1].upto < 40:
            found += await source.read()
        covered = [(batch.from_, batch.upto) for batch in found]
        assert [low for low, _ in covered] == [0, *(upto for _, upto in covered[:-1])]
        assert source.gaps.positions == 2
        for batch in found:
            await source.settled(batch, Receipt(stream, Verdict.STORED, 0))
        await source.close()
        lines = [msgspec.json.decode(line) for _, line in await journal.lines(0, 1000)]
        sent = [line for line in lines if line["side"] == "sent"]
        assert sum(last - first + 1 for line in sent for first, last in line["runs"]) == 40, (
            "the lost ones are in the lines, and not at the target: reconcile calls them lost"
        )


async def source_of(journal: Journal) -> tuple[JournalSource, str]:
    source = JournalSource(
        journal,
        BridgeSelection(BRIDGE, "orders".__eq__, str),
        Cutter(1, 1 << 20, stamp=True),
        target_name="hub",
    )
    (stream,) = await source.streams()
    await source.open({stream.identity: StreamState(None)}, "store:0")
    return source, stream.identity


async def test_saving_that_is_cut_short_leaves_the_journal_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await filled(tmp_path)
    change(path, "15")
    findings = repair.examine(path)

    def cut(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(repair, "_pass_over", cut)
    before = path.read_bytes()
    with pytest.raises(OSError, match="No space left"):
        repair.save(path, findings, NOW_MS)
    assert path.read_bytes() == before
    monkeypatch.undo()
    assert skipped(path) == ["orders: 1 messages are lost, at positions 15 to 15"]


def test_only_so_many_places_are_remembered() -> None:
    found = FoundDamage()
    for place in range(2 * PLACES_MOST):
        found.add(f"place {place % (PLACES_MOST + 10)}")
    assert list(found.places) == [f"place {place}" for place in range(PLACES_MOST)]


async def test_reads_that_fail_come_to_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a table whose root is gone every read fails, wherever it begins."""
    path = await filled(tmp_path)
    garble_tree(path, "blocks")
    monkeypatch.setattr(repair, "FAILURES_MOST", 50)
    statements: list[str] = []
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.set_trace_callback(statements.append)
        assert list(repair._readable(connection, "blocks", "first")) == []
    assert len(statements) <= 52


@pytest.mark.parametrize(
    ("error", "damaged"),
    [
        (sqlite_error(sqlite3.SQLITE_CORRUPT), True),
        (sqlite_error(sqlite3.SQLITE_CORRUPT_INDEX), True),
        (sqlite_error(sqlite3.SQLITE_NOTADB), True),
        (sqlite3.OperationalError("Could not decode to UTF-8 column 'name' with text '\xff'"), True),
        (msgspec.DecodeError("no msgpack"), True),
        (sqlite_error(sqlite3.SQLITE_IOERR_READ), False),
        (sqlite_error(sqlite3.SQLITE_FULL), False),
        (sqlite3.OperationalError("no such table: blocks"), False),
        (ValueError("something else"), False),
    ],
)
def test_what_is_damage(error: Exception, damaged: bool) -> None:
    assert is_damage(error) is damaged


@pytest.mark.parametrize("gone", [0, 20, 39])
async def test_blocks_that_an_index_has_lost_are_missed_and_not_passed_over(
    tmp_path: Path, gone: int
) -> None:
    """Whichever it is: the first, one between others, or the last."""
    path = await filled(tmp_path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("DELETE FROM sqlite_master WHERE name = 'blocks_by_address'")
        connection.commit()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE INDEX blocks_by_address ON blocks {COLUMNS} WHERE first <> {gone}")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_master SET sql = ? WHERE name = 'blocks_by_address'",
            (f"CREATE INDEX blocks_by_address ON blocks {COLUMNS}",),
        )
        connection.commit()
    async with opened(with_bridge(tmp_path)) as journal:
        source, _ = await source_of(journal)
        found: list[Batch] = []
        with pytest.raises(JournalDamaged, match=r"orders: 1 messages before position .* cannot be found"):
            await read_to_the_end(source, found)
        assert all(batch.upto <= gone for batch in found)
        await source.close()
        assert journal.damaged


async def read_to_the_end(source: JournalSource, found: list[Batch]) -> None:
    while True:
        found += await source.read()
