"""Queues that a bridge shares with readers and other bridges: its messages are moved to a log of its own.

A shared queue is no stream: a lease that ends returns messages below those that a bridge has read already.
So the bridge competes for free messages as one more reader, and what it gets is moved, in one transaction, to
an address that only it reads; from there it goes on as from any address. It takes at most a window ahead of
the target's word, so that the other readers keep their share.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import Final

from bridge.errors import AddressFull, AddressNotFound, QueueNotFound, SourceRefused
from bridge.filters import Filter
from bridge.journal.journal import Journal
from bridge.journal.rules.commands import MoveCommand
from bridge.journal.rules.moves import Choice, Movable, read_movable
from bridge.journal.sqlite.shared_names import Found, find_shared
from bridge.journal.values.options import BridgeSelection, bridge_queue_name
from bridge.journal.values.routing import Destination
from bridge.messages.addresses import QueueName
from bridge.messages.stream_names import own_log

#: Most intervals of settled messages behind others that a bridge's filter leaves in a queue. Beyond it the
#: bridge waits until readers have taken some of those.
INTERVALS_MOST: Final = 10_000
#: The window while the disk is full: what is moved takes of the room that is kept aside, until it has left.
FULL_DISK_BYTES: Final = 256 * 1024


@dataclass(slots=True)
class SharedQueues:
    """The shared queues of one bridge; used by its source while it is open."""

    journal: Journal
    selection: BridgeSelection
    #: Bytes that wait in its own logs, of each address, beyond which nothing is taken.
    window_bytes: int
    #: Which messages it takes; the others stay. None: all.
    condition: Filter | None = None
    #: Names that mean no queue yet, and queues that it has left too much in, one text each.
    waits: tuple[str, ...] = ()
    _found: Found = field(default_factory=Found)
    #: `Notices.named` when it was found; -1: not looked for yet.
    _found_at: int = -1
    _choices: dict[QueueName, Choice] = field(default_factory=dict)
    #: The earliest end of a lease on these queues, by the clock of leases; None: none.
    _expiry_ms: int | None = None

    async def take(self) -> bool:
        """Move some free messages of each queue to the bridge's own log. False: there is nothing to move, or
        no room.

        Raises:
            SourceRefused: `queue-name` can never be right. JournalUnavailable, DiskFull: try again.
        """
        found = await self._find()
        waits = list(found.missing)
        has_more = False
        self._expiry_ms = None
        for name in found.queues:
            movable = await self._look(name)
            if movable.expiry_ms is not None:
                self._expiry_ms = min(self._expiry_ms or movable.expiry_ms, movable.expiry_ms)
            if movable.intervals >= INTERVALS_MOST:
                waits.append(f"{name} holds {movable.intervals} intervals of messages that its filter leaves")
                continue
            has_more |= await self._move(name, movable) if movable.messages else movable.has_more
        self.waits = tuple(waits)
        return has_more

    @property
    def expires_in_s(self) -> float | None:
        """Seconds until a lease ends that holds messages of these queues; None: nothing is leased."""
        if self._expiry_ms is None:
            return None
        return max(self._expiry_ms - self.journal.lease_now_ms, 1) / 1000

    async def _find(self) -> Found:
        now = self.journal.notices.named
        if now != self._found_at:
            self._found = await self.journal.look(find_shared, self.selection.selects, self.selection.shared)
            self._found_at = now
        if self._found.refused:
            raise SourceRefused(self._found.refused, key="queue-name")
        return self._found

    async def _look(self, name: QueueName) -> Movable:
        choice = None
        if self.condition is not None:
            choice = self._choices.setdefault(name, Choice(self.condition))
        return await self.journal.look(
            _look,
            name,
            self.selection.bridge,
            self.journal.identity.incarnation,
            min(self.window_bytes, FULL_DISK_BYTES) if self.journal.disk_full else self.window_bytes,
            self.journal.lease_now_ms,
            choice,
        )

    async def _move(self, name: QueueName, movable: Movable) -> bool:
        """Whether to look at the queue again: others have taken meanwhile what was not moved."""
        try:
            await self.journal.submit(
                MoveCommand,
                address=name.address,
                queue=name.queue,
                messages=movable.messages,
                size=sum(one.block.size for one in movable.messages),
                leaves=True,
            )
        except (AddressNotFound, QueueNotFound, AddressFull):
            return False  # it is gone, or the bridge's log has a smaller limit than the window
        return True


def _look(
    connection: sqlite3.Connection,
    name: QueueName,
    bridge: str,
    incarnation: str,
    window_bytes: int,
    lease_now_ms: int,
    choice: Choice | None,
) -> Movable:
    log = own_log(bridge, name.address)
    room = window_bytes - _waiting_bytes(connection, log, bridge_queue_name(bridge))
    if room <= 0:
        return Movable([])
    return read_movable(
        connection,
        name,
        Destination(log, bridge),
        incarnation,
        room=room,
        lease_now_ms=lease_now_ms,
        choice=choice,
    )


def _waiting_bytes(connection: sqlite3.Connection, log: str, queue: str) -> int:
    """Bytes of the blocks that the bridge's own log holds for the target."""
    (size,) = connection.execute(
        "SELECT coalesce(sum(b.size), 0) FROM addresses a JOIN queues q USING (address_id)"
        " JOIN blocks b USING (address_id) WHERE a.name = ? AND q.name = ? AND b.first + b.count > q.next",
        (log, queue),
    ).fetchone()
    return int(size)
