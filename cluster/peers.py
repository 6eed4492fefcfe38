"""The bridges to the other nodes: one for each, over the node link, fed by its forward logs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from bridge.assembly.summary import BridgeSummary
from bridge.errors import TargetUnavailable
from bridge.journal.batching import Cutter
from bridge.journal.journal import Journal
from bridge.journal.rules.owners import Caller
from bridge.journal.source import JournalSource
from bridge.journal.target import JournalTarget
from bridge.journal.values.options import BridgeQueue, BridgeSelection
from bridge.link.correspondent import Correspondent
from bridge.link.frames import Hello
from bridge.link.limits import VERSION
from bridge.link.node_target import NodeTarget
from bridge.link.socket import Endpoint
from bridge.messages.batch import Batch
from bridge.messages.stream_names import forward_log, forwarded_address
from bridge.node.extension import NodeServices
from bridge.relay.backoff import Backoff
from bridge.relay.counts import Counts
from bridge.relay.dead_letters import DeadLetters
from bridge.relay.lanes import LanedRelay
from bridge.relay.lifecycle import State
from bridge.relay.operated import Operated
from bridge.relay.ownership import AllLanes
from bridge.relay.ports import Opened, Receipt, Stream
from bridge.relay.relay import LaneEnds, Relay, RelayOptions
from bridge.relay.stages import Stage
from bridge.settings.clusters import ClusterConnection
from cluster.routing import BRIDGE_PREFIX, bridge_to

#: Begins the bridge name in the HELLO of a first contact, for which no node is known yet.
_CONTACT: Final = BRIDGE_PREFIX[:-1] + ":"
#: Most digits of an opening's number.
_OPENING_DIGITS: Final = 18
#: States that a bridge leaves at an operator's word alone.
_RESTING: Final = frozenset({State.STOPPED, State.PAUSED})
#: Peers that a node has at a time.
PEERS: Final = 64


class Process(NamedTuple):
    """A process of a node, as a first contact names it: told from another one with the node's journal."""

    run: str
    #: Of its journal, counted.
    opening: int


def contact_name(process: Process) -> str:
    """The bridge name in the HELLO of a first contact by this process."""
    return f"{_CONTACT}{process.opening}.{process.run}"


def contacting(bridge: str) -> Process | None:
    """The process that makes a first contact; None: the HELLO is another link's."""
    if not bridge.startswith(_CONTACT):
        return None
    opening, _, run = bridge.removeprefix(_CONTACT).partition(".")
    return Process(run, int(opening) if opening.isdecimal() and len(opening) <= _OPENING_DIGITS else 0)


@dataclass(frozen=True, slots=True)
class Peer:
    """One other node: who it is, and how it is reached."""

    node: str
    name: str
    url: str
    #: The connector whose credentials serve for it.
    connector: str
    #: Whether the settings name its address: then its own word does not change it.
    static: bool = False
    #: UUID of the node that answers for it: its heir, after a drain. Empty: itself.
    heir: str = ""
    #: Where that is this node: the stores that it answers for.
    stores: tuple[str, ...] = ()


class PeerTarget(NodeTarget):
    """The node with one UUID. An address may lead to another node by now."""

    def __init__(self, node: str, endpoint: Endpoint, hello: Hello, **how: object) -> None:
        super().__init__(endpoint, hello, **how)  # type: ignore[arg-type]
        self._node = node

    async def open(self, streams: Sequence[Stream]) -> Opened:
        """As `NodeTarget.open`. Raises: TargetUnavailable: another node answers."""
        opened = await super().open(())
        found = self.welcome.node_id if self.welcome is not None else ""
        if found != self._node:
            await self.close()
            raise TargetUnavailable(f"the node {found} answers there; expected {self._node}")
        return await super().open(streams) if streams else opened


class PlacingTarget(JournalTarget):
    """This node's journal for copies that another node has placed at queues here, or behind it."""

    def __init__(
        self,
        journal: Journal,
        bridge: str,
        caller: Caller,
        arrived: Callable[[str], None],
        inherited: tuple[str, ...] = (),
    ) -> None:
        """`arrived` is called with the address of each batch that brings copies.

        `inherited`: stores that this one answers for, where no link says so.
        """
        super().__init__(journal, bridge, check_producer_ids=False, caller=caller, places=True)
        self._arrived = arrived
        self._inherited = inherited

    async def open(self, streams: Sequence[Stream]) -> Opened:
        """As `JournalTarget.open`."""
        return replace(await super().open(streams), inherited=self._inherited)

    async def deliver(self, batches: Sequence[Batch]) -> Sequence[Receipt]:
        """As `JournalTarget.deliver`."""
        receipts = await super().deliver(batches)
        for batch in batches:
            if batch.block is not None and (address := forwarded_address(batch.stream)) is not None:
                self._arrived(address)
        return receipts


