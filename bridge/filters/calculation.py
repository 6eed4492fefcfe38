"""Calculations in a condition: chains of operations from left to right, and signs."""

from __future__ import annotations

from typing import Final

from bridge.filters.arithmetic import Operation, negated, operation
from bridge.filters.nodes import Evaluate, Kind, Node, Properties, deeper
from bridge.filters.steps import Steps
from bridge.filters.system import System
from bridge.filters.values import Value

_LEVEL: Final = {"+": "sum", "-": "sum", "*": "product", "/": "product", "%": "product"}
_SIGN: Final = "sign"
_TWO_SIGNS: Final = "two signs"


def calculation(left: Node, symbol: str, right: Node, convert: bool, steps: Steps) -> Node:
    """An operation, added to the chain on its left where that is one of the same level. Unknown where a value
    is missing; what stands behind that is not evaluated.

    Raises:
        Refused: too many operators are inside one another.
    """
    level = _LEVEL[symbol]
    if left.symbol == level and left.kind is Kind.OPERATION:
        left.depth = max(left.depth, deeper(right.place, right))
        left.pieces[-1:] = [f" {symbol} ", right, ")"]
        left.operations.append((operation(symbol, convert, steps), right.evaluate))
        return left
    operations = [(operation(symbol, convert, steps), right.evaluate)]
    return Node(
        Kind.OPERATION,
        _chain(left.evaluate, operations),
        left.place,
        ["(", left, f" {symbol} ", right, ")"],
        deeper(left.place, left, right),
        symbol=level,
        operations=operations,
    )


def _chain(first: Evaluate, operations: list[tuple[Operation, Evaluate]]) -> Evaluate:
    def evaluate(properties: Properties, system: System) -> Value:
        value: Value = first(properties, system)
        if value is None:
            return None
        for apply, operand in operations:
            other = operand(properties, system)
            if other is None:
                return None
            value = apply(value, other)
        return value

    return evaluate


def negative(place: int, part: Node) -> Node:
    """A minus sign. A third one and those behind it change nothing but the sign, so at most two are kept.

    Raises:
        Refused: too many operators are inside one another.
    """
    if part.kind is Kind.OPERATION and part.symbol == _TWO_SIGNS:
        inner = part.pieces[1]
        assert isinstance(inner, Node)
        return inner
    value = part.evaluate

    def evaluate(properties: Properties, system: System) -> Value:
        found = value(properties, system)
        return None if found is None else negated(found)

    symbol = _TWO_SIGNS if (part.kind, part.symbol) == (Kind.OPERATION, _SIGN) else _SIGN
    return Node(Kind.OPERATION, evaluate, place, ["(- ", part, ")"], deeper(place, part), symbol=symbol)
