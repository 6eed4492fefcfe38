"""Alerts are raised and resolved by position, once each, however the logs cut them."""

from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from dedup.reconcile import alerts
from dedup.reconcile.alerts import Trouble


def lost(first: int, last: int, *, stream: str = "journal:1:orders:0") -> Trouble:
    return Trouble("lost", "orders-to-hub", stream, "store-1", "orders", None, first, last)


def repeated(value: str) -> Trouble:
    return Trouble("repeated-id", None, "journal:1:orders:0", "store-1", "orders", value, 0, 0)


def positions(troubles: tuple[Trouble, ...]) -> set[tuple[str, int]]:
    return {(each.stream, place) for each in troubles for place in range(each.first, each.last + 1)}


troubles = st.lists(
    st.builds(
        lambda first, length, stream: lost(first, first + length, stream=stream),
        st.integers(0, 30),
        st.integers(0, 8),
        st.sampled_from(["journal:1:orders:0", "journal:1:bills:0"]),
    ),
    max_size=8,
)


@given(troubles, troubles)
def test_every_position_that_comes_is_raised_and_every_one_that_goes_is_resolved(
    before: list[Trouble], now: list[Trouble]
) -> None:
    found = alerts.changes(before, now)
    assert positions(found.raised) == positions(tuple(now)) - positions(tuple(before))
    assert positions(found.resolved) == positions(tuple(before)) - positions(tuple(now))
    assert all(len(positions((each,))) == each.last - each.first + 1 for each in found.raised)


@given(troubles)
def test_joined_troubles_are_the_same_positions_in_as_few_ranges_as_there_can_be(
    made: list[Trouble],
) -> None:
    found = alerts.joined(made)
    assert positions(found) == positions(tuple(made))
    assert not alerts.changes(found, made).raised
    for one, next_ in itertools.pairwise(found):
        assert one.stream != next_.stream or next_.first > one.last + 1


def test_what_shrinks_is_resolved_in_part() -> None:
    found = alerts.changes([lost(0, 99)], [lost(40, 49)])
    assert found.raised == ()
    assert found.resolved == (lost(0, 39), lost(50, 99))


def test_the_same_range_of_another_kind_or_store_is_another_trouble() -> None:
    late = lost(0, 9)._replace(kind="late")
    elsewhere = lost(0, 9)._replace(store="store-2")
    found = alerts.changes([lost(0, 9)], [late, elsewhere])
    assert set(found.raised) == {late, elsewhere}
    assert found.resolved == (lost(0, 9),)


def test_a_repeated_id_is_one_alert() -> None:
    found = alerts.changes([repeated("a")], [repeated("a"), repeated("b"), repeated("b")])
    assert found.raised == (repeated("b"),)
    assert found.resolved == ()


def test_the_line_of_a_range() -> None:
    text = alerts.line(lost(3, 9), number=7, is_resolved=False, seen_ms=1_700_000_000_000)
    assert "\n" not in text
    assert json.loads(text) == {
        "v": 1, "number": 7, "alert": "lost", "state": "raised", "bridge": "orders-to-hub",
        "stream": "journal:1:orders:0", "address": "orders", "store": "store-1", "positions": [3, 9],
        "id": None, "seen": 1_700_000_000_000,
    }  # fmt: skip


def test_the_line_of_an_id_has_no_positions() -> None:
    found = json.loads(alerts.line(repeated("x"), number=1, is_resolved=True, seen_ms=0))
    assert (found["state"], found["id"], found["positions"]) == ("resolved", "x", None)
