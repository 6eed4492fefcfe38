"""Calculations in a condition: chains of operations from left to right, and signs."""

from __future__ import annotations

from typing import Final

from bridge.filters.arithmetic import Operation, negated, operation
from bridge.filters.logic import as_operand
from bridge.filters.nodes import Evaluate, Kind, Node, Properties, deeper
from bridge.filters.system import System
from bridge.filters.values import Value

_LEVEL: Final = {"+": "sum", "-": "sum", "*": "product", "/": "product", "%": "product"}
_SIGN: Final = "sign"
_TWO_SIGNS: Final = "two signs"


def calculation(left: Node, symbol: str, right: Node, convert: bool) -> Node:
    """An operation, added to the chain on its left where that is one of the same level. Unknown where a value
    is missing; what stands behind that is not evaluated.

    Raises:
        Refused: too many operators are inside one another.
    """
    first, second = as_operand(left), as_operand(right)
    level = _LEVEL[symbol]
    if first.symbol == level and first.kind is Kind.OPERATION:
        first.depth = max(first.depth, deeper(second.place, second))
        first.pieces[-1:] = [f" {symbol} ", second, ")"]
        first.steps.append((operation(symbol, convert), second.evaluate))
        return first
    steps = [(operation(symbol, convert), second.evaluate)]
    return Node(
        Kind.OPERATION,
        _chain(first.evaluate, steps),
        first.place,
        ["(", first, f" {symbol} ", second, ")"],
        deeper(first.place, first, second),
        symbol=level,
        steps=steps,
    )


def _chain(first: Evaluate, steps: list[tuple[Operation, Evaluate]]) -> Evaluate:
    def evaluate(properties: Properties, system: System) -> Value:
        value: Value = first(properties, system)
        if value is None:
            return None
        for apply, operand in steps:
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
    operand = as_operand(part)
    value = operand.evaluate

    def evaluate(properties: Properties, system: System) -> Value:
        found = value(properties, system)
        return None if found is None else negated(found)

    symbol = _TWO_SIGNS if (part.kind, part.symbol) == (Kind.OPERATION, _SIGN) else _SIGN
    return Node(Kind.OPERATION, evaluate, place, ["(- ", operand, ")"], deeper(place, operand), symbol=symbol)
