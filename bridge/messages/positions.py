"""Runs: ascending inclusive position ranges, ``((0, 99), (101, 120))``, and their arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

#: First and last position, both inclusive.
Run = tuple[int, int]
Runs = tuple[Run, ...]


def count(runs: Iterable[Run]) -> int:
    """The number of positions in the runs."""
    return sum(last - first + 1 for first, last in runs)


def positions(runs: Iterable[Run]) -> Iterator[int]:
    """Every position, ascending."""
    for first, last in runs:
        yield from range(first, last + 1)


def at(runs: Iterable[Run], indices: Iterable[int]) -> Iterator[int]:
    """The positions at these indices of `positions`; the indices ascend, and no other position is
    computed.
    """
    ahead = iter(runs)
    first = last = 0
    before = end = 0
    for place in indices:
        while place >= end:
            first, last = next(ahead)
            before, end = end, end + last - first + 1
        yield first + place - before


def index(runs: Iterable[Run], position: int) -> int:
    """The index of a position in `positions`; -1: it is not in the runs."""
    before = 0
    for first, last in runs:
        if first <= position <= last:
            return before + position - first
        before += last - first + 1
    return -1


def from_position(runs: Iterable[Run], start: int) -> Runs:
    """The part of the runs at positions >= `start`."""
    return tuple((max(first, start), last) for first, last in runs if last >= start)


def below(runs: Iterable[Run], end: int) -> Runs:
    """The part of the runs at positions < `end`."""
    return tuple((first, min(last, end - 1)) for first, last in runs if first < end)


def drop(runs: Iterable[Run], number: int) -> Runs:
    """The runs without their first `number` positions."""
    kept: list[Run] = []
    for first, last in runs:
        length = last - first + 1
        if number >= length:
            number -= length
        else:
            kept.append((first + number, last))
            number = 0
    return tuple(kept)


def take(runs: Iterable[Run], number: int) -> Runs:
    """The first `number` positions of the runs."""
    kept: list[Run] = []
    for first, last in runs:
        if number <= 0:
            break
        length = min(last - first + 1, number)
        kept.append((first, first + length - 1))
        number -= length
    return tuple(kept)


def join(runs: Iterable[Run]) -> Runs:
    """The same positions in the fewest runs; `runs` must ascend."""
    joined: list[Run] = []
    for first, last in runs:
        if joined and joined[-1][1] + 1 == first:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return tuple(joined)


def union(runs: Iterable[Run]) -> Runs:
    """The positions of all runs, which may overlap and stand in any order, in the fewest runs."""
    found: list[Run] = []
    for first, last in sorted(runs):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        elif first <= last:
            found.append((first, last))
    return tuple(found)


def without(runs: Iterable[Run], others: Runs) -> Runs:
    """The positions of the runs that are not in `others`, which ascend and do not overlap."""
    kept: list[Run] = []
    for first, last in runs:
        at = first
        for start, stop in others:
            if at <= stop and start <= last:
                if at < start:
                    kept.append((at, start - 1))
                at = stop + 1
        if at <= last:
            kept.append((at, last))
    return tuple(kept)
