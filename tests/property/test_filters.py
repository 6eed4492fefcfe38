"""Any text is a condition or refused with a place; a condition that is explained means the same."""

from __future__ import annotations

import json
import random

from hypothesis import given
from hypothesis import strategies as st

from bridge.cli.filter_lines import read_line
from bridge.filters import Filter, FilterRefused, HeaderText, parse
from tests.filters.chance import Conditions, message

WORDS = (
    "x",
    "y",
    '"a b"',
    "1",
    "0x1",
    "2.5",
    "9" * 30,
    "'a'",
    "'%'",
    "NOT",
    "AND",
    "OR",
    "IN",
    "IS",
    "NULL",
    "TRUE",
    "LIKE",
    "ESCAPE",
    "BETWEEN",
    "XPATH",
    "XQUERY",
    "(",
    ")",
    ",",
    "=",
    "<>",
    "<",
    ">=",
    "+",
    "-",
    "--",
    "*",
    "/",
    "%",
    "\n",
    "'",
    '"',
    "/*",
    "*/",
    ".",
    "!",
    "é",
    "😀",
    "\ud800",
    "convert_string_expressions:",
    "hyphenated_props:",
)
texts = st.one_of(
    st.text(),
    st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join),
    st.lists(st.sampled_from(WORDS)).map("".join),
)


def parsed(text: str) -> Filter | FilterRefused | None:
    try:
        return parse(text)
    except FilterRefused as refused:
        return refused


@given(texts)
def test_any_text_is_a_condition_or_is_refused_with_a_place(text: str) -> None:
    found = parsed(text)
    if isinstance(found, FilterRefused):
        assert 1 <= found.line <= text.count("\n") + text.count("\r") + 1
        assert 1 <= found.column <= len(text) + 1
        assert found.detail.startswith(f"line {found.line}, column {found.column}: ")
    else:
        assert found is None or found.matches({"x": HeaderText("5"), "y": True}) in (True, False)


@given(st.integers())
def test_a_condition_that_is_explained_means_the_same(seed: int) -> None:
    rng = random.Random(seed)
    condition = parsed(Conditions(rng).condition())
    if not isinstance(condition, Filter):
        return
    again = parse(condition.explain())
    assert again is not None
    assert again.explain() == condition.explain()
    for _ in range(5):
        properties, system = read_line(json.dumps(message(rng)).encode())
        assert condition.matches(properties, system) == again.matches(properties, system)
    assert condition.raised == again.raised
