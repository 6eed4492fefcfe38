"""An extension: what a node has beside its journal, its listeners and the bridges of its settings.

Each hook adds nothing by default, and an extension overrides those that it needs. The node calls them in
this order: the routes when its listeners are made, `router` before the journal opens, `start` when it is
open, the questions (`unready`, `status`, `samples`, `link_end`) while it runs, `leaving` when it is asked to
stop, `stop` after the bridges have stopped and before the journal closes. `bridge.node.wiring` lists the
extensions of a node, and installed packages add to them by an entry point of the group `GROUP`. A command of
one is an entry in `bridge.cli.COMMANDS`, whose module may be anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter
from typing import Any, Final

from bridge.assembly.bridges import Assembly
from bridge.assembly.summary import BridgeSummary
from bridge.end_kind import kind_of
from bridge.errors import Conflict
from bridge.http.authentication import Principal
from bridge.http.router import Addition
from bridge.journal.journal import Journal
from bridge.journal.node_ends import bridge_queue
from bridge.journal.rules.commands import BridgeCommand
from bridge.journal.values.options import BridgeQueue
from bridge.journal.values.routing import Router
from bridge.link.correspondent import LinkEnd
from bridge.link.frames import Hello
from bridge.node.bridge_set import BridgeSet
from bridge.relay.operated import Operated
from bridge.runtime.clock import Clock
from bridge.runtime.foreign_code import LOAD_TIMEOUT_MS, NotLoaded, load_within
from bridge.runtime.metrics import Sample
from bridge.runtime.tls import FileContext
from bridge.settings.bridges import Bridge
from bridge.settings.model import Settings

#: Entry points of this group make extensions: ``cluster = "cluster.entry:extension"``. Each is called with
#: the settings and answers an `Extension`, or None where the settings do not ask for one.
GROUP: Final = "core_bridge.extensions"


def installed(settings: Settings) -> Iterator[Extension]:
    """The extensions that installed packages have for a node with these settings. Raises: NotLoaded."""
    for point in sorted(entry_points(group=GROUP), key=attrgetter("name")):
        name = f"extension {point.name}"
        try:
            extension: Extension | None = load_within(
                name, partial(_loaded, point, settings), LOAD_TIMEOUT_MS
            )
        except NotLoaded as error:
            raise NotLoaded(f"{name} ({point.value}): {error.detail}") from None
        if extension is not None:
            yield extension


def _loaded(point: EntryPoint, settings: Settings) -> Extension | None:
    made: Extension | None = point.load()(settings)
    return made


@dataclass(slots=True)
class NodeServices:
    """The parts of an open node that an extension works with."""

    #: Those that are in effect; a reload replaces them, and `assembly` with them.
    settings: Settings
    clock: Clock
    journal: Journal
    #: Makes the ends of connectors.
    assembly: Assembly
    #: The node's bridges.
    bridges: BridgeSet
    #: By a connector's name, the token to show and the TLS context, from their present files.
    token: Callable[[str], str]
    tls: Callable[[str], FileContext | None]

    async def add_bridge(self, bridge: Bridge) -> None:
        """Add a bridge of the settings' form to the running node: as `add`."""
        relay, summary = self.assembly.operated(bridge), self.assembly.summary(bridge)
        await self.add(bridge.name, relay, summary, self._queue(bridge))

    async def add(
        self, name: str, relay: Operated, summary: BridgeSummary, queue: BridgeQueue | None = None
    ) -> None:
        """Add a bridge to the running node, and start it; returns when it has begun.

        `queue`: the queue that it reads from this journal, from everything that is there, or where it was;
        None: it does not read the journal.
        Raises: Conflict: there is one of this name.
        """
        if name in self.bridges:
            raise Conflict(f"there is a bridge {name} already", key="bridge", found=name)
        if queue is not None:
            await self.journal.submit(BridgeCommand, action="add", bridge=queue)
        self.bridges.add(name, relay, summary)
        await self.bridges.start(name)

    async def remove_bridge(self, bridge: Bridge) -> None:
        """Stop a bridge, and take it out of the node: as `remove`."""
        await self.remove(bridge.name, self._queue(bridge))

    async def remove(self, name: str, queue: BridgeQueue | None = None) -> None:
        """Stop a bridge, and take it out of the node. What waits for it stays (`core-bridge forget`).

        Raises: NotFound: there is none of this name.
        """
        await self.bridges.remove(name)
        if queue is not None:
            await self.journal.submit(BridgeCommand, action="remove", bridge=queue)

    def _queue(self, bridge: Bridge) -> BridgeQueue | None:
        is_own = kind_of(self.settings, bridge.source_connector).is_own
        return bridge_queue(bridge, self.settings) if is_own else None


class Extension:
    """One extension of one node."""

    #: The key of its part of the status; empty: it has none.
    name = ""

    def operations_routes(self) -> Iterable[Addition]:
        """Calls of the operations listener. They may come before `start`, and after `stop`."""
        return ()

    def acceptor_routes(self) -> Iterable[Addition]:
        """Calls of the acceptor, which opens after `start`."""
        return ()

    def router(self) -> Router | None:
        """Decides where messages are stored; asked before the journal opens. None: it does not."""
        return None

    async def start(self, node: NodeServices) -> None:
        """Begin. Raises: BridgeError: the node does not start."""

    def reloaded(self) -> None:
        """The settings have changed: `NodeServices.settings` and `NodeServices.assembly` are others now.
        Cluster connections, and the connectors that they name, are as they were.
        """

    def leaving(self) -> None:
        """The node is going to stop: its links and bridges are still up."""

    async def stop(self) -> None:
        """End within a second; also called where `start` was not."""

    def link_end(self, hello: Hello, principal: Principal) -> LinkEnd | None:
        """This node's end of a link that another node opens; None: the link is not this extension's.

        Raises: Forbidden: the caller may not open it. TargetRefused: it will never be served.
        """
        del hello, principal
        return None

    def inherited_stores(self) -> Iterable[str]:
        """Identities of other stores that this node answers for: links are told."""
        return ()

    def unready(self) -> Iterable[str]:
        """The reasons why the node is not ready."""
        return ()

    def status(self) -> Mapping[str, Any]:
        """Its part of ``GET /v1/status``, under `name`."""
        return {}

    def samples(self) -> Iterable[Sample]:
        """Its metrics at a scrape."""
        return ()
