"""Every limit of the HTTP listeners, with its unit and its default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bridge.messages.message import WHOLE_BODY_BYTES

KIB: Final = 1024
MIB: Final = 1024 * KIB

#: Messages of one transaction, and acknowledgements beside them.
TRANSACTION_MESSAGES_MAX: Final = 10_000
TRANSACTION_ACKNOWLEDGEMENTS_MAX: Final = 10_000
#: A transaction's request body, in multiples of `max-message-size`: room for base64 and for many messages.
TRANSACTION_SIZE_FACTOR: Final = 4
#: A transaction is decoded in pieces of about this many bytes, and other tasks run between two of them.
TRANSACTION_PIECE_BYTES: Final = 256 * KIB
#: Messages of one page, and its bytes; a page has at least one message however large.
MESSAGES_A_PAGE_DEFAULT: Final = 100
MESSAGES_A_PAGE_MAX: Final = 1000
PAGE_BYTES_MAX: Final = 16 * MIB
#: Most bytes of a page as it is written. Base64 takes a third more than its bytes, which fits; escapes take
#: up to six times as much: then the page has fewer messages.
PAGE_TEXT_BYTES_MAX: Final = 24 * MIB
#: How long a reader may wait for the first message of a page, in ms.
WAIT_MS_MAX: Final = 60_000
#: How long a page stays leased, in ms.
LEASE_MS_DEFAULT: Final = 60_000
LEASE_MS_MAX: Final = 24 * 3_600_000
#: Characters of a queue's filter: each takes up to some 20 microseconds to parse.
FILTER_CHARS_MAX: Final = 4096
#: Bytes of a CloudEvent whose attributes are in its body (structured mode).
EVENT_BYTES_MAX: Final = 1024 * 1024
#: The highest position of a stream (design, section 1).
POSITION_MAX: Final = 2**50
#: Header fields of one request.
HEADER_FIELDS_MAX: Final = 128
#: A connection without a request is closed after this long, in seconds.
KEEP_ALIVE_S: Final = 120.0
#: The rest of a refused body is read and dropped for this long, so that its sender sees the answer rather
#: than a reset connection, in seconds.
LINGER_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """``[acceptor]``'s limits, in bytes and numbers."""

    max_message_size: int = 16 * MIB
    #: From here on a message's body is stored in chunks, as it comes.
    min_large_message_size: int = 1 * MIB
    max_headers_size: int = 16 * KIB
    max_duplicate_id_size: int = 1 * KIB
    max_requests: int = 512
    max_connections: int = 1000
    #: Bytes of bodies on their way in and answers on their way out, over all connections.
    max_transit_size: int = 256 * MIB

    @property
    def whole_message_size(self) -> int:
        """Largest body of a message of a transaction, which is held in memory."""
        return min(self.max_message_size, WHOLE_BODY_BYTES)

    @property
    def transaction_size(self) -> int:
        """Bytes of a transaction's request body."""
        return self.whole_message_size * TRANSACTION_SIZE_FACTOR
