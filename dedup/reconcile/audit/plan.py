"""The plan of an audit: what it reads and how far, fixed before reading. Pure, and JSON for the executors.

The planner asks in this order, so that records missing below `Stream.confirmed` cannot still be on their way:
the ends of the source; what the bridge has confirmed; the ends of the target.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

#: Offsets of one task: some seconds of reading, and what a failed task reads again.
RANGE_OFFSETS: Final = 1_000_000
#: A reader that gets nothing for so long gives up.
STALLED_AFTER_MS: Final = 60_000

Role = Literal["source", "target", "letters"]


class Access(msgspec.Struct, frozen=True):
    """The access of an executor to one end. It reads the settings itself: no secret is in a Spark plan."""

    #: ``module:function``; called with `settings`, `connector` and `bridge`, it returns what `kind` says, or
    #: raises ReadFailed where the settings are of no use there.
    factory: str
    #: Path of the settings file, the same on every executor.
    settings: str
    #: A connector's name in it.
    connector: str
    #: ``kafka``: `kafka_source.Connection`; ``node``: `node_source.Node`.
    kind: Literal["kafka", "node"] = "kafka"
    #: The bridge of the settings whose filter says which records of this end count; empty: all of them do.
    bridge: str = ""


@dataclass(frozen=True, slots=True)
class Stream:
    """One source partition."""

    #: ``kafka:<cluster id>:<topic id>:<partition>``.
    identity: str
    topic: str
    partition: int
    #: Its first offset, and the last stable one: ``[start, end)`` is judged.
    start: int
    end: int
    #: Name at the target.
    target: str
    #: The bridge says that the target covers everything below; None: it says nothing.
    confirmed: int | None = None
    #: Records are taken out of it by their keys: what is not there need not be missing.
    compacted: bool = False
    #: Replay plans have been sent up to here: what lies below may stand at the target behind what came later.
    replayed: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """One partition of a target's topic, or an address of a node (partition 0)."""

    topic: str
    partition: int
    #: First offset or position that is there; above 0 its beginning may have been deleted.
    start: int
    #: Its end at a first look, after which the ends of all places were looked at once more...
    settled: int
    #: ...which gave this one: ``[start, end)`` is read.
    end: int
    compacted: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """One audit."""

    #: The bridge's name; empty: two ends were named instead.
    bridge: str
    source: Access
    target: Access
    streams: tuple[Stream, ...]
    places: tuple[Place, ...]
    #: Where the bridge's dead letters are, at the target.
    letters: tuple[Place, ...] = ()
    #: Store identity of the target, for the replay plan; empty: two ends were named, and nothing replays.
    store: str = ""
    #: The bridge passes over what its filter rejects: it may have had another one before.
    is_filtered: bool = False
    #: The bridge began at the end of its source, wherever that was.
    from_latest: bool = False
    #: A source partition goes to the target partition of its number.
    preserves_partitions: bool = False
    #: A producer's ID is accepted once, however often the source has it.
    checks_ids: bool = True

    @property
    def addresses(self) -> tuple[str, ...]:
        """The names at the target, in the order of their numbers in `records`."""
        return tuple(sorted({stream.target for stream in self.streams} | {one.topic for one in self.places}))


class Range(msgspec.Struct, frozen=True):
    """The range that one task reads: ``[start, end)`` of a partition or an address."""

    role: Role
    topic: str
    partition: int
    start: int
    end: int
    #: Numbers of the address and of the stream or place, which every record of the range gets.
    address: int
    place: int
    #: The stream's identity, from which IDs are stamped; empty: nothing is stamped.
    identity: str = ""


def source_ranges(plan: Plan, most: int = RANGE_OFFSETS) -> list[Range]:
    """All of the source, in ranges of at most `most` offsets."""
    address = {name: number for number, name in enumerate(plan.addresses)}
    return [
        Range("source", one.topic, one.partition, start, end, address[one.target], number, one.identity)
        for number, one in enumerate(plan.streams)
        for start, end in _cut(one.start, one.end, most)
    ]


def target_ranges(plan: Plan, most: int = RANGE_OFFSETS) -> list[Range]:
    """All of the target, in such ranges."""
    address = {name: number for number, name in enumerate(plan.addresses)}
    return list(_place_ranges("target", plan.places, address, most))


def letter_ranges(plan: Plan, most: int = RANGE_OFFSETS) -> list[Range]:
    """All dead letters, in such ranges."""
    return list(_place_ranges("letters", plan.letters, {}, most))


def _place_ranges(role: Role, places: Iterable[Place], address: dict[str, int], most: int) -> Iterator[Range]:
    for number, one in enumerate(places):
        for start, end in _cut(one.start, one.end, most):
            yield Range(role, one.topic, one.partition, start, end, address.get(one.topic, -1), number)


def _cut(start: int, end: int, most: int) -> Iterator[tuple[int, int]]:
    for first in range(start, end, most):
        yield first, min(first + most, end)
