"""The limits of a condition, each with what was found, and what works below them."""

from __future__ import annotations

import sys

import pytest

from bridge.filters import Filter, FilterRefused, limits, parse


def made(condition: str) -> Filter:
    found = parse(condition)
    assert found is not None
    return found


def refusal(condition: str) -> str:
    with pytest.raises(FilterRefused) as refused:
        parse(condition)
    return refused.value.detail


@pytest.mark.parametrize(
    "condition",
    [
        "(" * 200 + "x = 1" + ")" * 200,
        "NOT " * 1_000 + "(x = 1)",
        "x = 1 AND " * 1_000 + "x = 1",
        "x = 0 OR " * 1_000 + "x = 1",
        "x IN (" + "'b'," * 3_000 + "'a') OR x = 1",
        "t = '" + "a" * 20_000 + "'",
        "x = " + "- " * 1_000 + "1",
        "x = 1" + " + 0" * 1_000,
        "x = 1" + " * 1" * 1_000,
        "(x = 1 AND " * 200 + "x = 1" + ")" * 200,
        "NOT (x = 2 OR " * 200 + "x = 2" + ")" * 200 + " OR x = 1",
        "x = 1" + " = TRUE" * 400,
        "x = " + "-" * 20_000 + "x OR TRUE",
        "x = 1 /*" + "*" * 90_000 + "/",
    ],
)
def test_large_conditions_work(condition: str) -> None:
    found = made(condition)
    assert found.matches({"x": 1, "t": "a" * 20_000})
    assert found.raised == 0


def test_the_deepest_condition_is_matched_without_recursion_of_its_own_making() -> None:
    deep = limits.OPERATORS_DEEP_MOST - 2
    condition = made("(x = 1 AND " * deep + "x = 1" + ")" * deep)
    frames = sys.getrecursionlimit() - limits.OPERATORS_DEEP_MOST
    assert frames >= 400
    assert condition.matches({"x": 1})
    assert condition.explain().count("(") == 2 * deep + 1


@pytest.mark.parametrize(
    ("condition", "limit", "found"),
    [
        (
            "x" * (limits.CONDITION_CHARS_MOST + 1),
            limits.CONDITION_CHARS_MOST,
            limits.CONDITION_CHARS_MOST + 1,
        ),
        ("(" * (limits.BRACKETS_MOST + 1), limits.BRACKETS_MOST, "one more"),
        ("x = 1" + " = TRUE" * 600, limits.OPERATORS_DEEP_MOST, limits.OPERATORS_DEEP_MOST + 1),
        ("x = " + "9" * 1_001, limits.DIGITS_MOST, 1_001),
    ],
)
def test_a_condition_above_a_limit_is_refused_with_the_limit(
    condition: str, limit: int, found: int | str
) -> None:
    detail = refusal(condition)
    assert f"at most {limit} " in detail
    assert str(found) in detail
