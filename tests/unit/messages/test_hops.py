"""Which way messages have come, and which way they may not go again."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.messages import hops, value_runs

A, B, C = (hops.hop(name, "store") for name in "abc")

values = st.sampled_from([b"", A, B, A + B])
every = st.lists(values, max_size=12)


def runs_of(passed: list[bytes]) -> hops.Hops:
    return value_runs.joined((1, value) for value in passed)


def each(runs: hops.Hops, count: int) -> list[bytes]:
    """The hops of each of `count` messages."""
    return [value for length, value in runs for _ in range(length)] or [b""] * count


def test_a_hop_is_a_bridge_and_the_store_it_reads_from() -> None:
    assert len({hops.hop("a", "s"), hops.hop("a", "t"), hops.hop("b", "s"), hops.hop("as", "")}) == 4
    assert len(hops.hop("a", "s")) == hops.HOP_BYTES


@pytest.mark.parametrize(
    ("passed", "rule"),
    [
        (None, None),
        (b"", None),
        (B, None),
        (A, "LOOP"),
        (A + B, "LOOP"),
        (B + A, "LOOP"),
        (B + C, "TOO_MANY_HOPS"),
        (B[1:] + b"x", None),
        (b"odd", "INVALID_HOPS"),
        (A + b"odd", "INVALID_HOPS"),
    ],
)
def test_the_same_hop_twice_is_a_loop_and_max_hops_are_enough(passed: bytes | None, rule: str | None) -> None:
    found = hops.problem(passed, A, 2)
    assert (found and found.split(":")[0]) == rule


def test_a_hop_that_only_straddles_two_others_is_no_loop() -> None:
    straddling = (B + C)[4:12]
    assert hops.problem(B + C, straddling, 8) is None


def test_more_hops_than_are_kept_keep_the_newest_and_half_a_hop_is_dropped() -> None:
    assert hops.extended(A * hops.HOPS_MOST, B) == A * (hops.HOPS_MOST - 1) + B
    assert hops.extended(A + b"odd", B) == A + B


@given(every)
def test_runs_are_as_few_as_there_can_be_and_say_the_same(passed: list[bytes]) -> None:
    runs = runs_of(passed)
    assert each(runs, len(passed)) == passed
    assert all(first[1] != second[1] for first, second in pairwise(runs))
    assert bool(runs) == any(passed)


@given(every, st.data())
def test_parts_and_choices_keep_each_messages_hops(passed: list[bytes], data: st.DataObject) -> None:
    runs = runs_of(passed)
    start = data.draw(st.integers(0, len(passed)))
    stop = data.draw(st.integers(start, len(passed)))
    assert each(value_runs.cut(runs, start, stop), stop - start) == passed[start:stop]
    kept = sorted(data.draw(st.sets(st.integers(0, len(passed) - 1)) if passed else st.just(set())))
    assert each(value_runs.chosen(runs, kept), len(kept)) == [passed[index] for index in kept]


@given(every.filter(bool))
def test_every_message_takes_the_hop_and_those_that_may_not_are_named(passed: list[bytes]) -> None:
    runs, refused = hops.taken(runs_of(passed), len(passed), A, 2)
    assert each(runs, len(passed)) == [value + A for value in passed]
    named = {index: rule for first, end, rule in refused for index in range(first, end)}
    assert named == {
        index: rule for index, value in enumerate(passed) if (rule := hops.problem(value, A, 2)) is not None
    }


def test_a_hop_is_given_back_where_it_was_the_last() -> None:
    assert hops.given_back(((2, B + A), (1, A), (1, A + B), (1, b"")), A) == (
        (2, B), (1, b""), (1, A + B), (1, b""),
    )  # fmt: skip
    assert hops.given_back(((3, A),), A) == ()
