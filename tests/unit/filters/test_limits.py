"""The limits of a condition, each with what was found, and what works below them."""

from __future__ import annotations

import sys

import pytest

from bridge.filters import Filter, FilterRefused, limits, parse
from bridge.messages.message import Message


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


#: As long as the headers of a message may be by default.
LONG = 15_000


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ("+".join(["x"] * 2_000) + " = 'q'", "a" * LONG),
        ("'a' + x + x + x + x + x + x + x = 'q'", "a" * LONG),
        ("convert_string_expressions:" + " OR ".join(["x - 1 = 5"] * 100), "0" * LONG),
        ("convert_string_expressions:" + " OR ".join(["x = 5.5"] * 100), "9" * LONG + "x"),
        (" AND ".join(["x > 1"] * 100), "9" * LONG),
        (" AND ".join(["x = 0"] * 100), "0" * LONG),
        (" AND ".join(["x > 1"] * 600), "9" * 250),
        (" OR ".join(["x < x"] * 100), "é" * LONG),
        (" AND ".join(["x = x"] * 100), "a" * LONG),
        ("x LIKE '%_" + "a" * 2_000 + "b%'", "a" * LONG),
        (" OR ".join(["x LIKE '%ab%'"] * 100), "a" * LONG),
        (" OR ".join(["x LIKE '%_a%_b%'"] * 100), "a" * LONG),
    ],
)
def test_a_condition_that_handles_too_much_text_cannot_be_evaluated(condition: str, text: str) -> None:
    found = made(condition)
    assert found.takes(Message(b"", headers=(("x", text.encode()),)), "orders") is False
    assert found.raised == 1


def test_each_message_has_all_steps() -> None:
    found = made("x LIKE '%ab%' OR " * 6 + "x = 'q'")
    for _ in range(3):
        assert not found.matches({"x": "a" * LONG})
    assert found.raised == 0


def test_usual_work_on_long_texts_is_done() -> None:
    text = "a" * LONG + "b"
    headers = (("x", text.encode()), ("y", b"9" * LONG))
    condition = made(
        f"x LIKE '%a%b' AND x LIKE '%b' AND x = '{text}' AND x IN ('{text}') AND y > 5 AND x + 'c' LIKE 'a%'"
    )
    assert condition.takes(Message(b"", headers=headers), "orders")
    assert condition.raised == 0


def test_an_operand_inside_a_between_is_evaluated_once() -> None:
    # Each level has its value in two comparisons: without a memory 2 to the 40th would be evaluated.
    value = "x"
    for _ in range(40):
        value = f"-({value} BETWEEN y AND 2)"
    condition = made(f"{value} IS NULL AND x + 0 BETWEEN 1 AND 2 AND x + 0 NOT BETWEEN 4 AND 5")
    assert condition.matches({"x": 1, "y": 0})
    assert not condition.matches({"x": 3, "y": 0})
    assert condition.names == {"x", "y"}
    with pytest.raises(FilterRefused, match="explained, the condition has more than 1000000 characters"):
        condition.explain()
