"""The values of a condition, and how two of them compare: Java's classes and rules, as Artemis applies them.

Python's own types stand for Java's most frequent classes; a subclass stands for each of the others:

| Java | here |
|---|---|
| Boolean, String, byte[] | bool, str, bytes |
| Integer, Long | int: Integer where it fits into 32 bits, else Long; `Long` for a Long that would fit |
| Double | float |
| Byte, Short, Float, Character, BigDecimal | `Byte`, `Short`, `Float`, `Char`, `Big` |
| null, and a property that is not there | None |

`HeaderText` is this bridge's own: the text of a header. Headers have no types.

Source of the rules: `ComparisonExpression.compare` of Artemis 2.44.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from typing import Any, Final

INT_LEAST: Final = -(2**31)
INT_MOST: Final = 2**31 - 1
LONG_LEAST: Final = -(2**63)
LONG_MOST: Final = 2**63 - 1


class Byte(int):
    """A Java Byte."""

    __slots__ = ()


class Short(int):
    """A Java Short."""

    __slots__ = ()


class Long(int):
    """A Java Long, of any size."""

    __slots__ = ()


class Big(int):
    """A Java BigDecimal: a literal above 2^63-1. It compares with nothing but another one."""

    __slots__ = ()


class Float(float):
    """A Java Float: a float that 32 bits hold."""

    __slots__ = ()


class Char(str):
    """A Java Character."""

    __slots__ = ()


class HeaderText(str):
    """A header's text. Beside a number it compares as the number that it reads as; otherwise it is a text."""

    __slots__ = ()


#: A value of a property, a literal or a result. None: there is none.
Value = bool | int | float | str | bytes | None

NUMBERS: Final = frozenset({int, Long, Byte, Short, float, Float, Big})
TEXTS: Final = frozenset({str, HeaderText})

#: So many digits are within 64 bits, whatever they are.
HEADER_DIGITS: Final = 18
#: So many digits the largest number of 64 bits has.
LONG_DIGITS: Final = 19
_HEADER_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_JAVA_DECIMAL: Final = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)", re.ASCII
)
_JAVA_HEX: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?", re.ASCII
)
#: What Java's String.trim takes away.
BLANKS: Final = "".join(map(chr, range(33)))


