"""An extension: what a node has beside its journal, its listeners and the bridges of its settings.

Each hook adds nothing by default, and an extension overrides those that it needs. The node calls them in
this order: the routes when its listeners are made, `start` when the journal is open, the questions
(`unready`, `status`, `samples`, `link_end`) while it runs, `stop` after the bridges have stopped and
before the journal closes. `bridge.node.wiring` lists the extensions of a node; a command of one is an entry
in `bridge.cli.COMMANDS`, whose module may be anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bridge.assembly.bridges import Assembly
from bridge.end_kind import kind_of
from bridge.errors import Conflict
from bridge.http.authentication import Principal
from bridge.http.router import Addition
from bridge.journal.journal import Journal
from bridge.journal.node_ends import bridge_queue
from bridge.journal.rules.commands import BridgeCommand
from bridge.link.correspondent import LinkEnd
from bridge.link.frames import Hello
from bridge.node.bridge_set import BridgeSet
from bridge.runtime.clock import Clock
from bridge.runtime.metrics import Sample
from bridge.settings.bridges import Bridge
from bridge.settings.model import Settings


@dataclass(frozen=True, slots=True)
class NodeServices:
    """The parts of an open node that an extension works with."""

    settings: Settings
    clock: Clock
    journal: Journal
    #: Makes the ends of connectors.
    assembly: Assembly
    #: The node's bridges.
    bridges: BridgeSet

    async def add_bridge(self, bridge: Bridge) -> None:
        """Add a bridge to the running node, and start it; returns when it has begun.

        One that reads the journal reads everything that is there, or goes on where it was.

        Raises: Conflict: there is one of this name.
        """
        if bridge.name in self.bridges:
            raise Conflict(f"there is a bridge {bridge.name} already", key="bridge", found=bridge.name)
        if self._reads_journal(bridge):
            queue = bridge_queue(bridge, self.settings)
            await self.journal.submit(BridgeCommand, action="add", bridge=queue)
        self.bridges.add(bridge.name, self.assembly.operated(bridge), self.assembly.summary(bridge))
        await self.bridges.start(bridge.name)

    async def remove_bridge(self, bridge: Bridge) -> None:
        """Stop a bridge, and take it out of the node. What waits for it stays (`core-bridge forget`).

        Raises: NotFound: there is none of this name.
        """
        await self.bridges.remove(bridge.name)
        if self._reads_journal(bridge):
            queue = bridge_queue(bridge, self.settings)
            await self.journal.submit(BridgeCommand, action="remove", bridge=queue)

    def _reads_journal(self, bridge: Bridge) -> bool:
        return kind_of(self.settings, bridge.source_connector).is_own


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

    async def start(self, node: NodeServices) -> None:
        """Begin. Raises: BridgeError: the node does not start."""

    async def stop(self) -> None:
        """End within a second; also called where `start` was not."""

    def link_end(self, hello: Hello, principal: Principal) -> LinkEnd | None:
        """This node's end of a link that another node opens; None: the link is not this extension's.

        Raises: Forbidden: the caller may not open it. TargetRefused: it will never be served.
        """
        del hello, principal
        return None

    def unready(self) -> Iterable[str]:
        """The reasons why the node is not ready."""
        return ()

    def status(self) -> Mapping[str, Any]:
        """Its part of ``GET /v1/status``, under `name`."""
        return {}

    def samples(self) -> Iterable[Sample]:
        """Its metrics at a scrape."""
        return ()
