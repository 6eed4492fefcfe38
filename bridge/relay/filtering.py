"""The filter of a bridge: the stage that passes over messages for which the condition is not true. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.filters.blocks import taken
from bridge.filters.filter import Filter
from bridge.messages.batch import Batch
from bridge.messages.stream_names import is_set_aside


@dataclass(frozen=True, slots=True)
class FilterStage:
    """The stage by which a bridge sends only what its filter takes; made for one relay or one call.

    It comes before the loop guard, so that the messages which it leaves out take no hop and are not refused.
    """

    condition: Filter

    def __call__(self, batch: Batch, address: str) -> Batch:
        """The batch with the messages for which the condition is true; `AMQAddress` is `address`.

        The positions of the others are covered and empty, and counted (`Batch.filtered`). What was set aside
        for the bridge before, from a shared queue or as a dead letter, is not asked again: it would be lost
        where the condition has changed meanwhile.
        """
        if batch.block is None or is_set_aside(batch.stream):
            return batch
        raised = self.condition.raised
        kept = taken(self.condition, batch.block, address)
        return batch.only(kept, self.condition.raised - raised)
