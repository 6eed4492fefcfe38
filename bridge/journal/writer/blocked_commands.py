"""Commands that wait for room: decided again when some may have come, refused when their time is up."""

from __future__ import annotations

from enum import Enum

from bridge.errors import BridgeError, Stopping
from bridge.journal.rules.commands import CommitCommand, DeliverCommand, WriteCommand
from bridge.journal.rules.commit_group import StreamKey
from bridge.journal.values.options import RETRY_MS
from bridge.runtime.clock import Clock


class Stage(Enum):
    """How far the node is with going down, and so which commands may wait."""

    #: Every command may.
    RUNNING = "running"
    #: No client's transaction may.
    LEAVING = "leaving"
    #: No command may.
    STOPPING = "stopping"


class BlockedCommands:
    """The commands that wait for room, oldest first. Owned by the writer's thread.

    Clients' transactions have limits of their own here; a bridge's batches are bounded by its link's credit.
    """

    def __init__(self, clock: Clock, most_requests: int, most_bytes: int) -> None:
        self._clock = clock
        self._most_requests = most_requests
        self._most_bytes = most_bytes
        self._commands: list[tuple[WriteCommand, BridgeError]] = []
        self._due_ms = 0
        self._room_came = False
        self.stage = Stage.RUNNING
        #: Clients' transactions, and their bytes.
        self._requests = 0
        self.bytes = 0

    def add(
        self, command: WriteCommand, error: BridgeError, client_ms: int | None = None
    ) -> BridgeError | None:
        """Block `command`, which gets `error` in the end; answers the error that it gets now where it may not
        wait. A client's transaction waits for `client_ms` at most.
        """
        now_ms = self._clock.monotonic_ms()
        if self.stage is Stage.STOPPING:
            return error
        if not command.patient and (command.deadline_ms is None or now_ms >= command.deadline_ms):
            return error
        if isinstance(command, CommitCommand):
            if refusal := self._beyond(command, error):
                return refusal
            self._requests += 1
            self.bytes += command.size
            if client_ms is not None and command.deadline_ms is not None:
                command.deadline_ms = min(command.deadline_ms, now_ms + client_ms)
        if not self._commands:
            self._due_ms = now_ms + RETRY_MS
        if command.deadline_ms is not None:
            self._due_ms = min(self._due_ms, command.deadline_ms)
        self._commands.append((command, error))
        return None

    def _beyond(self, command: WriteCommand, error: BridgeError) -> BridgeError | None:
        """The error of a transaction above the limits; None: it is within them."""
        if self.stage is Stage.LEAVING:
            return Stopping(f"the node is going down; {error.detail}")
        if self._requests >= self._most_requests:
            key, limit, found = "max-held-requests", self._most_requests, self._requests + 1
        elif self._requests and self.bytes + command.size > self._most_bytes:
            key, limit, found = "max-held-size", self._most_bytes, self.bytes + command.size
        else:
            return None
        detail = f"{error.detail}; {self._requests} requests with {self.bytes} bytes wait for room already"
        return type(error)(detail, key, limit, found)

    def room_came(self) -> None:
        """Some may fit now: let the next turn decide them again."""
        self._room_came = True

    def take(self) -> list[WriteCommand]:
        """All of them where it is worth deciding them again, none otherwise."""
        room_came, self._room_came = self._room_came, False
        return self.take_all() if room_came or self._clock.monotonic_ms() >= self._due_ms else []

    def take_all(self) -> list[WriteCommand]:
        """All of them, whether or not there may be room."""
        commands = [command for command, _ in self._commands]
        self._commands = []
        self._requests = self.bytes = 0
        return commands

    @property
    def idle_seconds(self) -> float | None:
        """Seconds until they are to be decided again; None: there are none."""
        if self._room_came:
            return 0
        if not self._commands:
            return None
        return max(self._due_ms - self._clock.monotonic_ms(), 0) / 1000

    @property
    def streams(self) -> dict[StreamKey, BridgeError]:
        """Streams with a batch here, and why the first of it waits."""
        waiting: dict[StreamKey, BridgeError] = {}
        for command, error in self._commands:
            if isinstance(command, DeliverCommand):
                waiting.setdefault((command.bridge, command.batch.stream), error)
        return waiting
