"""Real journals whose writer and readers work in the event loop, when the simulation says so.

Commands wait in the writer's inbox, which is the open commit group, until a turn stores all of them in one
transaction. A kill loses what waits; it can also come within the commit, at the journal's own crash points.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar
from unittest.mock import patch

from bridge.errors import JournalUnavailable
from bridge.journal.journal import Journal
from bridge.journal.rules.commands import CommitCommand, DeliverCommand, MoveCommand, WriteCommand
from bridge.journal.rules.commit_group import Group
from bridge.journal.sqlite.damage import FoundDamage
from bridge.journal.sqlite.database import FILE_NAME, DirectoryLock
from bridge.journal.sqlite.pages import PageSize, deliver_page, read_page
from bridge.journal.sqlite.reading_threads import Readers, readable
from bridge.journal.values.options import JournalOptions
from bridge.journal.values.queue_cursor import Interval
from bridge.journal.values.store import Delivered
from bridge.journal.writer import rows, writer
from bridge.runtime.clock import Clock

U = TypeVar("U", bound=WriteCommand)
P = ParamSpec("P")
T = TypeVar("T")

#: Where a kill within a commit leaves nothing of the group, and where all of it.
BEFORE_COMMIT: Final = "journal.before-commit"
AFTER_COMMIT: Final = "journal.after-commit"


class Killed(BaseException):
    """The process of a node has ended, as by `kill -9`."""


class ReadersHere(Readers):
    """Read functions, run at once and in the caller's thread; what they find may come late."""

    def __init__(self, path: Path, late_s: Callable[[], float]) -> None:
        """`late_s` says how much later, each time."""
        super().__init__(path, FoundDamage())
        self._late_s = late_s

    async def run(
        self, function: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        found = self._in_transaction(lambda connection: function(connection, *args, **kwargs))
        if late_s := self._late_s():
            await asyncio.sleep(late_s)
        return found

    async def page(self, address_id: int, intervals: Iterable[Interval], most: PageSize) -> list[Delivered]:
        with readable():
            pieces = self._in_transaction(
                lambda connection: read_page(connection, self._decoded, address_id, intervals, most)
            )
            return deliver_page(pieces, self._decoded, most)


class SimJournal(Journal):
    """One opening of a node's journal."""

    def __init__(
        self,
        options: JournalOptions,
        clock: Clock,
        submitted: Callable[[], None],
        late_s: Callable[[], float],
    ) -> None:
        """`submitted` is called with each command; `late_s` as in `ReadersHere`."""
        super().__init__(options, DirectoryLock(options.directory), clock)
        self._readers = ReadersHere(options.directory / FILE_NAME, late_s)
        self.read = self._readers.run
        self._submitted = submitted
        self._prepare()

    def send(self, make: Callable[..., U], **fields: Any) -> U:
        command = super().send(make, **fields)
        self._submitted()
        return command

    @property
    def has_open_group(self) -> bool:
        return not self._writer._inbox.empty()

    def turn(self) -> None:
        """Store what waits, in one commit. Raises: Killed."""
        if self.has_open_group:
            self._writer._work()

    def abandon(self) -> None:
        """End as the process does that is killed: what is not committed is gone, no answer leaves."""
        self._closed = True
        self._writer.connection.close()
        self._readers.close()
        self._lock.release()

    async def look(
        self, function: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        if self._closed:
            raise JournalUnavailable("the node is dead")
        return await super().look(function, *args, **kwargs)


@dataclass
class Commits:
    """The commits of all journals of a simulation: what they store, and the kills within them."""

    #: Called with the journal's directory after each COMMIT, before any answer leaves.
    committed: Callable[[Path, Group, sqlite3.Connection], None]
    #: A kill within a commit waits for one of these commands.
    within: tuple[type[WriteCommand], ...] = (DeliverCommand, MoveCommand, CommitCommand)
    #: By the directory of a journal, the crash point at which its node dies.
    dies_at: dict[Path, str] = field(default_factory=dict)
    _writing: tuple[Path, Group, sqlite3.Connection] | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the writers of this process."""
        with (
            patch.object(writer, "write_group", self._write),
            patch.object(rows, "crash_point", self._crash_point),
        ):
            yield

    def _write(self, group: Group, connection: sqlite3.Connection) -> int:
        self._writing = (group.options.directory, group, connection)
        return rows.write_group(group, connection)

    def _crash_point(self, name: str) -> None:
        if self._writing is None:
            return  # a journal is being opened
        directory, group, _ = self._writing
        if name == AFTER_COMMIT:
            writing, self._writing = self._writing, None
            self.committed(*writing)
        if self.dies_at.get(directory) == name and any(isinstance(one, self.within) for one in group.decided):
            self._writing = None
            raise Killed
