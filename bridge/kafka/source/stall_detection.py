"""Tells a consumer that is stuck from one that has nothing to read (docs/kafka-traps.md 10). Pure.

A partition of which nothing has come for a while is asked for its end. If the end was beyond what has been
read, and nothing of it has come after as long a wait again, the consumer is stuck. Only time spent waiting
for records counts: while the target takes nothing, nobody waits for the source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from aiokafka.structs import TopicPartition

#: Waiting for this long without a record of a partition is a reason to ask whether there are any.
STUCK_AFTER_MS: Final = 5_000


@dataclass(slots=True)
class Patience:
    """What was waited for, and how long. Times in milliseconds."""

    #: In all, while something was being fetched.
    waited_ms: float = 0.0
    #: `waited_ms` when something of a partition came last, or when it was asked for its end.
    _since_ms: dict[TopicPartition, float] = field(default_factory=dict)
    #: A partition's end, where it was beyond what had come when it was asked for.
    _missed: dict[TopicPartition, int] = field(default_factory=dict)
    #: Where reading of a partition began last, while nothing of it has come since.
    _began: dict[TopicPartition, int] = field(default_factory=dict)

    def begins(self, tp: TopicPartition, at: int) -> None:
        """Reading begins at `at`; where it has begun there before in vain, the wait for it goes on."""
        if self._began.get(tp) != at:
            self.moved(tp)
            self._began[tp] = at

    def moved(self, tp: TopicPartition) -> None:
        """Something has come."""
        self._since_ms[tp] = self.waited_ms
        self._missed.pop(tp, None)
        self._began.pop(tp, None)

    def run_out(self, tps: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Those whose end should be asked for."""
        return [tp for tp in tps if self.waited_ms - self._since_ms[tp] >= STUCK_AFTER_MS]

    def stuck(
        self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> list[TopicPartition]:
        """Those where something was missed the last time already; notes what is missed now."""
        found = [tp for tp in ends if self._missed.get(tp, 0) > positions[tp]]
        for tp, end in ends.items():
            self._since_ms[tp] = self.waited_ms
            self._missed[tp] = end
        return found
