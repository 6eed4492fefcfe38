"""From stored blocks to batches: small blocks together, large messages alone; nothing is read here.

Blocks are joined without being opened. Only one that is too large for a batch, that holds a large message
among others, or that is taken up in its middle is decoded (design rule 5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from bridge.journal.values.stored_block import END, StoredBlock
from bridge.messages import hops
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.block import Block, Origin, merge

#: Most messages of a batch, and so entries of each of its lists: what a link takes (`bridge.link.limits`).
MESSAGES_MOST: Final = 2**17
#: Most runs of messages for the same queues in a batch's blocks, so that a link takes them (1,000), whatever
#: lies between them.
QUEUE_RUNS_MOST: Final = 499
#: Bytes that an entry of a list takes in a frame beside its text: its head, and two numbers of nine bytes.
ENTRY_BYTES: Final = 24
#: The same of an entry of hops: its head, a number, and the hop that the message is going to take.
_HOPS_BYTES: Final = 8 + hops.HOP_BYTES


@dataclass(frozen=True, slots=True)
class Cutter:
    """The limits and marks by which a bridge cuts its batches."""

    #: Largest batch in bytes of its frame (`producer-window-size`); one message may be larger.
    batch_bytes: int
    #: From here a message travels in a batch of its own (`min-large-message-size`).
    large_bytes: int
    #: Name the origin of messages that have none (`use-duplicate-detection`).
    stamp: bool
    #: Large bodies of at most `WHOLE_BODY_BYTES` are read into their messages, because the bridge's
    #: transformer or its target takes no chunks.
    whole_bodies: bool = False

    def cut(
        self,
        stream: str,
        blocks: Iterable[StoredBlock],
        at: int,
        upto: int = END,
        *,
        most: int | None = None,
    ) -> list[Batch]:
        """The messages of `stream` in ``[at, upto)`` as batches; the first covers from `at` on.

        `most`: so many batches at most; the rest is cut another time. None: all.
        """
        batches: list[Batch] = []
        together: list[StoredBlock] = []
        size = queue_runs = 0
        for piece in self._pieces(stream, blocks, at, upto):
            weight = _weight(piece, together[-1] if together else None)
            queue_runs += len(piece.block.queues)
            fits = (
                self._fits(together[-1].block, size + weight, piece.block, piece.end - at)
                if together
                else True
            )
            if not fits or (together and queue_runs > QUEUE_RUNS_MOST):
                batches.append(self._batch(stream, together, at))
                if len(batches) == most:
                    return batches
                at, size, queue_runs = together[-1].end, 0, len(piece.block.queues)
                together = []
                weight = _weight(piece, None)
            together.append(piece)
            size += weight
        if together:
            batches.append(self._batch(stream, together, at))
        return batches

    def _fits(self, last: Block, size: int, block: Block, positions: int) -> bool:
        """Whether `block` may follow `last` in a batch that then has `size` bytes and so many positions."""
        alone = max(last.largest, block.largest) >= self.large_bytes or last.large or block.large
        alike = bool(last.origins) == bool(block.origins)  # `merge` takes either all stamped or none
        return not alone and alike and size <= self.batch_bytes and positions <= MESSAGES_MOST

    def _pieces(
        self, stream: str, blocks: Iterable[StoredBlock], at: int, upto: int
    ) -> Iterator[StoredBlock]:
        """The blocks' parts within ``[at, upto)``, none of which has to be divided any more."""
        for stored in blocks:
            low, high = max(at, stored.first), min(upto, stored.end)
            if low >= high:
                continue
            block = stored.block.part(low - stored.first, high - stored.first)
            if self.stamp:
                block = block.stamped(stream, ((low, high - 1),))
            piece = StoredBlock(low, stored.stored_ms, block)
            few = block.count <= MESSAGES_MOST and len(block.queues) <= QUEUE_RUNS_MOST
            small = few and block.largest < self.large_bytes
            if block.count == 1 or (small and _weight(piece, None) <= self.batch_bytes):
                yield piece
            else:
                for start, stop in self._divisions(block):
                    yield StoredBlock(low + start, stored.stored_ms, block.part(start, stop))

    def _divisions(self, block: Block) -> Iterator[tuple[int, int]]:
        """The parts into which to divide a block, as index ranges ``[start, stop)``."""
        start = size = queue_runs = 0
        beside = _beside(block)
        begins = set(accumulate((count for count, _ in block.queues), initial=0))
        for index, encoded in enumerate(block.encoded()):
            alone = len(encoded) >= self.large_bytes
            weight = len(encoded) + beside.get(index, 0)
            queue_runs += index in begins
            full = size + weight > self.batch_bytes or index - start >= MESSAGES_MOST
            if index > start and (alone or full or queue_runs > QUEUE_RUNS_MOST):
                yield start, index
                start, size, queue_runs = index, 0, 1
            size += weight
            if alone:
                yield start, index + 1
                start, size = index + 1, 0
        if start < block.count:
            yield start, block.count

    def _batch(self, stream: str, pieces: Sequence[StoredBlock], at: int) -> Batch:
        """The pieces as one batch that covers from `at` to their end."""
        block = merge([piece.block for piece in pieces])
        runs = run_arithmetic.join((piece.first, piece.end - 1) for piece in pieces)
        return Batch(
            stream,
            at,
            pieces[-1].end,
            runs,
            block,
            block.checksum,
            events=(pieces[0].stored_ms, pieces[-1].stored_ms),
        )


def _weight(piece: StoredBlock, before: StoredBlock | None) -> int:
    """The bytes that a block takes in a batch's frame, behind `before`, which `merge` joins it to.

    Where small messages of several producers alternate, most of these bytes are not their bodies: each
    message may have its own run, ID, place of origin and hops. The entries that every batch has at least once
    are not counted, or a block of a batch's size would be divided for them.
    """
    block = piece.block
    follows = before is None or before.end == piece.first
    size = block.size + ENTRY_BYTES * (len(block.ids) + (not follows))
    origins = block.origins
    if origins:
        if before is None or (before.block.origins and _continues(before.block.origins[-1], origins[0])):
            origins = origins[1:]
        size += sum(_origin_bytes(stream) for stream, _, _ in origins)
    passed = block.hops[1:] if before is None else block.hops
    named = sum(ENTRY_BYTES + sum(ENTRY_BYTES + len(name) for name in names) for _, names in block.queues)
    return size + hops.size(passed) + _HOPS_BYTES * len(passed) + named


def _beside(block: Block) -> dict[int, int]:
    """As `_weight`, of each message but the first, by its index; the message's encoding is not counted."""
    found: dict[int, int] = {}
    for index, value in block.ids:
        found[index] = ENTRY_BYTES + len(value)
    index = 0
    for stream, first, last in block.origins:
        found[index] = found.get(index, 0) + _origin_bytes(stream)
        index += last - first + 1
    index = 0
    for count, passed in block.hops:
        found[index] = found.get(index, 0) + _HOPS_BYTES + len(passed)
        index += count
    index = 0
    for count, names in block.queues:
        found[index] = found.get(index, 0) + ENTRY_BYTES + sum(ENTRY_BYTES + len(name) for name in names)
        index += count
    found.pop(0, None)
    return found


def _continues(before: Origin, origin: Origin) -> bool:
    return before[0] == origin[0] and before[2] + 1 == origin[1]


def _origin_bytes(stream: str) -> int:
    return ENTRY_BYTES + (len(stream) if stream.isascii() else len(stream.encode()))
