"""docs/filters.md: its limits are the code's, and its conditions and examples give what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

import pytest

from bridge.cli import main
from bridge.filters import FilterRefused, HeaderText, limits, parse
from bridge.filters.steps import SHORT_TEXT

TEXT: Final = (Path(__file__).parents[2] / "docs" / "filters.md").read_text("utf-8")


def section(name: str) -> str:
    return TEXT.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def test_the_limits_are_those_of_the_code() -> None:
    shown = [
        int(number.replace(",", "")) for number in re.findall(r"^\| .+ \| ([\d,]+)", section("Limits"), re.M)
    ]
    assert shown == [
        limits.CONDITION_CHARS_MOST,
        limits.BRACKETS_MOST,
        limits.OPERATORS_DEEP_MOST,
        limits.DIGITS_MOST,
        limits.EXPLAINED_CHARS_MOST,
        limits.STEPS_MOST,
    ]
    assert f"a text of more than {SHORT_TEXT} characters counts" in section("Limits")


def test_the_conditions_that_surprise_are_refused_where_it_says_so() -> None:
    rows = re.findall(r"^\| (`.+?`.*?) \| (.+) \|$", section("Surprises"), re.M)
    assert len(rows) > 10
    for conditions, meaning in rows:
        for condition in re.findall(r"`([^`]+)`", conditions):
            whole = condition if re.search(r"[=<>]|IN|LIKE|IS|BETWEEN", condition) else f"x = {condition}"
            if meaning.startswith("refused"):
                with pytest.raises(FilterRefused):
                    parse(whole if condition not in ("==", "!=") else f"x {condition} 1")
            else:
                assert parse(whole) is not None


@pytest.mark.parametrize(
    ("condition", "text", "result"),
    [
        ("x = 5 AND 5 = x AND x > 4 AND x BETWEEN 1 AND 9", "+5", True),
        ("x = 5", "five", False),
        ("x <> 5", "five", True),
        ("x = '5' AND x IN ('5') AND x LIKE '5%'", "5", True),
        ("x = '5'", "5.0", False),
        ("x OR x = TRUE", "true", False),
        ("x + 1 = 6", "5", False),
        ("convert_string_expressions:x - 1 = 4", "5", True),
    ],
)
def test_headers_are_as_it_says(condition: str, text: str, result: bool) -> None:
    found = parse(condition)
    assert found is not None
    assert found.matches({"x": HeaderText(text)}) is result


def test_the_examples_give_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    console = section("The command").partition("```console\n")[2].partition("```")[0]
    shown = re.findall(r"^\$ (core-bridge filter.*)\n(.+)$", console, re.M)
    assert len(shown) == 2
    for line, answer in shown:
        main(shlex.split(line)[1:])
        captured = capsys.readouterr()
        assert (captured.out + captured.err).strip() == answer
