"""The values of XPath 1.0, how they turn into one another, and how they compare (sections 3.4 and 4)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Final

from bridge.filters.xpath.document import XmlNode

#: Nodes in document order, a text, a number, or true or false.
XValue = Sequence[XmlNode] | str | float | bool

_NUMBER: Final = re.compile(r"-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)", re.ASCII)
_BLANKS: Final = " \t\r\n"


class Failed(Exception):
    """The path cannot be evaluated for the document: a value is not what a function takes."""


def nodes_of(value: XValue) -> Sequence[XmlNode]:
    """The nodes. Raises `Failed` for any other value."""
    if isinstance(value, str | float | bool):
        raise Failed("a value is not a set of nodes")
    return value


def text_of(value: XValue) -> str:
    """The value as a text: of nodes, that of the first."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _number_text(value)
    return value[0].text() if value else ""


def _number_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == int(value):
        return str(int(value))
    text = repr(value)
    return text if "e" not in text else f"{value:.340f}".rstrip("0")


def number_of(value: XValue) -> float:
    """The value as a number; NaN for a text that is none."""
    if isinstance(value, bool):
        return 1.0 if value else 0.0
    if isinstance(value, float):
        return value
    text = text_of(value).strip(_BLANKS)
    return float(text) if _NUMBER.fullmatch(text) else math.nan


def truth_of(value: XValue) -> bool:
    """The value as true or false."""
    if isinstance(value, float) and not isinstance(value, bool):
        return value != 0.0 and not math.isnan(value)
    return bool(value)


_ORDERS: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def compare(symbol: str, left: XValue, right: XValue) -> bool:
    """Whether two values compare so. Sets of nodes do where a pair of their nodes does."""
    if isinstance(left, bool) and not isinstance(right, str | float | bool):
        right = truth_of(right)
    elif isinstance(right, bool) and not isinstance(left, str | float | bool):
        left = truth_of(left)
    if isinstance(left, str | float | bool):
        if isinstance(right, str | float | bool):
            return _single(symbol, left, right)
        return any(_single(symbol, left, _like(left, node.text())) for node in right)
    if isinstance(right, str | float | bool):
        return any(_single(symbol, _like(right, node.text()), right) for node in left)
    return _nodes(symbol, {node.text() for node in left}, {node.text() for node in right})


def _nodes(symbol: str, left: set[str], right: set[str]) -> bool:
    """Whether a pair of texts compares so, without a look at each pair."""
    if symbol == "=":
        return not left.isdisjoint(right)
    if symbol == "!=":
        return bool(left and right) and len(left | right) > 1
    first = [number for number in map(number_of, left) if not math.isnan(number)]
    second = [number for number in map(number_of, right) if not math.isnan(number)]
    if not first or not second:
        return False
    if symbol.startswith("<"):
        return _ORDERS[symbol](min(first), max(second))
    return _ORDERS[symbol](max(first), min(second))


def _like(other: str | float, text: str) -> str | float:
    return number_of(text) if isinstance(other, float) else text


def _single(symbol: str, left: str | float, right: str | float) -> bool:
    if symbol in ("=", "!="):
        if isinstance(left, bool) or isinstance(right, bool):
            return (truth_of(left) == truth_of(right)) is (symbol == "=")
        if isinstance(left, float) != isinstance(right, float):
            left, right = number_of(left), number_of(right)
        return (left == right) is (symbol == "=")
    return _ORDERS[symbol](number_of(left), number_of(right))
