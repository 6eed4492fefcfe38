"""XPath 1.0: a path that is compiled once into functions, and asked of documents.

Artemis hands a condition's path to Java's JAXP, with no prefixes, variables or functions of its own: where
one of the first two is looked at, nothing is found. Source of the rules: https://www.w3.org/TR/xpath-10/.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from bridge.filters.limits import XPATH_DEEP_MOST, XPATH_OPERATORS_MOST
from bridge.filters.xpath.document import NodeType, NoXml, read
from bridge.filters.xpath.functions import FUNCTIONS, TYPE_TESTS, Context
from bridge.filters.xpath.parts import (
    AXES,
    Evaluate,
    Make,
    NodeTest,
    Step,
    any_node,
    both,
    calculated,
    compared,
    either,
    followed,
    narrowed,
    root,
    step_along,
    united,
    unknown,
)
from bridge.filters.xpath.values import Failed, number_of, truth_of

_NAME: Final = r"[^\W\d][\w.\-\u00b7]*"
_TOKEN: Final = re.compile(
    rf"[ \t\r\n]*(?:(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)|(?P<text>\"[^\"]*\"|'[^']*')"
    rf"|(?P<name>{_NAME}(?::(?!:)(?:{_NAME}|\*))?)|(?P<sign>//|::|\.\.|!=|<=|>=|[()\[\].@,/|+\-=<>*$]))"
)
_OPERATOR_NAMES: Final = frozenset({"and", "or", "mod", "div"})
#: What may stand before an operand: behind anything else, ``*`` and the names above are operators.
_OPENS: Final = frozenset(
    {"", "@", "::", "(", "[", ",", "/", "//", "|", "+", "-", "=", "!=", "<", "<=", ">", ">=", "op"}
)


class NoPath(ValueError):
    """The text is no path."""


def _tokens(path: str) -> list[tuple[str, str]]:
    """Kind and text of each token; an operator's name has the kind ``op``."""
    tokens: list[tuple[str, str]] = []
    place, previous = 0, ""
    end = len(path.rstrip(" \t\r\n"))
    while place < end:
        found = _TOKEN.match(path, place)
        if found is None:
            raise NoPath(f"{path[place : place + 20]!r} is not XPath")
        kind, text = str(found.lastgroup), found[str(found.lastgroup)]
        if previous not in _OPENS and (text == "*" or text in _OPERATOR_NAMES):
            kind = "op"
        tokens.append((kind, text))
        previous = "op" if kind == "op" else (text if kind == "sign" else "operand")
        place = found.end()
    return [*tokens, ("end", "")]


