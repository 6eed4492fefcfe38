"""Opens a journal before it takes work: its identity, its session, the queues that must exist first."""

from __future__ import annotations

import json
import sqlite3
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from bridge.delivery_log import LineWriter, Session
from bridge.errors import JournalDamaged, JournalFailed
from bridge.journal.rules.bridge_queues import make_bridge_queues
from bridge.journal.rules.commit_group import Group
from bridge.journal.rules.configuring import make_declared
from bridge.journal.rules.log_lines import Logbook
from bridge.journal.rules.state import State
from bridge.journal.sqlite.damage import check_form
from bridge.journal.sqlite.database import Trouble, classify, connect_writer, damage, open_failure
from bridge.journal.sqlite.identity_file import (
    ADVICE,
    Reached,
    check_files,
    lost_since,
    not_as_it_was,
    read_reached,
)
from bridge.journal.sqlite.large_bodies import next_large_id
from bridge.journal.values.options import JournalOptions
from bridge.journal.writer.loading import load_state
from bridge.journal.writer.rows import CommitFailed, write_group
from bridge.runtime.clock import Clock

#: Sessions are in order by (first, opened_ms) whatever the wall clock does: `sqlite.history` asks where one
#: ended.
_ADD_SESSION = (
    "INSERT INTO runs SELECT :run, :first, max(:now, coalesce(max(opened_ms) + 1, :now))"
    " FROM runs WHERE first = :first"
)


#: Tables that are checked as a whole when the journal is opened: those of which it knows every row.
SMALL_TABLES: Final = (
    "meta", "sequence", "runs", "addresses", "queues", "positions", "settled", "ids", "loose_bodies", "lost"
)  # fmt: skip
#: The row of `meta` in which an opening keeps its session, the lines there were, and what it went on from.
_SESSION: Final = "log-session"
#: Hexadecimal digits of a session id that name it in the delivery log.
_SESSION_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of this journal."""

    node_id: str
    #: Changes only by the operator's decision (`journal new-incarnation`).
    incarnation: str
    #: UUID, new at each opening.
    session_id: str
    #: The number of this opening, from 1.
    opening: int
    #: The session as readers of the delivery log see it: with the one that it went on from.
    session: Session
    #: IDs dropped because a cache is smaller than it was, by address.
    ids_dropped: dict[str, int] = field(default_factory=dict)

    @property
    def store(self) -> str:
        """The store identity: node UUID and incarnation."""
        return f"{self.node_id}:{self.incarnation}"

    def line_writer(self, node: str) -> LineWriter:
        """The writer of delivery-log lines of clients' messages; `node` is the node's name."""
        return LineWriter(
            node=node, node_id=self.node_id, bridge=None, lane=0, target=node, store=self.store,
            session=self.session,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Prepared:
    """An open journal that takes no work yet."""

    path: Path
    identity: Identity
    connection: sqlite3.Connection
    state: State
    #: Above the number of every large body in the file.
    next_large_id: int = 0


def prepare(path: Path, options: JournalOptions, clock: Clock) -> Prepared:
    """Make the file where there is none; add this session; make the addresses and queues that must exist
    before the node listens.

    Raises:
        JournalFailed: see `Journal.open`.
    """
    reached = read_reached(path.parent)
    if reached is not None:
        check_files(path, reached)
    connection = connect_writer(path, create=True)
    try:
        try:
            check_form(connection, SMALL_TABLES)
            state = load_state(connection, options)  # before the first write: a damaged file stays as it is
            if reached is not None:
                check_reached(connection, path, reached, state)
            identity = _identify(connection, state, clock)
            group = _make_configured(connection, state, options, identity, clock)
            _fit_ids(group)
            if group.changes_anything:
                write_group(group, connection)
            large_id = next_large_id(connection)
        except CommitFailed as error:
            raise error.cause from error
    except sqlite3.Error as error:
        connection.close()
        raise open_failure(path, error) from error
    except (msgspec.DecodeError, LookupError, TypeError, ValueError) as error:
        connection.close()
        raise damage(path, error) from error
    except BaseException:
        connection.close()
        raise
    return Prepared(path, identity, connection, state, large_id)


def reconnect(
    path: Path, options: JournalOptions, identity: Identity, sequence: int, before: State
) -> Prepared:
    """Open again the file that this process had open, after a failure.

    Args:
        sequence: the position that the file must have reached, by the commits that succeeded.
        before: the state until the failure.

    Raises:
        sqlite3.Error, msgspec.DecodeError: it cannot be read, or written for another reason than room.
        JournalFailed: it cannot be opened, or is another journal.
    """
    connection = connect_writer(path, create=False)
    try:
        meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
        state = load_state(connection, options, before)
        found = f"{meta.get('node-id')}:{meta.get('incarnation')}"
        if found != identity.store or state.sequence < sequence:
            raise JournalFailed(
                f"the journal {path} is not the one that was open: {found} at {state.sequence};"
                f" expected {identity.store} at {sequence} or later",
                key="node.data-directory",
                limit=identity.store,
                found=found,
            )
        _check_writable(connection, path)
    except BaseException:
        connection.close()
        raise
    return Prepared(path, identity, connection, state)


def _check_writable(connection: sqlite3.Connection, path: Path) -> None:
    """Commit a change of nothing: a disk that can be read only is no open journal. One without room is.

    Raises: sqlite3.Error.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE sequence SET next = next")
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if classify(error, path, at_commit=True) is not Trouble.FULL:
            raise
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def find_loss(path: Path) -> str:
    """What the journal at `path`, which no process has open, lacks of what it had, in words; empty: nothing.

    Raises: JournalFailed: it cannot be opened for another reason.
    """
    try:
        reached = read_reached(path.parent)
        if reached is None:
            return ""
        check_files(path, reached)
    except JournalDamaged as error:
        return error.detail.partition(f": {ADVICE}")[0]
    connection = connect_writer(path, create=False)
    try:
        state = load_state(connection, JournalOptions(path.parent))
        check_reached(connection, path, reached, state)
    except JournalDamaged as error:
        return error.detail.partition(f": {ADVICE}")[0]
    except (sqlite3.Error, msgspec.DecodeError, LookupError, TypeError, ValueError) as error:
        raise damage(path, error) from error
    finally:
        connection.close()
    return ""


