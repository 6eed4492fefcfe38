"""Opening: quick whatever is stored, the same identity each time, a new run each time."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from pathlib import Path

import pytest

from bridge.errors import JournalDamaged, JournalFailed
from bridge.journal.journal import Journal
from bridge.journal.sqlite import database, repair
from bridge.journal.sqlite.database import FILE_NAME
from bridge.journal.values.options import BridgeQueue
from tests.integration.journal.helpers import (
    KIB,
    QUEUE,
    acknowledgement,
    consume,
    lease,
    opened,
    options,
    rows,
    send,
)


async def some(journal: Journal) -> None:
    await journal.create_queue("orders", QUEUE, "earliest")
    for place in range(30):
        await asyncio.gather(*(send(journal, "." * KIB, f"{place}-{copy}") for copy in range(3)))
    await journal.acknowledge(acknowledgement(await lease(journal, most=10)))


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that any connection runs."""
    found: list[str] = []
    connect = database._connect

    def traced(path: Path, mode: str) -> sqlite3.Connection:
        connection = connect(path, mode)
        connection.set_trace_callback(found.append)
        return connection

    monkeypatch.setattr(database, "_connect", traced)
    return found


def scans(path: Path, statements: list[str]) -> list[str]:
    """Steps of the statements' plans that walk over all of `blocks`, or over all IDs of all addresses."""
    connection = sqlite3.connect(path)
    found = []
    for sql in dict.fromkeys(statements):
        if re.match("SELECT|UPDATE|DELETE|INSERT", sql):
            for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {sql}"):
                if re.match(r"SCAN (blocks|ids|outbox)\b", step):
                    found.append(f"{sql}: {step}")
    connection.close()
    return found


async def test_opening_never_walks_over_the_messages(tmp_path: Path, statements: list[str]) -> None:
    bridge = BridgeQueue("to-hub", [], lambda _address: True)
    async with opened(options(tmp_path, bridges=[bridge])) as journal:
        await some(journal)
    statements.clear()
    async with opened(
        options(tmp_path, bridges=[bridge, BridgeQueue("new", ["made"], lambda _address: True)])
    ):
        pass
    assert any("FROM addresses" in sql for sql in statements)
    assert not any("FROM blocks" in sql and "address_id" not in sql for sql in statements)
    assert scans(tmp_path / FILE_NAME, statements) == []


async def test_nothing_that_is_asked_every_day_walks_over_the_messages(
    tmp_path: Path, statements: list[str]
) -> None:
    async with opened(tmp_path) as journal:
        await some(journal)
        await journal.addresses()
        await journal.browse("orders", after=5, most=3, most_bytes=KIB)
        await consume(journal)
        await journal.delete_address("orders")
    assert any(sql.startswith("DELETE FROM blocks") for sql in statements)
    assert scans(tmp_path / FILE_NAME, statements) == []


