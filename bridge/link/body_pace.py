"""The pace of a large body on a link: how large its pieces are, and how much of it is on its way. Pure."""

from __future__ import annotations

from typing import Final

from bridge.messages.message import CHUNK_BYTES

#: Bytes of the smallest piece, and of the first ones, before the line's rate is known.
LEAST_PIECE_BYTES: Final = 4 * 1024
#: The time over which the line's rate is measured; and how many pieces leave in it: a cut costs one, and what
#: leaves between two of them waits for one.
MEASURED_MS: Final = 1_000
PIECES: Final = 4
#: So many pieces are on their way, and of the smallest no fewer than the second number: they fill a far line,
#: and what leaves between them does not wait long behind those that have left.
PIECES_ON_THE_WAY: Final = 6
LEAST_ON_THE_WAY: Final = 3


class BodyPace:
    """What the other end confirms in a second decides.

    A piece is a power of two, up to a chunk of the journal: a quarter of that. A connection begins with half
    of what the one before it has shown, and grows with what it has carried itself: so a line that breaks
    after less than a second makes progress, too.
    """

    def __init__(self) -> None:
        #: Bytes that the line carries within `MEASURED_MS`.
        self._rate = PIECES * LEAST_PIECE_BYTES
        #: Bytes sent and not confirmed.
        self._in_flight = 0
        #: Bytes confirmed since then; None: nothing was in flight.
        self._confirmed = 0
        self._since_ms: int | None = None

    def connected(self) -> None:
        """Begin anew on another connection."""
        self._rate = max(self._rate // 2, PIECES * LEAST_PIECE_BYTES)
        self._in_flight = self._confirmed = 0
        self._since_ms = None

    def piece_bytes(self) -> int:
        """Bytes of the next piece, at most."""
        most = max(self._rate // PIECES, 1)
        return min(max(1 << (most.bit_length() - 1), LEAST_PIECE_BYTES), CHUNK_BYTES)

    def has_room(self, size: int) -> bool:
        """Whether a piece may leave now: not too much is on its way."""
        most = max(self._rate * PIECES_ON_THE_WAY // PIECES, LEAST_ON_THE_WAY * LEAST_PIECE_BYTES)
        return not self._in_flight or self._in_flight + size <= most

    def sent(self, size: int) -> None:
        """Count a piece that leaves."""
        self._in_flight += size

    def confirmed(self, size: int, now_ms: int) -> None:
        """Count bytes that the other end has stored; those of batches among them are not counted."""
        size = min(size, self._in_flight)
        if not size:
            return
        self._in_flight -= size
        self._confirmed += size
        if self._since_ms is None:
            self._since_ms = now_ms
        elapsed_ms = now_ms - self._since_ms
        if elapsed_ms >= MEASURED_MS:
            self._rate = self._confirmed * MEASURED_MS // elapsed_ms
            self._since_ms, self._confirmed = now_ms, 0
        else:
            self._rate = max(self._rate, self._confirmed)
        if not self._in_flight:  # the line is idle: the time until the next piece says nothing
            self._since_ms, self._confirmed = None, 0
