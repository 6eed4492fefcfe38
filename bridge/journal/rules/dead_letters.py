"""Dead letters in the journal: finding them, and sending them again in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from bridge.journal.rules import routing
from bridge.journal.rules.arrivals import Came
from bridge.journal.rules.commands import ReplayCommand, Resent
from bridge.journal.rules.commit_group import Group
from bridge.journal.rules.state import QueueState
from bridge.journal.sqlite.reader import find_address, find_blocks, read_block, stamped_ids
from bridge.journal.values.options import REPLAYED_QUEUE
from bridge.journal.values.queue_cursor import Cursor
from bridge.journal.values.routing import Destination
from bridge.messages.block import Block
from bridge.messages.message import Message, carried_id

#: Bytes of blocks looked at in one step.
_STEP_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Found:
    """A message at an address of dead letters that was not sent again yet."""

    #: The address that holds it.
    at: str
    position: int
    #: One beyond the position of the message before it.
    from_: int
    message: Message
    #: The message alone, with its ID and origin.
    block: Block
    #: The way in which it came there.
    came: Came

    @property
    def duplicate_id(self) -> bytes | None:
        """The ID of its producer, or the stamped one as text; None: it has neither."""
        if self.block.ids:
            return self.block.ids[0][1]
        if not self.block.origins:
            return None
        return carried_id(self.message) or stamped_ids(self.block, 0, 1).get(0)


def read_found(connection: sqlite3.Connection, address: str, after: int, most: int) -> list[Found]:
    """The first messages at positions > `after` that were not sent again; at most `most`."""
    row = find_address(connection, address)
    if row is None:
        return []
    cursor = _replayed(connection, row.address_id)
    found: list[Found] = []
    for entry in _messages(connection, address, row.address_id, after + 1, row.next):
        if not _is_settled(cursor, entry.position):
            found.append(entry)
            if len(found) >= most:
                break
    return found


def _replayed(connection: sqlite3.Connection, address_id: int) -> Cursor:
    """The cursor of the messages that were sent again."""
    row = connection.execute(
        "SELECT next, cursor FROM queues WHERE address_id = ? AND name = ?", (address_id, REPLAYED_QUEUE)
    ).fetchone()
    return Cursor(0) if row is None else Cursor.unpack(*row)


def _is_settled(cursor: Cursor, position: int) -> bool:
    return position < cursor.next or any(from_ <= position < end for from_, end in cursor.settled)


def _messages(
    connection: sqlite3.Connection, address: str, address_id: int, start: int, end: int
) -> Iterator[Found]:
    """Messages at positions in ``[start, end)``, block by block."""
    before = connection.execute(
        "SELECT first + count FROM blocks WHERE address_id = ? AND first < ? ORDER BY first DESC LIMIT 1",
        (address_id, start),
    ).fetchone()
    last_end = 0 if before is None else min(int(before[0]), start)
    while start < end:
        firsts = find_blocks(connection, address_id, start, end, _STEP_BYTES)
        if not firsts:
            return
        for first in firsts:
            block = read_block(connection, first).block
            (buried,) = connection.execute("SELECT buried FROM blocks WHERE first = ?", (first,)).fetchone()
            came = Came(buried)
            for index, message in enumerate(block.messages()):
                position = first + index
                if position >= start:
                    alone = block.part(index, index + 1)
                    yield Found(address, position, last_end, message, alone, came)
                last_end = position + 1
            start = first + block.count


def replay(group: Group, command: ReplayCommand) -> None:
    """Store letters at their destinations and settle them where they are: never one without the other.

    Producers' IDs are not checked: the operator sends the letters again on purpose (semantics D54).

    Raises:
        AddressNotFound, AddressFull, MessageTooLarge.
        Blocked: there is no room now.
    """
    address = group.existing_address(command.address)
    own = address.queues.get(REPLAYED_QUEUE)
    sent = own.cursor if own is not None else Cursor(address.trimmed)
    fresh = [
        letter
        for letter in command.letters
        if letter.position >= address.trimmed and not _is_settled(sent, letter.position)
    ]
    largest: dict[Destination, int] = {}
    for letter in fresh:
        largest[letter.to] = max(largest.get(letter.to, 0), letter.block.largest)
    routing.require_room(group, largest)
    if own is None:
        own = group.make_queue(address, REPLAYED_QUEUE, None, address.trimmed)
    own.cursor.settle((own.cursor.next, address.trimmed))
    for letter in fresh:
        _send(group, letter)
        _settle(own, letter)
    group.change_queue(address, own)
    command.result = [letter.position for letter in fresh]


def _send(group: Group, letter: Resent) -> None:
    address = routing.open_destination(group, letter.to)
    group.arrivals_of(address).add_block(letter.block)
    if letter.to.bridge is None:
        values = [value for _, value in letter.block.ids]
        known = set(group.known(address.name, values))
        group.remember(address.name, [value for place, value in enumerate(values) if place not in known])


def _settle(own: QueueState, letter: Resent) -> None:
    """Settle a letter, with the positions of other addresses before it, so that the list beyond `next` stays
    short.
    """
    own.cursor.settle((letter.from_, letter.position + 1))
