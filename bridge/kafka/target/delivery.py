"""What was delivered of an open stream and has no answer yet. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bridge.messages.batch import Batch
from bridge.relay.ports import Stream


@dataclass(slots=True, eq=False)
class OpenStream:
    """A stream as of its last opening."""

    stream: Stream
    epoch: int
    #: A batch was not taken, or it was opened again: nothing more is taken by this opening.
    blocked: bool = False


@dataclass(slots=True, eq=False)
class Delivery:
    """One batch that waits for the target's word."""

    batch: Batch
    opened: OpenStream
    #: An asyncio.Future of a `Receipt`.
    future: Any = None
    #: Found by the last plan: positions that can never be stored, and the rule of each.
    refusals: dict[int, str] = field(default_factory=dict)
    #: Those of them that no record batch can carry, which only making one shows.
    too_large: dict[int, str] = field(default_factory=dict)
    #: Positions of the batch as it was delivered that have dead letters since, each with the rule.
    buried: dict[int, str] = field(default_factory=dict)

    def bury(self) -> None:
        """All of the refusals have dead letters: the batch goes on without them."""
        self.batch = self.batch.without(self.refusals)
        self.buried |= self.refusals
        self.refusals, self.too_large = {}, {}
