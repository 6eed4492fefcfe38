"""A block as it lies in the journal."""

from __future__ import annotations

from typing import Final, NamedTuple

from bridge.block import Block
from bridge.message import Message

#: Beyond every position: read to the end.
END: Final = 1 << 62
#: The header in which a Kafka record carries its duplicate ID.
ID_HEADER: Final = "_AMQ_DUPL_ID"


class StoredBlock(NamedTuple):
    """A block and where it is."""

    #: Position of its first message; the others follow without a gap.
    first: int
    stored_ms: int
    block: Block

    @property
    def end(self) -> int:
        """One beyond its last message."""
        return self.first + self.block.count


def carried_id(message: Message) -> bytes | None:
    """The ID that a bridge stamped further up, where the message came as a Kafka record; None: it did not."""
    ids = [value for name, value in message.headers if name == ID_HEADER]
    return ids[-1] if ids else None
