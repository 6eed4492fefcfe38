"""Which messages an address holds by where each was first stored: what a replay asks before it sends again.

Coordinates and duplicate ID are the same question (`dedup.ids`); asked by coordinates, whole runs are
compared, and no message is opened. What readers have taken is trimmed, and so not known any more.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec

from bridge.block import Origin
from bridge.journal.reader import find_address
from bridge.runs import Run

_ids = msgspec.msgpack.Decoder(list[bytes])
_origins = msgspec.msgpack.Decoder(tuple[Origin, ...])


def read_held(connection: sqlite3.Connection, address: str, asked: Sequence[Origin]) -> list[Origin]:
    """The parts of `asked` whose messages the address holds, once for each message; in no order.

    Reads the origins of each of its blocks: a page or two of the file for a block. `asked` are `disjoint`.
    """
    row = find_address(connection, address)
    return [] if row is None else [origin for origin, _ in read_copies(connection, row.address_id, asked)]


def read_copies(
    connection: sqlite3.Connection, address_id: int, asked: Sequence[Origin]
) -> list[tuple[Origin, int]]:
    """As `read_held`, each part with the position of its first message at the address."""
    if not asked:
        return []
    wanted = by_stream(asked)
    found: list[tuple[Origin, int]] = []
    for position, packed in connection.execute(
        "SELECT first, origins FROM blocks WHERE address_id = ? AND origins IS NOT NULL", (address_id,)
    ):
        at = position
        for stream, first, last in _origins.decode(packed):
            for low, high in overlaps(wanted.get(stream, ()), first, last):
                found.append(((stream, low, high), at + low - first))
            at += last - first + 1
    return found


def read_next(connection: sqlite3.Connection, bridge: str, stream: str) -> int | None:
    """The first position of the bridge's stream that is not covered here; None: it was never seen."""
    row = connection.execute(
        "SELECT next FROM positions WHERE bridge = ? AND stream = ?", (bridge, stream)
    ).fetchone()
    return None if row is None else row[0]


def read_known_ids(connection: sqlite3.Connection, address: str, ids: Sequence[bytes]) -> list[int]:
    """Indices of the producers' IDs that the address's cache holds, as far as it is persisted."""
    row = find_address(connection, address)
    if row is None or not ids:
        return []
    known: set[bytes] = set()
    wanted = frozenset(ids)
    for (packed,) in connection.execute("SELECT packed FROM ids WHERE address_id = ?", (row.address_id,)):
        known.update(wanted.intersection(_ids.decode(packed)))
    return [index for index, value in enumerate(ids) if value in known]


def by_stream(origins: Iterable[Origin]) -> Mapping[str, list[Run]]:
    """Their runs by stream, ascending."""
    found: dict[str, list[Run]] = {}
    for stream, first, last in origins:
        found.setdefault(stream, []).append((first, last))
    return {stream: sorted(runs) for stream, runs in found.items()}


def overlaps(runs: Sequence[Run], first: int, last: int) -> Iterator[Run]:
    """What ascending `runs`, apart from each other, have in common with ``first..last``."""
    for low, high in runs[bisect_left(runs, first, key=lambda run: run[1]) :]:
        if low > last:
            return
        yield max(low, first), min(high, last)


def disjoint(origins: Iterable[Origin]) -> list[Origin]:
    """The same coordinates, each of them once."""
    found: list[Origin] = []
    for stream, runs in by_stream(origins).items():
        end = -1
        for first, last in runs:
            if last > end:
                found.append((stream, max(first, end + 1), last))
                end = last
    return found


def expanded(origins: Iterable[Origin]) -> Iterator[tuple[str, int]]:
    """The coordinates of each message that these name."""
    for stream, first, last in origins:
        for at in range(first, last + 1):
            yield stream, at


def positions_of(
    origins: Sequence[Origin],
    positions: Iterable[int],
    held: Iterable[Origin],
    copies: Mapping[int, int] = MappingProxyType({}),
) -> set[int]:
    """Those of `positions`, one for each message that `origins` names in order, whose message is there.

    Args:
        origins: where each message was first stored.
        positions: of the messages.
        held: what the address holds (`read_held`).
        copies: by position, how often it should hold a message; once, where it is not named.
    """
    there = Counter(expanded(held))
    found: set[int] = set()
    for place, at in zip(positions, expanded(origins), strict=True):
        if there[at] >= copies.get(place, 1):
            found.add(place)
        else:
            there[at] += 1
    return found
