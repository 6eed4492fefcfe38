"""The messages that one address gets with a commit group, and how clients' messages become blocks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from bridge.journal.rules.state import AddressState
from bridge.journal.values.options import BLOCK_BYTES, LARGE_BYTES
from bridge.messages.block import Block, IndexedId, pack

#: Bytes that a block takes besides its messages, at least.
BLOCK_OVERHEAD_BYTES: Final = 96


class Came(IntEnum):
    """The way in which a block came to its address: `blocks.buried`. Blocks of older versions count as
    LETTER_HERE.
    """

    #: Clients sent it.
    SENT = 0
    #: Over a bridge.
    RELAYED = -1
    #: A dead letter from a bridge of this node: the data for sending it again was written here.
    LETTER_HERE = 1
    #: A dead letter from a bridge of another node.
    LETTER = 2


class _Bridged(NamedTuple):
    block: Block
    came: Came


#: Encoded messages of clients, and their producers' IDs by index.
Sent = tuple[list[bytes], list[IndexedId]]


@dataclass(slots=True)
class Arrivals:
    """Blocks of bridges, and clients' messages between them, in order."""

    address: AddressState
    chunks: list[_Bridged | Sent] = field(default_factory=list)
    count: int = 0
    #: Bytes, about: the exact size in the file is known when they are stored.
    size: int = 0

    def add_messages(self, encoded: Sequence[bytes], ids: Sequence[IndexedId]) -> int:
        """Add clients' messages; answers how many came before them."""
        before = self.count
        last = self.chunks[-1] if self.chunks else None
        if last is not None and not isinstance(last, _Bridged):
            offset = len(last[0])
            last[0].extend(encoded)
            last[1].extend((offset + index, value) for index, value in ids)
        else:
            self.chunks.append((list(encoded), list(ids)))
            self.size += BLOCK_OVERHEAD_BYTES
        self.count += len(encoded)
        self.size += sum(map(len, encoded)) + sum([len(value) for _, value in ids])
        return before

    def add_block(self, block: Block, came: Came = Came.RELAYED) -> None:
        """Add a block that came over a bridge."""
        self.chunks.append(_Bridged(block, came))
        self.count += block.count
        self.size += block.size + BLOCK_OVERHEAD_BYTES

    def blocks(self) -> Iterator[tuple[Block, Came]]:
        """The blocks to store, and how they came."""
        for chunk in self.chunks:
            if isinstance(chunk, _Bridged):
                yield chunk
            else:
                for block in cut_blocks(*chunk):
                    yield block, Came.SENT


def cut_blocks(encoded: Sequence[bytes], ids: Sequence[IndexedId]) -> Iterator[Block]:
    """Messages as blocks of about `BLOCK_BYTES`, large ones alone."""
    by_index = dict(ids)
    start = size = 0
    for index, element in enumerate(encoded):
        length = len(element)
        alone = length >= LARGE_BYTES
        if index > start and (alone or size + length > BLOCK_BYTES):
            yield _block(encoded, by_index, start, index)
            start, size = index, 0
        size += length
        if alone:
            yield _block(encoded, by_index, start, index + 1)
            start, size = index + 1, 0
    if start < len(encoded):
        yield _block(encoded, by_index, start, len(encoded))


def _block(encoded: Sequence[bytes], by_index: dict[int, bytes], start: int, stop: int) -> Block:
    ids: tuple[IndexedId, ...] = ()
    if by_index:
        ids = tuple((index - start, by_index[index]) for index in range(start, stop) if index in by_index)
    return pack(encoded[start:stop], ids)
