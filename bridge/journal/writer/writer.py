"""The writer: one thread and one connection that decide, store, checkpoint, trim and shrink.

Commands that arrive while a commit runs go into the next (group commit). Answers leave only after COMMIT
returned. After any error everything in memory is loaded again from the file; unless only room was missing,
the connection is closed first.
"""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final

from bridge.errors import BridgeError, JournalDamaged, JournalUnavailable, Stopping
from bridge.journal.rules.commands import CommittedEvents, WriteCommand
from bridge.journal.rules.commit_group import Group, Wait
from bridge.journal.rules.dispatch import decide, parts, refuse
from bridge.journal.rules.log_lines import Logbook
from bridge.journal.rules.state import State
from bridge.journal.sqlite.damage import ADVICE, FoundDamage, is_damage
from bridge.journal.sqlite.database import Trouble, classify, described_error, is_read_only
from bridge.journal.sqlite.identity_file import IdentityFile, Reached
from bridge.journal.sqlite.vacuum import Space
from bridge.journal.values.options import GROUP_BYTES, GROUP_COMMANDS, RETRY_MS, BridgeQueue, JournalOptions
from bridge.journal.writer.blocked_commands import BlockedCommands, Stage
from bridge.journal.writer.condition import Event
from bridge.journal.writer.disk_full import Room
from bridge.journal.writer.loading import load_state
from bridge.journal.writer.opening import Prepared, reconnect
from bridge.journal.writer.publishing import committed_changes, everything
from bridge.journal.writer.rows import CommitFailed, write_group
from bridge.runtime.clock import Clock
from dedup.cache import Overlay

#: After trimming failed it is tried again this much later, alone, so that nothing else fails with it.
_TRIM_RETRY_MS: Final = 2_000
#: The same after it met a damaged page.
_TRIM_DAMAGED_RETRY_MS: Final = 60_000


class _Ask(Enum):
    """Requests to the writer besides its commands."""

    LET_GO = "let go"
    STOP = "stop"


