"""Commands that wait for room: decided again when some may have come, refused when their time is up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from enum import Enum
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from bridge.errors import BridgeError, Stopping
from bridge.journal.rules.arrivals import BLOCK_OVERHEAD_BYTES
from bridge.journal.rules.commands import CommitCommand, DeliverCommand, WriteCommand
from bridge.journal.rules.commit_group import StreamKey, Wait
from bridge.journal.values.options import GROUP_BYTES, GROUP_COMMANDS, RETRY_MS
from bridge.runtime.clock import Clock


class Stage(Enum):
    """How far the node is with going down, and so which commands may wait."""

    #: Every command may.
    RUNNING = "running"
    #: No client's transaction may.
    LEAVING = "leaving"
    #: No command may.
    STOPPING = "stopping"


class _Waiting(NamedTuple):
    command: WriteCommand
    wait: Wait


class BlockedCommands:
    """The commands that wait for room: at an address, the oldest first, or on the disk. Owned by the writer's
    thread.

    A settlement makes room at one address, mostly for a few: only these are decided again. Clients'
    transactions have limits of their own here; a bridge's batches are bounded by its link's credit.
    """

    def __init__(self, clock: Clock, most_requests: int, most_bytes: int) -> None:
        self._clock = clock
        self._most_requests = most_requests
        self._most_bytes = most_bytes
        #: By ticket: tickets give the order in which commands first waited.
        self._waiting: dict[int, _Waiting] = {}
        self._tickets = count(1)
        #: By address, the tickets that wait there, as a heap, and their number; and those that wait for the
        #: disk. A ticket that waits no more may be left in a heap.
        self._queues: dict[str, list[int]] = {}
        self._numbers: Counter[str] = Counter()
        self._for_disk: set[int] = set()
        #: Those of batches.
        self._batches: set[int] = set()
        #: (deadline, ticket), as a heap, likewise.
        self._deadlines: list[tuple[int, int]] = []
        #: When room is looked for without a sign of any.
        self._retry_ms = 0
        self._room_came = False
        self._decide_all = False
        self.stage = Stage.RUNNING
        #: Clients' transactions, and their bytes.
        self._requests = 0
        self.bytes = 0

    def add(self, command: WriteCommand, wait: Wait, client_ms: int | None = None) -> BridgeError | None:
        """Block `command`, which gets the error of `wait` in the end.

        Answers the error that it gets now, where it may not wait. A client's transaction waits for
        `client_ms` at most.
        """
        now_ms, deadline_ms = self._clock.monotonic_ms(), command.deadline_ms
        if self.stage is Stage.STOPPING:
            return wait.error
        if not command.patient and (deadline_ms is None or now_ms >= deadline_ms):
            return wait.error
        if isinstance(command, CommitCommand):
            if refusal := self._beyond(command, wait.error):
                return refusal
            self._requests += 1
            self.bytes += command.size
            if client_ms is not None and deadline_ms is not None:
                command.deadline_ms = min(deadline_ms, now_ms + client_ms)
        if not self._waiting:
            self._retry_ms = now_ms + RETRY_MS
        self._enter(command, wait, deadline_ms)
        return None

    def _enter(self, command: WriteCommand, wait: Wait, deadline_ms: int | None) -> None:
        """Let it wait; `deadline_ms` is the deadline that it had until now."""
        if not command.ticket:
            command.ticket = next(self._tickets)
            deadline_ms = None
        if command.deadline_ms is not None and command.deadline_ms != deadline_ms:
            heappush(self._deadlines, (command.deadline_ms, command.ticket))
        self._waiting[command.ticket] = _Waiting(command, wait)
        if isinstance(command, DeliverCommand):
            self._batches.add(command.ticket)
        if wait.address:
            self._numbers[wait.address] += 1
            heappush(self._queues.setdefault(wait.address, []), command.ticket)
        else:
            self._for_disk.add(command.ticket)

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
        """Some may fit now: let the next turn look for them."""
        self._room_came = True

    def decide_all(self) -> None:
        """Something else has changed by which commands are decided: let the next turn take all of them."""
        self._decide_all = True

    def take(self, room_at: Callable[[str], int], *, disk_full: bool, routed: bool) -> list[WriteCommand]:
        """Those that are worth deciding again, in order.

        `room_at` answers the bytes that an address takes, 0 or less: none. Of those that wait for it, as many
        are taken as fill it. Without room on the disk (`disk_full`) no messages are. A router may place a
        message elsewhere by now (`routed`): then all are taken now and then.
        """
        now_ms = self._clock.monotonic_ms()
        is_due = bool(self._waiting) and now_ms >= self._retry_ms
        if self._decide_all or (is_due and routed):
            self._decide_all = self._room_came = False
            return self.take_all()
        tickets = self._expired(now_ms)
        if self._room_came or is_due:
            self._room_came = False
            self._retry_ms = now_ms + RETRY_MS
            for address in self._queues:
                tickets |= self._fitting(address, room_at(address))
            tickets |= self._of_disk(lambda command: not (disk_full and command.grows))
        return self._drop(tickets)

    def take_settlements(self) -> list[WriteCommand]:
        """The settlements that wait, which one that comes must not overtake."""
        return self._drop(self._of_disk(lambda command: command.patient))

    def take_all(self) -> list[WriteCommand]:
        """All of them, whether or not there may be room."""
        return self._drop(set(self._waiting))

    def _expired(self, now_ms: int) -> set[int]:
        """Those whose time is up."""
        found = set()
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, ticket = heappop(self._deadlines)
            if ticket in self._waiting:
                found.add(ticket)
        return found

    def _fitting(self, address: str, room: int) -> set[int]:
        """The oldest that wait for an address: those that fill it, or a commit group."""
        queue, size, found = self._queues[address], 0, set[int]()
        while queue and size < min(room, GROUP_BYTES) and len(found) < GROUP_COMMANDS:
            size += 0 if found else BLOCK_OVERHEAD_BYTES
            ticket = heappop(queue)
            if ticket in self._waiting:
                size += self._waiting[ticket].command.size
                found.add(ticket)
        return found

    def _of_disk(self, may_fit: Callable[[WriteCommand], bool]) -> set[int]:
        return {ticket for ticket in self._for_disk if may_fit(self._waiting[ticket].command)}

    def _drop(self, tickets: Collection[int]) -> list[WriteCommand]:
        """Let these wait no more; answers their commands, in order."""
        commands = []
        for ticket in sorted(tickets):
            command, (_, address) = self._waiting.pop(ticket)
            self._batches.discard(ticket)
            self._for_disk.discard(ticket)
            if address:
                self._numbers[address] -= 1
                if not self._numbers[address]:
                    del self._numbers[address], self._queues[address]
            if isinstance(command, CommitCommand):
                self._requests -= 1
                self.bytes -= command.size
            commands.append(command)
        if not self._waiting:
            self._deadlines.clear()
        return commands

    def __len__(self) -> int:
        """The commands that wait."""
        return len(self._waiting)

    @property
    def addresses(self) -> Collection[str]:
        """The addresses at which commands wait."""
        return self._numbers.keys()

    @property
    def idle_seconds(self) -> float | None:
        """Seconds until some are to be decided again; None: there are none."""
        if not self._waiting:
            return None
        if self._room_came or self._decide_all:
            return 0
        while self._deadlines and self._deadlines[0][1] not in self._waiting:
            heappop(self._deadlines)
        due_ms = min(self._retry_ms, self._deadlines[0][0]) if self._deadlines else self._retry_ms
        return max(due_ms - self._clock.monotonic_ms(), 0) / 1000

    @property
    def streams(self) -> dict[StreamKey, Wait]:
        """Streams with a batch here, and what the first of it waits for."""
        waiting: dict[StreamKey, Wait] = {}
        for ticket in sorted(self._batches):
            command, wait = self._waiting[ticket]
            assert isinstance(command, DeliverCommand)
            waiting.setdefault((command.bridge, command.batch.stream), wait)
        return waiting
