"""Comparisons, IS NULL, LIKE and IN: tests of values.

A test that Artemis refuses when it is made is refused here too; a value that does not fit makes it unknown or
false. Source of the rules: `ComparisonExpression` and `UnaryExpression.createInExpression` of Artemis 2.44.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from bridge.filters.nodes import Evaluate, Kind, Node, Properties, Refused, deeper, quoted
from bridge.filters.patterns import like
from bridge.filters.steps import SHORT_TEXT, CannotEvaluate, Steps
from bridge.filters.system import System
from bridge.filters.values import TEXTS, HeaderText, compare, header_number

#: By symbol, whether an order (below, at, above zero) is what it asks for.
_ASKED: Final[dict[str, Callable[[int], bool]]] = {
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


def _test(symbol: str, left: Node, right: Node, evaluate: Evaluate) -> Node:
    pieces: list[str | Node] = ["(", left, f" {symbol} ", right, ")"]
    return Node(Kind.TEST, evaluate, left.place, pieces, deeper(left.place, left, right), symbol=symbol)


def equality(left: Node, right: Node, convert: bool, steps: Steps) -> Node:
    """``=``. Unknown where only the left value is missing, false where only the right one is.

    Raises:
        Refused: one side is NULL, or TRUE or FALSE stands left of another kind of literal.
    """
    for part in (left, right):
        if part.kind is Kind.CONSTANT and part.value is None:
            raise Refused(part.place, "NULL cannot be compared: use IS NULL or IS NOT NULL")
    if left.kind is Kind.CONSTANT and right.kind is Kind.LITERAL:
        raise Refused(left.place, f"{left.text()} cannot be compared with {right.kind.value}")
    evaluate = _equal_values(left, right, convert, steps)
    if left.kind is Kind.NAME and right.kind is Kind.LITERAL and not convert:
        if type(right.value) is str:
            evaluate = _equal_text(left.evaluate, right.value)
        elif type(right.value) is int:
            evaluate = _equal_integer(left.evaluate, right.value, steps)
    return _test("=", left, right, evaluate)


def _equal_values(left: Node, right: Node, convert: bool, steps: Steps) -> Evaluate:
    left_value, right_value = left.evaluate, right.evaluate
    # Java compares bytes by their place in memory: those of one property are equal to themselves alone.
    same_name = left.kind is Kind.NAME and right.kind is Kind.NAME and left.symbol == right.symbol

    def evaluate(properties: Properties, system: System) -> bool | None:
        first, second = left_value(properties, system), right_value(properties, system)
        if first is None:
            return True if second is None else None
        if second is None:
            return False
        if type(first) is bytes and type(second) is bytes:
            return same_name
        steps.take_text(first)
        steps.take_text(second)
        return compare(first, second, convert) == 0

    return evaluate


def _equal_text(value: Evaluate, text: str) -> Evaluate:
    def evaluate(properties: Properties, system: System) -> bool | None:
        found = value(properties, system)
        if found is None:
            return None
        return found == text and type(found) in TEXTS

    return evaluate


def _equal_integer(value: Evaluate, number: int, steps: Steps) -> Evaluate:
    def evaluate(properties: Properties, system: System) -> bool | None:
        found = value(properties, system)
        if found is None:
            return None
        if type(found) is int:
            return bool(found == number)
        if type(found) is HeaderText:
            if len(found) > SHORT_TEXT:
                steps.take(len(found))
            found = header_number(found)
            return found is not None and compare(found, number, False) == 0
        return compare(found, number, False) == 0

    return evaluate


def order(symbol: str, left: Node, right: Node, convert: bool, steps: Steps) -> Node:
    """``<``, ``<=``, ``>`` or ``>=``. Unknown where a value is missing.

    Raises:
        Refused: one side is a text, TRUE, FALSE, NULL or a test.
    """
    for part in (left, right):
        if part.kind in (Kind.CONSTANT, Kind.TEST) or (part.kind is Kind.LITERAL and type(part.value) is str):
            what = "a text that is written in the condition" if part.kind is Kind.LITERAL else part.kind.value
            raise Refused(
                part.place, f"only numbers and properties can be compared with {symbol}; found {what}"
            )
    evaluate = _ordered_values(symbol, left.evaluate, right.evaluate, convert, steps)
    if right.kind is Kind.LITERAL and type(right.value) is int and not convert:
        evaluate = _ordered_integer(symbol, left.evaluate, right.value, steps)
    return _test(symbol, left, right, evaluate)


def _ordered_values(symbol: str, left: Evaluate, right: Evaluate, convert: bool, steps: Steps) -> Evaluate:
    asked = _ASKED[symbol]

    def evaluate(properties: Properties, system: System) -> bool | None:
        first = left(properties, system)
        if type(first) is bytes:
            raise CannotEvaluate(f"bytes cannot be compared with {symbol}")
        if first is None:
            return None
        second = right(properties, system)
        if type(second) is bytes:
            raise CannotEvaluate(f"bytes cannot be compared with {symbol}")
        if second is None:
            return None
        steps.take_text(first)
        steps.take_text(second)
        found = compare(first, second, convert)
        return found is not None and asked(found)

    return evaluate


def _ordered_integer(symbol: str, value: Evaluate, number: int, steps: Steps) -> Evaluate:
    """The same with a number on the right; a comparison of two integers is Python's own."""
    asked = _ASKED[symbol]
    least, most = {
        "<": (None, number - 1),
        "<=": (None, number),
        ">": (number + 1, None),
        ">=": (number, None),
    }[symbol]

    def evaluate(properties: Properties, system: System) -> bool | None:
        found = value(properties, system)
        if type(found) is int:
            return found >= least if least is not None else found <= most  # type: ignore[operator]
        if found is None:
            return None
        if type(found) is bytes:
            raise CannotEvaluate(f"bytes cannot be compared with {symbol}")
        if type(found) is HeaderText:
            if len(found) > SHORT_TEXT:
                steps.take(len(found))
            found = header_number(found)
        ordered = None if found is None else compare(found, number, False)
        return ordered is not None and asked(ordered)

    return evaluate


