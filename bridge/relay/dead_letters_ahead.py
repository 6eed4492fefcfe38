"""Batches with positions that have a dead letter, and how far these may be ahead of the covered ones. Pure.

The positions that have a letter are remembered in a bounded field until they are covered
(`bridge.relay.dead_letters`). So the messages before them are delivered before more letters are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Final

from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch

#: Positions of one stream that have a dead letter and are not covered.
LETTERS_AHEAD: Final = 128


def ahead(part: Batch, refused: Set[int]) -> int:
    """Positions that would have a letter and not be covered if the part were sent; `refused` have one
    already.
    """
    return len(refused) + sum(position not in refused for position, _ in part.refusals)


def divided(batch: Batch, refused: Set[int]) -> Iterator[Batch]:
    """The batch, divided where it holds more than `LETTERS_AHEAD` positions that are refused."""
    dead = sorted(
        {position for position, _ in batch.refusals}
        | {position for position in refused if run_arithmetic.index(batch.runs, position) >= 0}
    )
    for position in dead[LETTERS_AHEAD - 1 : -1 : LETTERS_AHEAD]:
        if position + 1 < batch.upto:
            yield batch.until(position + 1)
            batch = batch.after(position + 1)
    yield batch
