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

#: A header's name and value; values are bytes as on Kafka, null is kept, order and repetition too.
Header = tuple[str, bytes | None]


def headers_size(key: bytes | None, headers: Iterable[Header]) -> int:
    """Bytes of a message's key, and of its headers' names and values."""
    size = len(key or b"")
    for name, value in headers:
        size += len(name) + len(value or b"")
    return size


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One message. Encoded as the msgpack array ``[body, key, headers, timestamp]``."""

    #: Bytes as they came; None is a tombstone.
    body: bytes | None
    #: Partitioning key; None where there is none.
    key: bytes | None = None
    #: In the order they came in.
    headers: tuple[Header, ...] = ()
    #: Milliseconds since the epoch; -1 where the producer gave none.
    timestamp: int = -1

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
