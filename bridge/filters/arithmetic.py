"""Arithmetic as Artemis does it, which is Java's: integers wrap, ``/`` and ``%`` are always of doubles.

Source of the rules: `ArithmeticExpression` and `UnaryExpression.negate` of Artemis 2.44.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from bridge.filters.steps import CannotEvaluate, Steps
from bridge.filters.values import (
    LONG_LEAST,
    LONG_MOST,
    NUMBERS,
    TEXTS,
    Big,
    Byte,
    Float,
    Long,
    Short,
    Value,
    as_double,
    is_long,
    java_double,
    java_integer,
    narrowed,
)


def as_number(value: Any, convert: bool, steps: Steps) -> Any:
    """The operand of an operation.

    Raises:
        CannotEvaluate: it is no number, nor with `convert` a text that reads as one.
    """
    if type(value) in NUMBERS:
        return value
    if convert and type(value) in TEXTS:
        steps.take_text(value)
        number = java_double(value) if "." in value else java_integer(value, LONG_LEAST, LONG_MOST)
        if number is not None:
            return number if type(number) is float else Long(number)
    raise CannotEvaluate(f"no number: {type(value).__name__}")


def wrapped(value: int, bits: int) -> int:
    """An integer in two's complement of so many bits."""
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half


def _calculate(left: Any, right: Any, operation: Callable[[Any, Any], Any]) -> Value:
    if isinstance(left, float) or isinstance(right, float):
        return float(operation(as_double(left), as_double(right)))
    if is_long(left) or is_long(right):
        return Long(wrapped(operation(int(left), int(right)), 64))
    return wrapped(operation(int(left), int(right)), 32)


def _plus(left: Any, right: Any) -> Value:
    return _calculate(left, right, lambda left, right: left + right)


def _minus(left: Any, right: Any) -> Value:
    return _calculate(left, right, lambda left, right: left - right)


def _times(left: Any, right: Any) -> Value:
    return _calculate(left, right, lambda left, right: left * right)


def _divided(left: Any, right: Any) -> Value:
    dividend, divisor = as_double(left), as_double(right)
    if divisor != 0.0:
        return dividend / divisor
    if dividend == 0.0 or math.isnan(dividend):
        return math.nan
    return math.copysign(math.inf, dividend) * math.copysign(1.0, divisor)


def _remainder(left: Any, right: Any) -> Value:
    dividend, divisor = as_double(left), as_double(right)
    if divisor == 0.0 or math.isinf(dividend):
        return math.nan
    return math.fmod(dividend, divisor)


_OPERATIONS: Final = {"+": _plus, "-": _minus, "*": _times, "/": _divided, "%": _remainder}

#: Two values that are there, and their result. Raises `CannotEvaluate`.
Operation = Callable[[Any, Any], Value]


def operation(symbol: str, convert: bool, steps: Steps) -> Operation:
    """The operation that the symbol stands for. With a text on the left, ``+`` joins texts."""
    calculate = _OPERATIONS[symbol]

    def apply(left: Any, right: Any) -> Value:
        return calculate(as_number(left, convert, steps), as_number(right, convert, steps))

    def join_or_add(left: Any, right: Any) -> Value:
        if type(left) in TEXTS:
            joined = str(left) + java_text(right)
            steps.take_text(joined)
            return joined
        return apply(left, right)

    return join_or_add if symbol == "+" else apply


def negated(value: Any) -> Value:
    """The value with the other sign; None for what is no number.

    Raises:
        CannotEvaluate: a Byte or a Short, which Artemis does not negate.
    """
    kind = type(value)
    if kind is float:
        return -float(value)
    if kind is Float:
        return Float(-value)
    if kind is Big:
        # The literal 9223372036854775808 is too big for a Long; with a minus it is the least one.
        return Long(LONG_LEAST) if -value == LONG_LEAST else Big(-value)
    if kind is int or kind is Long:
        return Long(wrapped(-value, 64)) if is_long(value) else wrapped(-value, 32)
    if kind is Byte or kind is Short:
        raise CannotEvaluate(f"a {kind.__name__} is not negated")
    return None


def java_text(value: Any) -> str:
    """Java's String.valueOf. Bytes are shown by their place in Java's memory: here always by the same."""
    kind = type(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is float:
        return _decimal_text(value, repr(value))
    if kind is Float:
        return _decimal_text(value, _shortest_float(value))
    if kind is bytes:
        return "[B@0"
    return str(int(value)) if isinstance(value, int) else str(value)


def _shortest_float(value: float) -> str:
    """The fewest digits that a Java float is told by."""
    for digits in range(1, 9):
        text = f"{value:.{digits}g}"
        if narrowed(float(text)) == value:
            return text
    return f"{value:.9g}"


def _decimal_text(value: float, shortest: str) -> str:
    """Double.toString: with a point below 10^7 and from 10^-3 on, otherwise with an exponent."""
    if math.isnan(value):
        return "NaN"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if math.isinf(value):
        return sign + "Infinity"
    if value == 0.0:
        return sign + "0.0"
    mantissa, _, exponent = shortest.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    point = len(whole) + int(exponent or 0)
    digits = whole + fraction
    point -= len(digits) - len(digits.lstrip("0"))
    digits = digits.strip("0")
    if 1e-3 <= abs(value) < 1e7:
        digits = "0" * (1 - point) + digits if point < 1 else digits.ljust(point + 1, "0")
        point = max(point, 1)
        return f"{sign}{digits[:point]}.{digits[point:]}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"
