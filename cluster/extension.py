"""The cluster as an extension of a node: what it says of itself, what it knows of the others, and the links
between.

The event loop has the topology and the links; the journal's writer has the router and its table. Everything
that must not be lost is in the journal: copies for other nodes wait in forward logs, whose bridges are here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import structlog

from bridge.end_kind import kind_of
from bridge.errors import (
    DiskFull,
    Forbidden,
    JournalUnavailable,
    Stopping,
    TargetRefused,
    TargetUnavailable,
    described,
)
from bridge.http.additions import shown
from bridge.http.authentication import Principal
from bridge.http.router import Addition
from bridge.journal.rules.owners import EVERY_RIGHT, Caller
from bridge.journal.values.routing import Router
from bridge.link.correspondent import LinkEnd
from bridge.link.frames import Hello
from bridge.node.extension import Extension, NodeServices
from bridge.runtime.metrics import Sample
from bridge.runtime.repeated_task import RepeatedTask
from bridge.settings.clusters import ClusterConnection
from bridge.settings.model import Settings
from cluster import metrics
from cluster.connections import Connections
from cluster.contacts import Address, Contacts, Own
from cluster.decisions import Decisions
from cluster.exchange import Exchange
from cluster.fan_out import FanOut
from cluster.filling import Filling
from cluster.forgetting import Window, drop_forward_logs, is_empty
from cluster.heirs import answering
from cluster.memory import Memory
from cluster.own_places import OwnPlaces
from cluster.peers import Peer, Peers, PlacingTarget, Process, contacting
from cluster.places import Disagreement
from cluster.record import GONE, NodeState, Place, Record, Version
from cluster.redistribution import Redistribution
from cluster.routing import BRIDGE_PREFIX, ClusterRouter
from cluster.table import TableMaker
from cluster.topology import Topology
from cluster.view import View

#: Changes are gathered for so long before they are told and the router gets a new table.
GATHER_S: Final = 0.1
#: Interval of the looks at this node's queues and readers.
LOOK_S: Final = 0.1


class ClusterExtension(Extension):
    """The cluster connections of one node."""

    name = "cluster"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connections = Connections(settings.cluster_connections)
        self._fan_out = FanOut(settings, self._connections)
        self._router = ClusterRouter(self._fan_out.copied_to)
        self._tables = TableMaker(self._connections)
        self._node: NodeServices
        #: None until the journal is open, and after the stop.
        self._exchange: Exchange | None = None
        self._peers: Peers
        self._redistribution: Redistribution
        self._own: OwnPlaces
        self._filling: Filling
        self._contacts: list[Contacts] = []
        self._tasks: list[RepeatedTask] = []
        self._changed = asyncio.Event()
        self._following = asyncio.Lock()
        #: Changes of the topology, and the nodes that this one answers for, of which the table was made.
        self._applied: tuple[int, tuple[str, ...]] = (-1, ())
        self._memory: Memory
        self._decisions = Decisions(
            timeout_ms=settings.cluster_connections[0].call_timeout_ms, changed=self._decided
        )
        self._state = NodeState.UP
        #: State, heir, inherited nodes and places of the record that this node last made; None: not yet.
        self._content: tuple[NodeState, str, tuple[str, ...], tuple[Place, ...]] | None = None
        #: What the router's table was made of; None: not yet.
        self._view: View | None = None
        #: What was last logged of each other node, and of routing types.
        self._logged: dict[str, str] = {}
        self._disagreements: frozenset[Disagreement] = frozenset()
        self._log = structlog.get_logger()

    def router(self) -> Router | None:
        """Decides by the table, which is empty at first."""
        return self._router

    # -- life --------------------------------------------------------------------------------------------

    async def start(self, node: NodeServices) -> None:
        """Begin to look for the other nodes."""
        self._node = node
        self._own = OwnPlaces(node, self._connections)
        identity = node.journal.identity
        first = self._connections.all[0]
        record = Record(
            identity.node_id,
            identity.store,
            identity.session_id,
            Version(identity.opening, 1),
            self._settings.node.name,
            self._settings.connectors[first.connector_ref].url,
            places=self._own.read(),
        )
        self._content = None
        topology = Topology(record, self._connections.max_hops)
        self._exchange = Exchange(
            topology, identity.session_id, self._changed.set, first.notification_attempts
        )
        self._peers = Peers(node, node.journal.options.dead_letter_address, self._decisions.stage)
        self._memory = Memory(node.journal)
        window = Window(first.confirmation_window_size_bytes, first.producer_window_size_bytes)
        await self._decisions.begin(node, topology, self._peers, window)
        self._say_own()  # that it drains, before anything else
        self._redistribution = Redistribution(
            node, self._connections, self._router, lambda: self._decisions.drain.state is not None
        )
        await self._fan_out.start(node)
        for known in await self._memory.load():
            if known.record.node not in self._decisions.forgetting.nodes:
                topology.remember(known)
        self._contacts = []
        for connection in self._connections.all:
            contacts = Contacts(
                connection,
                self._peers,
                Own(identity.node_id, Process(identity.session_id, identity.opening)),
                self._found,
            )
            self._contacts.append(contacts)
            contacts.begin(*self._addresses(connection))
            self._repeat(f"cluster-contacts-{connection.name}", contacts.turn)
        await self._apply(topology)
        self._filling = Filling(node.journal)
        self._repeat("cluster-drain", self._decisions.drain.turn)
        self._repeat("cluster-redistribution", self._redistribution.turn)
        self._repeat("cluster-own-record", self._watch_own)
        self._repeat("cluster-changes", self._apply_changes)
        interval_s = first.notification_interval_ms / 1000
        self._repeat("cluster-notifications", lambda: self._say_known(interval_s))

    def _repeat(self, name: str, turn: Callable[[], Awaitable[object]]) -> None:
        task = RepeatedTask(name, turn)
        self._tasks.append(task)
        task.begin()

    @property
    def _fault(self) -> str:
        """Why the last turn of one of its tasks failed; empty: none did."""
        return next((f"{task.name}: {task.failing}" for task in self._tasks if task.failing), "")

    async def stop(self) -> None:
        """Say that this node leaves, and end."""
        for task in self._tasks:
            await task.end()
        self._tasks.clear()
        self._exchange = None
        self._decisions.end()

    def leaving(self) -> None:
        """Say that this node leaves: its places go, and what waits for it stays at the others."""
        exchange = self._exchange
        if exchange is not None:
            self._state = NodeState.LEFT
            self._say_own()
            exchange.tell_changes()

    def _addresses(self, connection: ClusterConnection) -> tuple[list[Address], Address | None]:
        """Where the first contacts of a connection are."""
        connectors = self._settings.connectors
        static = [
            Address(connectors[name].url, name, static=True)
            for name in connection.static_connectors
            if kind_of(self._settings, name).is_node
        ]
        own = Address(connectors[connection.connector_ref].url, connection.connector_ref)
        return static, own if connection.discovery else None

    # -- links -------------------------------------------------------------------------------------------

    def link_end(self, hello: Hello, principal: Principal) -> LinkEnd | None:
        """This node's end of another node's link.

        Raises: Forbidden: the caller has not every right. TargetRefused: it is for another node.
            SameNodeTwice.
        """
        if not hello.bridge.startswith(BRIDGE_PREFIX[:-1]):
            return None
        exchange = self._exchange
        if exchange is None:
            raise TargetUnavailable("this node is leaving")
        if principal.is_user:
            detail = f"{principal.name} may not join the cluster: that takes a token of the acceptor"
            raise Forbidden(detail, "link")
        own = exchange.topology.node
        if any(contacts.failed for contacts in self._contacts):
            raise TargetRefused("this node takes no part in the cluster: another process has its UUID")
        process = contacting(hello.bridge)
        if hello.node_id == own or process is not None:
            run, opening = process or ("unknown", 0)
            exchange.topology.check_process(hello.node_id, hello.node_name, run, opening)
        journal = self._node.journal
        if hello.node_id in self._decisions.forgetting.nodes:
            raise TargetRefused(
                f"FORGOTTEN: {hello.node_name} was forgotten here (core-bridge cluster forget)"
            )
        mine = (own, *self._decisions.heirs.inherited)
        if process is None and hello.bridge.removeprefix(BRIDGE_PREFIX) not in mine:
            raise TargetUnavailable(f"this node is {own}; the link is for {hello.bridge}", "bridge")
        target = PlacingTarget(
            journal,
            hello.bridge,
            Caller(EVERY_RIGHT, hello.node_id, principal.check_deliver),
            self._redistribution.arrived,
        )
        return LinkEnd(target, None if process is not None else exchange.conversation(outgoing=False))

    def inherited_stores(self) -> Iterable[str]:
        """Those of the leavers."""
        return () if self._exchange is None else [store for _, store in self._decisions.heirs.stores]

    async def _found(self, peer: Peer, connection: ClusterConnection) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        records = exchange.topology.records.values()
        if not peer.heir and any(peer.node in record.inherited for record in records):
            return  # a leaver that still runs: what waits for it goes to its heir
        await self._peers.ensure(peer, connection, lambda: exchange.conversation(outgoing=True))

    # -- this node's record --------------------------------------------------------------------------------

    async def _watch_own(self) -> None:
        self._say_own()
        await asyncio.sleep(LOOK_S)

    def _decided(self) -> None:
        """Say at once what was decided: clients that are refused learn at once where to go."""
        self._say_own()
        self._changed.set()

    def _say_own(self) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        topology = exchange.topology
        state, heir = self._decisions.state(self._state)
        places = () if state is NodeState.LEFT else self._own.read()
        content = (state, heir, self._decisions.heirs.inherited, places)
        if content != self._content:  # the same tuple of 10,000 places is not compared
            before = topology.records[topology.node]
            record = Record(
                before.node, before.store, before.run, before.version, before.name, before.url, *content
            )  # fmt: skip
            if topology.own(record):
                exchange.changed((topology.node,))
            self._content = content
        taker = topology.records.get(heir) if state is NodeState.DRAINED else None
        self._router.taken_over_at = "" if taker is None else _http(taker.url)

    # -- changes -----------------------------------------------------------------------------------------

    async def _apply_changes(self) -> None:
        """Tell changes to the others, make links to new nodes, and give the router a new table."""
        await self._changed.wait()
        await asyncio.sleep(GATHER_S)
        self._changed.clear()
        exchange = self._exchange
        if exchange is None:
            return
        exchange.tell_changes()
        exchange.tell_known()  # the end of a way is news, too
        try:
            await self._follow(exchange)
        except Exception:
            self._changed.set()  # what was not applied is applied in the next turn
            raise

    async def _follow(self, exchange: Exchange) -> None:
        """Give the router a table of the present topology, keep that, and have the links that it asks for."""
        topology = exchange.topology
        async with self._following:  # two tasks ask for it
            for node in self._decisions.forgetting.nodes:
                topology.forget(node)
            present = (topology.changes, self._decisions.heirs.inherited)
            if self._applied != present:
                await self._apply(topology)
                await self._keep(topology)
                self._applied = present
            await self._make_links(exchange)

    async def _keep(self, topology: Topology) -> None:
        try:
            await self._memory.keep(topology)
        except (JournalUnavailable, DiskFull, Stopping) as error:  # the next change keeps it
            self._log.debug("topology-not-kept", reason=described(error))

    async def _apply(self, topology: Topology) -> None:
        """Give the router the present table, and show it."""
        view = View.of(topology)
        self._router.table = await self._tables.table(topology.snapshot(), self._decisions.heirs.inherited)
        self._view = view
        self._log_changes(view)

    async def _make_links(self, exchange: Exchange) -> None:
        """Have a link to each node that is known, unless only configured ones are wanted; and bridges for
        those that others answer for now, until their forward logs are empty.
        """
        topology = exchange.topology
        records = list(topology.records.values())
        heirs = answering(records)
        heirs |= dict.fromkeys(self._decisions.forgetting.nodes, topology.records[topology.node])
        for record in records:
            known = self._peers.known(record.node)
            is_there = known is not None and not known.heir and (known.static or known.url == record.url)
            if record.node == topology.node or record.node in heirs or is_there:
                continue
            for connection in self._connections.all:
                if not connection.allow_direct_connections_only:
                    peer = Peer(record.node, record.name, record.url, connection.connector_ref)
                    await self._found(peer, connection)
                    break
        for node, heir in heirs.items():
            await self._go_on_at(node, heir)

    async def _go_on_at(self, node: str, heir: Record) -> None:
        """Send what waits for a node to the one that answers for it; nothing waits: its bridge ends."""
        journal, first = self._node.journal, self._connections.all[0]
        if is_empty(journal, node):
            await self._peers.drop(node)
            await drop_forward_logs(journal, node)
            return
        known = self._peers.known(heir.node) or Peer("", "", heir.url, first.connector_ref)
        forgotten = self._decisions.forgetting.nodes.get(node)
        stores = [store for _, store in self._decisions.heirs.stores]
        if forgotten is not None:
            stores.append(forgotten.store)
        peer = Peer(node, heir.name, known.url, known.connector, heir=heir.node, stores=tuple(stores))
        await self._found(peer, first)

    async def _say_known(self, interval_s: float) -> None:
        await asyncio.sleep(interval_s)
        if self._exchange is not None:
            self._exchange.tell_known()
            self._exchange.tell_changes()
            self._filling.look()
            await self._follow(self._exchange)

    def _log_changes(self, view: View) -> None:
        for node, record in view.records.items():
            if node == view.node:
                continue
            event = _event(record, reachable=view.reachable[node])
            if self._logged.get(node) != event:
                self._logged[node] = event
                hops = view.distance[node]
                self._log.info(event, peer=record.name, peer_id=node, url=record.url, hops=hops)
        found = frozenset(view.disagreements)
        for one in found - self._disagreements:
            peer = view.records[one.node].name
            self._log.warning(
                "routing-type-differs", peer=peer, address=one.address, here=one.ours, there=one.theirs
            )
        self._disagreements = found

    # -- for operators -----------------------------------------------------------------------------------

    def unready(self) -> Iterable[str]:
        """A connection that has failed."""
        if self._fault:
            yield f"cluster: {self._fault}"
        for contacts in self._contacts:
            if contacts.failed:
                yield f"cluster connection {contacts.connection.name}: {contacts.failed}"

    def operations_routes(self) -> Iterable[Addition]:
        """``GET /v1/cluster``, and the decisions."""
        yield shown("/v1/cluster", self.status)
        yield from self._decisions.operations_routes()

    def acceptor_routes(self) -> Iterable[Addition]:
        """The calls of a leaver to its heir."""
        return self._decisions.acceptor_routes()

    def status(self) -> Mapping[str, Any]:
        """The nodes that this node knows, and its connections."""
        view = self._view
        if view is None:
            return {"node": "", "connections": [], "nodes": [], "disagreements": []}
        return {
            "node": view.node,
            "connections": [
                {
                    "name": contacts.connection.name,
                    "address": contacts.connection.address,
                    "message-load-balancing": contacts.connection.message_load_balancing,
                    "max-hops": contacts.connection.max_hops,
                    "state": "FAILED" if contacts.failed or self._fault else "RUNNING",
                    "reason": contacts.failed or self._fault,
                }
                for contacts in self._contacts
            ],
            "nodes": [view.described(record) for record in view.records.values()],
            "drain": self._decisions.drain_status(),
            "disagreements": [
                {"node": one.node, "address": one.address, "here": one.ours, "there": one.theirs}
                for one in view.disagreements
            ],
        }

    def samples(self) -> Iterable[Sample]:
        """The cluster's metrics."""
        view = self._view
        return () if view is None else metrics.samples(view, self._router, self._redistribution.moved)


def _http(url: str) -> str:
    """The URL of a node for clients, from the one for its links."""
    return f"http{url.removeprefix('ws')}"


def _event(record: Record, *, reachable: bool) -> str:
    if record.state in GONE:
        return "node-left"
    return "node-joined" if reachable else "node-unreachable"
