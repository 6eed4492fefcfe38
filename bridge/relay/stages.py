"""Stages: what happens to each batch between read and send, in their order. Pure.

A stage takes a batch as the source has read it, or as the stage before has made it, and returns the batch as
it goes on. A message that it refuses is named in `Batch.refusals`, and becomes a dead letter; one that it
passes over leaves a position that is covered and empty. A batch that is read again goes through all stages
again, so a stage decides by the batch and its address alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from bridge.filters import parse
from bridge.messages import hops
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.message import WHOLE_BODY_BYTES
from bridge.relay.filtering import FilterRecord, FilterStage


class Stage(Protocol):
    """One stage of a bridge."""

    def __call__(self, batch: Batch, address: str, /) -> Batch:
        """The batch as it goes on. It covers the same positions.

        `address`: the name at the source of the batch's stream.
        """


def staged(batch: Batch, stages: Sequence[Stage], address: str) -> Batch:
    """The batch after all stages; `address` as in `Stage`."""
    for stage in stages:
        batch = stage(batch, address)
    return batch


def filter_stage(condition: str, record: FilterRecord | None = None) -> FilterStage | None:
    """A bridge's filter, for one relay or one call: a filter is not shared. None: the condition is empty.

    `record`: of the bridge, in which all its lanes count; without one, nobody reads what it counts.

    Raises: FilterRefused: the text is no condition.
    """
    found = parse(condition)
    return None if found is None else FilterStage(found, record or FilterRecord())


def refuse_large(batch: Batch, _address: str) -> Batch:
    """The stage of a bridge that needs bodies whole: it refuses a message whose body is in chunks.

    Its source has made all others whole by then.
    """
    large = None if batch.block is None else batch.block.large
    if large is None:
        return batch
    what = f"the body has {large.body.size} bytes; a transformer, and a target that is no node, takes"
    return replace(
        batch, refusals=((batch.runs[0][0], f"MESSAGE_TOO_LARGE: {what} at most {WHOLE_BODY_BYTES}"),)
    )


@dataclass(frozen=True, slots=True)
class LoopGuard:
    """The stage by which each message takes the bridge's hop, and is refused where it may not take it."""

    bridge: str
    #: Most bridges that a message may have come through (`max-hops`).
    max_hops: int
    #: Store identity of the source, which is open.
    store: Callable[[], str]

    def __call__(self, batch: Batch, _address: str) -> Batch:
        """The batch with its messages' hops; a message with an earlier refusal gets the guard's reason."""
        block = batch.block
        if block is None:
            return batch
        own = hops.hop(self.bridge, self.store())
        passed, refused = hops.taken(block.hops, block.count, own, self.max_hops)
        hopped = replace(batch, block=block.hopped(passed))
        return replace(hopped, refusals=_with(batch, refused)) if refused else hopped


def _with(batch: Batch, refused: Sequence[tuple[int, int, str]]) -> tuple[tuple[int, str], ...]:
    """The batch's refusals and those of `hops.taken`, in order."""
    found = [(index, reason) for first, end, reason in refused for index in range(first, end)]
    places = run_arithmetic.at(batch.runs, (index for index, _ in found))
    reasons = dict(batch.refusals) | dict(zip(places, (reason for _, reason in found), strict=True))
    return tuple(sorted(reasons.items()))
