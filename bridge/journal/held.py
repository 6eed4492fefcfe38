"""Which messages an address holds by where each was first stored: what a replay asks before it sends again.

Coordinates and duplicate ID are the same question (`dedup.ids`); asked by coordinates, whole runs are
compared, and no message is opened. What readers have taken is trimmed, and so not known any more.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from bridge.block import Origin
from bridge.journal.reader import find_address
from bridge.runs import Run

_ids = msgspec.msgpack.Decoder(list[bytes])
_origins = msgspec.msgpack.Decoder(tuple[Origin, ...])


def read_held(connection: sqlite3.Connection, address: str, asked: Sequence[Origin]) -> list[Origin]:
    """The parts of `asked` whose messages the address holds; in no order, perhaps one twice.

    Reads the origins of each of its blocks: a page or two of the file for a block.
    """
    row = find_address(connection, address)
    if row is None or not asked:
        return []
    wanted = by_stream(asked)
    found: list[Origin] = []
    for (packed,) in connection.execute(
        "SELECT origins FROM blocks WHERE address_id = ? AND origins IS NOT NULL", (row.address_id,)
    ):
        for stream, first, last in _origins.decode(packed):
            found += ((stream, *run) for run in overlaps(wanted.get(stream, ()), first, last))
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


def positions_of(origins: Sequence[Origin], positions: Iterable[int], held: Iterable[Origin]) -> set[int]:
    """Those of `positions`, one for each message that `origins` names in order, whose message is held."""
    known = by_stream(held)
    found: set[int] = set()
    places = iter(positions)
    for stream, first, last in origins:
        runs = known.get(stream, ())
        for at in range(first, last + 1):
            place = next(places)
            if any(True for _ in overlaps(runs, at, at)):
                found.add(place)
    return found
