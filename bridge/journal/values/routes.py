"""The queues that the messages of a block are addressed to: `blocks.routes`. Pure.

A message is addressed to queues by name when it is stored, once and for good: to every queue there is or will
be, but for some names; or to some names only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby, repeat
from typing import Final, Literal, NamedTuple

import msgspec

from bridge.journal.values.queue_cursor import Interval


class QueueSet(NamedTuple):
    """The queues that a message is for, by name."""

    #: ``except``: every queue but `names`; ``only``: no queue but `names`.
    kind: Literal["except", "only"]
    names: tuple[str, ...] = ()

    def has(self, queue: str) -> bool:
        """Whether a queue of this name is in the set."""
        return (queue in self.names) == (self.kind == "only")

    def without(self, names: Collection[str]) -> QueueSet:
        """The same queues but for those of these names."""
        if self.kind == "only":
            return QueueSet("only", tuple(name for name in self.names if name not in names))
        return QueueSet("except", tuple(dict.fromkeys((*self.names, *names))))


#: Every queue there is or will be.
EVERY: Final = QueueSet("except")


class _Routes(msgspec.Struct, array_like=True):
    #: The names that sets refer to by index: many sets may hold the same names.
    names: list[str]
    sets: list[tuple[Literal["except", "only"], list[int]]]
    #: (messages, index of their set), in order over the block's messages.
    runs: list[tuple[int, int]]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Routes)


def pack_routes(
    count: int,
    taken: Mapping[str, Sequence[int]],
    queues: Collection[str],
    sets: Sequence[QueueSet] | None = None,
) -> tuple[bytes | None, int]:
    """The routes of a block of `count` messages, None where every queue takes all; and how many messages none
    of `queues` takes.

    `taken`: by queue with a filter, the indices of the messages that it takes. `sets`: the queues that each
    message is for, whatever filters say; None: every queue.
    """
    everyone = (1 << len(taken)) - 1
    left_out = [everyone] * count
    for place, indices in enumerate(taken.values()):
        for index in indices:
            left_out[index] ^= 1 << place
    if sets is None and not any(left_out):
        return None, 0
    filtered = list(taken)
    found: dict[QueueSet, int] = {}
    #: By mask and set: the index of the resulting set, and whether none of the queues is in it.
    known: dict[tuple[int, QueueSet], tuple[int, bool]] = {}
    runs: list[tuple[int, int]] = []
    unrouted = 0
    for pair, run in groupby(zip(left_out, sets or repeat(EVERY), strict=False)):
        of = known.get(pair)
        if of is None:
            mask, asked = pair
            queue_set = asked.without([name for place, name in enumerate(filtered) if mask >> place & 1])
            index = found.setdefault(queue_set, len(found))
            of = known[pair] = index, not any(map(queue_set.has, queues))
        number = sum(1 for _ in run)
        runs.append((number, of[0]))
        unrouted += number if of[1] else 0
    if found.keys() == {EVERY}:
        return None, unrouted
    names = list(dict.fromkeys(name for queue_set in found for name in queue_set.names))
    index_of = {name: index for index, name in enumerate(names)}
    members = [(one.kind, [index_of[name] for name in one.names]) for one in found]
    return _encoder.encode(_Routes(names, members, runs)), unrouted


def unpack_sets(routes: bytes | None, count: int) -> list[QueueSet]:
    """The queues that each message of a block is for. Raises: msgspec.DecodeError: `routes` is damaged."""
    if routes is None:
        return [EVERY] * count
    found = _decoder.decode(routes)
    sets = [QueueSet(kind, tuple(found.names[index] for index in members)) for kind, members in found.sets]
    return [sets[of] for number, of in found.runs for _ in range(number)]


def addressed(routes: bytes | None, queue: str, count: int) -> list[Interval]:
    """The indices of a block's messages that are addressed to a queue, as ranges ``[start, stop)``.

    Raises: msgspec.DecodeError: `routes` is damaged.
    """
    if routes is None:
        return [(0, count)]
    found = _decoder.decode(routes)
    place = found.names.index(queue) if queue in found.names else -1
    is_for = [(place in members) == (kind == "only") for kind, members in found.sets]
    ranges: list[Interval] = []
    start = 0
    for number, of in found.runs:
        stop = start + number
        if is_for[of]:
            if ranges and ranges[-1][1] == start:
                start = ranges.pop()[0]
            ranges.append((start, stop))
        start = stop
    return ranges
