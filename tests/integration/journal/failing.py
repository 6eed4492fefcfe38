"""A connection that fails when it is told to, as SQLite does: before, in the middle of, or after COMMIT."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from bridge.errors import AddressNotFound, JournalUnavailable
from bridge.journal.journal import Journal
from bridge.journal.rules.state import State
from bridge.journal.values.store import Acknowledgement
from bridge.journal.writer.loading import load_state


def sqlite_error(code: int, text: str = "disk I/O error") -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


#: Says what goes wrong with a statement: nothing, or an error, and whether the statement runs before it.
Plan = Callable[[str], tuple[sqlite3.Error, bool] | None]


class FailingConnection:
    """Stands for the writer's connection."""

    def __init__(self, connection: sqlite3.Connection, plan: Plan) -> None:
        self._connection = connection
        self._plan = plan

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        self._fail(sql)
        return self._connection.execute(sql, parameters)

    def executemany(self, sql: str, parameters: Sequence[Any]) -> sqlite3.Cursor:
        if parameters:
            self._fail(sql)
        return self._connection.executemany(sql, parameters)

    def _fail(self, sql: str) -> None:
        trouble = self._plan(sql)
        if trouble is None:
            return
        error, after = trouble
        if after:
            self._connection.execute(sql)
        elif error.sqlite_errorcode == sqlite3.SQLITE_FULL and self._connection.in_transaction:
            self._connection.execute("ROLLBACK")  # SQLite does, of itself
        raise error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def fail_with(journal: Journal, plan: Plan) -> None:
    """From now on, until the connection is opened again."""
    writer = journal._writer
    writer.connection = FailingConnection(writer.connection, plan)  # type: ignore[assignment]


def once(word: str, code: int, *, after: bool = False) -> Plan:
    """The first statement that begins with `word` fails."""
    left = [1]

    def plan(sql: str) -> tuple[sqlite3.Error, bool] | None:
        if left and sql.startswith(word):
            left.clear()
            return sqlite_error(code), after
        return None

    return plan


async def together(journal: Journal, plan: Plan, *work: Coroutine[Any, Any, Any]) -> list[Any]:
    """The answers (or errors) of what is decided in one group, on which `plan` acts."""
    entered, gate = threading.Event(), threading.Event()
    begun = 0

    def holds_the_first_up(sql: str) -> tuple[sqlite3.Error, bool] | None:
        nonlocal begun
        begun += sql.startswith("BEGIN")
        if sql.startswith("BEGIN") and begun == 1:
            entered.set()
            gate.wait()
        return plan(sql) if begun > 1 else None

    fail_with(journal, holds_the_first_up)
    first = asyncio.create_task(journal.create_queue("first", "first", "latest"))
    try:
        await asyncio.to_thread(entered.wait)
        tasks = [asyncio.create_task(one) for one in work]
        await asyncio.sleep(0)  # each hands its command over
    finally:
        gate.set()
    await first
    return await asyncio.gather(*tasks, return_exceptions=True)


async def caught_up(journal: Journal) -> None:
    """After whatever failed, the writer has opened the file again."""
    with contextlib.suppress(JournalUnavailable, AddressNotFound):
        await journal.release(Acknowledgement("$nowhere", "", ""))
    assert not journal.broken


def memory(journal: Journal) -> dict[str, Any]:
    """What the writer decides by."""
    return _plain(journal._writer.state)


def file(journal: Journal) -> dict[str, Any]:
    """The same as the file has it."""
    connection = sqlite3.connect(journal._writer._path)
    try:
        return _plain(load_state(connection, journal.options))
    finally:
        connection.close()


def _plain(state: State) -> dict[str, Any]:
    addresses = {
        name: (
            one.address_id, one.first, one.next, one.trimmed, one.total, one.messages, one.bytes, one.logged,
            one.cache.capacity, one.cache.accepted, list(one.cache),
            one.id_cache_size, one.id_cache_configured,
            {queue.name: (queue.queue_id, queue.bridge, queue.cursor) for queue in one.queues.values()},
        )
        for name, one in state.addresses.items()
    }  # fmt: skip
    positions = {key: (one.next, one.run, one.checksum, one.epoch) for key, one in state.positions.items()}
    return {
        "sequence": state.sequence,
        "addresses": addresses,
        "by_id": sorted(state.by_id),
        "positions": positions,
        "settled": state.settled,
    }
