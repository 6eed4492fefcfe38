"""The check of a stream that a bridge has delivered to one store after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any


def check_stores(
    wanted: Collection[int], stores: Sequence[Sequence[int]], in_doubt: Iterable[Mapping[str, Any]]
) -> int:
    """Nothing is lost; at each store every position is there once and in order; at both stores only within
    the ranges of the ``failover-in-doubt`` events of the stream. Answers how many are at both.

    Args:
        wanted: the positions that were sent.
        stores: what each of two stores has, in the order of its arrival.
        in_doubt: the events.
    """
    first, second = stores
    assert all(one < other for store in stores for one, other in pairwise(store)), "in order, once a store"
    assert {*first, *second} == {*wanted}, "lost"
    ranges = [(event["from"], event["upto"]) for event in in_doubt]
    doubled = set(first) & set(second)
    for position in doubled:
        assert any(low <= position < high for low, high in ranges), f"{position}: {ranges}"
    return len(doubled)
