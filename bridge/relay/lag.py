"""What waits for a bridge at its source: measured, or the last that was measured, or not known. Pure.

A relay knows the lag of its lane while it is connected. While it is not, a `LagProbe` asks the source, so
that a target that is away hides nothing. Where neither answers, what was seen to wait keeps its age; that
nothing waits is not known any more after a while.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

#: Messages that wait, and when the oldest came, ms since the epoch (None: none waits, or it is not known).
Lag = tuple[int, int | None]

#: Pause between two measurements, and before the source is asked again after it did not answer.
MEASURE_INTERVAL_MS: Final = 5_000
#: That nothing waits is not known any more after this long without a measurement.
KNOWN_FOR_MS: Final = 15_000


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition of a source, as a bridge reads it."""

    #: Topic and number.
    topic: str
    partition: int
    #: First position that the target has not covered.
    position: int
    #: One beyond the last record.
    end: int
    #: Why it stands still while others go on; empty: it does not.
    reason: str = ""

    @property
    def lag(self) -> int:
        """Positions that wait."""
        return self.end - self.position


class LagProbe(Protocol):
    """Asks a source what waits there, beside its open streams."""

    async def measure(self) -> Mapping[int, Sequence[PartitionStatus]]:
        """What waits in each lane of the bridge, from what its target has confirmed on.

        A lane of which not all can be asked now is left out.

        Raises: SourceUnavailable, SourceRefused.
        """

    async def close(self) -> None:
        """Disconnect; the next measurement connects again. Never raises."""


def total(lags: Collection[Lag | None]) -> Lag | None:
    """The sum, and when the oldest came; None where one of them is not known."""
    messages = 0
    oldest_ms: int | None = None
    for lag in lags:
        if lag is None:
            return None
        messages += lag[0]
        if lag[1] is not None and (oldest_ms is None or lag[1] < oldest_ms):
            oldest_ms = lag[1]
    return messages, oldest_ms


@dataclass(slots=True)
class LaneLags:
    """The lag of each lane, as it was measured last. Times in ms by the wall clock."""

    _measured: dict[int, tuple[Lag, int]] = field(default_factory=dict)

    def measured(self, lane: int, lag: Lag, now_ms: int) -> None:
        """Keep a measurement. What waits without a known age has waited since it was first seen to."""
        messages, oldest_ms = lag
        if messages and oldest_ms is None:
            (before, since_ms), _ = self._measured.get(lane, ((0, None), 0))
            oldest_ms = since_ms if before and since_ms is not None else now_ms
        self._measured[lane] = ((messages, oldest_ms), now_ms)

    def of(self, lane: int, now_ms: int) -> Lag | None:
        """The lag of a lane; None: it is not known."""
        found = self._measured.get(lane)
        if found is None:
            return None
        lag, at_ms = found
        return lag if lag[0] or now_ms - at_ms <= KNOWN_FOR_MS else None

    def lanes(self) -> frozenset[int]:
        """The lanes that were ever measured."""
        return frozenset(self._measured)
