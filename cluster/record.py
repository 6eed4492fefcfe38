"""Records: what a node of a cluster says of itself, and what nodes tell each other of it. Pure.

Every limit of a record is here. `check_record` and `check_places` hold a record to them, at its own node and
where it comes from another one.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from bridge.errors import InvalidAddress, Malformed
from bridge.messages.addresses import RoutingType, check_name

#: Nodes of a cluster that a node knows, itself included.
NODES: Final = 64
#: Places that a node advertises.
QUEUES_A_NODE: Final = 10_000
#: Nodes that pass a record on, one after the other.
HOPS: Final = 64


class Version(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """A record's version. A restarted node counts anew under a higher opening (rule [opening-in-version])."""

    #: The number of the journal's opening.
    opening: int
    #: Grows with each change of the record within an opening, from 1.
    counter: int


#: The version below all others. A KNOWN names it for a node of which it asks to be told again.
ANY_VERSION: Final = Version(0, 0)


class Place(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """A queue as its node advertises it. It is known by its names: made again, it is the same place."""

    address: str
    queue: str
    #: Readers at the node now.
    readers: int = 0
    #: Condition of the queue's filter; empty: none.
    filter: str = ""
    #: The address's routing type at the node.
    routing_type: RoutingType = "MULTICAST"


class NodeState(StrEnum):
    """The state in which a node last described itself."""

    #: Takes messages.
    UP = "UP"
    #: Hands its messages over to its heir: takes no new ones.
    DRAINING = "DRAINING"
    #: Stopped cleanly: has no places until it returns.
    LEFT = "LEFT"
    #: Has handed everything over, and does not return. Its places are there until its heir is known to have
    #: them.
    DRAINED = "DRAINED"


#: States of nodes that have left the cluster.
GONE: Final = frozenset({NodeState.LEFT, NodeState.DRAINED})


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A node's description of itself, which its neighbours pass on."""

    #: The node's UUID.
    node: str
    #: Identity of its store.
    store: str
    #: Session UUID of the process: two processes never share one.
    run: str
    version: Version
    #: The node's name in settings and logs.
    name: str
    #: URL at which other nodes connect to it.
    url: str
    state: NodeState = NodeState.UP
    #: UUID of the node that takes over its messages; empty: none.
    heir: str = ""
    #: UUIDs of drained nodes for which it answers.
    inherited: tuple[str, ...] = ()
    #: In the order of their names; empty where it has LEFT.
    places: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class Announcement:
    """A record as one neighbour tells it to the other."""

    record: Record
    #: UUIDs of the nodes that passed it on, the teller last; empty: first-hand, the teller is the record's
    #: node. None: the teller has no way to the node that the hearer can use.
    path: tuple[str, ...] | None = ()


class KnownNode(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One node as another one knows it: its version and its distance."""

    node: str
    #: The version that it has; `ANY_VERSION`: it is to be told again.
    version: Version
    #: Links from it to the node; None: it has no way.
    distance: int | None = None
    #: Checksum of its way (`way_checksum`).
    way: int = 0


@dataclass(frozen=True, slots=True)
class Known:
    """All that a node knows, in short: neighbours say it to each other at the handshake and now and then."""

    nodes: tuple[KnownNode, ...]


def way_checksum(path: tuple[str, ...]) -> int:
    """CRC-32 of a way: its nodes, from the far end on."""
    return zlib.crc32("\n".join(path).encode())


# -- limits ------------------------------------------------------------------------------------------------

#: The largest number: an opening, a counter, readers.
NUMBER_MOST: Final = 2**53
#: Characters of a node's name and store, and of a queue's name.
NAME_MOST: Final = 255
URL_MOST: Final = 1024
#: Characters of a filter's condition.
FILTER_MOST: Final = 4096
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def check_record(record: Record) -> None:
    """Check everything in the record but its places.

    Raises:
        Malformed: names the field, the rule, and what was found.
    """
    check_uuid("node", record.node)
    check_uuid("run", record.run)
    check_version("version", record.version)
    check_text("store", record.store, NAME_MOST)
    check_text("name", record.name, NAME_MOST)
    check_text("url", record.url, URL_MOST)
    if record.heir:
        check_uuid("heir", record.heir)
    check_most("inherited", len(record.inherited), NODES)
    for leaver in record.inherited:
        check_uuid("inherited", leaver)


def check_path(node: str, path: tuple[str, ...] | None) -> None:
    """Check the nodes that passed on the record of `node`.

    Raises:
        Malformed: too many, not UUIDs, one of them twice, or the node itself.
    """
    if path is None:
        return
    check_most("path", len(path), HOPS)
    for one in path:
        check_uuid("path", one)
    if len({node, *path}) <= len(path):
        raise Malformed(f"path: no node twice; found {', '.join((node, *path))}", "path", "no node twice")


def check_places(places: Iterable[Place]) -> None:
    """Check each place by itself.

    Raises:
        Malformed: names the field, the rule, and what was found.
    """
    for place in places:
        try:
            check_name(place.address, "places.address")
        except InvalidAddress as error:
            limit = error.limit or "a name that clients may use"
            raise Malformed(f"places.address: {error.detail}", error.key, limit, error.found) from error
        check_text("places.queue", place.queue, NAME_MOST)
        check_number("places.readers", place.readers)
        check_most("places.filter", len(place.filter), FILTER_MOST)


def check_together(record: Record) -> None:
    """Check the places against each other and against the node's state.

    Raises:
        Malformed: too many; one twice; two routing types for an address; or places of a node that is gone.
    """
    places = record.places
    check_most("places", len(places), 0 if record.state is NodeState.LEFT else QUEUES_A_NODE)
    if len({(place.address, place.queue) for place in places}) < len(places):
        raise Malformed("places: no queue twice", "places", "no queue twice")
    types: dict[str, RoutingType] = {}
    for place in places:
        found = types.setdefault(place.address, place.routing_type)
        if found != place.routing_type:
            key, both = "places.routing_type", f"{found} and {place.routing_type}"
            raise Malformed(f"{key}: one an address; found {both} of {place.address}", key, 1, both)


def check_uuid(key: str, value: str) -> None:
    """Check that the text is a UUID in its usual form.

    Raises:
        Malformed: it is none.
    """
    if not _UUID.fullmatch(value):
        shown = value[:64]
        raise Malformed(f"{key}: a UUID in lower case; found {shown!r}", key, "a UUID", shown)


def check_version(key: str, version: Version) -> None:
    """Check both numbers of a version.

    Raises:
        Malformed: one is negative or too large.
    """
    check_number(f"{key}.opening", version.opening)
    check_number(f"{key}.counter", version.counter)


def check_text(key: str, value: str, most: int) -> None:
    """Check that the text has 1 to `most` characters.

    Raises:
        Malformed: it has another length.
    """
    if not 1 <= len(value) <= most:
        raise Malformed(f"{key}: 1 to {most} characters; found {len(value)}", key, most, len(value))


def check_number(key: str, value: int, most: int = NUMBER_MOST) -> None:
    """Check that the number is from 0 to `most`.

    Raises:
        Malformed: it is not.
    """
    if not 0 <= value <= most:
        raise Malformed(f"{key}: 0 to {most}; found {value}", key, most, value)


def check_most(key: str, found: int, most: int) -> None:
    """Check a length against its limit.

    Raises:
        Malformed: it is above.
    """
    if found > most:
        raise Malformed(f"{key}: at most {most}; found {found}", key, most, found)
