"""A value for each message of a block, as runs: hops, and the queues that messages are for. Pure.

A run is ``(messages, value)``. Runs are in order, and no two neighbours have the same value. Empty runs mean
that no message has a value, as one run of an empty value would.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

V = TypeVar("V", bytes, tuple[str, ...])


def joined(runs: Iterable[tuple[int, V]]) -> tuple[tuple[int, V], ...]:
    """The same values in the fewest runs; empty where no message has a value."""
    found: list[tuple[int, V]] = []
    for count, value in runs:
        if found and found[-1][1] == value:
            found[-1] = (found[-1][0] + count, value)
        else:
            found.append((count, value))
    return () if len(found) == 1 and not found[0][1] else tuple(found)


def cut(runs: tuple[tuple[int, V], ...], start: int, stop: int) -> tuple[tuple[int, V], ...]:
    """The values of the messages with index in ``[start, stop)``."""
    return joined(_within(runs, start, stop))


def _within(runs: tuple[tuple[int, V], ...], start: int, stop: int) -> Iterator[tuple[int, V]]:
    index = 0
    for count, value in runs:
        low, high = max(start, index), min(stop, index + count)
        if low < high:
            yield high - low, value
        index += count


def chosen(runs: tuple[tuple[int, V], ...], indices: Sequence[int]) -> tuple[tuple[int, V], ...]:
    """The values of the messages at `indices`, which ascend."""
    if not runs:
        return ()
    values = [value for count, value in runs for _ in range(count)]
    return joined((1, values[index]) for index in indices)
