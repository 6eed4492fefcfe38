"""Large bodies in the journal's file: the chunks of one, and blocks whose message has one."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Final

from bridge.errors import NotFound
from bridge.journal.sqlite.damage import DamagedRow
from bridge.journal.values.row_checksums import row_checksum
from bridge.messages.block import Block, KeptBody, encode_message
from bridge.messages.message import CHUNKS_MOST, LargeBody

_READ: Final = "SELECT chunk_id, crc, bytes FROM chunks WHERE chunk_id = ?"


class BodyGone(NotFound):
    """The message of a large body was trimmed or deleted while the body was read."""


def chunk_id(large_id: int, number: int) -> int:
    """The key of a large body's chunk."""
    return large_id * CHUNKS_MOST + number


def next_large_id(connection: sqlite3.Connection) -> int:
    """A number above that of every large body that is in the file."""
    (chunk, loose) = connection.execute(
        "SELECT (SELECT max(chunk_id) FROM chunks), (SELECT max(large_id) FROM loose_bodies)"
    ).fetchone()
    return max(-1 if chunk is None else chunk // CHUNKS_MOST, -1 if loose is None else loose) + 1


def read_chunk(connection: sqlite3.Connection, large_id: int, number: int) -> bytes:
    """One chunk of a large body. Raises: BodyGone; DamagedRow: it is not as it was stored, or missing."""
    key = chunk_id(large_id, number)
    row = connection.execute(_READ, (key,)).fetchone()
    if row is None:
        if connection.execute("SELECT 1 FROM blocks WHERE large_id = ? LIMIT 1", (large_id,)).fetchone():
            raise DamagedRow("chunks", key, "it is missing")
        raise BodyGone(f"the message has gone before chunk {number} of its body was read", "position")
    *columns, crc, chunk = row
    if row_checksum(columns, chunk) != crc:
        raise DamagedRow("chunks", key)
    return bytes(chunk)


def stored_chunks(connection: sqlite3.Connection, large_id: int) -> tuple[int, int]:
    """The number of a large body's chunks that are stored, and their bytes."""
    (chunks, size) = connection.execute(
        "SELECT count(*), coalesce(sum(length(bytes)), 0) FROM chunks WHERE chunk_id >= ? AND chunk_id < ?",
        (chunk_id(large_id, 0), chunk_id(large_id + 1, 0)),
    ).fetchone()
    return chunks, size


def with_large(block: Block, large_id: int) -> Block:
    """The block of one message whose large body is kept under this number."""
    (message,) = block.messages()
    assert isinstance(message.body, LargeBody), (
        f"the block of the large body {large_id} holds another message"
    )
    encoded = len(encode_message(message))
    return replace(block, largest=encoded, large=KeptBody(large_id, message.body))


def read_whole(connection: sqlite3.Connection, block: Block, most_bytes: int) -> Block:
    """The block with its large body in its message, where that has at most `most_bytes`; else as it is.

    Raises: BodyGone.
    """
    kept = block.large
    if kept is None or kept.body.size > most_bytes:
        return block
    body = bytearray()
    number = 0
    while len(body) < kept.body.size:
        body += read_chunk(connection, kept.body_id, number)
        number += 1
    return block.with_body(bytes(body))
