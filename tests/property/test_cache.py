"""The ID cache and its overlays against a plain list, through any run of commits and restarts."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dedup import ring
from dedup.cache import IdCache, Overlay, repeated

#: Few enough that they come again, of lengths on both sides of the one that large caches treat apart.
IDS = [
    *(b"message-%08d" % number for number in range(8)),
    b"\x00" * 15,
    b"\x00" * 16,
    b"\x00" * 17,
    b"\xff" * 16,
    b"a",
    b"a\x00",
    b"\xff" * 36,
]
ids = st.sampled_from(IDS)
units = st.lists(ids, max_size=12)
capacities = st.integers(0, 8)


class Model:
    """A cache as one would write it on a napkin."""

    def __init__(self, capacity: int, held: Sequence[bytes] = ()) -> None:
        self.capacity = capacity
        self.held = list(held)[max(0, len(held) - capacity) :]

    def accept(self, value: bytes) -> None:
        if self.capacity:
            self.held = [*self.held, value][-self.capacity :]

    def known(self, unit: Sequence[bytes]) -> list[int]:
        return [index for index, value in enumerate(unit) if value in self.held]


class CacheMachine(RuleBasedStateMachine):
    """Units, commits, rollbacks, resizes, clearing, and restarts from what a journal would hold."""

    @initialize(capacity=capacities, compact_from=st.integers(0, 9))
    def start(self, capacity: int, compact_from: int) -> None:
        # Resizing then crosses the line between small and large caches, in both directions.
        self.compact_capacity, ring.COMPACT_CAPACITY = ring.COMPACT_CAPACITY, compact_from
        self.cache = IdCache(capacity)
        self.model = Model(capacity)
        self.journal: list[bytes] = []  # every ID accepted and not trimmed, oldest first
        self.accepted = 0
        self.overlay: Overlay | None = None
        self.pending = self.model

    def teardown(self) -> None:
        if hasattr(self, "compact_capacity"):
            ring.COMPACT_CAPACITY = self.compact_capacity

    @precondition(lambda self: self.overlay is None)
    @rule(unit=units)
    def send_in_bulk(self, unit: list[bytes]) -> None:
        known = []
        for index, value in enumerate(unit):
            if value in self.model.held:
                known.append(index)
            else:
                self.model.accept(value)
                if self.model.capacity:
                    self.journal.append(value)
                    self.accepted += 1
        assert self.cache.check_and_add(unit) == known

    @precondition(lambda self: self.overlay is None)
    @rule()
    def begin_group(self) -> None:
        self.overlay = self.cache.overlay()
        self.pending = Model(self.model.capacity, self.model.held)
        assert self.overlay.first == self.accepted

    @precondition(lambda self: self.overlay is not None)
    @rule(unit=units, fails=st.booleans())
    def bring_unit(self, unit: list[bytes], fails: bool) -> None:
        assert self.overlay is not None
        known = self.pending.known(unit)
        assert self.overlay.known(unit) == known
        if known or repeated(unit) or fails:
            return
        self.overlay.add(unit)
        for value in unit:
            self.pending.accept(value)

    @precondition(lambda self: self.overlay is not None)
    @rule(unit=units)
    def accept_one_after_the_other(self, unit: list[bytes]) -> None:
        """D5, D6: a batch of records is as many units, whatever is overwritten between them."""
        assert self.overlay is not None
        known = []
        for index, value in enumerate(unit):
            if value in self.pending.held:
                known.append(index)
            else:
                self.pending.accept(value)
        assert self.overlay.accept(unit) == known

    @precondition(lambda self: self.overlay is not None)
    @rule()
    def commit(self) -> None:
        assert self.overlay is not None
        self.overlay.commit()
        self.journal += self.overlay.added
        self.accepted += len(self.overlay.added)
        self.model, self.overlay = self.pending, None

    @precondition(lambda self: self.overlay is not None)
    @rule()
    def roll_back(self) -> None:
        self.overlay = None

    @precondition(lambda self: self.overlay is None)
    @rule(capacity=capacities)
    def resize(self, capacity: int) -> None:
        before = len(self.model.held)
        self.model = Model(capacity, self.model.held)
        assert self.cache.resize(capacity) == before - len(self.model.held)
        # As the journal does, so that what was dropped does not come back at the next start.
        self.journal = list(self.model.held)

    @precondition(lambda self: self.overlay is None)
    @rule()
    def clear(self) -> None:
        assert self.cache.clear() == len(self.model.held)
        self.model, self.journal = Model(self.model.capacity), []

    @rule(trimmed=st.booleans())
    def restart(self, trimmed: bool) -> None:
        """D20, D24: with a crash between, the journal holds more than the cache."""
        if trimmed:
            self.journal = self.journal[max(0, len(self.journal) - self.model.capacity) :]
        self.overlay = None
        self.cache = IdCache(self.model.capacity)
        self.cache.load(iter(self.journal), accepted=self.accepted)

    @invariant()
    def cache_is_the_model(self) -> None:
        if not hasattr(self, "cache"):
            return
        assert list(self.cache) == self.model.held
        assert len(self.cache) == len(self.model.held) <= self.cache.capacity
        assert [value in self.cache for value in IDS] == [value in self.model.held for value in IDS]
        assert self.cache.accepted == self.accepted


TestCache = CacheMachine.TestCase
TestCache.settings = settings(stateful_step_count=40)
