"""LIKE: a pattern compiled once, which never backtracks from one ``%`` into an earlier one.

Artemis makes a regular expression of Java's of it (`ComparisonExpression.LikeExpression`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

from bridge.filters.steps import SHORT_TEXT, Steps


class _Wild(Enum):
    ANY = "%"
    ONE = "_"


#: A pattern in pieces: single characters, and wildcards.
_Piece = str | _Wild

#: Whether a text matches.
Matcher = Callable[[str], bool]

_HEXADECIMAL: Final = frozenset("0123456789abcdefABCDEF")


def like(pattern: str, escape: str | None, steps: Steps) -> Matcher:
    """The matcher of a pattern, in which `escape` lets ``%``, ``_`` and itself stand for themselves.

    It counts what it searches in `steps`, which may raise `CannotEvaluate`.

    Raises:
        ValueError: the escape is not one character (of UTF-16), or the pattern is none.
    """
    if escape is not None and (len(escape) != 1 or ord(escape) > 0xFFFF):
        raise ValueError(f"ESCAPE must be one character; found {escape!r}")
    pieces = _pieces(pattern, escape)
    segments = _segments(pieces)
    if len(segments) == 1:
        return _whole(segments[0])
    return _in_order(segments, steps)


def _pieces(pattern: str, escape: str | None) -> list[_Piece]:
    pieces: list[_Piece] = []
    place = 0
    while place < len(pattern):
        char = pattern[place]
        following = pattern[place + 1 : place + 2]
        if char == escape and following and following in ("_", "%", escape):
            escaped, taken = _escaped(following, pattern[place + 2 : place + 3])
            pieces += escaped
            place += 2 + taken
            continue
        pieces.append(_Wild(char) if char in "%_" else char)
        place += 1
    return pieces


def _escaped(char: str, following: str) -> tuple[str, int]:
    """The characters that an escaped one stands for, and how many of the following ones it takes.

    Artemis writes it as hexadecimal digits, of which Java's regular expressions read exactly two: a character
    of more digits becomes another one and the rest of its digits, one of fewer takes the next digit.
    """
    digits = f"{ord(char):x}"
    if len(digits) == 1:
        if following not in _HEXADECIMAL or not following:
            raise ValueError(f"ESCAPE {char!r} cannot escape itself here")
        return chr(int(digits + following, 16)), 1
    return chr(int(digits[:2], 16)) + digits[2:], 0


def _segments(pieces: Sequence[_Piece]) -> list[list[_Piece]]:
    """The parts of a pattern before, between and after its ``%``."""
    segments: list[list[_Piece]] = [[]]
    for piece in pieces:
        if piece is _Wild.ANY:
            segments.append([])
        else:
            segments[-1].append(piece)
    return segments


def _expression(segment: Sequence[_Piece]) -> re.Pattern[str]:
    """A segment as an expression without repetition: it has one length."""
    return re.compile(
        "".join("." if piece is _Wild.ONE else re.escape(str(piece)) for piece in segment), re.DOTALL
    )


def _literal(segment: Sequence[_Piece]) -> str | None:
    """The segment's text, where it has no wildcard."""
    texts = [piece for piece in segment if isinstance(piece, str)]
    return "".join(texts) if len(texts) == len(segment) else None


def _whole(segment: Sequence[_Piece]) -> Matcher:
    text = _literal(segment)
    if text is not None:
        return text.__eq__
    expression = _expression(segment)
    return lambda value: expression.fullmatch(value) is not None


def _in_order(segments: Sequence[Sequence[_Piece]], steps: Steps) -> Matcher:
    """Segments with ``%`` between them: the first at the start, the last at the end, each other one where it
    comes first.
    """
    first, *between, last = segments
    head, tail = _literal(first), _literal(last)
    inner = [segment for segment in between if segment]
    if head is not None and tail is not None and not inner:
        least = len(head) + len(tail)
        return lambda value: len(value) >= least and value.startswith(head) and value.endswith(tail)
    starts, ends = _expression(first), _expression(last)
    searches = [_expression(segment) for segment in inner]
    head_size, tail_size = len(first), len(last)
    # All segments are searched in one pass over the text. One without wildcards looks at each character once,
    # for `re` has an overlap table for it; one with wildcards may be compared at each place.
    weight = max((1 if _literal(segment) is not None else len(segment) for segment in inner), default=0)

    def matches(value: str) -> bool:
        end = len(value) - tail_size
        if end < head_size or not starts.match(value) or not ends.fullmatch(value, end):
            return False
        cost = len(value) * weight
        if cost > SHORT_TEXT:
            steps.take(cost)
        place = head_size
        for search in searches:
            found = search.search(value, place, end)
            if found is None:
                return False
            place = found.end()
        return True

    return matches
