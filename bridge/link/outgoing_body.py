"""A large body on its way out: read in chunks, sent in pieces, from where the receiver has it. Pure."""

from __future__ import annotations

from hashlib import blake2b

from bridge.messages.block import KeptBody
from bridge.messages.message import DIGEST_BYTES
from bridge.relay.ports import UnfinishedBody


class OutgoingBody:
    """The large body of a batch's one message.

    Where the receiver has kept some of it, the chunks from the first on are read and compared by their digest
    with what it has. If that is the same, the body goes on behind it; otherwise it begins anew.
    """

    def __init__(self, kept: KeptBody, begun: UnfinishedBody | None) -> None:
        """`begun`: what the receiver has kept of a body at this position; None: nothing."""
        self.kept = kept
        #: The number of the next chunk to read; whether it is being read.
        self.next_chunk = 0
        self.reading = False
        #: Bytes that have left, and those before them that the receiver has.
        self._sent = 0
        #: Whether a piece has left: an empty one where the receiver has all of the body.
        self._has_left = False
        #: The chunk that was read last, and where the rest of it begins.
        self._chunk = b""
        self._at = 0
        fits = begun is not None and begun.size == kept.body.size and 0 < begun.kept <= begun.size
        self._begun = begun if fits else None
        self._compared = 0
        self._digest = blake2b(digest_size=DIGEST_BYTES)

    @property
    def has_left(self) -> bool:
        """Whether all of it has left: its batch is next."""
        return self._has_left and self._sent >= self.kept.body.size

    @property
    def wants_chunk(self) -> bool:
        """Whether a chunk has to be read before the next piece."""
        if self._begun is not None:
            return True
        return self._at >= len(self._chunk) and self._sent < self.kept.body.size

    def read(self, chunk: bytes) -> None:
        """Take the chunk with the number `next_chunk`."""
        self.reading = False
        self.next_chunk += 1
        self._chunk, self._at = chunk, 0
        begun = self._begun
        if begun is None:
            return
        self._at = min(len(chunk), begun.kept - self._compared)
        self._digest.update(memoryview(chunk)[: self._at])
        self._compared += self._at
        if self._compared < begun.kept and chunk:
            return
        self._begun = None
        if self._digest.digest() == begun.digest:
            self._sent = begun.kept
        else:
            self._chunk, self._at, self.next_chunk = b"", 0, 0

    def piece_size(self, most: int) -> int:
        """Bytes of the next piece, which is `most` at most."""
        return min(len(self._chunk) - self._at, most)

    def take(self, size: int) -> tuple[int, bytes]:
        """The next piece, of a size that `piece_size` gave, with the number of bytes before it."""
        start, piece = self._sent, self._chunk[self._at : self._at + size]
        self._sent += size
        self._at += size
        self._has_left = True
        if self._at >= len(self._chunk):
            self._chunk, self._at = b"", 0
        return start, piece
