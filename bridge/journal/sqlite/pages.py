"""Pages of messages, as clients read them: the blocks they are in, and then the messages of these."""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from bridge.errors import JournalUnavailable
from bridge.journal.sqlite.damage import DamagedMessages, is_damage
from bridge.journal.sqlite.large_bodies import read_whole
from bridge.journal.sqlite.reader import find_blocks, read_block, stamped_ids
from bridge.journal.values.queue_cursor import Interval
from bridge.journal.values.store import Delivered
from bridge.journal.values.stored_block import StoredBlock
from bridge.messages.message import Message, carried_id, headers_size

#: Bytes of blocks that stay decoded for the next page; one page takes a part of a block.
DECODED_BYTES: Final = 4 * 1024 * 1024
#: Largest body in chunks that a page has, bytes: what is larger is read by its position, chunk by chunk.
LARGE_IN_PAGE_BYTES: Final = 16 * 1024 * 1024
#: Bytes of an ID that follows from where a message was first stored: it is in no block.
_IMPLIED_ID_BYTES: Final = 36


class DecodedBlocks:
    """The blocks that pages were read from last, decoded. Positions are never reused, so no entry becomes
    stale.
    """

    def __init__(self, limit_bytes: int = DECODED_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._blocks: OrderedDict[int, tuple[StoredBlock, list[Message]]] = OrderedDict()

    def messages(self, stored: StoredBlock) -> list[Message]:
        """The block's messages, decoded once while it stays."""
        return self._remember(stored)[1]

    def get(self, first: int) -> StoredBlock | None:
        """The block that begins at `first`, if it is here."""
        with self._lock:
            found = self._blocks.get(first)
            if found is None:
                return None
            self._blocks.move_to_end(first)
            return found[0]

    def _remember(self, stored: StoredBlock) -> tuple[StoredBlock, list[Message]]:
        with self._lock:
            found = self._blocks.get(stored.first)
        if found is not None:
            return found
        try:
            entry = (stored, stored.block.messages())
        except msgspec.DecodeError as error:
            last = stored.end - 1
            raise DamagedMessages(f"positions {stored.first} to {last} cannot be read ({error})") from error
        with self._lock:
            if stored.first not in self._blocks:
                self._blocks[stored.first] = entry
                self._bytes += stored.block.size
            while self._bytes > self._limit_bytes and len(self._blocks) > 1:
                _, (oldest, _) = self._blocks.popitem(last=False)
                self._bytes -= oldest.block.size
        return entry


class Piece(NamedTuple):
    """The messages of a block at positions ``[low, high)``."""

    stored: StoredBlock
    low: int
    high: int


class PageSize(NamedTuple):
    """The most that a page may hold; a page holds one message at least."""

    messages: int
    bytes: int


def read_page(
    connection: sqlite3.Connection,
    decoded: DecodedBlocks,
    address_id: int,
    intervals: Iterable[Interval],
    most: PageSize,
) -> list[Piece]:
    """The blocks of the first messages in these intervals, as many as the page takes, and as can be read.

    Raises: DamagedMessages: the first message cannot be read.
    """
    pieces: list[Piece] = []
    left = most.messages
    for start, end in intervals:
        if left and pieces and end <= pieces[-1].stored.end:  # of the same block: it is read once
            high = min(end, start + left)
            pieces.append(Piece(pieces[-1].stored, start, high))
            left -= high - start
            continue
        for first in find_blocks(connection, address_id, start, end, most.bytes, left) if left else ():
            try:
                stored = decoded.get(first) or _read(connection, first)
            except sqlite3.DatabaseError as error:
                if not (pieces and is_damage(error)):
                    raise
                return pieces
            low = max(start, first)
            high = min(end, stored.end, low + left)
            pieces.append(Piece(stored, low, high))
            left -= high - low
    return pieces


def _read(connection: sqlite3.Connection, first: int) -> StoredBlock:
    """The block that begins at `first`, with a large body in its message where a page takes it."""
    stored = read_block(connection, first)
    if stored.block.large is None:
        return stored
    return stored._replace(block=read_whole(connection, stored.block, LARGE_IN_PAGE_BYTES))


def deliver_page(pieces: Sequence[Piece], decoded: DecodedBlocks, most: PageSize) -> list[Delivered]:
    """Their messages; decoded when the read transaction has ended, for the log waits for its end."""
    found: list[Delivered] = []
    at_most = 0
    for stored, group in groupby(pieces, attrgetter("stored")):
        ranges = [(low, high) for _, low, high in group]
        found += _deliver(stored, decoded.messages(stored), ranges)
        # An ID that a header carries is counted with the headers, too.
        at_most += 2 * stored.block.size + _IMPLIED_ID_BYTES * stored.block.count
    return found if at_most <= most.bytes else found[: _fitting(found, most.bytes)]


def _fitting(found: Sequence[Delivered], most_bytes: int) -> int:
    """How many of the messages a page takes: all that fit, and one at least."""
    size = 0
    for number, delivered in enumerate(found):
        size += _size(delivered)
        if number and size > most_bytes:
            return number
    return len(found)


def _size(delivered: Delivered) -> int:
    """Bytes of everything that a reader gets of it."""
    message = delivered.message
    size = len(message.body or b"") + len(delivered.duplicate_id or b"")
    return size + headers_size(message.key, message.headers)


def _deliver(stored: StoredBlock, messages: Sequence[Message], ranges: Sequence[Interval]) -> list[Delivered]:
    """The block's messages at positions in these ranges ``[low, high)``, ascending, with their IDs."""
    first, block = stored.first, stored.block
    ids = dict(block.ids)
    if block.origins:
        for index, implied in stamped_ids(block, ranges[0][0] - first, ranges[-1][1] - first).items():
            ids.setdefault(index, carried_id(messages[index]) or implied)
    return [
        Delivered(place, messages[place - first], ids.get(place - first), block.large)
        for low, high in ranges
        for place in range(low, high)
    ]


def check_count(address: str, found: int, leased: int) -> None:
    """Check that a page has all messages of its lease: what is not shown must not be acknowledged.

    Raises: JournalUnavailable.
    """
    if found != leased:
        detail = f"{address} gave {found} messages for a lease of {leased}"
        raise JournalUnavailable(detail, limit=leased, found=found)
