"""One node of a simulation: a real journal, and on it the real cluster extension with everything that it has.

Only links, threads and time are the simulation's, and the search for first contacts.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

from bridge.errors import TargetUnavailable
from bridge.http.authentication import Principal
from bridge.journal.sqlite.database import FILE_NAME
from bridge.journal.target import JournalTarget
from bridge.journal.values.options import REPLAYED_QUEUE, AddressPolicy, JournalOptions
from bridge.journal.values.routing import Placement, Routing
from bridge.link.frames import Hello
from bridge.messages.addresses import RoutingType, is_own
from bridge.node.bridge_set import BridgeSet
from bridge.node.extension import NodeServices
from bridge.relay.lanes import LanedRelay
from bridge.relay.lifecycle import State
from bridge.settings.model import Settings
from cluster.drain import DrainState, Phase
from cluster.exchange import Conversation, Exchange
from cluster.extension import ClusterExtension
from cluster.record import Version
from cluster.redistribution import Redistribution
from cluster.routing import BRIDGE_PREFIX, ClusterRouter, CopiedTo, parse_place
from tests.cluster.simulation.journal import SimJournal
from tests.cluster.simulation.link import Link
from tests.fakes.virtual_time import VirtualClock

#: Prefix of the addresses that the nodes share.
SHARED: Final = "s."
#: Routing types of the shared addresses.
KINDS: Final[Mapping[str, RoutingType]] = {"s.w": "ANYCAST", "s.v": "ANYCAST", "s.p": "MULTICAST"}
#: The other end's rights: it shows a token of the acceptor.
PEER: Final = cast(
    Principal, SimpleNamespace(name="peer", is_user=False, check_deliver=lambda _address: None)
)


class RecordingRouter(ClusterRouter):
    """The real router; it also notes where each message is placed."""

    def __init__(self, copied_to: CopiedTo = lambda _address: ()) -> None:
        super().__init__(copied_to)
        #: By message, from its last placing: by queue name, the UUID of the place's node; empty: this one.
        self.places: dict[str, dict[str, str]] = {}

    def __call__(self, routing: Routing) -> Sequence[Placement] | None:
        placements = super().__call__(routing)
        here = sorted(set(routing.queues) - {REPLAYED_QUEUE})
        if KINDS[routing.address] == "ANYCAST":
            here = [routing.address]  # the queue is made where it is missing
        for index in routing.indices:
            found: dict[str, str] = dict.fromkeys(here, "") if placements is None else {}
            for to, indices in placements or ():
                if index in indices and to.bridge is not None:
                    places = map(parse_place, to.only)
                    neighbour = to.bridge.removeprefix(BRIDGE_PREFIX)
                    found |= {place.queue: place.node or neighbour for place in places}
                elif index in indices:
                    found |= {queue: "" for queue in here if queue not in to.besides}
            body = routing.message(index).whole
            assert body is not None
            self.places[body.decode()] = found
        return placements


class SimNode:
    """A node, dead or alive."""

    def __init__(self, name: str, directory: Path, settings: Settings) -> None:
        self.name = name
        self.directory = directory
        self.settings = settings
        self.uuid = ""
        self.alive = False
        #: It takes links: it has started.
        self.listens = False
        #: The process has ended, and the others do not know yet.
        self.is_dying = False
        #: It has drained, and was stopped for good.
        self.gone = False
        #: Counts lives: an answer to an earlier one reaches no caller.
        self.life = 0
        self.journal: SimJournal
        self.extension: ClusterExtension
        self.bridges: BridgeSet
        #: The newest version of each node that this life has known.
        self.known: dict[str, Version] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._dead: set[asyncio.Task[Any]] = set()

    # -- life --------------------------------------------------------------------------------------------

    async def open(self, submitted: Callable[[], None], late_s: Callable[[], float]) -> None:
        """Open the journal."""
        self.extension = ClusterExtension(self.settings)
        options = JournalOptions(
            self.directory,
            self.name,
            policy=lambda address: AddressPolicy(routing_type=KINDS.get(address, "MULTICAST")),
            delivery_log=False,
            router=self.router,
        )
        self.journal = SimJournal(options, VirtualClock(), submitted, late_s)
        self.uuid = self.journal.identity.node_id
        self.known = {}
        self.alive, self.is_dying = True, False
        self.life += 1

    async def join(self) -> None:
        """Begin to be a node of the cluster."""
        self.bridges = BridgeSet()
        services = NodeServices(
            self.settings,
            self.journal.clock,
            self.journal,
            cast(Any, None),
            self.bridges,
            lambda _connector: "",
            lambda _connector: None,
        )
        await self.extension.start(services)
        self.listens = True

    def kill(self) -> None:
        """End without a word."""
        self.alive = self.listens = False
        self.journal.abandon()
        for repeated in self.extension._tasks:
            assert repeated.task is not None
            self.hold(repeated.task)
        for bridge in self.bridges.values():
            assert isinstance(bridge.relay, LanedRelay)
            lives = [bridge.relay._life, *(lane._task for lane in bridge.relay.lanes.values())]
            for life in lives:
                if life is not None:
                    self.hold(life)
        for task in self._tasks:
            task.cancel()
        self._dead |= self._tasks
        self._tasks = set()

    async def bury(self) -> None:
        """Wait until nothing of earlier lives runs any more."""
        await asyncio.gather(*self._dead, return_exceptions=True)
        self._dead.clear()

    def do(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do something for a caller of this life; a kill ends it."""
        task = asyncio.create_task(work)
        self.hold(task)
        return task

    def forget_task(self, task: asyncio.Task[Any] | None) -> None:
        """Let a task outlive the node: the one that buries it."""
        if task is not None:
            self._tasks -= {task}

    def hold(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._discard)

    def _discard(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)

    # -- the parts of the extension ----------------------------------------------------------------------

    @property
    def router(self) -> RecordingRouter:
        assert isinstance(self.extension._router, RecordingRouter)
        return self.extension._router

    @property
    def exchange(self) -> Exchange:
        assert self.extension._exchange is not None
        return self.extension._exchange

    @property
    def redistribution(self) -> Redistribution:
        return self.extension._redistribution

    @property
    def drain(self) -> DrainState | None:
        """The drain that it has begun; None: there is none."""
        return self.extension._decisions.drain.state

    @property
    def has_drained(self) -> bool:
        return self.drain is not None and self.drain.phase is Phase.DONE

    @property
    def failed(self) -> str:
        """What has failed for good; empty: nothing has."""
        for repeated in self.extension._tasks:
            if repeated.failures:
                return f"{repeated.name}: {repeated.failing}"
        return next(
            (one.relay.reason for one in self.bridges.values() if one.relay.state is State.FAILED), ""
        )

    # -- links -------------------------------------------------------------------------------------------

    def accept(self, hello: Hello, out: Conversation) -> Link:
        """A link from another node. Raises: TargetUnavailable, TargetRefused."""
        if not self.listens:
            raise TargetUnavailable(f"{self.name} is down")
        end = self.extension.link_end(hello, PEER)
        assert end is not None
        assert isinstance(end.target, JournalTarget)
        assert isinstance(end.correspondent, Conversation)
        link = Link(
            hello.node_name, self.name, end.target, self.extension.inherited_stores, self.hold, out,
            end.correspondent,
        )  # fmt: skip
        own = Hello(1, self.uuid, self.name, self.journal.store, "", False, True, 2**20, -1, -1)
        link.begin(hello, own)
        return link

    # -- what is stored ----------------------------------------------------------------------------------

    def queues(self) -> Iterator[tuple[str, str]]:
        """The readers' queues of the shared addresses."""
        for address in self.journal.views.addresses:
            if not is_own(address.name) and address.name.startswith(SHARED):
                for queue in self.journal.views.queues(address.name):
                    if queue.name != REPLAYED_QUEUE and queue.bridge is None:
                        yield address.name, queue.name

    @property
    def stream_origin(self) -> str:
        """The part of its streams' identities that stands for this journal."""
        return self.journal.identity.incarnation

    def connect(self) -> sqlite3.Connection:
        """A connection that sees what is committed."""
        return sqlite3.connect(self.directory / FILE_NAME)
