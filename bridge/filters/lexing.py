"""The words and signs of a condition, cut as Artemis's parsers cut them: the longest one wins.

Source of the rules: the tokens of `StrictParser.jj` and `HyphenatedParser.jj` of Artemis 2.44.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from bridge.filters.limits import BRACKETS_MOST, DIGITS_MOST
from bridge.filters.nodes import Refused
from bridge.filters.values import INT_LEAST, INT_MOST, LONG_MOST, Big, Value

#: Words that are no names, in any case.
KEYWORDS: Final = frozenset(
    {
        "NOT",
        "AND",
        "OR",
        "BETWEEN",
        "LIKE",
        "ESCAPE",
        "IN",
        "IS",
        "TRUE",
        "FALSE",
        "NULL",
        "XPATH",
        "XQUERY",
    }
)

#: Signs, and what the grammar calls them.
SIGNS: Final = {
    "=": "EQUAL",
    "<>": "UNEQUAL",
    "<": "BELOW",
    "<=": "AT_MOST",
    ">": "ABOVE",
    ">=": "AT_LEAST",
    "+": "PLUS",
    "-": "MINUS",
    "*": "TIMES",
    "/": "DIVIDED",
    "%": "REMAINDER",
    "(": "OPEN",
    ")": "CLOSE",
    ",": "COMMA",
}

_LINE_COMMENT: Final = r"--[^\n\r]*(?:\r\n|\n|\r)|"
_SKIPPED: Final = r"(?P<skipped>[ \t\n\r\f]+|{}/\*[^*]*\*+(?:[^*/][^*]*\*+)*/)"
_EXPONENT: Final = r"[eE][+-]?[0-9]+"
# The alternatives are in such an order that the first that fits is the longest.
_REST: Final = (
    rf"|(?P<double>[0-9]+\.[0-9]*(?:{_EXPONENT})?|\.[0-9]+(?:{_EXPONENT})?|[0-9]+{_EXPONENT})"
    r"|(?P<hexadecimal>0[xX][0-9a-fA-F]+)"
    r"|(?P<decimal>[1-9][0-9]*[lL]?)"
    r"|(?P<octal>0[0-7]*)"
    r"|(?P<text>'[^']*(?:''[^']*)*')"
    r"|(?P<name>[a-zA-Z_$][a-zA-Z0-9_${}]*)"
    r"{}"
    r"|(?P<sign><>|<=|>=|[=<>+\-*/%(),])"
)
_QUOTED: Final = r'|(?P<quoted>"[^"]*(?:""[^"]*)*")'


def _expressions(hyphens: str, quoted: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Expressions of a word: in all lines but the last, and in the last, where ``--`` is no comment."""
    rest = _REST.replace("{}", hyphens, 1).replace("{}", quoted, 1)
    return re.compile(_SKIPPED.replace("{}", _LINE_COMMENT) + rest), re.compile(
        _SKIPPED.replace("{}", "") + rest
    )


_STRICT: Final = _expressions("", _QUOTED)
_HYPHENATED: Final = _expressions("-", "")


class Word(NamedTuple):
    """A word or sign: what the grammar calls it, what it means, and its place."""

    kind: str
    value: Value
    #: As it is written.
    written: str
    #: In characters from 0.
    place: int


@dataclass(frozen=True, slots=True)
class Source:
    """A condition, and the part of it that is left behind prefixes and blanks."""

    text: str
    start: int
    end: int
    #: Whether names may hold hyphens.
    hyphenated: bool

    def words(self) -> Iterator[Word]:
        """The condition's words and signs.

        Raises:
            Refused: a character that begins none, a number that is too big, or too many open brackets.
        """
        before, behind = _HYPHENATED if self.hyphenated else _STRICT
        text, place, end = self.text, self.start, self.end
        last_line = max(text.rfind("\n", 0, end), text.rfind("\r", 0, end))
        brackets = 0
        while place < end:
            found = (before if place < last_line else behind).match(text, place, end)
            if found is None:
                raise Refused(place, _unknown(text[place]))
            if found.lastgroup != "skipped":
                word = _word(str(found.lastgroup), found[0], place)
                brackets += (word.kind == "OPEN") - (word.kind == "CLOSE")
                if brackets > BRACKETS_MOST:
                    raise Refused(place, f"at most {BRACKETS_MOST} brackets may be open; found one more")
                yield word
            place = found.end()


def _unknown(char: str) -> str:
    if char in "'\"":
        return f"the text or name that begins with {char} does not end"
    return f"a condition cannot hold {char!r} here"


def _word(group: str, written: str, place: int) -> Word:
    if group == "sign":
        return Word(SIGNS[written], written, written, place)
    if group == "name":
        upper = written.upper()
        return Word(upper if upper in KEYWORDS else "NAME", written, written, place)
    if group == "quoted":
        return Word("NAME", written[1:-1].replace('""', '"'), written, place)
    if group == "text":
        return Word("TEXT", written[1:-1].replace("''", "'"), written, place)
    return Word("NUMBER", _number(group, written, place), written, place)


def _number(group: str, written: str, place: int) -> Value:
    if group == "double":
        return float(written)
    if group == "decimal":
        digits = written.rstrip("lL")
        if len(digits) > DIGITS_MOST:
            raise Refused(place, f"a number has at most {DIGITS_MOST} digits; found {len(digits)}")
        return _decimal(int(digits))
    value = int(written[2:], 16) if group == "hexadecimal" else int(written, 8)
    if value > LONG_MOST:
        raise Refused(place, f"a {group} number is at most 2^63-1; found {written[:80]}")
    return value


def _decimal(value: int) -> Value:
    """A decimal literal. One above 2^63-1 is an int where its lowest 64 bits are one: so it is in Artemis."""
    if value <= LONG_MOST:
        return value
    low = (value + 2**63) % 2**64 - 2**63
    return low if INT_LEAST <= low <= INT_MOST else Big(value)
