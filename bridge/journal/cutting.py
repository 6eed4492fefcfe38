"""From stored blocks to batches: small blocks together, large messages alone; nothing is read here.

Blocks are joined without being opened. Only one that is too large for a batch, that holds a large message
among others, or that is taken up in its middle is decoded (design rule 5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bridge import hops
from bridge import runs as run_arithmetic
from bridge.batch import Batch
from bridge.block import Block, encode_message, merge
from bridge.journal.stored import END, StoredBlock
from bridge.runs import Runs


@dataclass(frozen=True, slots=True)
class Cutter:
    """How a bridge wants its batches."""

    #: Largest batch in bytes of messages (`producer-window-size`); one message may be larger.
    batch_bytes: int
    #: From here a message travels in a batch of its own (`min-large-message-size`).
    large_bytes: int
    #: Name the origin of messages that have none (`use-duplicate-detection`).
    stamp: bool
    #: The bridge's hop (`bridge.hops.hop`), which every message takes, and the most it may have come through.
    own_hop: bytes
    max_hops: int

    def cut(self, stream: str, blocks: Iterable[StoredBlock], at: int, upto: int = END) -> list[Batch]:
        """The messages of `stream` in ``[at, upto)`` as batches; the first covers from `at` on."""
        batches: list[Batch] = []
        together: list[StoredBlock] = []
        size = 0
        for piece in self._pieces(stream, blocks, at, upto):
            if together and not self._fits(together[-1].block, size, piece.block):
                batches.append(self._batch(stream, together, at))
                at, size = together[-1].end, 0
                together = []
            together.append(piece)
            size += _weight(piece.block)
        if together:
            batches.append(self._batch(stream, together, at))
        return batches

    def _fits(self, last: Block, size: int, block: Block) -> bool:
        """Whether `block` may go into a batch of `size` bytes that ends with `last`."""
        alone = max(last.largest, block.largest) >= self.large_bytes
        alike = bool(last.origins) == bool(block.origins)  # `merge` takes either all stamped or none
        return not alone and alike and size + _weight(block) <= self.batch_bytes

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
            whole = block.size <= self.batch_bytes and block.largest < self.large_bytes
            if block.count == 1 or whole:
                yield StoredBlock(low, stored.stored_ms, block)
            else:
                for start, stop in self._divisions(block):
                    yield StoredBlock(low + start, stored.stored_ms, block.part(start, stop))

    def _divisions(self, block: Block) -> Iterator[tuple[int, int]]:
        """Where to divide a block, as index ranges ``[start, stop)``."""
        start = size = 0
        for index, message in enumerate(block.messages()):
            length = len(encode_message(message))
            alone = length >= self.large_bytes
            if index > start and (alone or size + length > self.batch_bytes):
                yield start, index
                start, size = index, 0
            size += length
            if alone:
                yield start, index + 1
                start, size = index + 1, 0
        if start < block.count:
            yield start, block.count

    def _batch(self, stream: str, pieces: Sequence[StoredBlock], at: int) -> Batch:
        """The pieces as one batch that covers from `at` to their end, its messages with this bridge's hop."""
        block = merge([piece.block for piece in pieces])
        runs = run_arithmetic.join((piece.first, piece.end - 1) for piece in pieces)
        passed, refused = hops.taken(block.hops, block.count, self.own_hop, self.max_hops)
        return Batch(
            stream,
            at,
            pieces[-1].end,
            runs,
            block.hopped(passed),
            block.checksum,
            events=(pieces[0].stored_ms, pieces[-1].stored_ms),
            refusals=_refusals(runs, refused) if refused else (),
        )


def _refusals(runs: Runs, refused: Sequence[tuple[int, int, str]]) -> tuple[tuple[int, str], ...]:
    """What `hops.taken` refused, by position."""
    places = list(run_arithmetic.positions(runs))
    return tuple((places[index], reason) for first, end, reason in refused for index in range(first, end))


def _weight(block: Block) -> int:
    """What a block takes of a batch: its hops, too, of which small messages by turns have many."""
    return block.size + hops.size(block.hops)
