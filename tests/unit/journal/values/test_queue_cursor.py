"""A queue's cursor: scenarios, and a state machine against a plain model of positions."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bridge.journal.values.queue_cursor import Cursor, Interval, Lease, cut
from tests.harness.rounds import rounds

END = 40
NEVER_MS = 10**15


def lease(*intervals: Interval, expires_ms: int = NEVER_MS) -> Lease:
    return Lease(list(intervals), sum(end - start for start, end in intervals), expires_ms)


def taken(*leases: Lease, next_position: int = 0) -> Cursor:
    """A cursor with these leases, named a, b, c..."""
    cursor = Cursor(next_position)
    for name, held in zip("abcdefgh", leases, strict=False):
        cursor.take(name, held)
    return cursor


def test_a_new_cursor_is_free_from_its_position_on() -> None:
    assert Cursor(7).free(10) == [(7, 10)]
    assert Cursor(7).free(7) == []


def test_what_is_leased_is_not_free_and_next_stays_before_it() -> None:
    cursor = taken(lease((0, 3)))
    assert (cursor.free(10), cursor.next, cursor.leased) == ([(3, 10)], 0, 3)


def test_acknowledging_the_first_lease_moves_next() -> None:
    cursor = taken(lease((0, 3)), lease((3, 6)))
    assert cursor.acknowledge("a", None)
    assert (cursor.next, cursor.settled, cursor.leased) == (3, [], 3)


def test_acknowledging_out_of_order_waits_for_what_is_before() -> None:
    cursor = taken(lease((0, 3)), lease((3, 6)), lease((6, 9)))
    assert cursor.acknowledge("b", None)
    assert (cursor.next, cursor.settled) == (0, [(3, 6)])
    assert cursor.acknowledge("c", None)
    assert (cursor.next, cursor.settled) == (0, [(3, 9)])
    assert cursor.acknowledge("a", None)
    assert (cursor.next, cursor.settled) == (9, [])


def test_a_partial_acknowledgement_returns_the_rest_in_order() -> None:
    cursor = taken(lease((0, 5)), lease((5, 8)))
    assert cursor.acknowledge("a", 1)
    assert (cursor.next, cursor.free(10)) == (2, [(2, 5), (8, 10)])


def test_a_partial_acknowledgement_in_a_hole_of_sparse_positions_settles_what_is_before_it() -> None:
    cursor = taken(lease((0, 2), (10, 12)))
    assert cursor.acknowledge("a", 5)
    assert (cursor.next, cursor.free(12)) == (2, [(2, 12)])


def test_a_partial_acknowledgement_below_the_lease_settles_nothing() -> None:
    cursor = taken(lease((3, 6)))
    assert cursor.acknowledge("a", 2)
    assert (cursor.next, cursor.free(6)) == (0, [(0, 6)])


def test_a_released_lease_is_free_again_before_what_came_later() -> None:
    cursor = taken(lease((0, 3)), lease((3, 6)))
    assert cursor.release("a")
    assert cursor.free(10) == [(0, 3), (6, 10)]


@pytest.mark.parametrize("end", ["acknowledge", "release"])
def test_a_lease_ends_once(end: str) -> None:
    cursor = taken(lease((0, 3)))
    assert cursor.release("a")
    assert not (cursor.acknowledge("a", None) if end == "acknowledge" else cursor.release("a"))
    assert cursor.next == 0


def test_leases_expire_at_their_time_and_not_before() -> None:
    cursor = taken(lease((0, 3), expires_ms=100), lease((3, 6), expires_ms=200))
    assert cursor.next_expiry_ms == 100
    assert not cursor.expire(99)
    assert cursor.expire(100)
    assert (cursor.free(6), cursor.next_expiry_ms) == ([(0, 3)], 200)
    assert cursor.expire(1_000)
    assert (cursor.free(6), cursor.leased) == ([(0, 6)], 0)
    assert cursor.next_expiry_ms is None


def test_settling_what_is_settled_changes_nothing() -> None:
    cursor = Cursor(5, [(8, 10)])
    cursor.settle((0, 5))
    cursor.settle((8, 10))
    assert (cursor.next, cursor.settled) == (5, [(8, 10)])


def test_settling_over_several_intervals_joins_them() -> None:
    cursor = Cursor(0, [(2, 4), (6, 8)])
    cursor.settle((4, 6))
    assert (cursor.next, cursor.settled) == (0, [(2, 8)])
    cursor.settle((0, 3))
    assert (cursor.next, cursor.settled) == (8, [])


def test_a_cursor_with_nothing_beyond_next_packs_to_nothing() -> None:
    assert Cursor(9).pack() is None
    assert Cursor.unpack(9, None) == Cursor(9)


def test_leases_and_settled_intervals_survive_packing() -> None:
    cursor = Cursor(3, [(5, 7), (9, 10)], {"a": lease((3, 4), (20, 22), expires_ms=5)})
    assert Cursor.unpack(3, cursor.pack()) == cursor


def test_cut_is_inclusive() -> None:
    assert cut([(0, 3), (5, 8)], 5) == [(0, 3), (5, 6)]
    assert cut([(0, 3), (5, 8)], 4) == [(0, 3)]
    assert cut([(0, 3)], None) == [(0, 3)]


class CursorMachine(RuleBasedStateMachine):
    """The cursor against sets of positions. Only some positions hold a message, as in a journal."""

    def __init__(self) -> None:
        super().__init__()
        self.cursor = Cursor(0)
        self.now_ms = 0
        self.settled: set[int] = set()
        self.leases: dict[str, tuple[set[int], int]] = {}
        self.number = 0

    def free(self) -> list[int]:
        leased = {position for positions, _ in self.leases.values() for position in positions}
        return [position for position in range(END) if position not in self.settled | leased]

    @rule(most=st.integers(1, 6), lease_ms=st.integers(1, 5))
    def take(self, most: int, lease_ms: int) -> None:
        intervals: list[Interval] = []
        count = 0
        for start, end in self.cursor.free(END):
            stop = min(end, start + most - count)
            intervals.append((start, stop))
            count += stop - start
            if count >= most:
                break
        wanted = self.free()[:most]
        assert [position for start, end in intervals for position in range(start, end)] == wanted
        if wanted:
            self.number += 1
            name = f"lease-{self.number}"
            self.cursor.take(name, Lease(intervals, count, self.now_ms + lease_ms))
            self.leases[name] = (set(wanted), self.now_ms + lease_ms)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.leases)))
        upto = data.draw(st.none() | st.integers(0, END))
        positions, _ = self.leases.pop(name)
        self.settled |= {position for position in positions if upto is None or position <= upto}
        assert self.cursor.acknowledge(name, upto)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.leases)))
        del self.leases[name]
        assert self.cursor.release(name)

    @precondition(lambda self: self.free())
    @rule(data=st.data())
    def settle_what_holds_no_message(self, data: st.DataObject) -> None:
        """As a lease does with a hole between two blocks."""
        gap = data.draw(st.sampled_from(self.cursor.free(END)))
        self.settled |= set(range(*gap))
        self.cursor.settle(gap)

    @rule(pass_ms=st.integers(0, 4))
    def time_passes(self, pass_ms: int) -> None:
        self.now_ms += pass_ms
        ended = [name for name, (_, expires_ms) in self.leases.items() if expires_ms <= self.now_ms]
        for name in ended:
            del self.leases[name]
        assert self.cursor.expire(self.now_ms) == bool(ended)

    @rule()
    def restart(self) -> None:
        self.cursor = Cursor.unpack(self.cursor.next, self.cursor.pack())

    @rule(name=st.just("lease-0"))
    def a_lease_that_never_was(self, name: str) -> None:
        assert not self.cursor.acknowledge(name, None)
        assert not self.cursor.release(name)

    @invariant()
    def same_as_the_model(self) -> None:
        free = [position for start, end in self.cursor.free(END) for position in range(start, end)]
        assert free == self.free()
        assert self.cursor.leased == sum(len(positions) for positions, _ in self.leases.values())
        assert self.cursor.next == next((p for p in range(END) if p not in self.settled), END)

    @invariant()
    def settled_intervals_are_disjoint_ascending_and_never_touch(self) -> None:
        edges = [self.cursor.next, *(edge for interval in self.cursor.settled for edge in interval)]
        assert all(low < high for low, high in itertools.pairwise(edges))


CursorMachine.TestCase.settings = settings(max_examples=rounds(60), stateful_step_count=30, deadline=None)
test_cursor_against_a_plain_model = CursorMachine.TestCase
