"""One node of a simulation: a real journal, router, topology, exchange and redistribution, and the bridges to
its neighbours with the real relay. Only links, threads and time are the simulation's.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

from bridge.errors import TargetUnavailable
from bridge.journal.batching import Cutter
from bridge.journal.measures import read_queues
from bridge.journal.rules.owners import EVERY_RIGHT, Caller
from bridge.journal.source import JournalSource
from bridge.journal.sqlite.database import FILE_NAME
from bridge.journal.values.options import (
    REPLAYED_QUEUE,
    AddressPolicy,
    BridgeQueue,
    BridgeSelection,
    JournalOptions,
)
from bridge.journal.values.routing import Placement, Routing
from bridge.link.frames import Hello
from bridge.messages.addresses import RoutingType, is_own
from bridge.node.extension import NodeServices
from bridge.relay.backoff import Backoff
from bridge.relay.lifecycle import State
from bridge.relay.relay import LaneEnds, Relay, RelayOptions
from bridge.settings.clusters import ClusterConnection
from cluster.connections import Connections
from cluster.exchange import Exchange
from cluster.peers import PlacingTarget
from cluster.record import Place, Record, Version
from cluster.redistribution import Redistribution
from cluster.routing import BRIDGE_PREFIX, ClusterRouter, bridge_to, parse_place
from cluster.table import TableMaker
from cluster.topology import Topology
from tests.cluster.simulation.journal import SimJournal
from tests.cluster.simulation.link import Link, LinkTarget
from tests.fakes.virtual_time import VirtualClock

#: Prefix of the addresses that the nodes share.
SHARED: Final = "s."
#: Routing types of the shared addresses.
KINDS: Final[Mapping[str, RoutingType]] = {"s.w": "ANYCAST", "s.v": "ANYCAST", "s.p": "MULTICAST"}
READER_TIMEOUT_MS: Final = 3_000
#: At least `READER_TIMEOUT_MS` (design, section 7).
REDISTRIBUTION_DELAY_MS: Final = 3_500
RETRY_MS: Final = 200
#: So that a message of a transaction is often alone in its batch, and some are not.
BATCH_BYTES: Final = 80


class RecordingRouter(ClusterRouter):
    """The real router; it also notes the queue names at which each message is placed."""

    def __init__(self) -> None:
        super().__init__()
        #: By message, from its last placing.
        self.names: dict[str, tuple[str, ...]] = {}

    def __call__(self, routing: Routing) -> Sequence[Placement] | None:
        placements = super().__call__(routing)
        here = tuple(sorted(set(routing.queues) - {REPLAYED_QUEUE}))
        if KINDS[routing.address] == "ANYCAST":
            here = (routing.address,)  # the queue is made where it is missing
        for index in routing.indices:
            found: list[str] = []
            for to, indices in placements or ():
                if index in indices and to.bridge is not None:
                    found += [parse_place(name).queue for name in to.only]
                elif index in indices:
                    found += [queue for queue in here if queue not in to.besides]
            body = routing.message(index).body
            assert body is not None
            self.names[body.decode()] = here if placements is None else tuple(found)
        return placements


class SimNode:
    """A node, dead or alive."""

    def __init__(self, name: str, directory: Path, connection: ClusterConnection) -> None:
        self.name = name
        self.directory = directory
        self.connections = Connections((connection,))
        #: By name; set once all nodes are there.
        self.neighbours: Sequence[SimNode] = ()
        self.uuid = ""
        self.alive = False
        #: The process has ended, and the others do not know yet.
        self.is_dying = False
        #: Counts lives: an answer to an earlier one reaches no caller.
        self.life = 0
        self.journal: SimJournal
        self.router: RecordingRouter
        self.exchange: Exchange
        self.redistribution: Redistribution
        self.relays: dict[str, Relay] = {}
        self.targets: dict[str, LinkTarget] = {}
        #: Whether the router's table is behind the topology.
        self.is_behind = False
        #: The newest version of each node that this life has known.
        self.known: dict[str, Version] = {}
        self._tables: TableMaker
        self._tasks: set[asyncio.Task[Any]] = set()
        self._dead: set[asyncio.Task[Any]] = set()

    # -- life --------------------------------------------------------------------------------------------

    def open(self, submitted: Callable[[], None], late_s: Callable[[], float]) -> None:
        """Open the journal, and begin to be a node of the cluster."""
        self.router = RecordingRouter()
        options = JournalOptions(
            self.directory,
            self.name,
            policy=lambda address: AddressPolicy(routing_type=KINDS.get(address, "MULTICAST")),
            bridges=[BridgeQueue(bridge_to(one.uuid), (), lambda _address: False) for one in self.neighbours],
            delivery_log=False,
            router=self.router,
        )
        clock = VirtualClock()
        self.journal = SimJournal(options, clock, submitted, late_s)
        identity = self.journal.identity
        self.uuid = identity.node_id
        self.alive, self.is_dying = True, False
        self.life += 1
        self._tables = TableMaker(self.connections)
        record = Record(
            self.uuid, identity.store, identity.session_id, self.version(identity.opening), self.name,
            f"ws://{self.name}:61616", places=self.places(),
        )  # fmt: skip
        topology = Topology(record, self.connections.max_hops)
        self.exchange = Exchange(topology, identity.session_id, self._changed, 2)
        self.known = {}
        settings = SimpleNamespace(
            for_address=lambda _address: SimpleNamespace(redistribution_delay_ms=REDISTRIBUTION_DELAY_MS)
        )
        services = SimpleNamespace(settings=settings, clock=clock, journal=self.journal)
        self.redistribution = Redistribution(cast(NodeServices, services), self.connections, self.router)

    def version(self, opening: int) -> Version:
        """The version of the first record of this opening."""
        return Version(opening, 1)

    async def relay_to(self, dial: Callable[[SimNode], Link]) -> None:
        """Start the bridges to the neighbours."""
        await self.renew_table()
        for peer in self.neighbours:
            self.targets[peer.name] = target = LinkTarget(lambda peer=peer: dial(peer))  # type: ignore[misc]
            name = bridge_to(peer.uuid)
            selection = BridgeSelection(name, lambda _address: False, lambda address: address)
            cutter = Cutter(BATCH_BYTES, 100 * 1024, True)
            source = JournalSource(self.journal, selection, cutter, target_name=peer.name)
            backoff = Backoff(RETRY_MS, 1.0, RETRY_MS)
            relay = Relay(RelayOptions(name, backoff), LaneEnds(source, target), clock=self.journal.clock)
            self.relays[peer.name] = relay
            await relay.start()

    def kill(self) -> None:
        """End without a word."""
        self.alive = False
        self.journal.abandon()
        for relay in self.relays.values():
            if relay._task is not None:
                self.hold(relay._task)
        self.relays, self.targets = {}, {}
        for task in self._tasks:
            task.cancel()
        self._dead |= self._tasks
        self._tasks = set()

    async def bury(self) -> None:
        """Wait until nothing of earlier lives runs any more."""
        await asyncio.gather(*self._dead, return_exceptions=True)
        self._dead.clear()

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something for a caller of this life; a kill ends it."""
        self.hold(asyncio.create_task(work))

    def forget_task(self, task: asyncio.Task[Any] | None) -> None:
        """Let a task outlive the node: the one that buries it."""
        self._tasks -= {task}

    def hold(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._discard)

    def _discard(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)

    # -- links -------------------------------------------------------------------------------------------

    def hello(self, bridge: str) -> Hello:
        return Hello(1, self.uuid, self.name, self.journal.store, bridge, False, True, 2**20, -1, -1)

    def accept(self, sender: SimNode) -> Link:
        """A link from another node. Raises: TargetUnavailable."""
        if not self.alive:
            raise TargetUnavailable(f"{self.name} is down")
        target = PlacingTarget(
            self.journal, bridge_to(self.uuid), Caller(EVERY_RIGHT, sender.uuid), self.redistribution.arrived
        )
        link = Link(
            sender.name,
            self.name,
            target,
            self.hold,
            sender.exchange.conversation(outgoing=True),
            self.exchange.conversation(outgoing=False),
        )
        link.begin(sender.hello(bridge_to(self.uuid)), self.hello(""))
        return link

    @property
    def failed(self) -> str:
        """Why a bridge has failed for good; empty: none has."""
        return next((one.reason for one in self.relays.values() if one.state is State.FAILED), "")

    # -- topology ----------------------------------------------------------------------------------------

    def _changed(self) -> None:
        self.is_behind = True

    def places(self) -> tuple[Place, ...]:
        """As `cluster.extension` advertises them."""
        journal = self.journal
        read = read_queues(journal.state, journal.presence, journal.lease_now_ms, READER_TIMEOUT_MS)
        return tuple(
            Place(address, queue, int((address, queue) in read), "", KINDS[address])
            for address, queue in self.queues()
        )

    def queues(self) -> Iterator[tuple[str, str]]:
        """The readers' queues of the shared addresses."""
        for address in self.journal.address_states():
            if not is_own(address.name) and self.connections.of(address.name) is not None:
                for queue in address.queues:
                    if queue != REPLAYED_QUEUE and not queue.startswith(f"$bridge.{BRIDGE_PREFIX}"):
                        yield address.name, queue

    def say_own(self) -> None:
        """Let the topology have this node's own record as it is now."""
        topology = self.exchange.topology
        before = topology.records[self.uuid]
        record = Record(
            before.node, before.store, before.run, before.version, before.name, before.url,
            places=self.places(),
        )  # fmt: skip
        if topology.own(record):
            self.exchange.changed((self.uuid,))

    async def renew_table(self) -> None:
        """Give the router a table of what is known now."""
        self.is_behind = False
        self.router.table = await self._tables.table(self.exchange.topology.snapshot())

    # -- what is stored ----------------------------------------------------------------------------------

    @property
    def stream_origin(self) -> str:
        """The part of its streams' identities that stands for this journal."""
        return self.journal.identity.incarnation

    def connect(self) -> sqlite3.Connection:
        """A connection that sees what is committed."""
        return sqlite3.connect(self.directory / FILE_NAME)