async def test_a_scan_would_be_found(tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass
    assert scans(tmp_path / FILE_NAME, ["SELECT sum(count) FROM blocks"]) != []


async def test_bodies_are_not_read_to_find_out_where_they_are(tmp_path: Path, statements: list[str]) -> None:
    async with opened(tmp_path) as journal:
        await some(journal)
        statements.clear()
        await lease(journal, most=50)
    looks = [sql for sql in statements if "FROM blocks" in sql and "body" not in sql]
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    plans = [step for sql in looks for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
    connection.close()
    assert plans
    assert all("COVERING INDEX" in step for step in plans), plans


async def test_a_journal_keeps_its_identity_and_counts_its_runs(tmp_path: Path) -> None:
    identities = []
    for _ in range(3):
        async with opened(tmp_path) as journal:
            identities.append(journal.identity)
            await send(journal, "x")
            assert journal.store == f"{journal.identity.node_id}:{journal.identity.incarnation}"
    assert len({(one.node_id, one.incarnation) for one in identities}) == 1
    assert len({one.session_id for one in identities}) == 3
    found = dict(rows(tmp_path, "SELECT run, first FROM runs"))
    assert [found[one.session_id] for one in identities] == [0, 1, 2]


async def test_two_journals_are_two(tmp_path: Path) -> None:
    async with opened(tmp_path / "a") as first, opened(tmp_path / "b") as second:
        assert first.store != second.store


async def test_opening_in_a_directory_that_is_not_there_makes_it(tmp_path: Path) -> None:
    async with opened(tmp_path / "below" / "data") as journal:
        assert (await send(journal, "x")).stored


async def test_queues_are_made_before_anything_can_be_sent(tmp_path: Path) -> None:
    bridge = BridgeQueue("to-hub", ["orders"], lambda address: address == "orders")
    async with opened(options(tmp_path, bridges=[bridge], addresses={"orders": [QUEUE]})):
        pass
    assert rows(tmp_path, "SELECT name, next FROM queues ORDER BY name") == [
        ("$bridge.to-hub", 0),
        (QUEUE, 0),
    ]


async def test_only_the_writers_connection_copies_the_log_and_it_is_closed_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite before 3.51.3 may lose pages of a commit while another connection copies the log."""
    events: list[tuple[int, str]] = []
    connections: list[sqlite3.Connection] = []

    class Recorded(sqlite3.Connection):
        def close(self) -> None:
            events.append((connections.index(self), "close"))
            super().close()

    def recorded(path: Path, mode: str) -> sqlite3.Connection:
        address = f"{path.absolute().as_uri()}?mode={mode}"
        connection = sqlite3.connect(
            address, uri=True, isolation_level=None, check_same_thread=False, factory=Recorded
        )
        number = len(connections)
        connections.append(connection)
        connection.set_trace_callback(lambda sql: events.append((number, sql)))
        return connection

    monkeypatch.setattr(database, "_connect", recorded)
    async with opened(tmp_path) as journal:
        await some(journal)
        await asyncio.gather(*(journal.addresses() for _ in range(20)))
        journal._writer._space._message_bytes = journal._writer._space._shares.checkpoint
        await send(journal, "x")
        await consume(journal)
    assert len(connections) >= 2
    copying = {number for number, sql in events if "checkpoint(" in sql}
    assert copying == {0}, "the writer's, which was opened first"
    for number in range(1, len(connections)):
        statements = [sql for by, sql in events if by == number]
        assert "PRAGMA query_only = ON" in statements
        assert "PRAGMA wal_autocheckpoint = 0" in statements
        assert not any(re.match("INSERT|UPDATE|DELETE|COMMIT", sql) for sql in statements)
    assert events[-1] == (0, "close"), "the last connection to close copies the log"
    assert events.index((0, "PRAGMA wal_checkpoint(TRUNCATE)")) > max(
        place for place, (number, _) in enumerate(events) if number
    )


@pytest.mark.parametrize(("version", "steps"), [(7, {}), (6, {7: "SELECT 1"})])
async def test_a_schema_of_before_the_first_release_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, steps: dict[int, str]
) -> None:
    async with opened(tmp_path):
        pass
    set_schema(tmp_path, version)
    monkeypatch.setattr(database, "MIGRATIONS", steps)
    with pytest.raises(
        JournalFailed, match=f"too old: schema {version}; this one reads {version + 1} and later"
    ):
        async with opened(tmp_path):
            pass


async def test_a_schema_from_which_steps_lead_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as journal:
        await send(journal, "x")
    monkeypatch.setattr(database, "SCHEMA_VERSION", database.SCHEMA_VERSION + 2)
    steps = {8: "CREATE TABLE made (one INTEGER)", 9: "INSERT INTO made VALUES (1)"}
    monkeypatch.setattr(database, "MIGRATIONS", steps)
    for _ in range(2):
        async with opened(tmp_path) as journal:
            assert (await journal.address("orders")).messages == 1
    assert rows(tmp_path, "SELECT one FROM made") == [(1,)]
    assert rows(tmp_path, "SELECT value FROM meta WHERE key = 'schema'") == [("10",)]


def set_schema(directory: Path, version: int) -> None:
    connection = sqlite3.connect(directory / FILE_NAME)
    connection.execute("UPDATE meta SET value = ? WHERE key = 'schema'", (str(version),))
    connection.commit()
    connection.close()


async def test_a_journal_without_its_schema_is_damaged(tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("DELETE FROM meta WHERE key = 'schema'")
    connection.commit()
    connection.close()
    with pytest.raises(JournalDamaged, match="row schema of meta: it is missing"):
        async with opened(tmp_path):
            pass
    with pytest.raises(JournalDamaged, match="cannot be saved"):
        repair.examine(tmp_path / FILE_NAME)
