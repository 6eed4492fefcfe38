"""Coverage: whether a bridge has covered a position of a stream (design rule 1).

The target keeps one number a stream, `next`: the first position that it has not covered. A batch
says what it covers, ``[from, upto)``. Nothing else is needed for nothing to be lost and nothing
doubled, however batches are cut, repeated or overtaken by those of an older link.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dedup.ids import MAX_POSITION


class Outcome(Enum):
    """The outcome of a batch at a target, decided by the positions that it covers."""

    #: All positions were covered before: nothing is stored.
    DUPLICATE = "duplicate"
    #: The messages at positions >= `start` are stored.
    TAKE = "take"
    #: Positions before it are missing: nothing is stored, the link closes, the sender resumes at next.
    OUT_OF_SEQUENCE = "out-of-sequence"


@dataclass(frozen=True, slots=True)
class Coverage:
    """The outcome and its two positions, `start` and `next`."""

    outcome: Outcome
    #: First position to store; equal to `next` where nothing is stored.
    start: int
    #: The stream's next after this batch. It changes with TAKE only.
    next: int


def judge(next_position: int | None, from_: int, upto: int) -> Coverage:
    """Compare a batch's coverage, ``[from_, upto)``, with the stream's next.

    A stream never seen takes `from_` as its start, so its first batch decides what came before:
    a sender keeps just one batch in flight until the target has answered for the stream. Where
    ``from_ == upto`` nothing is covered; such a batch gives a stream never seen its start, and
    is a duplicate elsewhere unless it lies beyond next.

    Args:
        next_position: first position not covered; None for a stream never seen.
        from_: first position covered by the batch.
        upto: one beyond the last.

    Raises:
        ValueError: not ``0 <= from_ <= upto <= MAX_POSITION + 1``.
    """
    if not 0 <= from_ <= upto <= MAX_POSITION + 1:
        raise ValueError(f"coverage must ascend within 0..{MAX_POSITION + 1}; found [{from_}, {upto})")
    if next_position is None:
        return Coverage(Outcome.TAKE, from_, upto)
    if upto <= next_position:
        return Coverage(Outcome.DUPLICATE, next_position, next_position)
    if from_ > next_position:
        return Coverage(Outcome.OUT_OF_SEQUENCE, next_position, next_position)
    return Coverage(Outcome.TAKE, next_position, upto)
