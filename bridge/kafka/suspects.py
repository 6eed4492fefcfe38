"""Which record does the broker refuse? Narrowed down from a refused record batch, attempt by attempt. Pure.

A broker refuses a record batch whole. What stood in it is sent in `PIECES` pieces at the next attempt, the
refused one of them again in as many, until one record is left: that one can never be stored
(docs/kafka-traps.md 13). Needed only where the broker's rules cannot be read or sizes are not known before
(compression).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

#: Pieces that a refused record batch is sent in: of 4,096 records the one is found at the third attempt.
PIECES: Final = 16
#: Records found that can never be stored, and are not covered yet; beyond that the oldest is found again.
MOST_FOUND: Final = 10_000


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
        self._suspects: dict[str, Suspect] = {}
        self._found: dict[tuple[str, int], str] = {}

    def narrow(self, stream: str, first: int, last: int, count: int, reason: str) -> None:
        """A record batch with `count` records of a stream, at positions ``first..last``, was refused."""
        if count == 1:
            self._found[stream, last] = reason
            self._suspects.pop(stream, None)
            if len(self._found) > MOST_FOUND:
                del self._found[next(iter(self._found))]
        else:
            self._suspects[stream] = Suspect(first, last, -(-count // PIECES))

    def refused(self, stream: str, positions: Sequence[int]) -> tuple[int, str] | None:
        """The first of the positions that can never be stored, and the rule."""
        if not self._found:
            return None
        return next(((p, self._found[stream, p]) for p in positions if (stream, p) in self._found), None)

    def has_found(self, stream: str) -> bool:
        """Whether a record of this stream that is not covered yet can never be stored."""
        return any(place[0] == stream for place in self._found)

    def pieces(self, stream: str, positions: Sequence[int]) -> Iterator[tuple[int, int, bool]]:
        """How to cut messages at these positions: (start, stop, whether it goes in a record batch alone)."""
        suspect, start = self._suspects.get(stream), 0
        if suspect is None:
            yield 0, len(positions), False
            return
        while start < len(positions):
            alone = suspect.first <= positions[start] <= suspect.last
            stop = start + 1
            while stop < len(positions) and alone == (suspect.first <= positions[stop] <= suspect.last):
                if alone and stop - start == suspect.most:
                    break
                stop += 1
            yield start, stop, alone
            start = stop

    def covered(self, stream: str, upto: int) -> None:
        """Everything of the stream below `upto` is stored or buried."""
        suspect = self._suspects.get(stream)
        if suspect is not None and suspect.last < upto:
            del self._suspects[stream]
        if self._found:
            self._found = {
                place: reason
                for place, reason in self._found.items()
                if place[0] != stream or place[1] >= upto
            }
