"""The stores of a bridge and the positions of a stream that each has confirmed. Pure.

A bridge with `failover` delivers a stream to one store after the other. What a store confirmed while the
bridge was there is its stay. A store that is put back from a backup lacks the end of its stays, and no other
store has
that: so the bridge sends it again from there, and leaves out what others have (`bridge.relay.store_change`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from bridge.messages import positions as run_arithmetic
from bridge.messages.positions import Runs

#: Most runs of positions that a source remembers of the stores that a bridge has left; the lowest go first. A
#: store that lacks what was forgotten is not noticed.
MOST_RUNS: Final = 16


@dataclass(frozen=True, slots=True)
class Stays:
    """The stays of a stream before and beside the present one."""

    #: Where the present store's stay began: it has not confirmed what lies below.
    first: int = 0
    #: By store, the positions that it confirmed before. Disjoint.
    past: Mapping[str, Runs] = field(default_factory=dict)
    #: Positions below this that are in no stay were confirmed by a store that has lost them. 0: there are
    #: none.
    owed: int = 0

    def encode(self) -> str:
        """As text that a source keeps; empty: the bridge has left no store."""
        if self == NO_STAYS:
            return ""
        kept: dict[str, Any] = {"first": self.first, "past": self.past, "owed": self.owed}
        return msgspec.json.encode({key: value for key, value in kept.items() if value}).decode()

    @classmethod
    def decode(cls, text: str) -> Stays:
        """The stays of this text. Raises: msgspec.DecodeError: it is none."""
        if not text:
            return NO_STAYS
        found = msgspec.json.decode(text, type=dict[str, Any])
        past = {
            store: tuple((first, last) for first, last in runs)
            for store, runs in found.get("past", {}).items()
        }
        return cls(found.get("first", 0), past, found.get("owed", 0))


NO_STAYS: Final = Stays()


@dataclass(frozen=True, slots=True)
class Remembered:
    """A source's memory of a bridge's past on one stream, for the divergence check: the bridge has run
    before.
    """

    #: Confirmed by the word of this target, or of one before it, up to here.
    upto: int
    #: Store identity of that target.
    store: str
    stays: Stays = NO_STAYS

    @property
    def confirmed(self) -> int:
        """One beyond the last position that a store has confirmed and that is still to be covered by this
        one: `upto`, unless a store was put back from a backup.
        """
        return max(self.upto, self.stays.owed)

    def held(self) -> dict[str, Runs]:
        """By store, the positions that it has confirmed and that no other one has. Ascending, disjoint."""
        found = dict(self.stays.past)
        others = run_arithmetic.union(
            run for store, runs in found.items() for run in runs if store != self.store
        )
        if self.stays.first < self.upto:
            own = run_arithmetic.without(((self.stays.first, self.upto - 1),), others)
            found[self.store] = run_arithmetic.union((*found.get(self.store, ()), *own))
        return found

    def missing(self, stores: Collection[str], next_: int) -> Runs:
        """Positions that a target that is these stores has confirmed, and does not cover: its next is
        `next_`."""
        return run_arithmetic.from_position(_of(self.held(), stores), next_)

    def elsewhere(self, stores: Collection[str], next_: int) -> Runs:
        """Positions from `next_` on that other stores than these have."""
        held = self.held()
        return run_arithmetic.from_position(_of(held, held.keys() - set(stores)), next_)

    def owed(self) -> Runs:
        """Positions that were confirmed, lost with their store, and not confirmed again."""
        held = self.held()
        return run_arithmetic.without(((self.upto, self.stays.owed - 1),), _of(held, held))

    def after_change(self, stores: Collection[str], store: str, next_: int, at: int) -> Stays:
        """The stays when the bridge goes on at position `at` of the target `store`, whose next is `next_`.

        `stores`: all that the target is.
        """
        held = self.held()
        missing = self.missing(stores, next_)
        own = run_arithmetic.below(_of(held, stores), next_)
        past = {name: runs for name, runs in held.items() if name not in stores}
        past |= {store: own} if own else {}
        owed = max(self.stays.owed, missing[-1][1] + 1 if missing else 0)
        return Stays(at, _newest(past), owed if owed > at else 0)


def _of(held: Mapping[str, Runs], stores: Iterable[str]) -> Runs:
    return run_arithmetic.union(run for store in stores for run in held.get(store, ()))


def _newest(past: Mapping[str, Runs]) -> Mapping[str, Runs]:
    """The stays without the lowest runs, where there are too many."""
    runs = sorted((run, store) for store, runs in past.items() for run in runs)[-MOST_RUNS:]
    kept: dict[str, Runs] = {}
    for run, store in runs:
        kept[store] = (*kept.get(store, ()), run)
    return kept
