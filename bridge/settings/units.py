"""Times, sizes and numbers as settings write them: ``2000``, ``"2s"``, ``"10MiB"``; pure.

Numbers are never taken from text. Every function returns the value or raises ValueError with the
rule that was broken.
"""

from __future__ import annotations

import math
import re
from typing import Final, TypeGuard

#: A time that never comes.
NEVER: Final = -1

#: Milliseconds of each unit of time.
TIME_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
#: Bytes of each unit of size.
SIZE_UNITS_BYTES: Final = {
    "B": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
}

#: Limits far beyond use, well below those of SQLite's and the wire's integers.
LONGEST_TIME_MS: Final = 100 * 365 * TIME_UNITS_MS["d"]
LARGEST_SIZE_BYTES: Final = 1 << 50
LARGEST_NUMBER: Final = 2**31 - 1

_TIME: Final = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)")
_SIZE: Final = re.compile(r"([0-9]{1,15})(B|KiB|MiB|GiB|kB|MB|GB)")


def time_ms(value: object, *, least: int = 0, never: bool = False) -> int:
    """Milliseconds of an integer (already ms) or of text such as ``2s``; -1 where `never` allows it.

    Raises:
        ValueError: the rule that `value` breaks.
    """
    if is_whole(value):
        found = value
    elif isinstance(value, str) and (match := _TIME.fullmatch(value)):
        found = int(match[1]) * TIME_UNITS_MS[match[2]]
    else:
        raise ValueError('must be a time: milliseconds such as 2000, or "2s" (ms, s, m, h, d)')
    if never and found == NEVER:
        return NEVER
    if found < least:
        raise ValueError(f"must be at least {least} ms{', or -1 for never' if never else ''}")
    if found > LONGEST_TIME_MS:
        raise ValueError("must be at most 100 years (36500d)")
    return found


def size_bytes(value: object, *, least: int = 1, most: int = LARGEST_SIZE_BYTES) -> int:
    """Bytes of an integer (already bytes) or of text such as ``10MiB``.

    Raises:
        ValueError: the rule that `value` breaks.
    """
    if is_whole(value):
        found = value
    elif isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        found = int(match[1]) * SIZE_UNITS_BYTES[match[2]]
    else:
        raise ValueError('must be a size: bytes such as 1048576, or "10MiB" (B, KiB, MiB, GiB, kB, MB, GB)')
    if not least <= found <= most:
        raise ValueError(f"must be {least} to {most} bytes")
    return found


def rate_bytes(value: object) -> int:
    """Bytes a second of an integer, or of text such as ``50KiB`` or ``50KiB/s``; 0: no limit.

    Raises:
        ValueError: the rule that `value` breaks.
    """
    try:
        return size_bytes(value.removesuffix("/s") if isinstance(value, str) else value, least=0)
    except ValueError:
        rule = 'must be bytes a second such as 51200, or "50KiB" (B, KiB, MiB, GiB, kB, MB, GB); 0: no limit'
        raise ValueError(rule) from None


def whole_number(value: object, *, least: int, most: int = LARGEST_NUMBER) -> int:
    """An integer within limits.

    Raises:
        ValueError: the rule that `value` breaks.
    """
    if not is_whole(value):
        raise ValueError("must be a whole number, without quotes")
    if value < least:
        raise ValueError(f"must be at least {least}")
    if value > most:
        raise ValueError(f"must be at most {most}")
    return value


def number(value: object, *, least: float) -> float:
    """A finite float; an integer passes for one.

    Raises:
        ValueError: the rule that `value` breaks.
    """
    if not (is_whole(value) or isinstance(value, float)):
        raise ValueError("must be a number, without quotes")
    if not math.isfinite(value) or not least <= value <= LARGEST_NUMBER:
        raise ValueError(f"must be {least} to {LARGEST_NUMBER}")
    return float(value)


def is_whole(value: object) -> TypeGuard[int]:
    """Whether `value` is an integer; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool)
