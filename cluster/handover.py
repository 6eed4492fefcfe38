"""Calls of a leaver to its heir, beside the link; each may be repeated. Pure.

``POST /v1/cluster/heir`` with one of these as msgpack. The heir answers with `Answer`.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from bridge.link import limits
from cluster.record import ANY_VERSION, Version

#: Path of the calls on the heir's acceptor.
PATH: Final = "/v1/cluster/heir"
#: Largest call, in bytes; lists are cut so that one is smaller.
CALL_MOST: Final = 4 * limits.MIB
#: Bytes of the entries of one call.
STATE_BYTES: Final = limits.MIB
#: Entries of a list of one call.
ENTRIES_MOST: Final = 10_000

_Name = Annotated[str, Meta(max_length=limits.NAME_MOST)]
_Stream = Annotated[str, Meta(max_length=limits.STREAM_MOST)]
_Number = Annotated[int, Meta(ge=0, le=limits.NUMBER_MOST)]
#: bridge, stream, next, session, checksum, epoch, the owner's principal and node.
PositionRow = tuple[_Name, _Stream, _Number, _Name, _Number, _Number, _Name, _Name]


class QueueDefinition(msgspec.Struct, array_like=True, frozen=True):
    """A queue that the heir is to have."""

    address: _Name
    queue: _Name
    routing_type: _Name
    filter: Annotated[str, Meta(max_length=4096)] = ""


class Call(msgspec.Struct, array_like=True, frozen=True):
    """Base of all calls: whose drain it is."""

    #: UUID of the leaver, and of its drain.
    leaver: _Name
    drain: _Name


class Accept(Call, frozen=True, tag="ACCEPT"):
    """Will you be my heir?"""

    name: _Name
    #: Identity of the leaver's store.
    store: _Name
    #: The bridges of the leaver's settings that read its journal.
    bridges: Annotated[tuple[_Name, ...], Meta(max_length=ENTRIES_MOST)] = ()
    #: Also where the heir has not all of them.
    force: bool = False
    #: Of the leaver's record that says that it drains.
    version: Version = ANY_VERSION


class Queues(Call, frozen=True, tag="QUEUES"):
    """Have these queues."""

    queues: Annotated[tuple[QueueDefinition, ...], Meta(max_length=ENTRIES_MOST)]


class Positions(Call, frozen=True, tag="POSITIONS"):
    """Remember these positions of bridges that have delivered to the leaver."""

    positions: Annotated[tuple[PositionRow, ...], Meta(max_length=ENTRIES_MOST)]


class Ids(Call, frozen=True, tag="IDS"):
    """Remember these IDs of an address."""

    address: _Name
    ids: Annotated[tuple[bytes, ...], Meta(max_length=ENTRIES_MOST)]


class Apply(Call, frozen=True, tag="APPLY"):
    """Everything has come: answer for me, and for those whose heir I am."""

    #: UUID and store of each node that the leaver answers for.
    inherited: Annotated[tuple[tuple[_Name, _Name], ...], Meta(max_length=64)] = ()


class Done(Call, frozen=True, tag="DONE"):
    """I have seen that you answer for me; or I have given it up."""


AnyCall = Accept | Queues | Positions | Ids | Apply | Done


class Answer(msgspec.Struct, frozen=True):
    """The heir's answer."""

    #: Why not; empty: done.
    refused: str = ""


def chunks(sizes: list[int]) -> list[tuple[int, int]]:
    """Cuts a list of entries of these sizes in bytes into calls: index ranges ``[start, stop)``."""
    found: list[tuple[int, int]] = []
    start = size = 0
    for index, one in enumerate(sizes):
        if index > start and (size + one > STATE_BYTES or index - start >= ENTRIES_MOST):
            found.append((start, index))
            start, size = index, 0
        size += one
    if start < len(sizes):
        found.append((start, len(sizes)))
    return found
