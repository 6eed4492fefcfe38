"""Open streams, and deliveries without an answer. Pure."""

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
    #: Whether a batch was not taken, or the stream was opened again: then this opening takes no more batches.
    blocked: bool = False


@dataclass(slots=True, eq=False)
class Delivery:
    """One batch that waits for the target's answer."""

    batch: Batch
    opened: OpenStream
    #: An asyncio.Future of a `Receipt`.
    future: Any = None
    #: Positions that can never be stored, with the rule of each, as the last plan found them.
    refusals: dict[int, str] = field(default_factory=dict)
    #: Those that no record batch can hold, which only an attempt to make one shows.
    too_large: dict[int, str] = field(default_factory=dict)
    #: Positions of the batch as delivered that have got dead letters since, each with the rule.
    dead_lettered: dict[int, str] = field(default_factory=dict)

    def leave_out_refused(self) -> None:
        """Leave the refused positions out of the batch: all of them have dead letters."""
        self.batch = self.batch.without(self.refusals)
        self.dead_lettered |= self.refusals
        self.refusals, self.too_large = {}, {}
