"""Dead letters in the journal: finding those that were not sent again."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from bridge.journal.rules.arrivals import Came
from bridge.journal.rules.moves import read_cursor, read_free
from bridge.journal.sqlite.reader import find_address, stamped_ids
from bridge.journal.values.options import REPLAYED_QUEUE
from bridge.journal.values.queue_cursor import Cursor
from bridge.messages.block import Block
from bridge.messages.message import Message, carried_id


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
    cursor = read_cursor(connection, row.address_id, REPLAYED_QUEUE) or Cursor(0)
    found: list[Found] = []
    for first, from_, block, came in read_free(connection, row.address_id, cursor.free(row.next), after + 1):
        for index, message in enumerate(block.messages()):
            position = first + index
            alone = block.part(index, index + 1)
            found.append(Found(address, position, position if index else from_, message, alone, came))
            if len(found) >= most:
                return found
    return found
