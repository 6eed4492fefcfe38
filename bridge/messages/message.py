"""The message: a producer hands it in, and a reader gets it back, byte for byte.

A message's duplicate ID is not part of this value. A producer's ID travels beside the block
(`bridge.messages.block`), so that checks and logs never open a body; a stamped ID is implied by the place
where the message was first stored (`dedup.ids`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from dedup.ids import ID_HEADER

#: Bytes that a message may have above `max-message-size`, which limits its body: for key, headers and
#: encoding, where `max-headers-size` does not bound them.
MESSAGE_SLACK: Final = 64 * 1024

#: Bytes of the digest by which a large body is known.
DIGEST_BYTES: Final = 16
#: Largest body that is held in memory as a whole, bytes. What is larger travels in chunks, and does not go
#: where a body is needed whole: into a transformer, a Kafka record, a transaction.
WHOLE_BODY_BYTES: Final = 64 * 1024 * 1024
#: Bytes of a large body's chunk; the last one may be smaller. It is a row of the journal and a frame of the
#: link, and what a POST or a reader holds of it in memory.
CHUNK_BYTES: Final = 1024 * 1024
#: Chunks of one body, at most.
CHUNKS_MOST: Final = 2**16

#: Latest timestamp of a message, in milliseconds since the epoch: a signed 64-bit integer.
TIMESTAMP_MAX: Final = 2**63 - 1

#: A header's name and value; values are bytes as on Kafka, null is kept, order and repetition too.
Header = tuple[str, bytes | None]


class LargeBody(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Stands for a large message's body, which is kept in chunks beside it: what the body is, not where.

    Encoded as the msgpack array ``[size, digest]``, so that no reader takes it for bytes.
    """

    #: Bytes of the body.
    size: int
    #: BLAKE2b of the body, `DIGEST_BYTES` long.
    digest: bytes

    def __len__(self) -> int:
        """The bytes of the body."""
        return self.size


def headers_size(key: bytes | None, headers: Iterable[Header]) -> int:
    """Bytes of a message's key, and of its headers' names and values."""
    size = len(key or b"")
    for name, value in headers:
        size += len(name) + len(value or b"")
    return size


class LargeBodyApart(Exception):
    """A large message came where a body is needed whole: it should have been refused before."""


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One message. Encoded as the msgpack array ``[body, key, headers, timestamp]``."""

    #: Bytes as they came; None is a tombstone. A large message's body is beside it (`Block.large`).
    body: bytes | LargeBody | None
    #: Partitioning key; None where there is none.
    key: bytes | None = None
    #: In the order they came in.
    headers: tuple[Header, ...] = ()
    #: Milliseconds since the epoch; -1 where the producer gave none.
    timestamp: int = -1

    @property
    def whole(self) -> bytes | None:
        """The body, where its bytes are needed. Raises: LargeBodyApart: they are not in the message."""
        if isinstance(self.body, LargeBody):
            raise LargeBodyApart(f"a large body of {self.body.size} bytes is beside its message")
        return self.body

    def header(self, name: str) -> bytes | None:
        """The value of the last header called `name` (as Kafka's ``lastHeader``), or None."""
        for header_name, value in reversed(self.headers):
            if header_name == name:
                return value
        return None


def carried_id(message: Message) -> bytes | None:
    """The ID that an earlier bridge stamped, where the message came as a Kafka record with one; otherwise
    None.
    """
    ids = [value for name, value in message.headers if name == ID_HEADER]
    return ids[-1] if ids else None
