"""The queues that the messages of a block are addressed to: `blocks.routes`. Pure.

A message is addressed to queues by name when it is stored, once and for good. A set of queues is ``["except",
names]``: every queue there is or will be, but these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Literal

import msgspec

from bridge.journal.values.queue_cursor import Interval


class _Routes(msgspec.Struct, array_like=True):
    #: The names that sets refer to by index: many sets may hold the same names.
    names: list[str]
    sets: list[tuple[Literal["except"], list[int]]]
    #: (messages, index of their set), in order over the block's messages.
    runs: list[tuple[int, int]]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Routes)


def pack_routes(count: int, taken: Mapping[str, Sequence[int]]) -> tuple[bytes | None, int]:
    """The routes of a block of `count` messages, None where every queue takes all; and how many messages none
    of these queues takes.

    `taken`: by queue with a filter, the indices of the messages that it takes.
    """
    everyone = (1 << len(taken)) - 1
    left_out = [everyone] * count
    for place, indices in enumerate(taken.values()):
        for index in indices:
            left_out[index] ^= 1 << place
    if not any(left_out):
        return None, 0
    sets: dict[int, int] = {}
    runs = [(len(list(run)), sets.setdefault(of, len(sets))) for of, run in groupby(left_out)]
    members = [[place for place in range(len(taken)) if of >> place & 1] for of in sets]
    routes = _Routes(list(taken), [("except", of) for of in members], runs)
    return _encoder.encode(routes), left_out.count(everyone)


def addressed(routes: bytes | None, queue: str, count: int) -> list[Interval]:
    """The indices of a block's messages that are addressed to a queue, as ranges ``[start, stop)``.

    Raises: msgspec.DecodeError: `routes` is damaged.
    """
    if routes is None:
        return [(0, count)]
    found = _decoder.decode(routes)
    if queue not in found.names:
        return [(0, count)]
    place = found.names.index(queue)
    is_left_out = [place in members for _, members in found.sets]
    ranges: list[Interval] = []
    start = 0
    for number, of in found.runs:
        stop = start + number
        if not is_left_out[of]:
            if ranges and ranges[-1][1] == start:
                start = ranges.pop()[0]
            ranges.append((start, stop))
        start = stop
    return ranges