class Writer:
    """Takes commands from any thread; calls `notify` in its own thread with the events of each commit."""

    def __init__(
        self,
        prepared: Prepared,
        options: JournalOptions,
        clock: Clock,
        room: Room,
        let_readers_end: Callable[[], bool],
        damage: FoundDamage,
        notify: Callable[[CommittedEvents], None],
    ) -> None:
        self._path, self._identity = prepared.path, prepared.identity
        self._options = options
        self._line_writer = prepared.identity.line_writer(options.node)
        self._clock = clock
        #: Added to the monotonic clock: a lease ends after its time even though the wall clock is set
        #: meanwhile.
        self._lease_offset_ms = clock.wall_ms() - clock.monotonic_ms()
        self._notify = notify
        self._inbox: queue.SimpleQueue[WriteCommand | _Ask] = queue.SimpleQueue()
        self._blocked = BlockedCommands(clock, options.max_held_requests, options.max_held_bytes)
        #: Bytes of clients' messages that are blocked for want of room.
        self.blocked_bytes = 0
        #: Commands in hand; each is dropped as it is answered, so that none is answered twice.
        self._working: dict[WriteCommand, None] = {}
        self._room = room
        self._let_readers_end = let_readers_end
        self._damage = damage
        self._thread = threading.Thread(target=self._run, name="journal-writer", daemon=True)
        #: Commit groups since the journal was opened.
        self.commits = 0
        self.condition = room.condition
        #: When a broken file is opened again.
        self._reconnect_ms = 0
        self._trim_at_ms: int | None = None
        #: IDs that a COMMIT of unknown outcome would have added to the ID caches, and whom it would have
        #: woken.
        self._doubtful: list[Overlay] = []
        self._doubtful_events = CommittedEvents()
        self._identity_file = IdentityFile(self._path.parent)
        self._adopt(prepared.connection, prepared.state)
        self._room.begin(self._space)

    def _adopt(self, connection: sqlite3.Connection, state: State) -> None:
        #: The state belongs to this thread: others read what is published (`bridge.journal.values.views`).
        self.connection, self.state = connection, state
        #: The position that the file has certainly reached; the state's may be ahead of it while a group is
        #: stored.
        self._sequence = state.sequence
        self._identity_file.begin(Reached(self._identity.node_id, state.sequence, state.lines))
        self._space = Space(
            connection,
            self._path,
            self._clock,
            self._room.shares,
            self._let_readers_end,
            self._damage.add,
        )

    @property
    def bridges(self) -> Sequence[BridgeQueue]:
        """The bridges that read this journal now."""
        return self._options.bridges

    @property
    def lease_now_ms(self) -> int:
        """The time now by the clock that ends leases."""
        return self._clock.monotonic_ms() + self._lease_offset_ms

    def start(self) -> None:
        """Begin to take commands."""
        self._thread.start()

    def submit(self, command: WriteCommand) -> None:
        """Hand a command to the writer, from any thread."""
        self._inbox.put(command)

    def stop(self) -> None:
        """Commit the commands that wait, and answer the blocked ones with STOPPING. Returns when done."""
        self._inbox.put(_Ask.STOP)
        self._thread.join()

    def close(self) -> None:
        """Copy the log into the file and close it, as the last connection of the process."""
        self._room.give_up()  # copying the log may take it
        self._space.close()
        self._identity_file.close()

    def let_go(self) -> None:
        """Block no client's transaction from now on: those that are blocked are stored, or get STOPPING."""
        self._inbox.put(_Ask.LET_GO)

    def _run(self) -> None:
        try:
            while self._blocked.stage is not Stage.STOPPING:
                self._work()
        except Exception as error:  # noqa: BLE001 - whatever it was, every command gets an answer
            self._give_up(error)
        self._answer(self._blocked.take_all(), Stopping("the node is stopping"))

    def _work(self) -> None:
        """Do one turn: the commands that wait, and behind them those that have come since."""
        fresh = self._receive(self._idle_seconds())
        self._working = dict.fromkeys(fresh)
        try:
            was_full = self.condition.is_full
            if not self.condition.is_broken:
                self._room.look(self._space)
            if was_full and not self.condition.is_full:
                self._blocked.room_came()
            commands = [*self._again(fresh), *fresh]
            self._working = dict.fromkeys(commands)
            self._commit(commands, probe=was_full)
            if not self.condition.is_broken:
                self._space.keep_up()
                if self._space.stuck is not None and (self._room.has_reserve or not self.condition.is_full):
                    self._wait_for_room((), self._space.stuck)
        except (OSError, sqlite3.Error) as error:
            self._lose(error)
        self.blocked_bytes = self._blocked.bytes

    def _again(self, fresh: Sequence[WriteCommand]) -> list[WriteCommand]:
        """The commands that waited and are decided again, before those that have come."""
        is_routed = self._options.router is not None
        again = self._blocked.take(self._room_at, disk_full=self.condition.is_full, routed=is_routed)
        if any(command.patient for command in fresh):
            again += self._blocked.take_settlements()
        return again

    def _room_at(self, name: str) -> int:
        """Bytes below an address's limit."""
        address = self.state.addresses.get(name)
        policy = self._options.policy(name) if address is None else address.policy
        return policy.max_size_bytes - (0 if address is None else address.bytes)

    def _give_up(self, error: Exception) -> None:
        """After a fault of this thread itself, answer every command with the error until the node stops."""
        why = described_error(error, self._path)
        self.condition.on(Event.FAULT, JournalUnavailable(why))
        unavailable = JournalUnavailable(f"the journal's writer failed ({why}); restart the node")
        unavailable.__cause__ = error
        self._answer({**self._working, **dict.fromkeys(self._blocked.take_all())}, unavailable)
        while self._blocked.stage is not Stage.STOPPING:
            self._answer(self._receive(None), unavailable)

    def _idle_seconds(self) -> float | None:
        """Seconds for which there is nothing to do but to wait for commands; None: without limit."""
        waits = [self._blocked.idle_seconds]
        if self.condition.is_broken:
            waits.append(self._seconds_until(self._reconnect_ms))
        else:
            waits += [self._space.idle_seconds, self._room.idle_seconds]
            if self.state.has_garbage:
                waits.append(self._seconds_until(self._trim_at_ms or 0))
            if (due_ms := self.state.next_due_ms) is not None:
                waits.append(max(due_ms - self._clock.wall_ms(), 0) / 1000)
        return min((wait for wait in waits if wait is not None), default=None)

    def _seconds_until(self, moment_ms: int) -> float:
        return max(moment_ms - self._clock.monotonic_ms(), 0) / 1000

    def _receive(self, timeout: float | None) -> list[WriteCommand]:
        """Returns the commands that came while the last group was stored, up to a group's size; waits where
        none did.
        """
        commands: list[WriteCommand] = []
        size = 0
        while size < GROUP_BYTES and len(commands) < GROUP_COMMANDS:
            try:
                command = self._inbox.get(block=not commands and timeout != 0, timeout=timeout)
            except queue.Empty:
                break
            if command is _Ask.STOP:
                self._blocked.stage = Stage.STOPPING
                break
            if command is _Ask.LET_GO:
                self._blocked.stage = Stage.LEAVING
                self._blocked.decide_all()
                break
            commands.append(command)
            size += command.size
        return commands

    def _commit(self, commands: Sequence[WriteCommand], *, probe: bool) -> None:
        """Store the commands, in as many groups as it takes; `probe` as in `parts`."""
        for part in parts(commands, probe=probe):
            if self.condition.is_broken and not self._reconnect():
                why = self.condition.broken
                self._answer(part, JournalUnavailable(f"the journal cannot be opened ({why})"))
            elif waiting := self._room.admit(part, self._space):
                self._block(waiting, self._room.no_room())
                left_out = frozenset(waiting)
                self._commit_group([command for command in part if command not in left_out])
            else:
                self._commit_group(part)

    def _commit_group(self, commands: Sequence[WriteCommand]) -> None:
        group, intake = self._group(commands), self.state.intake
        awaited = self._blocked.addresses
        try:
            for command in commands:
                group.awaited = () if command.ticket else awaited
                decide(group, self.connection, command)
            if group.changes_anything:
                self._space.wrote(write_group(group, self.connection), group.message_bytes)
                self.commits += 1
                self.condition.on(Event.STORED)
        except Exception as error:  # noqa: BLE001 - whatever it was, every command gets an answer
            self._fail(group, commands, error)
            return
        self._sequence = self.state.sequence
        group.stored()
        if group.options is not self._options or self.state.intake is not intake:
            self._blocked.decide_all()
        self._options = group.options
        # Those that were decided again may have brought less than there was room for.
        if group.freed_bytes or any(command.ticket for command in commands):
            self._blocked.room_came()
        if not commands:
            self._trim_at_ms = None
        for command, wait, client_ms in group.blocked:
            if (refusal := self._blocked.add(command, wait, client_ms)) is not None:
                refuse(self.state, command, refusal)
                group.decided.append(command)
        events = CommittedEvents(
            group.decided,
            group.touched,
            group.made,
            group.queues_changed,
            group.unrouted,
            group.not_evaluated,
            bool(group.log.lines),
            committed_changes(group),
        )
        self._publish(events)
        self._identity_file.reached(self._sequence, self.state.lines, group.written_queue)

    def _group(self, commands: Sequence[WriteCommand]) -> Group:
        now_ms = self._clock.wall_ms()
        self.state.look_at_retained(now_ms)
        options, identity = self._options, self._identity
        log = Logbook(options.delivery_log, self._line_writer, now_ms, self.state.lines)
        group = Group(self.state, options, identity.incarnation, now_ms, log)
        group.lease_now_ms = self.lease_now_ms
        group.blocked_streams = self._blocked.streams
        if self._trim_at_ms is not None:
            group.trims = not commands and self._clock.monotonic_ms() >= self._trim_at_ms
        return group

    def _publish(self, events: CommittedEvents) -> None:
        for command in events.answered:
            self._working.pop(command, None)
        self._notify(events)

    # -- answers without a commit --------------------------------------------------------------------

    def _answer(self, commands: Iterable[WriteCommand], error: BridgeError) -> None:
        events = CommittedEvents()
        for command in commands:
            refuse(self.state, command, error)
            events.answered.append(command)
        self._publish(events)

    def _block(self, commands: Iterable[WriteCommand], error: BridgeError) -> None:
        for command in commands:
            if (refusal := self._blocked.add(command, Wait(error))) is not None:
                self._answer((command,), refusal)

    # -- when it goes wrong --------------------------------------------------------------------------

    def _fail(self, group: Group, commands: Sequence[WriteCommand], error: Exception) -> None:
        """Start again from the file after a failed group: SQLite has rolled it back, and nothing of it
        counts.
        """
        at_commit = isinstance(error, CommitFailed)
        cause = error.cause if isinstance(error, CommitFailed) else error
        trimmed = group.trims and self.state.has_garbage
        if trimmed:
            retry_ms = _TRIM_DAMAGED_RETRY_MS if is_damage(error) and not commands else _TRIM_RETRY_MS
            self._trim_at_ms = self._clock.monotonic_ms() + retry_ms
        group.take_back()
        for command in commands:
            command.forget_answer()
        trouble = classify(cause, self._path, at_commit=at_commit)
        if trouble is Trouble.FULL and self._reload():
            self._wait_for_room(commands, cause)
            return
        if trouble is Trouble.DAMAGED:
            self._damage.add(str(cause))
            if not at_commit and self._reload():
                self._commit_apart(commands, cause, trimmed=trimmed)
                return
        if at_commit:
            self._doubtful = list(group.overlays.values())
            self._doubtful_events = CommittedEvents(
                touched=group.touched, made=group.made, queues_changed=group.queues_changed, logged=True
            )
        self._close(cause)
        why = self.condition.broken
        unknown = JournalUnavailable(f"the journal failed ({why}): whether this was stored is unknown")
        unknown.__cause__ = cause
        self._answer(commands, unknown)

    def _commit_apart(self, commands: Sequence[WriteCommand], cause: Exception, *, trimmed: bool) -> None:
        """Store the commands of a group that met a damaged place without trimming, and then one by one: the
        others do not fail with the one that needs that place.
        """
        if trimmed and commands:
            self._commit_group(commands)
            return
        if len(commands) > 1:
            for command in commands:
                self._commit_group([command])
            return
        damaged = JournalDamaged(f"the journal is damaged: {cause}. {ADVICE}", key="journal")
        damaged.__cause__ = cause
        self._answer(commands, damaged)

    def _lose(self, error: OSError | sqlite3.Error) -> None:
        """Close the file, which could not be looked at between two groups: what is left of the commands was
        not stored.
        """
        self._close(error)
        if isinstance(error, sqlite3.Error) and not is_read_only(self._path.parent):
            self._damage.add(self.condition.broken)
        unavailable = JournalUnavailable(f"the journal failed ({self.condition.broken})")
        unavailable.__cause__ = error
        self._answer({**self._working, **dict.fromkeys(self._blocked.take_all())}, unavailable)

    def _close(self, cause: Exception) -> None:
        """Close the file after an error; it is opened again with the next commands."""
        self.condition.on(Event.FAILED, JournalUnavailable(described_error(cause, self._path)))
        self._reconnect_ms = self._clock.monotonic_ms()
        with contextlib.suppress(sqlite3.Error):
            self.connection.close()

    def _reload(self) -> bool:
        """Load the state again through the same connection; False where that fails, too."""
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            self.state = self._carried(load_state(self.connection, self._options, self.state))
        except Exception:  # noqa: BLE001 - then the file is opened again
            return False
        return True

    def _reconnect(self) -> bool:
        """Open the file again, at most every `RETRY_MS`."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._reconnect_ms:
            return False
        self._reconnect_ms = now_ms + RETRY_MS
        try:
            prepared = reconnect(self._path, self._options, self._identity, self._sequence, self.state)
            if prepared.state.sequence > self._sequence:  # the COMMIT in doubt was one
                while self._doubtful:
                    self._doubtful.pop().commit()
            self._doubtful = []
            self._adopt(prepared.connection, self._carried(prepared.state))
            events, self._doubtful_events = self._doubtful_events, CommittedEvents()
            events.views = everything(self.state)
            self._publish(events)
            self.condition.on(Event.REOPENED)
        except Exception as error:  # noqa: BLE001 - whatever it was, it is tried again later
            with contextlib.suppress(sqlite3.Error):
                self.connection.close()
            if is_damage(error):
                self._damage.add(str(error))
            self.condition.on(Event.FAILED, JournalUnavailable(described_error(error, self._path)))
            return False
        return True

    def _carried(self, loaded: State) -> State:
        return loaded.carrying(self.state, ids=not self._options.persist_id_cache)

    def _wait_for_room(self, commands: Sequence[WriteCommand], cause: Exception) -> None:
        """Block messages. Commands without messages are tried once more, where the reserve was given up for
        them.
        """
        released = self._room.ran_out(cause, self._space)
        full = self._room.no_room()
        growing = [command for command in commands if command.grows]
        small = [command for command in commands if not command.grows]
        self._block(growing, full)
        if small and (growing or released):
            self._commit_group(small)
        elif small:
            self.condition.on(Event.NOTHING_FITS, full)
            self._block(small, full)
