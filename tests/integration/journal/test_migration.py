"""Journals of earlier versions open, keep what they hold, and take what is new."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.errors import TargetRefused
from bridge.journal.journal import Journal
from bridge.journal.rules.owners import Caller
from bridge.journal.sqlite.database import FILE_NAME, SCHEMA_VERSION
from bridge.journal.sqlite.reader import find_address, read_blocks
from bridge.journal.target import JournalTarget
from bridge.journal.values.routing import Destination, Placement
from bridge.journal.values.stored_block import END
from bridge.messages.hops import HOP_BYTES, Hops
from tests.fakes.routing import Routed
from tests.harness.eventually import until
from tests.integration.journal.helpers import (
    BRIDGE,
    batch,
    browsed,
    check_file,
    consume,
    deliver,
    number,
    open_stream,
    opened,
    options,
    rows,
    send,
    target,
)

PASSED: Hops = ((2, b"1" * HOP_BYTES), (1, b"2" * HOP_BYTES * 2))
#: What takes each version back to the one before it.
STEPS_BACK = {
    8: "ALTER TABLE settled DROP COLUMN stays",
    7: "DROP INDEX blocks_by_large; DROP TABLE chunks; DROP TABLE loose_bodies;"
    "ALTER TABLE blocks DROP COLUMN large_id",
    6: "DROP INDEX blocks_by_body; DROP TABLE bodies; ALTER TABLE blocks DROP COLUMN body_id",
    5: "DROP INDEX blocks_with_routes; ALTER TABLE blocks DROP COLUMN routes;"
    "ALTER TABLE queues DROP COLUMN filter; ALTER TABLE queues DROP COLUMN messages;"
    "ALTER TABLE queues DROP COLUMN auto_created; ALTER TABLE addresses DROP COLUMN auto_created",
    4: "ALTER TABLE blocks DROP COLUMN buried; ALTER TABLE positions DROP COLUMN principal;"
    "ALTER TABLE positions DROP COLUMN node",
    3: "ALTER TABLE blocks DROP COLUMN hops",
    2: "ALTER TABLE positions DROP COLUMN moved_to",
}


def take_back(directory: Path, version: int) -> None:
    """Make a closed journal one of this version."""
    connection = sqlite3.connect(directory / FILE_NAME)
    for step in range(SCHEMA_VERSION, version, -1):
        connection.executescript(STEPS_BACK[step])
    connection.execute("UPDATE meta SET value = ? WHERE key = 'schema'", (str(version),))
    connection.commit()
    connection.close()


def columns(directory: Path) -> dict[str, set[str]]:
    tables = [name for (name,) in rows(directory, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {
        table: {f"{name} {kind}" for _, name, kind, *_ in rows(directory, f"PRAGMA table_info({table})")}
        for table in tables
    }


async def hops_at(journal: Journal, address: str = "orders") -> list[Hops]:
    """Of each block."""

    def read(connection: sqlite3.Connection) -> Sequence[Hops]:
        row = find_address(connection, address)
        assert row is not None
        return [stored.block.hops for stored in read_blocks(connection, row.address_id, 0, END, 1 << 20)]

    return list(await journal.read(read))


async def test_hops_are_stored_with_their_block_and_cost_nothing_where_there_are_none(tmp_path: Path) -> None:
    passed = batch({0: "a", 1: "b", 2: "c"}, 3)
    assert passed.block is not None
    async with opened(tmp_path) as journal:
        await send(journal, "from a client")
        end = target(journal)
        await open_stream(end)
        await deliver(end, replace(passed, block=passed.block.hopped(PASSED)))
    async with opened(tmp_path) as journal:
        assert await hops_at(journal) == [(), PASSED]
    assert number(tmp_path, "SELECT count(*) FROM blocks WHERE hops IS NULL") == 1


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
async def test_an_older_journal_opens_keeps_its_messages_and_takes_hops(tmp_path: Path, version: int) -> None:
    async with opened(tmp_path / "new"):
        pass
    directory = tmp_path / "old"
    async with opened(directory) as journal:
        await send(journal, "before")
        identity = journal.identity.node_id
        end = target(journal)
        await open_stream(end)
        await deliver(end, batch({0: "relayed"}, 1))
    take_back(directory, version)
    async with opened(directory) as journal:
        assert journal.identity.node_id == identity
        assert await browsed(journal) == ["before", "relayed"]
        end = target(journal)
        assert (await open_stream(end)).next == 1
        passed = batch({1: "a", 2: "b", 3: "c"}, 4)
        assert passed.block is not None
        await deliver(end, replace(passed, block=passed.block.hopped(PASSED)))
        assert await hops_at(journal) == [(), (), PASSED]
    assert rows(directory, "SELECT value FROM meta WHERE key = 'schema'") == [(str(SCHEMA_VERSION),)]
    assert columns(directory) == columns(tmp_path / "new")
    check_file(directory)


async def test_a_queue_of_an_older_journal_gets_a_filter(tmp_path: Path) -> None:
    """Its blocks have their routes behind their bodies there."""
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", "q", "earliest")
        for body in "ab":
            await send(journal, body, body)
    take_back(tmp_path, 4)
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", "q", "earliest", "AMQDuplicateId <> 'c'")
        await journal.create_queue("orders", "all", "earliest")
        for body in "cd":
            await send(journal, body, body)
        assert await consume(journal) == ["a", "b", "d"]
        assert await consume(journal, queue="all") == list("abcd")
    check_file(tmp_path)


async def test_logs_of_an_older_journal_share_what_they_get_from_now_on(tmp_path: Path) -> None:
    """Its blocks have the column behind their bodies there."""
    logs = ("orders", "second")
    async with opened(tmp_path) as journal:
        for log in logs:
            await journal.create_queue(log, "q", "earliest")
            await send(journal, "before" * 10_000, address=log)
    take_back(tmp_path, 5)
    router = Routed(lambda routing: [Placement(Destination(log), routing.indices) for log in logs])
    async with opened(options(tmp_path, router=router)) as journal:
        await send(journal, "after" * 10_000)
        assert rows(tmp_path, "SELECT length(body) > 0 FROM bodies") == [(1,)]
        assert rows(tmp_path, "SELECT body_id IS NULL FROM blocks ORDER BY first") == [(1,), (1,), (0,), (0,)]
        check_file(tmp_path)
        for log in logs:
            assert await consume(journal, log) == ["before" * 10_000, "after" * 10_000]
        await until(lambda: number(tmp_path, "SELECT count(*) FROM blocks") == 0, "what was read goes")
        check_file(tmp_path)


async def test_positions_of_an_older_journal_belong_to_the_first_that_opens_them(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        end = target(journal)
        await open_stream(end)
        await deliver(end, batch({0: "relayed"}, 1))
    take_back(tmp_path, 3)
    async with opened(tmp_path) as journal:
        first = JournalTarget(journal, BRIDGE, check_producer_ids=False, caller=Caller("user:a", "node-a"))
        assert (await open_stream(first)).next == 1
        second = JournalTarget(journal, BRIDGE, check_producer_ids=False, caller=Caller("user:b", "node-a"))
        with pytest.raises(TargetRefused, match="belongs to user:a, node node-a; found user:b, node node-a"):
            await open_stream(second)
