"""A part of PromQL: as much of it as the alerts of docs/operations.md have.

    scrapes = [Scrape.of(0, node.metrics()), Scrape.of(3600, node.metrics())]
    evaluate('increase(core_bridge_messages_refused_total[1h]) > 0', scrapes, 3600)

Selectors with ``=`` and ``!=``, numbers, `time()`, ``+ - * /``, comparisons that filter, `and` and `unless`
with `on` or `ignoring`, and `increase`, `rate` and `resets` of a range. A range counts from its first scrape
to its last: what Prometheus adds for the time before and after is nothing where they are the range's ends.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

Labels = frozenset[tuple[str, str]]
#: Values by labels.
Vector = Mapping[Labels, float]
Value = float | Vector

_TOKEN: Final = re.compile(r'\d+(?:\.\d+)?|[A-Za-z_]\w*|"[^"]*"|[=!<>]=|\S')
_SERIES: Final = re.compile(r"(\w+)(?:\{(.*)\})?")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
#: Seconds of a unit of a range.
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}


def _quotient(left: float, right: float) -> float:
    """As floating point has it, where Python raises."""
    if right:
        return left / right
    return math.copysign(math.inf, left) if left else math.nan


_SUMS: Final = {"+": operator.add, "-": operator.sub}
_PRODUCTS: Final = {"*": operator.mul, "/": _quotient}
_COMPARISONS: Final = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Scrape:
    """What ``/metrics`` said at one time."""

    #: Seconds since the epoch.
    at_s: float
    #: By name of the metric.
    vectors: Mapping[str, Vector]

    @classmethod
    def of(cls, at_s: float, samples: Mapping[str, float]) -> Scrape:
        """From values by name and labels, as the text format has them."""
        vectors: dict[str, dict[Labels, float]] = {}
        for series, value in samples.items():
            found = _SERIES.fullmatch(series)
            assert found is not None, series
            labels = frozenset((name, text) for name, text in _LABEL.findall(found[2] or ""))
            vectors.setdefault(found[1], {})[labels] = value
        return cls(at_s, vectors)


def evaluate(expression: str, scrapes: Sequence[Scrape], now_s: float) -> Value:
    """The value of an expression at a time, by scrapes up to it, oldest first.

    Raises: ValueError: the expression is not of this part of PromQL.
    """
    reading = _Reading(expression, scrapes, now_s)
    value = reading.joined()
    reading.take("")
    return value


def longest_range_s(expression: str) -> float:
    """The longest range in an expression, in seconds; 0: there is none."""
    ranges = re.findall(r"\[(\d+)(\w)\]", expression)
    return max((int(count) * _UNITS[unit] for count, unit in ranges), default=0)


class _Reading:
    """An expression that is evaluated as it is read, from the loosest operator to the tightest."""

    def __init__(self, expression: str, scrapes: Sequence[Scrape], now_s: float) -> None:
        self._expression, self._scrapes, self._now_s = expression, scrapes, now_s
        self._tokens: list[str] = [*_TOKEN.findall(expression), ""]

    def take(self, *wanted: str) -> str:
        """The next token, which must be one of these where some are given."""
        token = self._tokens[0]
        if wanted and token not in wanted:
            rule = f"must have {' or '.join(wanted) or 'its end'}"
            raise ValueError(f"{self._expression}: {rule}; found {token or 'its end'}")
        return self._tokens.pop(0) if token else token

    def joined(self) -> Value:
        """Comparisons joined by `and` and `unless`."""
        left = self._compared()
        while self._tokens[0] in ("and", "unless"):
            word, key = self.take(), self._matching()
            right = self._vector(self._compared())
            keys = {key(labels) for labels in right}
            left = {
                labels: value
                for labels, value in self._vector(left).items()
                if (key(labels) in keys) == (word == "and")
            }
        return left

    def _matching(self) -> Callable[[Labels], Labels]:
        """What two series must have in common."""
        if self._tokens[0] not in ("on", "ignoring"):
            return lambda labels: labels
        on = self.take() == "on"
        self.take("(")
        names = {self.take()}
        while self.take(",", ")") == ",":
            names.add(self.take())
        return lambda labels: frozenset(label for label in labels if (label[0] in names) == on)

    def _compared(self) -> Value:
        left = self._sum()
        if self._tokens[0] not in _COMPARISONS:
            return left
        holds = _COMPARISONS[self.take()]
        right = self._sum()
        # Of a number and a vector it is the vector's values that stay.
        kept = right if isinstance(left, float) else left
        held = self._vector(_combined(lambda one, other: float(holds(one, other)), left, right))
        return {labels: self._vector(kept)[labels] for labels, held_there in held.items() if held_there}

    def _sum(self) -> Value:
        left = self._product()
        while self._tokens[0] in _SUMS:
            left = _combined(_SUMS[self.take()], left, self._product())
        return left

    def _product(self) -> Value:
        left = self._operand()
        while self._tokens[0] in _PRODUCTS:
            left = _combined(_PRODUCTS[self.take()], left, self._operand())
        return left

    def _operand(self) -> Value:
        token = self.take()
        if token[:1].isdigit():
            return float(token)
        if token == "(":
            value = self.joined()
            self.take(")")
            return value
        if token == "time":
            self.take("(")
            self.take(")")
            return float(self._now_s)
        if token in _OF_RANGES:
            return self._of_range(_OF_RANGES[token])
        if re.fullmatch(r"[a-z]\w*", token):
            return _selected(self._scrapes[-1], token, [*self._matchers()])
        raise ValueError(f"{self._expression}: must have a number, a metric or a function; found {token}")

    def _matchers(self) -> Iterator[tuple[str, str, str]]:
        """Label, ``=`` or ``!=``, and value."""
        if self._tokens[0] == "{":
            while self.take("{", ",", "}") != "}":
                yield self.take(), self.take("=", "!="), self.take().strip('"')

    def _of_range(self, function: Callable[[Sequence[float], float], float]) -> Vector:
        self.take("(")
        metric, matchers = self.take(), [*self._matchers()]
        self.take("[")
        range_s = float(self.take()) * _UNITS[self.take(*_UNITS)]
        self.take("]")
        self.take(")")
        within = [scrape for scrape in self._scrapes if scrape.at_s >= self._now_s - range_s]
        values: dict[Labels, list[float]] = {}
        for scrape in within:
            for labels, value in _selected(scrape, metric, matchers).items():
                values.setdefault(labels, []).append(value)
        return {labels: function(found, range_s) for labels, found in values.items() if len(found) > 1}

    def _vector(self, value: Value) -> Vector:
        if isinstance(value, float):
            raise ValueError(f"{self._expression}: must have series on one side of each comparison")
        return value


def _selected(scrape: Scrape, metric: str, matchers: Sequence[tuple[str, str, str]]) -> Vector:
    """The series of a metric with these labels; a label that a series lacks is empty."""
    return {
        labels: value
        for labels, value in scrape.vectors.get(metric, {}).items()
        if all((dict(labels).get(name, "") == text) == (sign == "=") for name, sign, text in matchers)
    }


def _combined(operation: Callable[[float, float], float], left: Value, right: Value) -> Value:
    """Number with number, each value with a number, or the values of the same labels."""
    if isinstance(left, float):
        if isinstance(right, float):
            return operation(left, right)
        return {labels: operation(left, value) for labels, value in right.items()}
    if isinstance(right, float):
        return {labels: operation(value, right) for labels, value in left.items()}
    return {labels: operation(left[labels], right[labels]) for labels in left if labels in right}


def _increase(values: Sequence[float], _range_s: float = 0) -> float:
    """A counter that went back has begun again at 0."""
    return sum(later - earlier if later >= earlier else later for earlier, later in pairwise(values))


#: Of a series' values in a range of so many seconds.
_OF_RANGES: Final[Mapping[str, Callable[[Sequence[float], float], float]]] = {
    "increase": _increase,
    "rate": lambda values, range_s: _increase(values) / range_s,
    "resets": lambda values, _: sum(later < earlier for earlier, later in pairwise(values)),
}