def check_reached(connection: sqlite3.Connection, path: Path, reached: Reached, state: State) -> None:
    """Check that the journal, as it was loaded, has come as far as before. Raises: JournalDamaged."""
    (node_id,) = connection.execute("SELECT value FROM meta WHERE key = 'node-id'").fetchone() or (None,)
    queues = [queue for address in state.by_id.values() for queue in address.queues.values()]
    versions = {queue.queue_id: queue.version for queue in queues}
    if lacks := lost_since(reached, node_id, state.sequence, state.lines, versions):
        raise not_as_it_was(path, f"the journal {path} {lacks}")


def _identify(connection: sqlite3.Connection, state: State, clock: Clock) -> Identity:
    meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    node_id = meta.get("node-id") or str(uuid.uuid4())
    incarnation = meta.get("incarnation") or uuid.uuid4().hex[:16]
    session_id = str(uuid.uuid4())
    session = Session(
        session_id.replace("-", "")[:_SESSION_DIGITS], _last_line(meta.get(_SESSION), state.lines)
    )
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT OR IGNORE INTO meta VALUES ('node-id', ?)", (node_id,))
    connection.execute("INSERT OR IGNORE INTO meta VALUES ('incarnation', ?)", (incarnation,))
    connection.execute(_ADD_SESSION, {"run": session_id, "first": state.sequence, "now": clock.wall_ms()})
    (opening,) = connection.execute("SELECT count(*) FROM runs").fetchone()
    opened = json.dumps([session.id, state.lines, session.after])
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_SESSION, opened))
    connection.execute("COMMIT")
    return Identity(node_id, incarnation, session_id, opening, session, state.ids_dropped)


def _last_line(opened: str | None, lines: int) -> tuple[str, int] | None:
    """The opening that wrote the newest of all lines, and its number; None: not known, or there is none.

    `opened`: the record that the opening before this one has kept; an opening that wrote no line hands on the
    record that it found.
    """
    if opened is None:
        return None
    session, before, after = json.loads(opened)
    if lines > before:
        return session, lines
    return None if after is None else (after[0], after[1])


def _make_configured(
    connection: sqlite3.Connection, state: State, options: JournalOptions, identity: Identity, clock: Clock
) -> Group:
    """Declared addresses and queues, with their filters, and the queues of configured bridges, as far as they
    are missing.
    """
    now_ms = clock.wall_ms()
    log = Logbook(False, identity.line_writer(options.node), now_ms, state.lines)
    group = Group(state, options, identity.incarnation, now_ms, log)
    make_declared(group, connection)
    for bridge in options.bridges:
        make_bridge_queues(group, bridge)
    return group


def _fit_ids(group: Group) -> None:
    """Let the file hold the IDs that the caches hold: none where they are not persisted."""
    if not group.options.persist_id_cache:
        group.statements.append(("DELETE FROM ids", ()))
        return
    for address in group.state.addresses.values():
        if address.cache.accepted > len(address.cache):
            group.change_cache(address, address.cache.capacity)  # and its capacity, for the next start
