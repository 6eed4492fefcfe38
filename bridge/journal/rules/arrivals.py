"""The messages that one address gets with a commit group, and how clients' messages become blocks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from bridge.journal.rules.state import AddressState
from bridge.journal.values.options import BLOCK_BYTES, LARGE_BYTES
from bridge.journal.values.routes import EVERY, QueueSet
from bridge.messages.block import Block, IndexedId, KeptBody, pack

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


#: Names beside those of queues by which a node that hands its dead letters over says that they are some. No
#: queue's name has a slash.
LETTER_NAMES: Final = {"/letter-here": Came.LETTER_HERE, "/letter": Came.LETTER}
#: The queues that each message of a block is for; None: every queue.
Sets = Sequence[QueueSet] | None


class Arrived(NamedTuple):
    """A block to store."""

    block: Block
    came: Came
    sets: Sets = None


@dataclass(slots=True)
class _Sent:
    """Clients' messages, encoded, and their producers' IDs by index."""

    encoded: list[bytes]
    ids: list[IndexedId]
    sets: list[QueueSet] | None


@dataclass(slots=True)
class Arrivals:
    """Blocks of bridges, and clients' messages between them, in order."""

    address: AddressState
    chunks: list[Arrived | _Sent] = field(default_factory=list)
    count: int = 0
    #: Bytes, about: the exact size in the file is known when they are stored.
    size: int = 0
    #: The sets of queues that some of the messages are for, each once; empty: all are for every queue.
    sets: set[QueueSet] = field(default_factory=set)

    @property
    def joins(self) -> bool:
        """Whether the next messages of clients are joined to the last ones."""
        return bool(self.chunks) and isinstance(self.chunks[-1], _Sent)

    def add_messages(
        self,
        encoded: Sequence[bytes],
        ids: Sequence[IndexedId],
        sets: Sequence[QueueSet] | None = None,
        *,
        apart: bool = False,
    ) -> int:
        """Add clients' messages, with `apart` in blocks of their own; answers how many came before them."""
        before = self.count
        if sets:
            self.sets.update(sets)
        last = self.chunks[-1] if self.chunks else None
        if isinstance(last, _Sent) and not apart:
            offset = len(last.encoded)
            if sets is not None or last.sets is not None:
                last.sets = [*(last.sets or [EVERY] * offset), *(sets or [EVERY] * len(encoded))]
            last.encoded.extend(encoded)
            last.ids.extend((offset + index, value) for index, value in ids)
        else:
            self.chunks.append(_Sent(list(encoded), list(ids), None if sets is None else list(sets)))
            self.size += BLOCK_OVERHEAD_BYTES
        self.count += len(encoded)
        self.size += sum(map(len, encoded)) + sum([len(value) for _, value in ids])
        return before

    def add_large(
        self,
        encoded: bytes,
        ids: Sequence[IndexedId],
        large: KeptBody,
        sets: Sequence[QueueSet] | None = None,
    ) -> int:
        """Add a client's message whose body is kept apart, as a block; answers how many came before it."""
        before = self.count
        self.sets.update(sets or ())
        block = pack([encoded], tuple(ids), large=large)
        self.chunks.append(Arrived(block, Came.SENT, sets))
        self.count += 1
        self.size += block.whole_size + BLOCK_OVERHEAD_BYTES
        return before

    def add_block(self, block: Block, came: Came = Came.RELAYED, to: QueueSet = EVERY) -> None:
        """Add a block that came over a bridge, with the queues that its messages name, else for those of
        `to`.
        """
        sets: Sets = None
        if block.queues:
            sets = [
                QueueSet("only", names) if names else to
                for count, names in block.queues
                for _ in range(count)
            ]
        elif to != EVERY:
            sets = [to] * block.count
        self.sets.update(sets or ())
        self.chunks.append(Arrived(block, came, sets))
        self.count += block.count
        self.size += block.whole_size + BLOCK_OVERHEAD_BYTES

    def leave_out(self, queue: str) -> bool:
        """Whether some of the messages are not for this queue."""
        return not all(one.has(queue) for one in self.sets)

    def encode(self) -> None:
        """Make the blocks to store, so that `blocks` has the same ones each time."""
        self.chunks = list(self.blocks())

    def blocks(self) -> Iterator[Arrived]:
        """The blocks to store."""
        for chunk in self.chunks:
            if isinstance(chunk, Arrived):
                yield chunk
            else:
                yield from _cut_blocks(chunk)


def _cut_blocks(sent: _Sent) -> Iterator[Arrived]:
    """Messages as blocks of about `BLOCK_BYTES`, large ones alone."""
    by_index = dict(sent.ids)
    encoded = sent.encoded
    start = size = 0
    for index, element in enumerate(encoded):
        length = len(element)
        alone = length >= LARGE_BYTES
        if index > start and (alone or size + length > BLOCK_BYTES):
            yield _block(sent, by_index, start, index)
            start, size = index, 0
        size += length
        if alone:
            yield _block(sent, by_index, start, index + 1)
            start, size = index + 1, 0
    if start < len(encoded):
        yield _block(sent, by_index, start, len(encoded))


def _block(sent: _Sent, by_index: dict[int, bytes], start: int, stop: int) -> Arrived:
    ids: tuple[IndexedId, ...] = ()
    if by_index:
        ids = tuple((index - start, by_index[index]) for index in range(start, stop) if index in by_index)
    sets = None if sent.sets is None else sent.sets[start:stop]
    return Arrived(pack(sent.encoded[start:stop], ids), Came.SENT, sets)
