"""The grammar of conditions. It imports Lark, and is imported where there is a condition.

Source of the rules: the productions of `StrictParser.jj` of Artemis 2.44. NOT binds more tightly than a
comparison there: ``NOT x = 1`` is ``(NOT x) = 1``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Final, NoReturn

from lark import Lark, Token, UnexpectedToken
from lark.lexer import Lexer

from bridge.filters import comparisons, logic
from bridge.filters.calculation import calculation, negative
from bridge.filters.lexing import KEYWORDS, SIGNS, Source, Word
from bridge.filters.nodes import Node, Refused, constant, literal, name, quoted
from bridge.filters.steps import Steps

_GRAMMAR: Final = """
    start: disjunction

    ?disjunction: conjunction | disjunction OR conjunction -> junction
    ?conjunction: equality | conjunction AND equality -> junction

    ?equality: comparison
        | equality EQUAL comparison -> equal
        | equality UNEQUAL comparison -> unequal
        | equality IS NULL -> is_null
        | equality IS NOT NULL -> is_not_null

    ?comparison: sum
        | comparison (BELOW | AT_MOST | ABOVE | AT_LEAST) sum -> order
        | comparison LIKE TEXT -> like
        | comparison LIKE TEXT ESCAPE TEXT -> like
        | comparison NOT LIKE TEXT -> not_like
        | comparison NOT LIKE TEXT ESCAPE TEXT -> not_like
        | comparison BETWEEN sum AND sum -> between
        | comparison NOT BETWEEN sum AND sum -> not_between
        | comparison IN texts -> is_in
        | comparison NOT IN texts -> not_in
    texts: OPEN TEXT (COMMA TEXT)* CLOSE

    ?sum: product | sum (PLUS | MINUS) product -> calculation
    ?product: unary | product (TIMES | DIVIDED | REMAINDER) unary -> calculation

    ?unary: primary
        | PLUS unary -> plus
        | MINUS unary -> minus
        | NOT unary -> negation
        | (XPATH | XQUERY) TEXT -> of_body

    ?primary: NAME -> name
        | (TEXT | NUMBER) -> literal
        | (TRUE | FALSE | NULL) -> constant
        | OPEN disjunction CLOSE -> bracket
