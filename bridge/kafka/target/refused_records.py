"""Poison-record isolation: the records that brokers refuse, named or narrowed down, by stream. Pure.

A broker refuses a record batch whole and names the records that it does not take (KIP-467). Where it names
none, the records of the batch are sent in `PIECES` pieces, each refused one again in as many, until one
record is left: that one can never be stored (docs/kafka-traps.md 13).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

#: Pieces of a refused record batch: of 4,096 records the refused one is found at the third attempt.
PIECES: Final = 16
#: Judged records of one stream that are not covered yet; beyond that the oldest is sent to the broker again.
MOST_JUDGED: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Range:
    """A range of positions with a record that the broker refused."""

    #: First and last position.
    first: int
    last: int
    #: Records that go into one record batch.
    most: int


class Isolation:
    """The refused records and ranges, by stream."""

    def __init__(self) -> None:
        self._ranges: defaultdict[str, list[_Range]] = defaultdict(list)
        #: By stream and position: the reason why the record can never be stored; empty: it can.
        self._judged: defaultdict[str, dict[int, str]] = defaultdict(dict)

    def refuse(self, stream: str, position: int, reason: str) -> None:
        """Record that the broker refuses this record."""
        self._judge(stream, position, reason)

    def clear(self, stream: str, positions: Collection[int]) -> None:
        """Record that the broker takes these records."""
        for position in positions:
            self._judge(stream, position, "")

    def _judge(self, stream: str, position: int, word: str) -> None:
        judged = self._judged[stream]
        judged[position] = word
        if len(judged) > MOST_JUDGED:
            del judged[next(iter(judged))]

    def narrow(self, stream: str, first: int, last: int, count: int) -> None:
        """Record that a batch of `count` records at ``first..last`` was refused, and none was named."""
        self._ranges[stream].append(_Range(first, last, max(1, -(-count // PIECES))))

    def refused(self, stream: str, positions: Sequence[int]) -> dict[int, str]:
        """The positions that can never be stored, by index, with the broker's reason."""
        judged = self._judged.get(stream)
        if not judged:
            return {}
        return {index: judged[position] for index, position in enumerate(positions) if judged.get(position)}

    def unjudged(self, stream: str, positions: Sequence[int], indices: Sequence[int]) -> list[int]:
        """The indices at whose positions the broker has not judged."""
        judged = self._judged.get(stream, {})
        return [index for index in indices if positions[index] not in judged]

    def pieces(self, stream: str, positions: Sequence[int]) -> Iterator[tuple[int, int]]:
        """The pieces to send: of the messages at these positions those in a refused range, (start, stop)."""
        for one in self._ranges.get(stream, ()):
            within = [index for index, position in enumerate(positions) if one.first <= position <= one.last]
            within = self.unjudged(stream, positions, within)
            for start in range(0, len(within), one.most):
                piece = within[start : start + one.most]
                yield piece[0], piece[-1] + 1

    def probed(self) -> None:
        """Reset the ranges: all pieces have been sent; refused ones are narrowed down anew."""
        self._ranges.clear()

    def covered(self, stream: str, upto: int) -> None:
        """Forget everything below `upto` of the stream: it is stored or has dead letters."""
        if self._ranges:
            self._ranges[stream] = [one for one in self._ranges[stream] if one.last >= upto]
        if judged := self._judged.get(stream):
            self._judged[stream] = {position: word for position, word in judged.items() if position >= upto}


def in_order(pieces: Sequence[tuple[int, int, bool]], count: int) -> Iterator[tuple[int, int, bool]]:
    """All of `count` messages in their order, cut where pieces, which may overlap, begin and end.

    Args:
        pieces: each (start, stop, whether it is in a record batch alone).
        count: of the messages.
    """
    if not pieces:
        yield 0, count, False
        return
    alone = bytearray(count)
    for start, stop, is_alone in pieces:
        if is_alone:
            alone[start:stop] = b"\1" * (stop - start)
    cuts = {0, count, *(start for start, _, _ in pieces), *(stop for _, stop, _ in pieces)}
    for start, stop in pairwise(sorted(cuts)):
        yield start, stop, bool(alone[start])