class Peers:
    """The bridges to other nodes, by UUID."""

    def __init__(
        self,
        services: NodeServices,
        dead_letter_address: str,
        stage: Callable[[str], Stage | None] = lambda _node: None,
    ) -> None:
        """`stage`: by a peer's UUID, what happens to its copies before they are sent."""
        self._services = services
        self._dead_letter_address = dead_letter_address
        self._stage = stage
        self._peers: dict[str, Peer] = {}
        self._changing = asyncio.Lock()

    def __contains__(self, node: object) -> bool:
        return node in self._peers

    def known(self, node: str) -> Peer | None:
        """The peer as its bridge reaches it; None: it has no bridge."""
        return self._peers.get(node)

    @property
    def all(self) -> Sequence[Peer]:
        """Every peer that has a bridge."""
        return list(self._peers.values())

    def is_served(self, node: str) -> bool:
        """Whether the node has a bridge that is connected, or that waits for an operator."""
        bridge = self._services.bridges.get(bridge_to(node))
        return bridge is not None and (bridge.relay.connected or bridge.relay.state in _RESTING)

    def endpoint(self, connector: str, url: str) -> Endpoint:
        """How to reach `url` with the credentials of a connector."""
        settings = self._services.settings.connectors[connector]
        return Endpoint(
            url,
            partial(self._services.token, connector),
            self._services.tls(connector),
            settings.server_name or None,
            connector if url == settings.url else "",
            settings.proxy_to(url),
            settings.compression,
        )

    def hello(self, bridge: str, connection: ClusterConnection) -> Hello:
        """The HELLO of a link of this node."""
        journal = self._services.journal
        return Hello(
            version=VERSION,
            node_id=journal.identity.node_id,
            node_name=self._services.settings.node.name,
            store=journal.store,
            bridge=bridge,
            check_producer_ids=False,
            use_duplicate_detection=connection.use_duplicate_detection,
            producer_window=connection.producer_window_size_bytes,
            check_period_ms=connection.check_period_ms,
            connection_ttl_ms=connection.connection_ttl_ms,
            window=connection.confirmation_window_size_bytes,
        )

    def _keeps(self, peer: Peer) -> bool:
        """Whether the bridge stays where it is, though the node answers at another address, too."""
        return peer.static and self.is_served(peer.node)

    async def ensure(
        self, peer: Peer, connection: ClusterConnection, correspondent: Callable[[], Correspondent]
    ) -> None:
        """Have a running bridge to the peer, at its present address."""
        async with self._changing:
            known = self._peers.get(peer.node)
            if known is not None and (_way(known) == _way(peer) or self._keeps(known)):
                return
            if known is None and len(self._peers) >= PEERS:
                return
            if known is not None:
                await self._services.remove(bridge_to(peer.node), _queue(peer.node))
            self._peers[peer.node] = peer
            await self._services.add(
                bridge_to(peer.node),
                self._relay(peer, connection, correspondent()),
                self._summary(peer, connection),
                _queue(peer.node),
            )

    async def drop(self, node: str) -> None:
        """End the bridge to a node; what waits for it stays."""
        async with self._changing:
            if self._peers.pop(node, None) is not None:
                await self._services.remove(bridge_to(node), _queue(node))

    def _summary(self, peer: Peer, connection: ClusterConnection) -> BridgeSummary:
        exactly_once = connection.use_duplicate_detection
        return BridgeSummary(
            source=f"journal:{forward_log(peer.name, '#')}",
            target=peer.name,
            guarantee="exactly-once" if exactly_once else "at-least-once",
            check_producer_ids=False,
            id_cache_size=self._services.settings.duplicate_detection.id_cache_size,
            from_journal=True,
            proxies=self._proxies(peer),
        )

    def _proxies(self, peer: Peer) -> dict[str, str]:
        found = self._services.settings.connectors[peer.connector].proxy_to(peer.url)
        return {} if found is None else {peer.connector: str(found)}

    def _relay(self, peer: Peer, connection: ClusterConnection, correspondent: Correspondent) -> Operated:
        name = bridge_to(peer.node)
        options = RelayOptions(
            name,
            Backoff(
                connection.retry_interval_ms,
                connection.retry_interval_multiplier,
                connection.max_retry_interval_ms,
                random.random,
            ),
            initial_connect_attempts=connection.initial_connect_attempts,
            reconnect_attempts=connection.reconnect_attempts,
            confirmation_window_size=connection.confirmation_window_size_bytes,
            producer_window_size=connection.producer_window_size_bytes,
        )

        def lane(_number: int) -> Relay:
            stage, counts = self._stage(peer.node), Counts()
            return Relay(
                options,
                self._ends(peer, connection, correspondent, counts),
                clock=self._services.clock,
                counts=counts,
                stages=() if stage is None else (stage,),
            )

        return LanedRelay(options, AllLanes(1), lane, numbered=False)

    def _ends(
        self, peer: Peer, connection: ClusterConnection, correspondent: Correspondent, counts: Counts
    ) -> LaneEnds:
        journal, name = self._services.journal, bridge_to(peer.node)
        cutter = Cutter(
            connection.producer_window_size_bytes,
            connection.min_large_message_size_bytes,
            connection.use_duplicate_detection,
        )
        selection = BridgeSelection(name, lambda _address: False, lambda address: address)
        source = JournalSource(journal, selection, cutter, target_name=peer.name)
        letters = DeadLetters(
            name,
            self._dead_letter_address,
            lambda letters: JournalTarget(journal, letters, check_producer_ids=False),
        )
        if peer.heir == journal.identity.node_id:  # this node's own copies for a node that it answers for
            own = PlacingTarget(journal, name, Caller(node=peer.heir), lambda _address: None, peer.stores)
            return LaneEnds(source, own, letters)
        target = PeerTarget(
            peer.heir or peer.node,
            self.endpoint(peer.connector, peer.url),
            self.hello(name, connection),
            call_timeout_ms=connection.call_timeout_ms,
            clock=self._services.clock,
            correspondent=correspondent,
            read_chunk=journal.read_chunk,
            traffic=counts,
        )
        return LaneEnds(source, target, letters)


def _way(peer: Peer) -> tuple[str, str, str]:
    return peer.url, peer.connector, peer.heir


def _queue(node: str) -> BridgeQueue:
    """The queue that the bridge to a node reads, which is made with each of its forward logs."""
    return BridgeQueue(bridge_to(node), (), lambda _address: False)
