"""The table of a cluster as the router gets it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from cluster.places import Names
from cluster.record import ANY_VERSION, HOPS, Record


class Shortest(NamedTuple):
    """The shortest way that there ever was to a node."""

    #: More than any `max-hops`: there was none yet.
    links: int
    next_hop: str


#: Beyond every `max-hops`.
NO_WAY_YET: Final = Shortest(HOPS + 2, "")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The topology as the router needs it, for another thread: it does not change."""

    #: The node that routes.
    node: str
    #: By address: the places that may be given messages, down ones included.
    places: Mapping[str, Names]
    #: By node, of each that places are at: the neighbour by which its messages leave; this node itself: here.
    next_hops: Mapping[str, str]
    #: The nodes that can be reached now, this one included.
    reachable: frozenset[str]
    #: Links to each node of `next_hops`; 0: this node itself.
    distances: Mapping[str, int]
    #: The shortest way that there ever was to each other node: what is for it waits there while it is farther
    #: away than `max_hops`.
    shortest: Mapping[str, Shortest]


class Remembered(NamedTuple):
    """Another node as a process hands it on to the next one of the same journal."""

    record: Record
    #: The last way, as in `cluster.record.Announcement.path`.
    path: tuple[str, ...]
    shortest: Shortest

    def at_rest(self) -> Remembered:
        """The same without what may have changed by then: its readers, and the version, so that it is told
        again.
        """
        places = tuple(msgspec.structs.replace(place, readers=0) for place in self.record.places)
        record = msgspec.structs.replace(self.record, version=ANY_VERSION, places=places)
        return self._replace(record=record)
