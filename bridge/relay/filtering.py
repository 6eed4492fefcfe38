"""The filter of a bridge: the stage that passes over messages for which the condition is not true. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from bridge.filters.blocks import taken
from bridge.filters.filter import Filter
from bridge.messages.batch import Batch
from bridge.messages.stream_names import is_set_aside

#: Messages after which a filter that took none, or that names what none of them has, is taken for mistyped.
DOUBTED_AFTER: Final = 1_000
#: Most missing names that are shown, and characters of each.
NAMES_SHOWN: Final = 10
NAME_CHARS_SHOWN: Final = 100


@dataclass(slots=True)
class FilterRecord:
    """What the filter of a bridge has met in this process, in all its lanes, since the bridge was made."""

    #: Messages that the filter was asked about; those that were read again are in it twice.
    examined: int = 0
    #: Those of them that it took.
    taken: int = 0
    #: The names of its condition that none of them had.
    missing: set[str] = field(default_factory=set)
    _joined: bool = False
    _logged: bool = False

    def join(self, condition: Filter) -> None:
        """Record what this filter meets, too: the filter of another lane."""
        if self._joined:
            condition.share_missing(self.missing)
        self.missing, self._joined = condition.missing, True

    def shown_missing(self) -> frozenset[str]:
        """The missing names as status shows them: the first `NAMES_SHOWN`, long ones cut off."""
        return frozenset(name[:NAME_CHARS_SHOWN] for name in sorted(self.missing)[:NAMES_SHOWN])

    def first_doubt(self) -> str:
        """As `filter_doubt`, once, when the first `DOUBTED_AFTER` messages have been met; else empty."""
        if self._logged or self.examined < DOUBTED_AFTER:
            return ""
        self._logged = True
        return filter_doubt(self.examined, self.taken, self.shown_missing())


def filter_doubt(examined: int, taken: int, missing: frozenset[str]) -> str:
    """Why a filter is probably mistyped; empty: it is not, or has met too few messages."""
    if examined < DOUBTED_AFTER or (taken and not missing):
        return ""
    doubts = [] if taken else [f"took none of {examined} messages"]
    if missing:
        doubts.append(f"names what none of {examined} messages has: {', '.join(sorted(missing))}")
    return f"the filter {' and '.join(doubts)}"


@dataclass(frozen=True, slots=True)
class FilterStage:
    """The stage by which a bridge sends only what its filter takes; made for one relay or one call.

    It comes before the loop guard, so that the messages which it leaves out take no hop and are not refused.
    """

    condition: Filter
    #: Shared by the lanes of a bridge.
    record: FilterRecord = field(default_factory=FilterRecord)

    def __post_init__(self) -> None:
        self.record.join(self.condition)

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
        self.record.examined += batch.count
        self.record.taken += len(kept)
        return batch.only(kept, self.condition.raised - raised)
