"""Reads the journal: a few threads with a connection each, one read transaction for one piece of work."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from bridge.errors import JournalUnavailable
from bridge.journal.sqlite.damage import FoundDamage
from bridge.journal.sqlite.database import connect_reader
from bridge.journal.sqlite.pages import DecodedBlocks, PageSize, deliver_page, read_page
from bridge.journal.values.queue_cursor import Interval
from bridge.journal.values.store import Delivered

P = ParamSpec("P")
T = TypeVar("T")

#: Threads, and so connections, that read.
READERS: Final = 2

#: How long the writer waits for read transactions to end before it lets the log grow instead, in seconds.
READ_S: Final = 1.0


@contextmanager
def readable() -> Iterator[None]:
    """Report an error of the file to clients as one that cannot be read now. Raises: JournalUnavailable."""
    try:
        yield
    except sqlite3.Error as error:
        raise JournalUnavailable(f"the journal cannot be read ({error})") from error


class UnderWay:
    """The read transactions under way: the log begins anew when those that look at it have ended."""

    def __init__(self) -> None:
        self._ended = threading.Condition()
        self._now: set[object] = set()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Register a read transaction while it runs, from any thread."""
        mark = object()
        with self._ended:
            self._now.add(mark)
        try:
            yield
        finally:
            with self._ended:
                self._now.discard(mark)
                self._ended.notify_all()

    def let_end(self) -> bool:
        """Wait, for `READ_S` at most, for the transactions that have begun; answers whether they ended.

        Other transactions may begin meanwhile.
        """
        with self._ended:
            before = set(self._now)
            return self._ended.wait_for(lambda: before.isdisjoint(self._now), READ_S)


class Readers:
    """Runs read functions in threads. Functions take the connection as their first argument."""

    def __init__(self, path: Path, damage: FoundDamage) -> None:
        """`damage` gets what is found damaged."""
        self._path = path
        self._damage = damage
        self._decoded = DecodedBlocks()
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="journal-reader")
        self._under_way = UnderWay()
        #: See `UnderWay.let_end`.
        self.let_end = self._under_way.let_end

    async def run(
        self, function: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """`function(connection, ...)` inside one read transaction, in a reader thread.

        Raises: JournalDamaged; what the function raises.
        """

        def work() -> T:
            with self._damage.noticed():
                return self._in_transaction(lambda connection: function(connection, *args, **kwargs))

        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def page(self, address_id: int, intervals: Iterable[Interval], most: PageSize) -> list[Delivered]:
        """The first messages in these intervals, as many as the page takes.

        Raises: JournalUnavailable, JournalDamaged.
        """

        def work() -> list[Delivered]:
            with self._damage.noticed():
                pieces = self._in_transaction(
                    lambda connection: read_page(connection, self._decoded, address_id, intervals, most)
                )
                return deliver_page(pieces, self._decoded, most)

        with readable():
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def _in_transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = connect_reader(self._path)
            self._connections.append(connection)
        with self._under_way.one():
            connection.execute("BEGIN")
            try:
                return work(connection)
            finally:
                if connection.in_transaction:  # SQLite ends it itself after some errors
                    connection.execute("ROLLBACK")

    def close(self) -> None:
        """Waits for work under way."""
        self._pool.shutdown()
        for connection in self._connections:
            connection.close()
