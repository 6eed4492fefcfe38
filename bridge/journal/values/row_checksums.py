"""CRC-32 of rows: SQLite notices that a page has lost its form, not that a byte inside a row has changed."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

_encode = msgspec.msgpack.Encoder().encode


def row_checksum(columns: Sequence[Any], blob: bytes = b"") -> int:
    """The CRC-32 of a row: of its columns in their order, and of a long one behind them, which is not copied.

    Measured: 0.5 µs and 0.4 ms a MiB of `blob`.
    """
    return zlib.crc32(blob, zlib.crc32(_encode(columns)))
