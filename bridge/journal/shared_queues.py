"""Queues that a bridge shares with readers and other bridges: its messages are moved to a log of its own.

A shared queue is no stream: a lease that ends returns messages below those that a bridge has read already.
So the bridge competes for free messages as one more reader, and what it gets is moved, in one transaction, to
an address that only it reads; from there it goes on as from any address. It takes at most a window ahead of
the target's word, so that the other readers keep their share.

Consumers that wait for messages of a queue ask for them in the order in which they began: a bridge waits for
the same notice as the readers, and asks with a `LeaseCommand` as they do. To read messages and to move them
takes it longer than a lease takes, so what it is given is reserved for it until it has moved them. What its
filter leaves returns then; nothing behind that is given out before, so that each consumer's share ascends.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from bridge.errors import AddressFull, AddressNotFound, QueueNotFound, SourceRefused, Stopping
from bridge.filters import Filter
from bridge.journal.journal import Journal
from bridge.journal.rules.commands import Grant, LeaseCommand, MoveCommand, Moved
from bridge.journal.rules.moves import MOVE_BYTES, MOVE_MESSAGES, Choice, Movable, read_movable
from bridge.journal.sqlite.shared_names import Found, find_shared
from bridge.journal.values.options import BridgeSelection, bridge_queue_name
from bridge.journal.values.queue_cursor import Interval
from bridge.journal.values.routing import Destination
from bridge.messages.addresses import QueueName
from bridge.messages.stream_names import own_log

#: Most intervals of settled messages behind others that a bridge's filter leaves in a queue. Beyond it the
#: bridge waits until readers have taken some of those.
INTERVALS_MOST: Final = 10_000
#: Then it looks again after so long.
LOOK_AGAIN_MS: Final = 1_000
#: The window while the disk is full: what is moved takes of the room that is kept aside, until it has left.
FULL_DISK_BYTES: Final = 256 * 1024


@dataclass(slots=True)
class _Queue:
    """One of the queues, as it was when the bridge asked for its messages."""

    #: None: the bridge takes every message.
    choice: Choice | None
    #: Done when messages have come to its address since; None: the bridge asks at once.
    more: asyncio.Future[None] | None = None
    #: When it looks again without news, by the clock of leases: the next lease ends. None: never.
    look_at_ms: int | None = None
    #: Bytes that the bridge may take. Without any it looks whether there is room before it asks: where it is
    #: not ready it must keep no message from others.
    room: int = 0
    #: What the bridge waits for; empty: messages.
    reason: str = ""


class _Look(NamedTuple):
    """The messages that the bridge can take, and the room for them."""

    movable: Movable
    #: Bytes that its own log may get.
    room: int


@dataclass(slots=True)
class SharedQueues:
    """The shared queues of one bridge; used by its source while it is open."""

    journal: Journal
    selection: BridgeSelection
    #: Bytes that wait in its own logs, of each address, beyond which nothing is taken.
    window_bytes: int
    #: Which messages it takes; the others stay. None: all.
    condition: Filter | None = None
    _found: Found = field(default_factory=Found)
    #: `Views.names` when it was found; -1: not looked for yet.
    _found_at: int = -1
    _queues: dict[QueueName, _Queue] = field(default_factory=dict)

    async def take(self) -> bool:
        """Move some free messages of each queue to the bridge's own log. False: there is nothing to move, or
        no room.

        Raises:
            SourceRefused: `queue-name` can never be right. JournalUnavailable, DiskFull: try again.
        """
        await self._find()
        has_more = False
        for name, queue in self._queues.items():
            if self._is_due(queue):
                has_more |= await self._take(name, queue)
        return has_more

    @property
    def waits(self) -> Sequence[str]:
        """Names that mean no queue yet, and queues that the bridge has left too much in, one text each."""
        return (*self._found.missing, *(queue.reason for queue in self._queues.values() if queue.reason))

    @property
    def news(self) -> Sequence[asyncio.Future[None]]:
        """Done when messages may have come to one of the queues."""
        return [queue.more for queue in self._queues.values() if queue.more is not None]

    @property
    def due_in_s(self) -> float | None:
        """Seconds until the bridge looks at one of the queues without news, as a lease ends; None: never."""
        ends = [queue.look_at_ms for queue in self._queues.values() if queue.look_at_ms is not None]
        return max(min(ends) - self.journal.lease_now_ms, 1) / 1000 if ends else None

    def room_came(self) -> None:
        """A settlement has made room in a log of the bridge's own."""
        for queue in self._queues.values():
            queue.more = None

    def close(self) -> None:
        """The bridge takes nothing until `take` is called again."""
        self.room_came()
        self.journal.presence.share(self.selection.bridge, ())

    async def _find(self) -> None:
        now = self.journal.views.names
        if now != self._found_at:
            self._found = await self.journal.look(find_shared, self.selection.selects, self.selection.shared)
            self._found_at = now
            known = self._queues
            self._queues = {name: known.get(name) or _Queue(self._choice()) for name in self._found.queues}
            for queue in self._queues.values():
                queue.more = None
        if self._found.refused:
            raise SourceRefused(self._found.refused, key="queue-name")
        self.journal.presence.share(self.selection.bridge, self._found.queues)

    def _choice(self) -> Choice | None:
        return None if self.condition is None else Choice(self.condition)

    def _is_due(self, queue: _Queue) -> bool:
        if queue.look_at_ms is not None and queue.look_at_ms <= self.journal.lease_now_ms:
            return True
        return queue.more is None or queue.more.done()

    async def _take(self, name: QueueName, queue: _Queue) -> bool:
        """Whether there may be more to take at once."""
        queue.more, queue.look_at_ms = self.journal.notices.changed(name.address), None
        if queue.room <= 0 or self.journal.disk_full:
            await self._look(name, queue, ())
            if queue.room <= 0:
                return False
        command = self.journal.send(
            LeaseCommand,
            address=name.address,
            queue=name.queue,
            lease=uuid.uuid4().hex,
            most=MOVE_MESSAGES,
            most_bytes=min(queue.room, MOVE_BYTES),
            lease_ms=0,
            reserves=True,
            others=self.journal.presence.others(self.selection.bridge, name),
            left=None if queue.choice is None else queue.choice.seen.copy(),
        )
        try:
            grant: Grant | None = await command.future
        except (AddressNotFound, QueueNotFound):
            return False  # it is gone
        if queue.choice is not None and command.left_now is not None:
            queue.choice.seen = command.left_now
        if grant is None:
            if command.retry_ms is not None:
                queue.look_at_ms = self.journal.lease_now_ms + command.retry_ms
            return command.retry_ms == 0
        return await self._move_reserved(name, queue, grant)

    async def _move_reserved(self, name: QueueName, queue: _Queue, grant: Grant) -> bool:
        """Move what is reserved, and give back the rest. Whether to ask for more at once."""
        try:
            is_moved = await self._move(name, queue, grant)
        except BaseException:
            with contextlib.suppress(Stopping):
                self.journal.give_back(name.address, name.queue, grant.lease)
            raise
        if not is_moved:
            await asyncio.wait([self.journal.give_back(name.address, name.queue, grant.lease)])
        has_room = queue.room > 0
        # What was given back is news to others. To a bridge that cannot take it, it is none.
        queue.more = None if is_moved or has_room else self.journal.notices.changed(name.address)
        return is_moved or has_room

    async def _move(self, name: QueueName, queue: _Queue, grant: Grant) -> bool:
        """Whether some of what is reserved was moved. If not, the filter leaves it, or there is no room."""
        messages = await self._look(name, queue, grant.intervals)
        size = sum(one.block.size for one in messages)
        if not messages or queue.room <= 0:
            return False
        try:
            await self.journal.submit(
                MoveCommand,
                address=name.address,
                queue=name.queue,
                messages=messages,
                size=size,
                leaves=True,
                lease=grant.lease,
            )
        except (AddressNotFound, QueueNotFound, AddressFull):
            queue.room = 0  # it is gone, or the bridge's log has a smaller limit than the window
            return False
        queue.room -= size
        return True

    async def _look(self, name: QueueName, queue: _Queue, reserved: Sequence[Interval]) -> Sequence[Moved]:
        """The messages that are reserved and that the bridge takes; sees whether there is room."""
        found: _Look = await self.journal.look(
            _look,
            name,
            self.selection.bridge,
            self.journal.identity.incarnation,
            min(self.window_bytes, FULL_DISK_BYTES) if self.journal.disk_full else self.window_bytes,
            queue.choice,
            reserved,
        )
        intervals = found.movable.intervals
        if intervals < INTERVALS_MOST:
            queue.room, queue.reason = found.room, ""
        else:
            queue.room, queue.look_at_ms = 0, self.journal.lease_now_ms + LOOK_AGAIN_MS
            queue.reason = f"{name} holds {intervals} intervals of messages that its filter leaves"
        return found.movable.messages


def _look(
    connection: sqlite3.Connection,
    name: QueueName,
    bridge: str,
    incarnation: str,
    window_bytes: int,
    choice: Choice | None,
    reserved: Sequence[Interval],
) -> _Look:
    log = own_log(bridge, name.address)
    # Its blocks name the queue that they were taken from, unless it has the address's name (`giving_back`).
    to = Destination(log, bridge, besides=() if name.queue == name.address else (name.queue,))
    movable = read_movable(connection, name, to, incarnation, choice=choice, reserved=reserved)
    return _Look(movable, window_bytes - _waiting_bytes(connection, log, bridge_queue_name(bridge)))


def _waiting_bytes(connection: sqlite3.Connection, log: str, queue: str) -> int:
    """Bytes of the blocks that the bridge's own log holds for the target."""
    (size,) = connection.execute(
        "SELECT coalesce(sum(b.size), 0) FROM addresses a JOIN queues q USING (address_id)"
        " JOIN blocks b USING (address_id) WHERE a.name = ? AND q.name = ? AND b.first + b.count > q.next",
        (log, queue),
    ).fetchone()
    return int(size)
