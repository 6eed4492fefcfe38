"""A block as it lies in the journal."""

from __future__ import annotations

from typing import Final, NamedTuple

from bridge.block import Block

#: Beyond every position: read to the end.
END: Final = 1 << 62


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
