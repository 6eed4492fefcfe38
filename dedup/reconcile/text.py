"""The format of text, numbers and times in a report, on its page and on a terminal; pure."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from typing import Final

#: Categories of characters that are shown by their number: controls, invisible formats such as the
#: bidirectional ones, halves of surrogate pairs, private use, unassigned, separators of lines and paragraphs.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_SECOND_MS: Final = 1000
#: Units of a duration, the largest that gives at least one whole unit is taken.
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (_SECOND_MS, "s"))


def visible(text: str) -> str:
    r"""The text with every invisible character written as ``\u{202e}``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"\\u{{{ord(character):x}}}" if unicodedata.category(character) in _UNSEEN else character
        for character in text
    )


def number(value: int) -> str:
    """``1,234,567``."""
    return f"{value:,}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """``1 file``, ``1,200 files``."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def positions(first: int | None, last: int | None) -> str:
    """``17``, ``17–20``, or nothing; without separators, so that they can be searched for and copied."""
    if first is None:
        return ""
    return str(first) if first == last else f"{first}–{last}"


def moment(ms: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A time since the epoch, in UTC."""
    return datetime.fromtimestamp(ms / _SECOND_MS, UTC).strftime(form)


def duration(ms: float) -> str:
    """``8 ms``, ``1.5 s``, ``3 min``: three digits at most, in the largest unit that fits."""
    for unit_ms, name in _UNITS:
        if abs(ms) >= unit_ms:
            return f"{_short(ms / unit_ms)} {name}"
    return f"{_short(ms)} ms"


def compact(value: float) -> str:
    """``950``, ``1.2k``, ``3M``: for the axis of a chart."""
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{_short(value / size)}{name}"
    return _short(value)


def _short(value: float) -> str:
    digits = 0 if abs(value) >= 100 else 1
    text = f"{value:.{digits}f}"
    return text.removesuffix(".0")
