"""Partitions that cannot be read to their end: a transaction of another producer is open in them. Pure.

A read_committed consumer gets what lies below the *last stable offset*, the first offset of the oldest open
transaction. Each transaction blocks it for as long as it runs. An offset that stays below the high watermark
for longer is reported: its producer runs a very long transaction, or no process ends it any more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from aiokafka.structs import TopicPartition


@dataclass(slots=True)
class BlockedPartition:
    """A last stable offset that stays below the high watermark. Times in milliseconds."""

    tp: TopicPartition
    stable: int
    high: int
    #: When it was first seen there: monotonic, and by the wall clock.
    since_ms: int
    since_wall_ms: int
    #: How long it has been there, in ms.
    for_ms: int = 0
    #: Whether it was reported, as it has been there for too long.
    is_reported: bool = False
    #: The producers whose transaction begins there: id and epoch; None: the brokers have not said.
    producers: Sequence[tuple[int, int]] | None = None

    def __str__(self) -> str:
        """The text for a person."""
        who = ", ".join(f"producer id {number} (epoch {epoch})" for number, epoch in self.producers or ())
        return (
            f"{self.tp.topic}/{self.tp.partition} can be read up to offset {self.stable} of {self.high}: a"
            f" transaction has been open there for {self.for_ms // 1000} s, of {who or 'an unknown producer'}"
        )


@dataclass(slots=True)
class BlockedPartitions:
    """The blocked partitions of a lane, as observed from time to time."""

    #: Offsets blocked for longer than this are reported, ms; -1: never.
    after_ms: int
    _blocked: dict[TopicPartition, BlockedPartition] = field(default_factory=dict)

    def look(
        self,
        seen: Mapping[TopicPartition, tuple[int, int]],
        opened: Collection[TopicPartition],
        now_ms: int,
        wall_ms: int,
    ) -> tuple[list[BlockedPartition], list[BlockedPartition]]:
        """Returns those that have now been blocked for too long, and those that were and are no longer.

        Args:
            seen: last stable offset and high watermark of partitions of which everything readable was read.
            opened: all that are open. For those not in `seen` the known state remains.
            now_ms: monotonic.
            wall_ms: the same moment by the wall clock.
        """
        ended: list[BlockedPartition] = []
        for tp, (stable, high) in seen.items():
            known = self._blocked.get(tp)
            if known is not None and known.stable != stable:
                if known.is_reported:
                    ended.append(known)
                del self._blocked[tp]
                known = None
            if stable >= high:
                continue
            if known is None:
                known = self._blocked[tp] = BlockedPartition(tp, stable, high, now_ms, wall_ms)
            known.high, known.for_ms = high, now_ms - known.since_ms
        self._blocked = {tp: one for tp, one in self._blocked.items() if tp in opened}
        due = [
            one for one in self._blocked.values() if not one.is_reported and 0 <= self.after_ms <= one.for_ms
        ]
        for one in due:
            one.is_reported = True
        return due, ended

    @property
    def reported(self) -> list[str]:
        """The reported ones that are still blocked, as texts."""
        return [str(one) for one in self._blocked.values() if one.is_reported]

    @property
    def since_wall_ms(self) -> int | None:
        """When the first of the present ones was blocked, by the wall clock, in ms; None: there is none."""
        return min((one.since_wall_ms for one in self._blocked.values()), default=None)
