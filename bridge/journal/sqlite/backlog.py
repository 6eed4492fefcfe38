"""The messages that wait for the target of one bridge, by address, and which of them may have been sent."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from bridge.journal.sqlite.reader import bridge_queues
from bridge.messages.stream_names import journal_stream


@dataclass(frozen=True, slots=True)
class Backlog:
    """The messages of one address that wait for a bridge's target."""

    address: str
    stream: str
    #: First position that the target has not confirmed, and one beyond the last.
    next: int
    end: int
    #: From here on nothing was sent.
    unsent_from: int
    messages: int
    #: Of the messages, those that were perhaps sent.
    in_doubt: int


def read_backlog(
    connection: sqlite3.Connection, bridge: str, incarnation: str, sent_most: int
) -> list[Backlog]:
    """The backlog of a bridge; it has sent at most `sent_most` bytes that are not confirmed."""
    found = []
    for row in bridge_queues(connection, bridge):
        messages = in_doubt = size = 0
        unsent_from = row.queue_next
        for first, count, block_bytes in connection.execute(
            "SELECT first, count, size FROM blocks WHERE address_id = ? AND first + count > ? ORDER BY first",
            (row.address_id, row.queue_next),
        ):
            left = first + count - max(first, row.queue_next)
            messages += left
            if size < sent_most:
                in_doubt += left
                unsent_from = first + count
            size += block_bytes
        stream = journal_stream(incarnation, row.address, row.first)
        found.append(Backlog(row.address, stream, row.queue_next, row.end, unsent_from, messages, in_doubt))
    return found
