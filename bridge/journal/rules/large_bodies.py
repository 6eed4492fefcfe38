"""Large bodies: chunks that come before their message, and what becomes of them.

Each chunk commits by itself. The block that has the body commits last, with everything that is decided about
its message; until then the body is loose: no reader sees it, and nothing of it outlives the process. So an
upload that breaks, wherever it does, leaves nothing.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from bridge.errors import JournalUnavailable
from bridge.journal.rules.commands import WriteCommand
from bridge.journal.rules.commit_group import Group
from bridge.journal.rules.state import Upload
from bridge.journal.sqlite.large_bodies import chunk_id
from bridge.messages.block import KeptBody
from bridge.messages.message import CHUNKS_MOST


@dataclass(slots=True, eq=False, kw_only=True)
class ChunkCommand(WriteCommand):
    """A chunk of a large body, whose message comes when all of them are stored. Answer: None."""

    large_id: int
    #: 0, 1, 2, …
    number: int
    chunk: bytes
    #: With the first: where the message goes, and the bytes that are known to come. Empty: a router, or
    #: another node, says where, with the message; room is asked for there then.
    address: str = ""
    whole_size: int = 0
    #: Whether a client sends it, not a bridge.
    from_client: bool = True

    @property
    def grows(self) -> bool:
        """True: it brings a part of a message."""
        return True

    def drop(self) -> None:
        """Hold the chunk no more; no caller waits for it. A writer that comes to it now does not store it."""
        self.chunk = b""


@dataclass(slots=True, eq=False, kw_only=True)
class DropBodyCommand(WriteCommand):
    """Delete the chunks of a large body whose message has not been stored. Answer: None."""

    large_id: int


def add_chunk(group: Group, command: ChunkCommand) -> None:
    """Store a chunk; with the first, check that its message would be taken where it is known to go.

    Raises:
        AddressNotFound, AddressFull, MessageTooLarge: the message would not be.
        JournalUnavailable: the upload has ended, or was abandoned.
        Blocked: there is no room now.
    """
    chunk = command.chunk
    if not chunk:
        raise JournalUnavailable("the upload of a large body was abandoned")
    uploads = group.state.uploads
    upload = uploads.get(command.large_id)
    if command.number == 0:
        if command.address:
            group.require_room(command.address, command.whole_size)
        upload = uploads[command.large_id] = Upload()
        group.statements.append(("INSERT INTO loose_bodies VALUES (?)", (command.large_id,)))
    if upload is None or upload.chunks != command.number or command.number >= CHUNKS_MOST:
        raise JournalUnavailable("the upload of a large body has ended before it was whole: send it again")
    upload.chunks += 1
    upload.size += len(chunk)
    group.chunks.append((chunk_id(command.large_id, command.number), chunk))


def drop_body(group: Group, command: DropBodyCommand) -> None:
    """Let the chunks of an upload go, unless its message has been stored."""
    if group.state.uploads.pop(command.large_id, None) is not None:
        group.state.loose_bodies.add(command.large_id)


def check_kept(group: Group, connection: sqlite3.Connection, kept: KeptBody) -> None:
    """Check that the body of a message that is to be stored is there whole: uploaded, or another block's.

    Raises:
        JournalUnavailable: it is not; the upload, or the message that had it, has ended meanwhile.
    """
    upload = group.state.uploads.get(kept.body_id)
    if upload is not None:
        if upload.size == kept.body.size:
            return
    elif connection.execute("SELECT 1 FROM blocks WHERE large_id = ? LIMIT 1", (kept.body_id,)).fetchone():
        return
    raise JournalUnavailable("the large body of a message is not there whole: send it again")
