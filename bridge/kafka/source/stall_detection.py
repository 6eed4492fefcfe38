"""The stall detector: distinguishes a stuck consumer from an idle one (docs/kafka-traps.md 10). Pure.

If no record of a partition has come for a while, its end is asked for. If the end was beyond what has been
read, and none of it has come after as long a wait again, the consumer is stuck. Only time spent waiting for
records counts: while the target takes nothing, no call waits for the source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from aiokafka.structs import TopicPartition

#: Time of waiting without a record of a partition after which its end is asked for.
STUCK_AFTER_MS: Final = 5_000


@dataclass(slots=True)
class StallDetector:
    """The stall detector's state: how long was waited for each partition. Times in milliseconds."""

    #: Total time of waiting, while something was being fetched.
    waited_ms: float = 0.0
    #: `waited_ms` when a record of a partition came last, or when its end was asked for.
    _since_ms: dict[TopicPartition, float] = field(default_factory=dict)
    #: A partition's end, where it was beyond what had come when it was asked for.
    _missed: dict[TopicPartition, int] = field(default_factory=dict)
    #: Where reading of a partition began last, while no record of it has come since.
    _began: dict[TopicPartition, int] = field(default_factory=dict)

    def begins(self, tp: TopicPartition, at: int) -> None:
        """Start reading at `at`; where it began there before without a record, the wait continues."""
        if self._began.get(tp) != at:
            self.moved(tp)
            self._began[tp] = at

    def moved(self, tp: TopicPartition) -> None:
        """Note that records have come."""
        self._since_ms[tp] = self.waited_ms
        self._missed.pop(tp, None)
        self._began.pop(tp, None)

    def run_out(self, tps: Sequence[TopicPartition]) -> list[TopicPartition]:
        """The partitions whose end should be asked for."""
        return [tp for tp in tps if self.waited_ms - self._since_ms[tp] >= STUCK_AFTER_MS]

    def stuck(
        self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> list[TopicPartition]:
        """The partitions that had missed records the last time already; notes what is missed now."""
        found = [tp for tp in ends if self._missed.get(tp, 0) > positions[tp]]
        for tp, end in ends.items():
            self._since_ms[tp] = self.waited_ms
            self._missed[tp] = end
        return found
