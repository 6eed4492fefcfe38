"""A block as the journal stores it."""

from __future__ import annotations

from typing import Final, NamedTuple

from bridge.messages.block import Block

#: Greater than every position: read to the end.
END: Final = 1 << 62


#: A page of the file. Measured: 1.5 times the block throughput of 4 KiB at half the CPU, and small commits
#: cost no more.
PAGE_BYTES: Final = 16384
#: How SQLite lays out a table's row (https://sqlite.org/fileformat2.html, "B-tree Cell Format"): up to so
#: many bytes stand in a leaf page, beside others. Of more a part stays there, the rest fills whole pages.
_IN_LEAF_BYTES: Final = PAGE_BYTES - 35
_LEFT_IN_LEAF_BYTES: Final = (PAGE_BYTES - 12) * 32 // 255 - 23
_IN_OVERFLOW_BYTES: Final = PAGE_BYTES - 4
#: A block's numbers in its row, and its entry in the index, about.
_ROW_BYTES: Final = 48
_INDEX_BYTES: Final = 40


def stored_bytes(*parts: bytes | None) -> int:
    """Bytes that a block takes in the file, about: its body and its other columns, encoded; limits count
    this.

    A leaf page is shared by as many rows of this size as it has room for.
    """
    payload = _ROW_BYTES + sum([len(part) for part in parts if part])
    if payload <= _IN_LEAF_BYTES:
        in_leaf, pages = payload, 0
    else:
        rest = payload - _LEFT_IN_LEAF_BYTES
        in_leaf = _LEFT_IN_LEAF_BYTES + rest % _IN_OVERFLOW_BYTES
        if in_leaf > _IN_LEAF_BYTES:
            in_leaf = _LEFT_IN_LEAF_BYTES
        pages = -((in_leaf - payload) // _IN_OVERFLOW_BYTES)
    return PAGE_BYTES // (PAGE_BYTES // in_leaf) + pages * PAGE_BYTES + _INDEX_BYTES


def chunks_bytes(size: int) -> int:
    """Bytes that a large body takes in the file, in its chunks, about."""
    return -(-size // _IN_OVERFLOW_BYTES) * PAGE_BYTES


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