def narrowed(value: float) -> float:
    """The nearest value that a Java float has."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def integer_narrowed(value: int) -> float:
    """The Java float that is nearest to an integer, rounded once: half to even."""
    magnitude = abs(value)
    surplus = magnitude.bit_length() - 24
    if surplus > 0:
        kept, rest, half = magnitude >> surplus, magnitude & ((1 << surplus) - 1), 1 << (surplus - 1)
        magnitude = (kept + (rest > half or (rest == half and kept & 1 == 1))) << surplus
    return float(-magnitude if value < 0 else magnitude)


def as_double(value: float) -> float:
    """A number as a Java double; above its range infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _by_value(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _doubles(left: float, right: float) -> int:
    """Double.compare: -0.0 is below 0.0, and NaN equals itself above everything else."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right:
        if left == 0.0:
            return _by_value(math.copysign(1.0, left), math.copysign(1.0, right))
        return 0
    return _by_value(left != left, right != right)  # noqa: PLR0124 - NaN differs from itself


def _texts(left: str, right: str) -> int:
    """String.compareTo: by UTF-16 units, so characters above U+FFFF come before U+E000."""
    if left.isascii() or right.isascii():
        return _by_value(left, right)
    return _by_value(left.encode("utf-16-be", "surrogatepass"), right.encode("utf-16-be", "surrogatepass"))


Order = Callable[[Any, Any], int]

_WHOLE: Final = (int, Long)

#: How a value of the first class compares with one of the second. A pair that is missing does not compare:
#: a Byte or a Short, for one, is only widened where it stands on the left.
_ORDERS: Final[dict[tuple[type, type], Order]] = {
    (bool, bool): _by_value,
    (str, str): _texts,
    (Char, Char): _texts,
    (Big, Big): _by_value,
    **{(left, right): _by_value for left in (Byte, Short, *_WHOLE) for right in _WHOLE},
    (Byte, Byte): _by_value,
    (Byte, Short): _by_value,
    (Short, Short): _by_value,
    **{
        (left, Float): lambda left, right: _doubles(integer_narrowed(left), right)
        for left in (Byte, Short, *_WHOLE)
    },
    **{
        (left, float): lambda left, right: _doubles(float(left), right)
        for left in (Byte, Short, *_WHOLE, Float)
    },
    **{(Float, right): lambda left, right: _doubles(left, integer_narrowed(right)) for right in _WHOLE},
    **{(float, right): lambda left, right: _doubles(left, float(right)) for right in (*_WHOLE, Float)},
    (float, float): _doubles,
    (Float, Float): _doubles,
}


def compare(left: Any, right: Any, convert: bool) -> int | None:
    """How two values that are there compare: below, at or above zero; None: they do not compare.

    `convert`: as `convert_string_expressions:` wants it, a text is read as the class of the other side.
    """
    order = _ORDERS.get((type(left), type(right)))
    if order is not None:
        return order(left, right)
    if type(left) is HeaderText or type(right) is HeaderText:
        return _compare_header(left, right, convert)
    if convert:
        if type(right) is str:
            right = _read_as(left, right)
        elif type(left) is str:
            left = _read_as(right, left)
        order = _ORDERS.get((type(left), type(right)))
        if order is not None:
            return order(left, right)
    return None


def _compare_header(left: Any, right: Any, convert: bool) -> int | None:
    if type(left) is HeaderText:
        left, right = _header_beside(left, right)
    else:
        right, left = _header_beside(right, left)
    return compare(left, right, convert)


def _header_beside(header: HeaderText, other: Any) -> tuple[Value, Value]:
    """The header as the number or text that the other side makes of it, and the other side.

    A header has no width, so a Byte or Short beside it counts by its value.
    """
    if type(other) in NUMBERS:
        number = header_number(header)
        if number is not None:
            return number, int(other) if type(other) in (Byte, Short) else other
    return str(header), str(other) if type(other) is HeaderText else other


def header_number(text: str) -> float | None:
    """The number that a header's text reads as: an integer within 64 bits, or a decimal number; else None.

    Signs, a point and an exponent are read; blanks, hexadecimal digits, infinity and NaN are not.
    """
    if len(text) <= HEADER_DIGITS and text.isdigit() and text.isascii():
        return int(text)
    if not _HEADER_NUMBER.fullmatch(text):
        return None
    digits = text.lstrip("+-")
    if digits.isdigit() and len(significant := digits.lstrip("0")) <= LONG_DIGITS:
        whole = int(significant or "0") * (-1 if text[0] == "-" else 1)
        if LONG_LEAST <= whole <= LONG_MOST:
            return whole
    return float(text)


def java_integer(text: str, least: int, most: int) -> int | None:
    """Integer.valueOf and its like: the number in decimal digits, or None: it is none, or out of range."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal():
        return None
    beyond = digits[:-20].strip("0")
    if beyond and (beyond.isascii() or any(int(digit) for digit in set(beyond))):
        return None
    value = int(digits[-20:])
    value = -value if text[0] == "-" else value
    return value if least <= value <= most else None


def java_double(text: str) -> float | None:
    """Double.valueOf: the number that a text has between blanks, or None: it has none."""
    text = text.strip(BLANKS)
    if _JAVA_DECIMAL.fullmatch(text):
        return float(text if text.endswith(("N", "y")) else text.rstrip("fFdD"))
    if found := _JAVA_HEX.fullmatch(text):
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return math.copysign(math.inf, -1.0 if text[0] == "-" else 1.0)
    return None


def _read_as(other: Any, text: str) -> Value:  # noqa: PLR0911 - one return for each class of Java's
    """A text as the class of `other`; the text itself where it does not read as one."""
    kind = type(other)
    if kind is bool:
        return text.lower() == "true"
    if kind in (float, Float):
        number = java_double(text)
        if number is None:
            return text
        return Float(narrowed(number)) if kind is Float else number
    if kind is Byte:
        whole = java_integer(text, -128, 127)
        return text if whole is None else Byte(whole)
    if kind is Short:
        whole = java_integer(text, -(2**15), 2**15 - 1)
        return text if whole is None else Short(whole)
    if kind in (int, Long):
        least, most = (LONG_LEAST, LONG_MOST) if is_long(other) else (INT_LEAST, INT_MOST)
        whole = java_integer(text, least, most)
        return text if whole is None else whole
    return text


def is_long(value: Any) -> bool:
    """Whether the number is a Java Long."""
    kind = type(value)
    return kind is Long or (kind is int and not INT_LEAST <= value <= INT_MOST)
