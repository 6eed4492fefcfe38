"""The places where messages were first stored, as runs of each stream, and their arithmetic. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from bridge.messages.block import Origin
from bridge.messages.positions import Run


def by_stream(origins: Iterable[Origin]) -> Mapping[str, list[Run]]:
    """The runs by stream, ascending."""
    found: dict[str, list[Run]] = {}
    for stream, first, last in origins:
        found.setdefault(stream, []).append((first, last))
    return {stream: sorted(runs) for stream, runs in found.items()}


def overlaps(runs: Sequence[Run], first: int, last: int) -> Iterator[Run]:
    """The intersections of ascending, disjoint `runs` with ``first..last``."""
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
    """The coordinates of each message in these runs."""
    for stream, first, last in origins:
        for at in range(first, last + 1):
            yield stream, at


def positions_of(
    origins: Sequence[Origin],
    positions: Iterable[int],
    present: Iterable[Origin],
    copies: Mapping[int, int] = MappingProxyType({}),
) -> set[int]:
    """Those of `positions`, one for each message that `origins` names in order, whose message is there.

    Args:
        origins: where each message was first stored.
        positions: of the messages.
        present: the origins that the address has (`read_held`).
        copies: by position, the number of copies that it should hold of a message; one for other positions.
    """
    there = Counter(expanded(present))
    found: set[int] = set()
    for place, at in zip(positions, expanded(origins), strict=True):
        if there[at] >= copies.get(place, 1):
            found.add(place)
        else:
            there[at] += 1
    return found
