"""AND, OR, NOT and the names that stand for a boolean, in three-valued logic: true, false, unknown (None).

Source of the rules: `LogicExpression`, `UnaryExpression.createNOT` and `createBooleanCast` of Artemis 2.44.
"""

from __future__ import annotations

from typing import Final

from bridge.filters.nodes import Evaluate, Kind, Node, Properties, Refused, deeper
from bridge.filters.system import System

_NOT: Final = "NOT"
_TWO_NOTS: Final = "NOT NOT"


def as_test(part: Node) -> Node:
    """A part as what is true, false or unknown: a name is true where its value is the boolean true.

    Raises:
        Refused: a text, a number or a calculation.
    """
    if part.kind in (Kind.TEST, Kind.CONSTANT):
        return part
    if part.kind is not Kind.NAME:
        raise Refused(part.place, f"a condition must be true or false; found {part.kind.value}")
    value = part.evaluate

    def is_true(properties: Properties, system: System) -> bool | None:
        found = value(properties, system)
        return None if found is None else found is True

    return Node(Kind.TEST, is_true, part.place, [part], part.depth)


def negation(place: int, operand: Node) -> Node:
    """NOT. A third one and those behind it change nothing but the sense, so at most two are kept: one more
    than none, for behind a NOT an AND no longer ends at what is unknown.

    Raises:
        Refused: the operand cannot be true or false, or too many operators are inside one another.
    """
    test = as_test(operand)
    if test.symbol == _TWO_NOTS:
        return test.tests[0]
    value = test.evaluate

    def is_not(properties: Properties, system: System) -> bool | None:
        found = value(properties, system)
        return None if found is None else not found

    symbol = _TWO_NOTS if test.symbol == _NOT else _NOT
    pieces: list[str | Node] = ["(NOT ", test, ")"]
    return Node(Kind.TEST, is_not, place, pieces, deeper(place, test), symbol=symbol, tests=[test])


def junction(symbol: str, left: Node, right: Node) -> Node:
    """AND or OR. One that stands on the left of another of its kind takes its operand, as in Artemis.

    Raises:
        Refused: an operand cannot be true or false, or too many operators are inside one another.
    """
    first, second = as_test(left), as_test(right)
    if first.symbol == symbol:
        first.depth = max(first.depth, deeper(second.place, second))
        first.pieces[-1:] = [f" {symbol} ", second, ")"]
        first.tests.append(second)
        return first
    tests = [first, second]
    decided = symbol == "OR"
    return Node(
        Kind.TEST,
        _evaluated(tests, decided),
        first.place,
        ["(", first, f" {symbol} ", second, ")"],
        deeper(first.place, first, second),
        symbol=symbol,
        tests=tests,
        matches=_matched(tests, decided),
    )


def _evaluated(tests: list[Node], decided: bool) -> Evaluate:
    """AND (`decided` by false) or OR (by true): every operand is looked at until one decides."""

    def evaluate(properties: Properties, system: System) -> bool | None:
        known = True
        found: bool | None
        for test in tests:
            found = test.evaluate(properties, system)
            if found is None:
                known = False
            elif found is decided:
                return decided
        return (not decided) if known else None

    return evaluate


def _matched(tests: list[Node], decided: bool) -> Evaluate:
    """The same where only a match counts: an AND ends at what is unknown, and what would raise behind it does
    not.
    """

    def matches(properties: Properties, system: System) -> bool:
        for test in tests:
            if ((test.matches or test.evaluate)(properties, system) is True) is decided:
                return decided
        return not decided

    return matches
