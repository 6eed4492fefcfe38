"""Which records does the broker refuse? What it named, and what is narrowed down, by stream. Pure.

A broker refuses a record batch whole and names the records that it does not take (KIP-467). Where it names
none, what stood in the batch is sent in `PIECES` pieces, each refused one again in as many, until one record
is left: that one can never be stored (docs/kafka-traps.md 13).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

#: Pieces that a refused record batch is sent in: of 4,096 records the one is found at the third attempt.
PIECES: Final = 16
#: Records judged of one stream that are not covered yet; beyond that the oldest is put to the broker again.
MOST_JUDGED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Suspect:
    """Among these positions is a record that the broker refused."""

    #: First and last position.
    first: int
    last: int
    #: Records that go into one record batch.
    most: int


class Suspects:
    """What brokers refused, by stream."""

    def __init__(self) -> None:
        self._suspects: defaultdict[str, list[Suspect]] = defaultdict(list)
        #: By stream and position: why the record can never be stored; empty: it can.
        self._judged: defaultdict[str, dict[int, str]] = defaultdict(dict)

    def refuse(self, stream: str, position: int, reason: str) -> None:
        """The broker does not take this record."""
        self._judge(stream, position, reason)

    def clear(self, stream: str, positions: Collection[int]) -> None:
        """The broker takes these records."""
        for position in positions:
            self._judge(stream, position, "")

    def _judge(self, stream: str, position: int, word: str) -> None:
        judged = self._judged[stream]
        judged[position] = word
        if len(judged) > MOST_JUDGED:
            del judged[next(iter(judged))]

    def narrow(self, stream: str, first: int, last: int, count: int) -> None:
        """One with `count` records of a stream, at ``first..last``, was refused, and none was named."""
        self._suspects[stream].append(Suspect(first, last, max(1, -(-count // PIECES))))

    def refused(self, stream: str, positions: Sequence[int]) -> dict[int, str]:
        """Those of the positions that can never be stored, by index, with the broker's word."""
        judged = self._judged.get(stream)
        if not judged:
            return {}
        return {index: judged[place] for index, place in enumerate(positions) if judged.get(place)}

    def unjudged(self, stream: str, positions: Sequence[int], indices: Sequence[int]) -> list[int]:
        """Those of the indices at whose positions the broker has not judged."""
        judged = self._judged.get(stream, {})
        return [index for index in indices if positions[index] not in judged]

    def pieces(self, stream: str, positions: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Which of the messages at these positions are narrowed down, and in what pieces: (start, stop)."""
        for suspect in self._suspects.get(stream, ()):
            held = [index for index, place in enumerate(positions) if suspect.first <= place <= suspect.last]
            held = self.unjudged(stream, positions, held)
            for start in range(0, len(held), suspect.most):
                piece = held[start : start + suspect.most]
                yield piece[0], piece[-1] + 1

    def probed(self) -> None:
        """All pieces have been put to the broker: those that it refused are narrowed down anew."""
        self._suspects.clear()

    def covered(self, stream: str, upto: int) -> None:
        """Everything of the stream below `upto` is stored or buried."""
        if self._suspects:
            self._suspects[stream] = [one for one in self._suspects[stream] if one.last >= upto]
        if judged := self._judged.get(stream):
            self._judged[stream] = {place: word for place, word in judged.items() if place >= upto}
