"""Duplicate IDs: those stamped from a message's coordinates, and those set by producers.

A stamped ID is a UUIDv8 (RFC 9562, section 5.8) of the place where the message was first stored:

====================  ====  ==============================================================
field                 bits  holds
====================  ====  ==============================================================
custom_a, custom_b    60    first bits of BLAKE2b-256 over the stream identity in UTF-8
custom_c              12    `MARK`: a bridge stamped this ID
custom_c              50    the position
====================  ====  ==============================================================

So a message gets the same ID from every process that stamps it, however often (design rule 2).
"""

from __future__ import annotations

import re
from hashlib import blake2b

#: The headers in which a producer names its message, each by itself: the properties of Artemis
#: (`Message.HDR_DUPLICATE_DETECTION_ID`) and of HornetQ. A bridge writes the first one.
ID_HEADER = "_AMQ_DUPL_ID"
HORNETQ_ID_HEADER = "_HQ_DUPL_ID"
ID_HEADERS = (ID_HEADER, HORNETQ_ID_HEADER)

POSITION_BITS = 50
#: The last position that an ID has room for.
MAX_POSITION = 2**POSITION_BITS - 1
#: The 12 bits in front of the position.
MARK = 0xC0B

_VERSION = 8 << 76
_VARIANT = 0b10 << 62
_PREFIX_BITS = 60
_SHAPE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
#: The last two digits of an ID, so that 256 IDs share the formatting of all the others.
_TAILS = tuple(f"{byte:02x}" for byte in range(256))


class InvalidId(ValueError):
    """A duplicate ID that no producer may set."""

    def __init__(self, rule: str, limit: int | str, found: int | str) -> None:
        super().__init__(f"{rule}; found {found}")
        #: The rule for a duplicate ID.
        self.rule = rule
        #: The limit in bytes, or the kinds of value allowed.
        self.limit = limit
        #: The size found in bytes, or the kind of value.
        self.found = found


class Stamp:
    """Stamps the messages of one entry stream with IDs."""

    __slots__ = ("identity", "prefix")

    def __init__(self, identity: str) -> None:
        #: The stream's identity: ``journal:<incarnation>:<address>:<first sequence>``.
        self.identity = identity
        digest = blake2b(identity.encode(), digest_size=32).digest()
        #: The 60 bits by which `parse` tells streams apart.
        self.prefix = int.from_bytes(digest[:8], "big") >> 64 - _PREFIX_BITS

    def text(self, position: int) -> str:
        """The ID of the message at `position`: 36 characters, in lower case.

        Raises:
            ValueError: the position is not in ``0..MAX_POSITION``.
        """
        _check_range(position, position)
        return uuid8(self.prefix >> 12, self.prefix & 0xFFF, MARK << POSITION_BITS | position)

    def texts(self, first: int, last: int) -> list[str]:
        """The IDs of the positions ``first..last``, both inclusive: some 0.1 µs each.

        Raises:
            ValueError: a position is not in ``0..MAX_POSITION``, or `last` is below `first`.
        """
        _check_range(first, last)
        found: list[str] = []
        for start in range(first & ~0xFF, last + 1, 256):
            head = self.text(start)[:-2]
            low, high = max(first - start, 0), min(last - start, 255)
            found += [head + tail for tail in _TAILS[low : high + 1]]
        return found


def uuid8(custom_a: int, custom_b: int, custom_c: int) -> str:
    """The UUID of RFC 9562, section 5.8, from its three fields of 48, 12 and 62 bits."""
    digits = f"{custom_a << 80 | _VERSION | custom_b << 64 | _VARIANT | custom_c:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def parse(text: str) -> tuple[int, int] | None:
    """A stamped ID's prefix (60 bits) and position; None where `text` is not a stamped ID.

    Only the form that `Stamp.text` writes counts: another spelling of the same number is
    some producer's ID, and those are compared byte for byte.
    """
    if _SHAPE.fullmatch(text) is None:
        return None
    value = int(text.replace("-", ""), 16)
    if value >> POSITION_BITS & 0xFFF != MARK:
        return None
    prefix = value >> 80 << 12 | value >> 64 & 0xFFF
    return prefix, value & MAX_POSITION


def producer_id(value: object, limit: int) -> bytes:
    """A producer's ID in its one canonical form: bytes as they are, text as UTF-8.

    So a text and the bytes that spell it are the same ID, wherever each came from. Raw bytes of
    a header are handed in as bytes: they need not be UTF-8 and may hold NUL.

    Args:
        value: what the producer set; `str` or `bytes`.
        limit: most bytes an ID may have.

    Raises:
        InvalidId: empty, longer than `limit`, not text or bytes, or text that UTF-8 cannot spell.
    """
    if isinstance(value, str):
        try:
            value = value.encode()
        except UnicodeEncodeError as error:
            rule = "a duplicate ID given as text must be Unicode without lone surrogates"
            raise InvalidId(rule, "UTF-8", repr(value[error.start])) from error
    if not isinstance(value, bytes):
        raise InvalidId("a duplicate ID must be text or bytes", "text or bytes", type(value).__name__)
    if not 1 <= len(value) <= limit:
        raise InvalidId(f"a duplicate ID must have 1 to {limit} bytes", limit, len(value))
    return value


def _check_range(first: int, last: int) -> None:
    if not 0 <= first <= last <= MAX_POSITION:
        raise ValueError(f"positions must ascend within 0..{MAX_POSITION}; found {first}..{last}")