"""

#: What begins an operand, and how a refusal says so.
_OPERAND: Final = frozenset(
    {"NAME", "TEXT", "NUMBER", "TRUE", "FALSE", "NULL", "NOT", "XPATH", "XQUERY", "PLUS", "MINUS", "OPEN"}
)
_OPERATORS: Final = frozenset(
    {*SIGNS.values(), "AND", "OR", "IS", "LIKE", "BETWEEN", "IN", "NOT"} - {"OPEN", "CLOSE", "COMMA"}
)
_WORDS: Final = {"NAME": "a name", "TEXT": "a text in single quotes", "NUMBER": "a number", "$END": "the end"}
_WRITTEN: Final = {kind: repr(sign) for sign, kind in SIGNS.items()}


#: The steps of the condition that is being parsed: a parser is made once, and used by several threads.
_STEPS: Final = ContextVar[Steps]("steps")


class _Words(Lexer):
    """Hands the words of a `Source` to Lark."""

    __future_interface__ = 2

    def __init__(self, _conf: Any) -> None:
        pass

    def lex(self, lexer_state: Any, parser_state: Any) -> Iterator[Token]:  # noqa: ARG002 - Lark's signature
        for word in lexer_state.text.words():
            token = Token(word.kind, word.written, start_pos=word.place)
            token.value = word
            yield token


class _Builder:
    """Makes each part when the grammar has read it. Called by Lark, with the rule's words and parts."""

    def __init__(self, convert: bool) -> None:
        self._convert = convert

    @property
    def _steps(self) -> Steps:
        return _STEPS.get()

    @staticmethod
    def start(parts: list[Any]) -> Node:
        return logic.as_test(parts[0])

    @staticmethod
    def junction(parts: list[Any]) -> Node:
        left, symbol, right = parts
        return logic.junction(symbol.type, left, right)

    def equal(self, parts: list[Any]) -> Node:
        left, _, right = parts
        return comparisons.equality(left, right, self._convert, self._steps)

    def unequal(self, parts: list[Any]) -> Node:
        return logic.negation(parts[0].place, self.equal(parts))

    @staticmethod
    def is_null(parts: list[Any]) -> Node:
        return comparisons.is_null(parts[0])

    @staticmethod
    def is_not_null(parts: list[Any]) -> Node:
        return logic.negation(parts[0].place, comparisons.is_null(parts[0]))

    def order(self, parts: list[Any]) -> Node:
        left, symbol, right = parts
        return comparisons.order(_of(symbol).written, left, right, self._convert, self._steps)

    def like(self, parts: list[Any]) -> Node:
        left, *words = parts
        texts = [_of(word) for word in words if word.type == "TEXT"]
        escape = (texts[1].place, str(texts[1].value)) if len(texts) == 2 else None
        return comparisons.like_pattern(left, str(texts[0].value), escape, self._steps)

    def not_like(self, parts: list[Any]) -> Node:
        return logic.negation(parts[0].place, self.like(parts))

    def between(self, parts: list[Any]) -> Node:
        value, low, high = (part for part in parts if isinstance(part, Node))
        first, again = comparisons.kept(value)
        return logic.junction(
            "AND",
            comparisons.order(">=", first, low, self._convert, self._steps),
            comparisons.order("<=", again, high, self._convert, self._steps),
        )

    def not_between(self, parts: list[Any]) -> Node:
        value, low, high = (part for part in parts if isinstance(part, Node))
        first, again = comparisons.kept(value)
        return logic.junction(
            "OR",
            comparisons.order("<", first, low, self._convert, self._steps),
            comparisons.order(">", again, high, self._convert, self._steps),
        )

    @staticmethod
    def texts(parts: list[Any]) -> list[str]:
        return [str(_of(part).value) for part in parts if part.type == "TEXT"]

    @staticmethod
    def is_in(parts: list[Any]) -> Node:
        return comparisons.membership(parts[0], parts[-1], wanted=True)

    @staticmethod
    def not_in(parts: list[Any]) -> Node:
        return comparisons.membership(parts[0], parts[-1], wanted=False)

    def calculation(self, parts: list[Any]) -> Node:
        left, symbol, right = parts
        return calculation(left, _of(symbol).written, right, self._convert, self._steps)

    @staticmethod
    def plus(parts: list[Any]) -> Node:
        part: Node = parts[1]
        return part

    @staticmethod
    def minus(parts: list[Any]) -> Node:
        return negative(_of(parts[0]).place, parts[1])

    @staticmethod
    def negation(parts: list[Any]) -> Node:
        return logic.negation(_of(parts[0]).place, parts[1])

    @staticmethod
    def of_body(parts: list[Any]) -> NoReturn:
        word = _of(parts[0])
        raise Refused(
            word.place, f"{word.kind} is not supported: a condition reads headers and fields, not the body"
        )

    @staticmethod
    def name(parts: list[Any]) -> Node:
        word = _of(parts[0])
        return name(word.place, str(word.value))

    @staticmethod
    def literal(parts: list[Any]) -> Node:
        word = _of(parts[0])
        written = quoted(word.value, "'") if isinstance(word.value, str) else word.written
        return literal(word.place, word.value, written)

    @staticmethod
    def constant(parts: list[Any]) -> Node:
        word = _of(parts[0])
        return constant(word.place, word.kind)

    @staticmethod
    def bracket(parts: list[Any]) -> Node:
        part: Node = parts[1]
        return part


def _of(token: Token) -> Word:
    """The word that a token of Lark's carries."""
    word: Word = token.value
    return word


@lru_cache(maxsize=2)
def _parser(convert: bool) -> Lark:
    declared = " ".join(sorted({*SIGNS.values(), *KEYWORDS, "NAME", "TEXT", "NUMBER"}))
    return Lark(
        f"{_GRAMMAR}\n    %declare {declared}\n",
        parser="lalr",
        lexer=_Words,
        transformer=_Builder(convert),
    )


def parse(text: str, start: int, end: int, *, hyphenated: bool, convert: bool, steps: Steps) -> Node:
    """The condition between two places of a text, as the part that stands for all of it.

    `hyphenated`, `convert`: what the condition's prefixes ask for. `steps`: what its parts count.

    Raises:
        Refused: it is none.
    """
    source = Source(text, start, end, hyphenated)
    _STEPS.set(steps)
    try:
        root: Any = _parser(convert).parse(source)
    except UnexpectedToken as error:
        _refuse(source, error)
    assert isinstance(root, Node)
    return root


def _refuse(source: Source, error: UnexpectedToken) -> NoReturn:
    token = error.token
    at_end = token.type == "$END"
    place = source.end if at_end else _of(token).place
    found = "the end" if at_end else _shortened(_of(token).written)
    raise Refused(place, f"expected {_expected(set(error.expected))}; found {found}") from None


def _shortened(written: str) -> str:
    return written if len(written) <= 40 else written[:40] + "..."


def _expected(kinds: set[str]) -> str:
    words = []
    if kinds >= _OPERAND:
        words.append("a name, a text, a number or a condition")
        kinds -= _OPERAND
    elif len(kinds & _OPERATORS) > 3:
        words.append("an operator")
        kinds -= _OPERATORS
    words += [_WORDS.get(kind) or _WRITTEN.get(kind) or kind for kind in sorted(kinds)]
    return " or ".join(words)
