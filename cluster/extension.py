"""The cluster as an extension of a node: what it says of itself, what it knows of the others, and the links
between.

The event loop has the topology and the links; the journal's writer has the router and its table. Everything
that must not be lost is in the journal: copies for other nodes wait in forward logs, whose bridges are here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
import structlog

from bridge.end_kind import kind_of
from bridge.errors import Conflict, NotFound, Stopping, TargetRefused, TargetUnavailable, described
from bridge.http.additions import shown, taken
from bridge.http.authentication import Principal
from bridge.http.problems import Forbidden
from bridge.http.router import Addition
from bridge.journal.rules.owners import EVERY_RIGHT, Caller
from bridge.journal.values.options import REPLAYED_QUEUE
from bridge.journal.values.routing import Router
from bridge.link.correspondent import LinkEnd
from bridge.link.duplicate_query import CONTENT_TYPE
from bridge.link.frames import Hello
from bridge.link.socket import post
from bridge.messages.addresses import is_own
from bridge.messages.stream_names import forward_log
from bridge.node.extension import Extension, NodeServices
from bridge.relay.lifecycle import State
from bridge.runtime.metrics import Sample
from bridge.settings.clusters import ClusterConnection
from bridge.settings.model import Settings
from cluster import metrics
from cluster.connections import Connections
from cluster.contacts import Address, Contacts, Own
from cluster.drain import LEASE_TIMEOUT_MS, Drain, Phase
from cluster.exchange import Exchange
from cluster.handover import CALL_MOST, PATH, AnyCall
from cluster.handover import Answer as HeirAnswer
from cluster.heirs import Heirs
from cluster.peers import Peer, Peers, PlacingTarget, contacting_run
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


#: Bytes of an operator's request.
_REQUEST_MOST: Final = 16 * 1024


class DrainRequest(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    """``POST /v1/cluster/drain``."""

    #: Name or UUID of the heir.
    to: str
    #: Also where the heir has not all bridges of this node.
    force: bool = False
    #: How long leases may last once nothing comes in any more, in ms.
    lease_timeout: int = LEASE_TIMEOUT_MS


class ClusterExtension(Extension):
    """The cluster connections of one node."""

    name = "cluster"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connections = Connections(settings.cluster_connections)
        self._router = ClusterRouter()
        self._tables = TableMaker(self._connections)
        self._node: NodeServices
        #: None until the journal is open, and after the stop.
        self._exchange: Exchange | None = None
        self._peers: Peers
        self._redistribution: Redistribution
        self._heirs: Heirs
        self._drain: Drain
        self._contacts: list[Contacts] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        #: An unforeseen error that ended a part of the work; empty: none.
        self._fault = ""
        self._state = NodeState.UP
        #: `Notices.named` when the places were last read, and the places without readers.
        self._named = -1
        self._queues: list[Place] = []
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
        identity = node.journal.identity
        first = self._connections.all[0]
        record = Record(
            identity.node_id,
            identity.store,
            identity.session_id,
            Version(identity.opening, 1),
            self._settings.node.name,
            self._settings.connectors[first.connector_ref].url,
            places=self._places(),
        )
        topology = Topology(record, self._connections.max_hops)
        self._exchange = Exchange(
            topology, identity.session_id, self._changed.set, first.notification_attempts
        )
        self._peers = Peers(node, node.journal.options.dead_letter_address)
        self._redistribution = Redistribution(
            node, self._connections, self._router, lambda: self._drain.state is not None
        )
        bridges = [
            bridge.name
            for bridge in self._settings.bridges
            if kind_of(self._settings, bridge.source_connector).is_own
        ]
        self._heirs = Heirs(node.journal, bridges, self._changed.set)
        await self._heirs.load()
        self._drain = Drain(
            node.journal, self._settings.node.name, bridges, self._call_heir, self._changed.set
        )
        self._drain.inherited = lambda: self._heirs.stores
        await self._drain.load()
        self._contacts = []
        for connection in self._connections.all:
            contacts = Contacts(
                connection, self._peers, Own(identity.node_id, identity.session_id), self._found
            )
            self._contacts.append(contacts)
            self._begin(contacts.run(*self._addresses(connection)))
        await self._apply(topology)
        self._begin(self._drain.run())
        self._begin(self._redistribution.run())
        self._begin(self._watch_own())
        self._begin(self._apply_changes())
        self._begin(self._say_known(first.notification_interval_ms / 1000))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(self._guarded(work), name="cluster"))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it; should it fail, the cluster connections are FAILED, and say so."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - a fault must not look like a healthy cluster
            self._fault = described(error)
            self._log.error("cluster-failed", reason=self._fault, exc_info=error)

    async def stop(self) -> None:
        """Say that this node leaves, and end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self._exchange = None

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
        static = [Address(connectors[name].url, name, static=True) for name in connection.static_connectors]
        own = Address(connectors[connection.connector_ref].url, connection.connector_ref)
        return static, own if connection.discovery else None

    # -- links -------------------------------------------------------------------------------------------

    def link_end(self, hello: Hello, principal: Principal) -> LinkEnd | None:
        """This node's end of another node's link.

        Raises: Forbidden: the caller has not every right. TargetRefused: it is for another node.
        """
        if not hello.bridge.startswith(BRIDGE_PREFIX[:-1]):
            return None
        exchange = self._exchange
        if exchange is None:
            raise TargetRefused("this node is leaving")
        if principal.is_user:
            detail = f"{principal.name} may not join the cluster: that takes a token of the acceptor"
            raise Forbidden(detail, "link")
        own = exchange.topology.node
        run = contacting_run(hello.bridge)
        if hello.node_id == own and run != exchange.run:
            record = exchange.topology.records[own]
            raise TargetRefused(
                f"SAME_NODE_TWICE: {own} is running already, {record.name} at {record.url}, run {record.run};"
                f" {hello.node_name} has a copy of its journal, run {run or 'unknown'}"
            )
        journal = self._node.journal
        mine = (own, *self._heirs.inherited)
        if run is None and hello.bridge.removeprefix(BRIDGE_PREFIX) not in mine:
            raise TargetRefused(f"this node is {own}; the link is for {hello.bridge}", "bridge")
        target = PlacingTarget(
            journal,
            hello.bridge,
            Caller(EVERY_RIGHT, hello.node_id, principal.check_deliver),
            self._redistribution.arrived,
        )
        return LinkEnd(target, None if run is not None else exchange.conversation(outgoing=False))

    async def _call_heir(self, heir: str, call: AnyCall) -> str:
        """What the node refuses. Raises: TargetUnavailable, TargetRefused: it does not answer."""
        peer = self._peers.known(heir)
        if peer is None:
            raise TargetUnavailable(f"there is no link to {heir}")
        endpoint = self._peers.endpoint(peer.connector, peer.url)
        timeout_ms = self._connections.all[0].call_timeout_ms
        body = await post(endpoint, PATH, msgspec.msgpack.encode(call), CONTENT_TYPE, timeout_ms)
        try:
            return msgspec.msgpack.decode(body, type=HeirAnswer).refused
        except msgspec.DecodeError as error:
            raise TargetUnavailable(f"{endpoint}: its answer cannot be read: {error}") from error

    async def _be_heir(self, call: AnyCall, principal: Principal) -> HeirAnswer:
        if principal.is_user:
            raise Forbidden(
                f"{principal.name} may not hand a node over: that takes a token of the acceptor", "link"
            )
        if self._exchange is None:
            raise Stopping("this node is stopping")
        return await self._heirs.take(call, draining=self._drain.state is not None)

    async def _begin_drain(self, asked: DrainRequest, _principal: Principal) -> Mapping[str, Any]:
        """Begin a drain. Raises: Conflict, NotFound, TargetUnavailable, TargetRefused."""
        if self._exchange is None:
            raise Stopping("this node is stopping")
        if self._drain.state is None:
            if self._heirs.busy:
                detail = f"{self._heirs.busy} is handing its messages over to this node"
                raise Conflict(detail, "to", found=asked.to)
            heir = self._neighbour(asked.to)
            await self._drain.begin(
                heir.node, heir.name, force=asked.force, lease_timeout_ms=asked.lease_timeout
            )
        return self._drain_status()

    async def _cancel_drain(self, _asked: object, _principal: Principal) -> Mapping[str, Any]:
        if await self._drain.cancel():
            detail = "messages have been moved: the drain can only go on"
            raise Conflict(detail, "phase", found=self._drain_status()["phase"])
        return self._drain_status()

    def _neighbour(self, name: str) -> Record:
        """A node by name or UUID, to which there is a link. Raises: NotFound, Conflict."""
        assert self._exchange is not None
        topology = self._exchange.topology
        found = [
            one
            for one in topology.records.values()
            if name in (one.name, one.node) and one.node != topology.node
        ]
        if len(found) != 1:
            raise NotFound(f"{len(found)} other nodes are called {name}; expected one", key="to", found=name)
        if found[0].state is not NodeState.UP or topology.distance(found[0].node) != 1:
            detail = f"{name} is {found[0].state.value}, and {topology.distance(found[0].node)} links away"
            raise Conflict(detail, "to", found=name)
        return found[0]

    def _drain_status(self) -> Mapping[str, Any]:
        state = self._drain.state
        if state is None:
            return {"phase": None}
        return {
            "phase": state.phase.value,
            "heir": state.heir_name,
            "heir-id": state.heir,
            "moved": state.moved,
            "waits": self._drain.waits,
        }

    def inherited_stores(self) -> Iterable[str]:
        """Those of the leavers."""
        return () if self._exchange is None else [store for _, store in self._heirs.stores]

    async def _found(self, peer: Peer, connection: ClusterConnection) -> None:
        exchange = self._exchange
        if exchange is not None:
            await self._peers.ensure(peer, connection, lambda: exchange.conversation(outgoing=True))

    # -- this node's record --------------------------------------------------------------------------------

    async def _watch_own(self) -> None:
        while True:
            self._say_own()
            await asyncio.sleep(LOOK_S)

    def _say_own(self) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        topology = exchange.topology
        before = topology.records[topology.node]
        state, heir = self._own_state()
        places = () if state in GONE else self._places()
        record = Record(
            before.node, before.store, before.run, before.version, before.name, before.url,
            state, heir, self._heirs.inherited, places,
        )  # fmt: skip
        if topology.own(record):
            exchange.changed((topology.node,))

    def _own_state(self) -> tuple[NodeState, str]:
        """This node's state, and its heir where it has one."""
        drain = self._drain.state
        if drain is not None and drain.phase is Phase.DONE:
            return NodeState.DRAINED, drain.heir
        if self._state is NodeState.UP and drain is not None:
            return NodeState.DRAINING, drain.heir
        return self._state, ""

    def _places(self) -> tuple[Place, ...]:
        """The queues of the shared addresses, with their readers."""
        journal = self._node.journal
        if self._named != journal.notices.named:
            self._named = journal.notices.named
            self._queues = list(self._read_queues())
        timeouts = {one.name: one.reader_timeout_ms for one in self._connections.all}
        read = journal.read_queues(max(timeouts.values()))
        read |= self._bridges_readers()
        return tuple(
            Place(one.address, one.queue, 1, one.filter, one.routing_type)
            if (one.address, one.queue) in read
            else one
            for one in self._queues
        )

    def _read_queues(self) -> Iterator[Place]:
        for address in self._node.journal.address_states():
            if is_own(address.name) or self._connections.of(address.name) is None:
                continue
            for queue in list(address.queues.values()):
                if queue.name != REPLAYED_QUEUE and not queue.name.startswith(f"$bridge.{BRIDGE_PREFIX}"):
                    yield Place(address.name, queue.name, 0, queue.condition, address.routing_type)

    def _bridges_readers(self) -> set[tuple[str, str]]:
        """The queues that running bridges of the settings read."""
        found: set[tuple[str, str]] = set()
        for bridge in self._settings.bridges:
            running = self._node.bridges.get(bridge.name)
            if running is None or running.relay.state in (State.STOPPED, State.FAILED):
                continue
            found |= {(name.address, name.queue) for name in bridge.shared_queues}
            for place in self._queues:
                own = place.queue == f"$bridge.{bridge.name}"
                shared = place.queue == place.address and bridge.selects(place.address)
                if own or (shared and place.routing_type == "ANYCAST"):
                    found.add((place.address, place.queue))
        return found

    # -- changes -----------------------------------------------------------------------------------------

    async def _apply_changes(self) -> None:
        """Tell changes to the others, make links to new nodes, and give the router a new table."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(GATHER_S)
            self._changed.clear()
            exchange = self._exchange
            if exchange is None:
                return
            exchange.tell_changes()
            await self._apply(exchange.topology)
            await self._make_links(exchange)

    async def _apply(self, topology: Topology) -> None:
        """Give the router the present table, and show it."""
        view = View.of(topology)
        self._router.table = await self._tables.table(topology.snapshot(), self._heirs.inherited)
        self._view = view
        self._log_changes(view)

    async def _make_links(self, exchange: Exchange) -> None:
        """Have a link to each node that is known, unless only configured ones are wanted, and to the heirs of
        those that are drained.
        """
        records = list(exchange.topology.records.values())
        heirs = {leaver: record for record in records for leaver in record.inherited}
        for record in records:
            if record.node == exchange.topology.node or record.node in heirs:
                continue
            known = self._peers.known(record.node)
            if known is not None and (known.static or known.url == record.url):
                continue
            for connection in self._connections.all:
                if not connection.allow_direct_connections_only:
                    peer = Peer(record.node, record.name, record.url, connection.connector_ref)
                    await self._found(peer, connection)
                    break
        first = self._connections.all[0]
        for leaver, heir in heirs.items():
            if leaver in self._peers or self._has_forward_log(leaver):
                known = self._peers.known(heir.node) or Peer("", "", heir.url, first.connector_ref)
                stores = tuple(store for _, store in self._heirs.stores)
                peer = Peer(leaver, heir.name, known.url, known.connector, heir=heir.node, stores=stores)
                await self._found(peer, first)

    def _has_forward_log(self, node: str) -> bool:
        prefix = forward_log(node, "")
        return any(address.name.startswith(prefix) for address in self._node.journal.address_states())

    async def _say_known(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            if self._exchange is not None:
                self._exchange.tell_known()
                self._exchange.tell_changes()

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
        """``GET /v1/cluster``, and the drain."""
        yield shown("/v1/cluster", self.status)
        yield shown("/v1/cluster/drain", self._drain_status)
        yield taken("/v1/cluster/drain", DrainRequest, _REQUEST_MOST, self._begin_drain)
        yield taken("/v1/cluster/drain/cancel", dict, _REQUEST_MOST, self._cancel_drain, default=b"{}")

    def acceptor_routes(self) -> Iterable[Addition]:
        """The calls of a leaver to its heir."""
        yield taken(PATH, AnyCall, CALL_MOST, self._be_heir, changes=False)

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
            "drain": self._drain_status(),
            "disagreements": [
                {"node": one.node, "address": one.address, "here": one.ours, "there": one.theirs}
                for one in view.disagreements
            ],
        }

    def samples(self) -> Iterable[Sample]:
        """The cluster's metrics."""
        view = self._view
        return () if view is None else metrics.samples(view, self._router, self._redistribution.moved)


def _event(record: Record, *, reachable: bool) -> str:
    if record.state in GONE:
        return "node-left"
    return "node-joined" if reachable else "node-unreachable"