def kept(part: Node) -> tuple[Node, Node]:
    """A part that is evaluated, and the same part with the value that this has just had for the same message.

    Without it, BETWEEN inside the values of others takes exponential time.
    """
    if part.kind in (Kind.NAME, Kind.LITERAL):
        return part, part
    value, last = part.evaluate, [None]

    def evaluate(properties: Properties, system: System) -> Any:
        found = last[0] = value(properties, system)
        return found

    return replace(part, evaluate=evaluate), replace(part, evaluate=lambda _properties, _system: last[0])


def is_null(part: Node) -> Node:
    """IS NULL: never unknown."""
    value = part.evaluate

    def evaluate(properties: Properties, system: System) -> bool:
        return value(properties, system) is None

    pieces: list[str | Node] = ["(", part, " IS NULL)"]
    return Node(Kind.TEST, evaluate, part.place, pieces, deeper(part.place, part), symbol="IS NULL")


def like_pattern(part: Node, pattern: str, escape: tuple[int, str] | None, steps: Steps) -> Node:
    """LIKE. False for what is no text.

    Raises:
        Refused: the escape is not one character.
    """
    try:
        matches = like(pattern, None if escape is None else escape[1], steps)
    except ValueError as error:
        raise Refused(part.place if escape is None else escape[0], str(error)) from None
    value = part.evaluate

    def evaluate(properties: Properties, system: System) -> bool | None:
        found = value(properties, system)
        if found is None:
            return None
        return matches(found) if type(found) in TEXTS else False

    written = " LIKE " + quoted(pattern, "'")
    if escape is not None:
        written += " ESCAPE " + quoted(escape[1], "'")
    pieces: list[str | Node] = ["(", part, written, ")"]
    return Node(Kind.TEST, evaluate, part.place, pieces, deeper(part.place, part), symbol="LIKE")


def membership(part: Node, texts: Sequence[str], wanted: bool) -> Node:
    """IN, or NOT IN where `wanted` is false. Unknown for what is no text.

    Raises:
        Refused: the left side is not a name.
    """
    if part.kind is not Kind.NAME:
        raise Refused(part.place, f"only a name can stand left of IN; found {part.kind.value}")
    value, members = part.evaluate, frozenset(texts)

    def evaluate(properties: Properties, system: System) -> bool | None:
        found = value(properties, system)
        return (found in members) is wanted if type(found) in TEXTS else None

    symbol = "IN" if wanted else "NOT IN"
    written = f" {symbol} ({', '.join(quoted(text, chr(39)) for text in texts)}))"
    return Node(
        Kind.TEST, evaluate, part.place, ["(", part, written], deeper(part.place, part), symbol=symbol
    )