class _Parser:
    """Reads a path by recursive descent; each production gives the function that evaluates it."""

    def __init__(self, path: str) -> None:
        self._tokens = _tokens(path)
        self._place = 0
        self._depth = 0
        self._operators = 0

    def whole(self) -> Evaluate:
        expression = self._or()
        if self._kind() != "end":
            raise self._unexpected()
        return expression

    def _kind(self, ahead: int = 0) -> str:
        return self._tokens[min(self._place + ahead, len(self._tokens) - 1)][0]

    def _text(self, ahead: int = 0) -> str:
        return self._tokens[min(self._place + ahead, len(self._tokens) - 1)][1]

    def _next(self) -> str:
        text = self._text()
        self._place += 1
        return text

    def _sees(self, *signs: str) -> bool:
        return self._kind() in ("sign", "op") and self._text() in signs

    def _take(self, sign: str) -> None:
        if not self._sees(sign):
            raise self._unexpected(sign)
        self._place += 1

    def _unexpected(self, wanted: str = "") -> NoPath:
        found = self._text() or "the end"
        return NoPath(
            f"XPath expects {wanted}; found {found}" if wanted else f"XPath does not expect {found}"
        )

    def _chain(self, symbols: tuple[str, ...], operand: Callable[[], Evaluate], make: Make) -> Evaluate:
        left = operand()
        while self._sees(*symbols):
            self._operators += 1
            if self._operators > XPATH_OPERATORS_MOST:
                raise NoPath(f"at most {XPATH_OPERATORS_MOST} operators may be in a path; found one more")
            symbol = self._next()
            left = make(symbol, left, operand())
        return left

    def _or(self) -> Evaluate:
        self._depth += 1
        if self._depth > XPATH_DEEP_MOST:
            raise NoPath(
                f"at most {XPATH_DEEP_MOST} brackets may be inside one another in a path; found one more"
            )
        expression = self._chain(("or",), self._and, either)
        self._depth -= 1
        return expression

    def _and(self) -> Evaluate:
        return self._chain(("and",), self._equality, both)

    def _equality(self) -> Evaluate:
        return self._chain(("=", "!="), self._relation, compared)

    def _relation(self) -> Evaluate:
        return self._chain(("<", "<=", ">", ">="), self._sum, compared)

    def _sum(self) -> Evaluate:
        return self._chain(("+", "-"), self._product, calculated)

    def _product(self) -> Evaluate:
        # A star that is no operator is the sign of a name.
        return self._chain(("*", "div", "mod"), self._unary, calculated)

    def _unary(self) -> Evaluate:
        if not self._sees("-"):
            return self._chain(("|",), self._path, united)
        self._next()
        operand = self._chain(("|",), self._path, united)
        return lambda context: -number_of(operand(context))

    def _path(self) -> Evaluate:
        if not self._begins_filter():
            return self._location()
        start = self._primary()
        predicates = self._predicates()
        if predicates:
            start = narrowed(start, predicates)
        if not self._sees("/", "//"):
            return start
        return followed(start, self._steps())

    def _begins_filter(self) -> bool:
        if self._kind() in ("number", "text") or self._sees("(", "$"):
            return True
        return self._kind() == "name" and self._text(1) == "(" and self._text() not in TYPE_TESTS

    def _primary(self) -> Evaluate:
        kind, text = self._kind(), self._next()
        if kind == "number":
            number = float(text)
            return lambda _context: number
        if kind == "text":
            value = text[1:-1]
            return lambda _context: value
        if text == "(":
            inner = self._or()
            self._take(")")
            return inner
        if text == "$":
            if self._kind() != "name":
                raise self._unexpected("a name")
            self._next()
            return unknown
        return self._call(text)

    def _call(self, name: str) -> Evaluate:
        function = FUNCTIONS.get(name)
        if function is None:
            raise NoPath(f"XPath has no function {name}")
        self._take("(")
        arguments: list[Evaluate] = []
        while not self._sees(")"):
            if arguments:
                self._take(",")
            arguments.append(self._or())
        self._take(")")
        if not function.least <= len(arguments) <= function.most:
            raise NoPath(
                f"{name}() takes {function.least} to {function.most} arguments; found {len(arguments)}"
            )
        call = function.call
        return lambda context: call(context, [argument(context) for argument in arguments])

    def _location(self) -> Evaluate:
        if self._sees("//"):
            return followed(root, self._steps())
        if self._sees("/"):
            if self._begins_step(1):
                return followed(root, self._steps())
            self._next()
            return root
        if not self._begins_step(0):
            raise self._unexpected()
        first = self._one_step()
        return followed(lambda context: [context.node], [first, *self._steps()])

    def _begins_step(self, ahead: int) -> bool:
        return self._kind(ahead) == "name" or self._text(ahead) in (".", "..", "@", "*")

    def _steps(self) -> list[Step]:
        steps = []
        while self._sees("/", "//"):
            if self._next() == "//":
                steps.append(step_along("descendant-or-self", any_node, ()))
            if not self._begins_step(0):
                raise self._unexpected()
            steps.append(self._one_step())
        return steps

    def _one_step(self) -> Step:
        if self._sees("."):
            self._next()
            return step_along("self", any_node, ())
        if self._sees(".."):
            self._next()
            return step_along("parent", any_node, ())
        axis = "child"
        if self._sees("@"):
            self._next()
            axis = "attribute"
        elif self._kind() == "name" and self._text(1) == "::":
            axis = self._next()
            self._next()
            if axis not in AXES:
                raise NoPath(f"XPath has no axis {axis}")
        return step_along(axis, self._node_test(axis), self._predicates())

    def _predicates(self) -> list[Evaluate]:
        predicates = []
        while self._sees("["):
            self._next()
            predicates.append(self._or())
            self._take("]")
        return predicates

    def _node_test(self, axis: str) -> NodeTest:
        main = NodeType.ATTRIBUTE if axis == "attribute" else NodeType.ELEMENT
        if self._sees("*"):
            self._next()
            return lambda node: node.type is main
        if self._kind() != "name":
            raise self._unexpected("a name")
        name = self._next()
        if self._sees("(") and name in TYPE_TESTS:
            return self._type_test(name)
        if ":" in name:
            return unknown
        return lambda node: node.type is main and node.local == name and not node.namespace

    def _type_test(self, name: str) -> NodeTest:
        self._take("(")
        target = ""
        if name == "processing-instruction" and self._kind() == "text":
            target = self._next()[1:-1]
        self._take(")")
        types = TYPE_TESTS[name]
        return lambda node: node.type in types and (not target or node.name == target)


def compiled(path: str) -> Callable[[str], bool]:
    """A function of a text: whether it is XML in which the path finds something. It raises `TooMuch`.

    Raises:
        NoPath: it is no path, or too many brackets are inside one another.
    """
    evaluate = _Parser(path).whole()

    def has(text: str) -> bool:
        try:
            return truth_of(evaluate(Context(read(text), 0, 0)))
        except (NoXml, Failed):
            return False

    return has
