"""First contacts: from an address, of a static connector or of discovery, to the node behind it."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import structlog

from bridge.errors import BridgeError, TargetRefused, described
from bridge.link.frames import Welcome
from bridge.link.node_target import NodeTarget
from bridge.relay.backoff import Backoff
from bridge.settings.clusters import ClusterConnection
from cluster.peers import Peer, Peers, Process, contact_name
from cluster.refusals import SameNodeTwice

#: Addresses that one look-up of a name may bring.
DISCOVERED_MOST: Final = 64
_log: Final = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a node may be."""

    url: str
    connector: str
    #: Whether the settings name it.
    static: bool = False


@dataclass(frozen=True, slots=True)
class Own:
    """This process, for telling it from another one with its journal."""

    node: str
    process: Process


class Contacts:
    """Looks for nodes at the addresses of one cluster connection, again and again."""

    def __init__(
        self,
        connection: ClusterConnection,
        peers: Peers,
        own: Own,
        found: Callable[[Peer, ClusterConnection], Awaitable[None]],
    ) -> None:
        """`found` is called for each other node that answers."""
        self.connection = connection
        self._peers = peers
        self._own = own
        self._found = found
        #: By address, why this node takes no part: the node there knows another process with its UUID.
        self._twice: dict[Address, str] = {}
        #: The node that last answered at each address.
        self._known: dict[Address, str] = {}
        #: Logged troubles, by address.
        self._logged: dict[Address, str] = {}
        #: The addresses of static connectors, and those that discovery has named and when it was last asked.
        self._addresses: Sequence[Address] = ()
        self._discovered: Address | None = None
        self._named: list[Address] = []
        self._asked_s = 0.0
        #: Looks in a row that did not find all nodes.
        self._failures = 0
        self._backoff = Backoff(
            connection.retry_interval_ms,
            connection.retry_interval_multiplier,
            connection.max_retry_interval_ms,
            random.random,
        )

    @property
    def failed(self) -> str:
        """The reason why this node takes no part; empty: it does."""
        return next(iter(self._twice.values()), "")

    def begin(self, addresses: Sequence[Address], discovered: Address | None) -> None:
        """Look from the next turn on for the nodes at these addresses.

        `discovered`: the connector whose credentials serve for addresses of discovery, and whose URL has
        their scheme; None: there is no discovery.
        """
        self._addresses, self._discovered = addresses, discovered

    async def turn(self) -> None:
        """Look once, and wait until it is time for the next look."""
        loop, period_s = asyncio.get_running_loop(), max(self.connection.check_period_ms, 0) / 1000
        if self._discovered is not None and (not self._named or loop.time() - self._asked_s >= period_s):
            self._named, self._asked_s = await self._discover(self._discovered), loop.time()
        missing = [one for one in (*self._addresses, *self._named) if not self._is_known(one)]
        await asyncio.gather(*[self._look(one) for one in missing])
        self._failures = self._failures + 1 if missing else 1
        await asyncio.sleep(self._backoff.delay_ms(self._failures) / 1000)

    def _is_known(self, address: Address) -> bool:
        """Whether the node there is this one, or has a bridge that does not need to be found anew."""
        node = self._known.get(address)
        return node is not None and (node == self._own.node or self._peers.is_served(node))

    async def _look(self, address: Address) -> None:
        try:
            welcome = await self._contact(address)
        except BridgeError as error:
            trouble = described(error)
            if SameNodeTwice.code in trouble:
                if trouble not in self._twice.values():
                    name, url = self.connection.name, address.url
                    _log.error("same-node-twice", cluster=name, url=url, reason=trouble)
                self._twice[address] = trouble
            elif isinstance(error, TargetRefused):
                self._twice.pop(address, None)
            if self._logged.get(address) != trouble:
                self._logged[address] = trouble
                _log.warning("contact-failed", cluster=self.connection.name, url=address.url, reason=trouble)
            return
        self._logged.pop(address, None)
        self._twice.pop(address, None)
        self._known[address] = welcome.node_id
        if welcome.node_id != self._own.node:
            peer = Peer(welcome.node_id, welcome.node_name, address.url, address.connector, address.static)
            await self._found(peer, self.connection)

    async def _contact(self, address: Address) -> Welcome:
        """The WELCOME of the node at an address.

        A node with this node's UUID answers only where it is this process: it knows its own run.
        Raises: TargetUnavailable, TargetRefused.
        """
        target = NodeTarget(
            self._peers.endpoint(address.connector, address.url),
            self._peers.hello(contact_name(self._own.process), self.connection),
            call_timeout_ms=self.connection.call_timeout_ms,
        )
        try:
            await target.open(())
            welcome = target.welcome
            assert welcome is not None
        finally:
            await target.close()
        return welcome

    async def _discover(self, like: Address) -> list[Address]:
        """The addresses that the name of `discovery` has now; none where it cannot be resolved."""
        host, _, port = self.connection.discovery.removeprefix("dns://").rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
        except OSError as error:
            if self._logged.get(like) != str(error):
                self._logged[like] = str(error)
                _log.warning("discovery-failed", cluster=self.connection.name, name=host, reason=str(error))
            return []
        self._logged.pop(like, None)
        scheme, path = like.url.partition("://")[0], urlsplit(like.url).path
        hosts = sorted({str(sockaddr[0]) for *_, sockaddr in found})[:DISCOVERED_MOST]
        return [
            Address(
                f"{scheme}://[{one}]:{port}{path}" if ":" in one else f"{scheme}://{one}:{port}{path}",
                like.connector,
            )
            for one in hosts
        ]
