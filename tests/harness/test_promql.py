"""The evaluator of alerts, against samples made by hand."""

from __future__ import annotations

import pytest

from tests.harness.promql import Scrape, evaluate, longest_range_s

EARLIER = {
    'lag{bridge="a"}': 0.0,
    'lag{bridge="b"}': 9.0,
    'refused_total{bridge="a"}': 5.0,
    'refused_total{bridge="b"}': 2.0,
}
NOW = {
    'lag{bridge="a"}': 4.0,
    'lag{bridge="b"}': 6.0,
    'refused_total{bridge="a"}': 7.0,
    'refused_total{bridge="b"}': 1.0,
    'refused_total{bridge="c"}': 8.0,
    'progress{bridge="a"}': 3_000.0,
    'connected{bridge="a"}': 0.0,
    'connected{bridge="b"}': 0.0,
    'state{bridge="a",state="STOPPED"}': 1.0,
    'state{bridge="b",state="STOPPED"}': 0.0,
    'state{bridge="b",state="FAILED"}': 1.0,
    "free": 5.0,
    "size": 100.0,
}


def found(expression: str) -> dict[str, float]:
    """Values by the value of the label `bridge`, an hour after the first scrape."""
    value = evaluate(expression, [Scrape.of(0, EARLIER), Scrape.of(3600, NOW)], 3600)
    assert not isinstance(value, float)
    return {dict(labels).get("bridge", ""): number for labels, number in value.items()}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("lag", {"a": 4, "b": 6}),
        ('lag{bridge="a"}', {"a": 4}),
        ('lag{bridge!="a"}', {"b": 6}),
        ("absent_here > 0", {}),
        ("lag > 5", {"b": 6}),
        ("5 < lag", {"b": 6}),
        ("lag != 4", {"b": 6}),
        ("free < 0.1 * size", {"": 5}),
        ("free < 0.04 * size", {}),
        ("2 + 3 * lag - 1", {"a": 13, "b": 19}),
        ("(2 + 3) * lag / 2", {"a": 10, "b": 15}),
        ("lag > 0 and time() - progress > 300", {"a": 4}),
        ("lag > 0 and time() - progress > 600", {}),
        ('connected == 0 unless ignoring (state) state{state="STOPPED"} == 1', {"b": 0}),
        ('connected == 0 and on (bridge) state{state="STOPPED"} == 1', {"a": 0}),
        ("connected == 0 and state == 1", {}),
        ('connected == 0 unless on (bridge, other) state{state="STOPPED"} == 1 unless lag > 5', {}),
        ("increase(refused_total[1h]) > 0", {"a": 2, "b": 1}),
        ("increase(refused_total[5m]) > 0", {}),
        ("rate(refused_total[1h]) * 3600", {"a": 2, "b": 1}),
        ("resets(lag[1h]) == 0", {"a": 0}),
        ("lag / resets(lag[1h]) > 5", {"a": float("inf"), "b": 6}),
    ],
)
def test_expressions(expression: str, expected: dict[str, float]) -> None:
    assert found(expression) == pytest.approx(expected)


@pytest.mark.parametrize(
    "expression",
    [
        "1 > 0",
        "lag >",
        "lag > 5 lag",
        "lag that grows",
        "rate(lag)",
        'lag{bridge~"a"}',
        "lag and 1",
        "(lag",
    ],
)
def test_what_is_no_such_expression_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="must have"):
        found(expression)


def test_ranges() -> None:
    assert longest_range_s("lag > 5") == 0
    assert longest_range_s("rate(lag[5m]) > 0 and increase(lag[1h]) > 0") == 3600
