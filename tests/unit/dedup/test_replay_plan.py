"""Replay plans: the file, its hash, and what is no plan."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.replay_plan import Entry, InvalidPlan, encode, make, parse, plan_hash

ENTRY = Entry("orders-to-hub", "journal:i:orders:0", "orders", "hub", "store-1", ((17, 17), (40, 59)))


def text(**changes: Any) -> str:
    """A plan of one entry; `changes` go to the entry, and the hash fits."""
    entry = json.loads(encode(make([ENTRY])))["entries"][0] | changes
    canonical = json.dumps([entry], sort_keys=True, separators=(",", ":"))
    return json.dumps({"v": 1, "plan": hashlib.sha256(canonical.encode()).hexdigest(), "entries": [entry]})


names = st.text(min_size=1, max_size=20)
runs = st.lists(st.integers(0, 1000), min_size=1, max_size=6, unique=True).map(
    lambda numbers: tuple((3 * number, 3 * number + 1) for number in sorted(numbers))
)


@given(st.lists(st.builds(Entry, names, names, names, names, names, runs), max_size=4))
def test_what_is_written_is_read(entries: list[Entry]) -> None:
    plan = make(entries)
    assert parse(encode(plan)) == plan
    assert plan.hash == plan_hash(entries)
    assert plan.name == plan.hash[:16]


def test_the_hash_is_that_of_the_entries_as_json_with_sorted_keys_and_without_spaces() -> None:
    """What dedup/reconcile/plan.py writes."""
    assert parse(text()).hash == plan_hash([ENTRY])
    assert ENTRY.count == 21


def test_an_edited_plan_is_refused_with_both_hashes() -> None:
    value = json.loads(encode(make([ENTRY])))
    value["entries"][0]["positions"].pop()
    told = f"plan: the hash of these entries is [0-9a-f]{{64}}; found '{plan_hash([ENTRY])}'"
    with pytest.raises(InvalidPlan, match=told):
        parse(json.dumps(value))


@pytest.mark.parametrize(
    ("given_text", "rule"),
    [
        ("{", "not JSON"),
        ("[]", "a plan is an object; found an empty list"),
        ('{"v": 2}', "v: this version reads plans of version 1; found 2"),
        ('{"v": true}', "v: this version"),
        ('{"v": 1, "plan": ""}', "entries: missing"),
        ('{"v": 1, "plan": "", "entries": [], "more": 1}', "more: no such key"),
        ('{"v": 1, "plan": "", "entries": {}}', "entries: a list; found an object"),
        ('{"v": 1, "plan": "", "entries": [1]}', r"entries\[0\]: an object; found 1"),
        (text(bridge=""), r"entries\[0\].bridge: a text; found ''"),
        (text(store=None), r"entries\[0\].store: a text; found None"),
        (text(positions=[]), r"entries\[0\].positions: .* at least one; found an empty list"),
        (text(positions=[[1, 2, 3]]), r"entries\[0\].positions\[0\]: \[first, last\]"),
        (text(positions=[[2, 1]]), r"positions\[0\]: .* found \[2, 1\]"),
        (text(positions=[[-1, 1]]), r"positions\[0\]: "),
        (text(positions=[[0, 2**50]]), r"positions\[0\]: "),
        (text(positions=[[True, True]]), r"positions\[0\]: "),
        (text(positions=[[1, 5], [5, 6]]), r"positions\[1\]: begins beyond 5"),
    ],
)  # fmt: skip
def test_what_is_no_plan_says_where_and_why(given_text: str, rule: str) -> None:
    with pytest.raises(InvalidPlan, match=rule):
        parse(given_text)


def test_a_plan_that_could_not_be_read_is_not_made() -> None:
    with pytest.raises(InvalidPlan, match="begins beyond"):
        make([replace(ENTRY, positions=((5, 9), (7, 8)))])
