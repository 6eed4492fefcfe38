"""The topology of a cluster, as one node knows it: each node's word of itself, and the way to it. Pure.

Record and way are two things. A record is its node's own word and has a version; it replaces an older one as
a whole (rule [topology-version]), whichever way it came. A way is the neighbour by which messages for the
node leave. It lives while the link to that neighbour does, and while the neighbour still has a way itself,
which it says in each KNOWN. The fewest hops win; of equal ones the first is kept while it lives. A record
travels with the nodes that passed it on, so that no node takes a way that leads through itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

import msgspec

from cluster.places import Disagreement, Names, Places
from cluster.record import (
    ANY_VERSION,
    HOPS,
    NODES,
    Announcement,
    Known,
    KnownNode,
    NodeState,
    Record,
    Version,
    check_places,
    check_record,
    check_together,
    way_checksum,
)
from cluster.refusals import process_of, same_node_twice, too_many_nodes, wrong_teller
from cluster.snapshot import NO_WAY_YET, Remembered, Shortest, Snapshot


class Heard(Enum):
    """The effect of an announcement."""

    #: A newer record, and perhaps another way.
    APPLIED = auto()
    #: The record is known; the way is new.
    WAY = auto()
    #: Nothing.
    KNOWN = auto()
    #: Nothing: it is this node's own record, which came back.
    OWN = auto()
    #: Nothing: passed on, of a second process with the UUID and opening of a node that is known. That one is
    #: refused where it connects (`SameNodeTwice`).
    OTHER_RUN = auto()
    #: Nothing: passed on, of one node more than `NODES`.
    FULL = auto()


class _Way(Enum):
    """State of a way."""

    LIVE = auto()
    #: The neighbour's own way has changed, and is not known yet.
    DOUBTED = auto()
    #: The link to the neighbour, or the neighbour's own way, is down.
    DOWN = auto()


#: States of nodes whose messages go to an heir.
_LEAVING = frozenset({NodeState.DRAINING, NodeState.DRAINED})
_WORSE = {_Way.LIVE: _Way.DOUBTED, _Way.DOUBTED: _Way.DOWN}


@dataclass(slots=True)
class _Entry:
    """One other node."""

    record: Record
    #: The last way, as in `Announcement.path`; None: there was none yet.
    path: tuple[str, ...] | None = None
    way: _Way = _Way.DOWN
    shortest: Shortest = NO_WAY_YET

    @property
    def via(self) -> str:
        """The neighbour by which the way begins; empty: none."""
        if self.path is None:
            return ""
        return self.path[-1] if self.path else self.record.node


class Topology:
    """The table of one node. Not for use by several threads: those get a `snapshot`."""

    def __init__(self, record: Record, max_hops: int) -> None:
        """`record` is this node's first one; its counter is ignored. Nodes that are more than `max_hops`
        links away are known, and get no messages.
        """
        self.max_hops = max_hops
        #: Grows with every change of a record or a way.
        self.changes = 0
        self._own = _described(record, 1)
        self._others: dict[str, _Entry] = {}
        self._links: set[str] = set()
        self._places = Places(record.node, self._routable, self._leaving)
        self._places.replace(record.node, (), self._own.places)

    # -- this node ---------------------------------------------------------------------------------------

    @property
    def node(self) -> str:
        """This node's UUID."""
        return self._own.node

    def own(self, record: Record) -> bool:
        """Replace this node's record if its content has changed; returns whether it has.

        The version's counter is given here. Its UUID, run and opening stay.
        """
        before = self._own
        assert (record.node, record.run) == (before.node, before.run), "a process has one UUID and one run"
        assert record.version.opening == before.version.opening, "a process has one opening"
        if _in_order(record, before.version.counter) == before:
            return False
        self._own = record = _described(record, before.version.counter + 1)
        self._places.replace(record.node, before.places, record.places)
        if (before.state is NodeState.UP) != (record.state is NodeState.UP):
            self._places.touch(record.places)
        self._inherits(before, record)
        self.changes += 1
        return True

    # -- from one process to the next --------------------------------------------------------------------

    def remembered(self) -> list[Remembered]:
        """The other nodes that the next process is to know: those that have not left, nor have an heir."""
        return [
            Remembered(entry.record, entry.path, entry.shortest)
            for node, entry in self._others.items()
            if entry.path is not None
            and entry.record.state is not NodeState.LEFT
            and not self._is_inherited(node)
        ]

    def remember(self, one: Remembered) -> None:
        """Know a node, to which there is no way now, as an earlier process did."""
        node = one.record.node
        if node == self.node or node in self._others or len(self._others) + 1 >= NODES:
            return
        record = one.at_rest().record
        self._others[node] = _Entry(record, one.path, _Way.DOWN, one.shortest)
        self._places.replace(node, (), record.places)
        self._inherits(None, record)
        self.changes += 1

    # -- what neighbours say -----------------------------------------------------------------------------

    def linked(self, neighbour: str) -> None:
        """A link to this node is up."""
        self._links.add(neighbour)
        if (entry := self._others.get(neighbour)) is not None:
            self._set_way(entry, (), _Way.LIVE)

    def lost(self, neighbour: str) -> None:
        """The last link to this node is down: ways by it are, too. Records and their order are kept."""
        self._links.discard(neighbour)
        for entry in self._others.values():
            if entry.via == neighbour:
                self._set_way(entry, entry.path, _Way.DOWN)

    def check_process(self, node: str, name: str, run: str, opening: int) -> None:
        """Check that a process that connects, with its node's name, is no second one of a node.

        Raises: SameNodeTwice: another process with its UUID is known, and has not been followed by it.
        """
        if node == self.node:
            if run != self._own.run:
                raise same_node_twice(self._own, name, run, opening)
            return
        entry = self._others.get(node)
        if entry is not None and run != entry.record.run and opening <= entry.record.version.opening:
            raise same_node_twice(entry.record, name, run, opening)

    def heard(self, said: Announcement, neighbour: str) -> Heard:
        """Take a record that `neighbour` told. It is a way only if `neighbour` is `linked`.

        Raises:
            Malformed: `neighbour` is not the node by which the record says that it came.
            SameNodeTwice: first-hand, and another process with its UUID is known.
            TooManyNodes: first-hand, and `NODES` are known.
        """
        record, first_hand = said.record, said.path == ()
        # The way to a neighbour is the link, whoever tells of it.
        path = () if record.node in self._links else said.path or None
        if said.path is not None and neighbour != (said.path[-1] if said.path else record.node):
            raise wrong_teller(said, neighbour)
        if record.node == self.node:
            if first_hand:
                raise same_node_twice(self._own, *process_of(record))
            return Heard.OWN
        entry = self._others.get(record.node)
        if entry is None:
            if len(self._others) + 1 >= NODES:
                if first_hand:
                    raise too_many_nodes(record)
                return Heard.FULL
            entry = self._others[record.node] = _Entry(record)
            self._places.replace(record.node, (), record.places)
            self._inherits(None, record)
            self._take_way(entry, path, neighbour)
            self.changes += 1
            return Heard.APPLIED
        if _is_other_run(entry.record, record):
            if first_hand:
                raise same_node_twice(entry.record, *process_of(record))
            if record.version.opening == entry.record.version.opening:
                return Heard.OTHER_RUN
        return self._update(entry, record, path, neighbour)

    def _update(self, entry: _Entry, record: Record, path: tuple[str, ...] | None, neighbour: str) -> Heard:
        before = entry.record
        newer = record.version > before.version
        if newer:
            entry.record = record
            self._places.replace(record.node, before.places, record.places)
            if before.state is not record.state:
                self._places.touch(record.places)
            self._inherits(before, record)
            self.changes += 1
        other_way = self._take_way(entry, path, neighbour)
        if newer:
            return Heard.APPLIED
        return Heard.WAY if other_way else Heard.KNOWN

    def _take_way(self, entry: _Entry, path: tuple[str, ...] | None, neighbour: str) -> bool:
        """Take a way where it is better than the present one; returns whether it is another one."""
        if path is None or self.node in path or (path and neighbour not in self._links):
            return False
        down = entry.path is None or entry.way is _Way.DOWN
        if down or entry.via == neighbour or len(path) < len(entry.path or ()):
            return self._set_way(entry, path, _Way.LIVE)
        return False

    def heard_known(self, known: Known, neighbour: str) -> list[Announcement]:
        """Take what `neighbour` knows; returns what it is to be told.

        A way by it that it no longer has is down. One that has changed is doubted: it still leads there,
        `known` asks for it, and it is down where the next KNOWN contradicts it still.
        """
        said = {one.node: one for one in known.nodes}
        for node, entry in self._others.items():
            if entry.path and entry.via == neighbour and entry.way is not _Way.DOWN:
                its = said.get(node)
                if its is None or its.distance is None:
                    self._set_way(entry, entry.path, _Way.DOWN)
                elif (its.distance, its.way) != (len(entry.path), way_checksum(entry.path[:-1])):
                    self._set_way(entry, entry.path, _WORSE[entry.way])
        told = (self.announced(node, neighbour, said.get(node)) for node in (self.node, *self._others))
        return [one for one in told if one is not None]

    # -- what neighbours are told ------------------------------------------------------------------------

    def known(self) -> Known:
        """All that this node knows, in short; itself first."""
        own = KnownNode(self.node, self._own.version, 0, 0)
        return Known((own, *(_in_short(node, entry) for node, entry in self._others.items())))

    def announced(self, node: str, neighbour: str, its: KnownNode | None = None) -> Announcement | None:
        """The announcement of `node` to `neighbour`, which knows `its`; None: it needs none.

        A node to which there is no way is told only to those that know it already, in an older version: so a
        node that is gone and was forgotten does not come back.
        """
        if node == neighbour or (node != self.node and node not in self._others):
            return None
        if node == self.node:
            return Announcement(self._own) if its is None or its.version < self._own.version else None
        entry = self._others[node]
        path = entry.path if entry.way is not _Way.DOWN else None
        if path is not None:
            path = (*path, self.node) if neighbour not in path and len(path) < HOPS else None
        if its is None:
            return None if path is None else Announcement(entry.record, path)
        if its.version < entry.record.version:
            return Announcement(entry.record, path)
        if its.version > entry.record.version or path is None:
            return None
        nearer = its.distance is None or len(path) + 1 < its.distance
        return Announcement(entry.record, path) if nearer else None

    # -- the table ---------------------------------------------------------------------------------------

    @property
    def records(self) -> Mapping[str, Record]:
        """The records by node; this node's first."""
        found = {self.node: self._own}
        found.update((node, entry.record) for node, entry in self._others.items())
        return found

    def reachable(self, node: str) -> bool:
        """Whether there is a way now."""
        if node == self.node:
            return True
        entry = self._others.get(node)
        return entry is not None and entry.path is not None and entry.way is not _Way.DOWN

    def distance(self, node: str) -> int | None:
        """Links to the node by the last way; None: there was none yet."""
        if node == self.node:
            return 0
        entry = self._others.get(node)
        return None if entry is None or entry.path is None else len(entry.path) + 1

    def next_hop(self, node: str) -> str | None:
        """The neighbour of the last way, also while that is down; for this node, itself. None: there was no
        way yet.
        """
        if node == self.node:
            return node
        entry = self._others.get(node)
        return entry.via or None if entry is not None else None

    def places(self, address: str) -> Names:
        """The places of an address that may be given messages, down ones included.

        Left out: nodes that are not UP, those that never were within `max_hops`, and those that disagree with
        this node on the address's routing type. A queue that only nodes have that drain, or are drained, is
        theirs until their heir answers for them: what they get goes on to it. A node without a place there
                agrees with all: the caller
        compares `Place.routing_type`.
        """
        return self._places.names(address)

    def disagreements(self) -> tuple[Disagreement, ...]:
        """The nodes that disagree with this one on a routing type, by address and node."""
        return self._places.disagreements()

    def snapshot(self) -> Snapshot:
        """The table as it is now."""
        nodes = [self.node, *self._others]
        hops = {node: hop for node in nodes if (hop := self.next_hop(node)) is not None}
        return Snapshot(
            self.node,
            self._places.everything(),
            hops,
            frozenset(node for node in nodes if self.reachable(node)),
            {node: links for node in nodes if (links := self.distance(node)) is not None},
            {node: entry.shortest for node, entry in self._others.items()},
        )

    def forget(self, node: str) -> None:
        """Remove another node, with its places and their order."""
        entry = self._others.pop(node, None)
        if entry is not None:
            self._places.replace(node, entry.record.places, ())
            self.changes += 1

    # -- within ------------------------------------------------------------------------------------------

    def _routable(self, node: str) -> bool:
        if node == self.node:
            return self._own.state is NodeState.UP
        entry = self._others[node]
        return (
            entry.record.state is NodeState.UP
            and entry.shortest.links <= self.max_hops
            and not self._is_inherited(node)
        )

    def _is_seen(self, node: str) -> bool:
        return self._routable(node) or self._leaving(node)

    def _leaving(self, node: str) -> bool:
        """Whether what the node gets goes on to an heir that is not known to have its queues yet."""
        entry = self._others.get(node)
        return (
            entry is not None
            and entry.record.state in _LEAVING
            and entry.shortest.links <= self.max_hops
            and not self._is_inherited(node)
        )

    def _is_inherited(self, node: str) -> bool:
        """Whether another node answers for it: it is drained, whatever its last word was."""
        own = node in self._own.inherited
        return own or any(node in entry.record.inherited for entry in self._others.values())

    def _inherits(self, before: Record | None, record: Record) -> None:
        """The places of nodes for which a node answers now, or no longer, are to be looked at again."""
        old = frozenset[str]() if before is None else frozenset(before.inherited)
        for node in old.symmetric_difference(record.inherited):
            entry = self._others.get(node)
            if entry is not None:
                self._places.touch(entry.record.places)

    def _set_way(self, entry: _Entry, path: tuple[str, ...] | None, way: _Way) -> bool:
        if (entry.path, entry.way) == (path, way):
            return False
        before = self._is_seen(entry.record.node)
        entry.path, entry.way = path, way
        if path is not None and len(path) + 1 <= entry.shortest.links:
            entry.shortest = Shortest(len(path) + 1, entry.via)
        if before != self._is_seen(entry.record.node):
            self._places.touch(entry.record.places)
        self.changes += 1
        return True


def _in_order(record: Record, counter: int) -> Record:
    """A node's own record, with its places in order."""
    places = () if record.state is NodeState.LEFT else tuple(sorted(record.places))
    version = Version(record.version.opening, counter)
    return msgspec.structs.replace(record, version=version, places=places)


def _described(record: Record, counter: int) -> Record:
    """A node's own record, in order and checked."""
    found = _in_order(record, counter)
    check_record(found)
    check_places(found.places)
    check_together(found)
    return found


def _in_short(node: str, entry: _Entry) -> KnownNode:
    if entry.path is None or entry.way is _Way.DOWN:
        return KnownNode(node, entry.record.version)
    version = entry.record.version if entry.way is _Way.LIVE else ANY_VERSION
    return KnownNode(node, version, len(entry.path) + 1, way_checksum(entry.path))


def _is_other_run(known: Record, record: Record) -> bool:
    return record.run != known.run and record.version.opening <= known.version.opening
