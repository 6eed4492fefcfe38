"""The queues of an address that went by themselves, as a row of `meta`.

A reader that comes back gets no message again that it has settled.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

_KEY: Final = "gone-queues:"
_decoder: Final = msgspec.json.Decoder(dict[str, int])


def gone_statements(address_id: int, gone: Mapping[str, int]) -> list[tuple[str, tuple[Any, ...]]]:
    """The SQL, with its parameters, by which these are the queues of the address that went: the positions by
    name.
    """
    key = f"{_KEY}{address_id}"
    if not gone:
        return [("DELETE FROM meta WHERE key = ?", (key,))]
    packed = msgspec.json.encode(gone).decode()
    return [("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, packed))]


def load_gone(connection: sqlite3.Connection) -> Iterator[tuple[int, dict[str, int]]]:
    """By address id, what is stored of queues that went. Raises: msgspec.DecodeError: damaged."""
    found = connection.execute("SELECT key, value FROM meta WHERE key GLOB ?", (f"{_KEY}*",)).fetchall()
    for key, packed in found:
        yield int(key.removeprefix(_KEY)), _decoder.decode(packed)
