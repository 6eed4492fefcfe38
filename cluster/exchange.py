"""The exchange of topology notices with the neighbours, over the links in either direction."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator

import structlog

from bridge.link.frames import Hello, Welcome
from cluster.notices import Assembler, known_notice, pages
from cluster.record import Announcement, Known, KnownNode
from cluster.topology import Heard, Topology


class Exchange:
    """All conversations of one node, and its topology."""

    def __init__(self, topology: Topology, run: str, on_change: Callable[[], None], attempts: int) -> None:
        """`run`: of this process. `on_change` is called after each change of the topology.

        `attempts`: how often a change is told (`notification-attempts`).
        """
        self.topology = topology
        self.run = run
        self._on_change = on_change
        self._attempts = attempts
        #: Open conversations, by neighbour: its outgoing link first.
        self._open: dict[str, list[Conversation]] = {}
        #: Nodes whose record has changed, and how often it is still to be told.
        self._to_tell: Counter[str] = Counter()

    def conversation(self, *, outgoing: bool) -> Conversation:
        """The correspondent of one link."""
        return Conversation(self, outgoing=outgoing)

    def changed(self, nodes: Iterable[str] = ()) -> None:
        """Records of these nodes, or ways, have changed."""
        for node in nodes:
            self._to_tell[node] = self._attempts
        self._on_change()

    def tell_changes(self) -> None:
        """Tell the neighbours the records that have changed, and what they lack."""
        for neighbour, conversation in self._preferred():
            conversation.tell(self._announced(neighbour, conversation))
        self._to_tell = Counter({node: left - 1 for node, left in self._to_tell.items() if left > 1})

    def _announced(self, neighbour: str, conversation: Conversation) -> Iterator[Announcement]:
        for node in list(self.topology.records):
            its = (
                None if self._to_tell[node] > 0 and node == self.topology.node else conversation.its.get(node)
            )
            said = self.topology.announced(node, neighbour, its)
            if said is not None:
                yield said

    def tell_known(self) -> None:
        """Tell the neighbours what this node knows: a notice that was lost is noticed by it."""
        body = known_notice(self.topology.known())
        for _, conversation in self._preferred():
            conversation.go_on()
            conversation.send(body)

    def _preferred(self) -> list[tuple[str, Conversation]]:
        return [(neighbour, some[0]) for neighbour, some in self._open.items()]

    def opened(self, conversation: Conversation) -> None:
        """A link is up."""
        neighbour = conversation.neighbour
        some = self._open.setdefault(neighbour, [])
        some.insert(0 if conversation.outgoing else len(some), conversation)
        if conversation.outgoing:
            self.topology.linked(neighbour)
            self.changed()
        conversation.send(known_notice(self.topology.known()))
        own = self.topology.announced(self.topology.node, neighbour)
        conversation.tell(
            () if own is None else (own,)
        )  # it may know a record of a copy of this node's journal

    def closed(self, conversation: Conversation) -> None:
        """A link is down. The node behind it is unreachable without a link to it."""
        neighbour = conversation.neighbour
        some = self._open.get(neighbour, [])
        if conversation in some:
            some.remove(conversation)
        if not some:
            self._open.pop(neighbour, None)
        if conversation.outgoing and not any(one.outgoing for one in some):
            self.topology.lost(neighbour)
            self.changed()

    def heard(self, said: Announcement, neighbour: str) -> None:
        """A neighbour has told a record. Raises: as `Topology.heard`."""
        found = self.topology.heard(said, neighbour)
        if found is Heard.APPLIED:
            self.changed((said.record.node,))
        elif found is Heard.WAY:
            self.changed()


class Conversation:
    """Implements `bridge.link.correspondent.Correspondent` for one link."""

    def __init__(self, exchange: Exchange, *, outgoing: bool) -> None:
        self._exchange = exchange
        self.outgoing = outgoing
        #: UUID of the node at the other end.
        self.neighbour = ""
        #: What that node knows, by its last word and what it was told since.
        self.its: dict[str, KnownNode] = {}
        self._assembler = Assembler()
        #: Pages of one record that are still to be sent.
        self._unsent: deque[bytes] = deque()
        self._notify: Callable[[bytes], bool] = lambda _body: False
        self._log = structlog.get_logger()

    def connected(self, notify: Callable[[bytes], bool], peer: Hello | Welcome) -> None:
        """Begin: say what this node knows."""
        self.neighbour, self._notify = peer.node_id, notify
        self.its, self._assembler = {}, Assembler()
        self._exchange.opened(self)

    def noticed(self, body: bytes) -> None:
        """Take a notice. Raises: Malformed, SameNodeTwice, TooManyNodes."""
        said = self._assembler.take(body)
        topology = self._exchange.topology
        if isinstance(said, Known):
            self.its = {one.node: one for one in said.nodes}
            before = topology.changes
            self.tell(topology.heard_known(said, self.neighbour))
            if topology.changes != before:
                self._exchange.changed()
        elif said is not None:
            record = said.record
            if record.node == topology.node and record.run == self._exchange.run:
                return  # this node's own word, or a link that leads here
            self._exchange.heard(said, self.neighbour)

    def go_on(self) -> bool:
        """Send the pages of a record that the link has not taken yet; returns whether all have left."""
        while self._unsent:
            if not self.send(self._unsent[0]):
                return False
            self._unsent.popleft()
        return True

    def disconnected(self) -> None:
        """End."""
        self._unsent.clear()
        self._exchange.closed(self)

    def send(self, body: bytes) -> bool:
        """Send one notice; False: not now."""
        return self._notify(body)

    def tell(self, announced: Iterable[Announcement]) -> None:
        """Tell these records, until the link takes no more: the next KNOWN asks for the other records, and
        `go_on` sends the other pages of a long one.
        """
        if not self.go_on():
            return
        for said in announced:
            self._unsent.extend(pages(said))
            if not self.go_on():
                return
            distance = None if said.path is None else len(said.path)
            self.its[said.record.node] = KnownNode(said.record.node, said.record.version, distance)
