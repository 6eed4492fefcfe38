"""A node as an audit reads it, over HTTP like any client: its messages, and its positions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from bridge.client.node_client import Connection, NodeClient, Problem, Unreachable, address_path
from bridge.replay.node_presence import PATH as HELD_PATH
from bridge.replay.node_presence import Question
from bridge.settings.bridges import Bridge
from dedup.reconcile.audit.errors import ReadFailed
from dedup.reconcile.audit.plan import Place
from dedup.reconcile.audit.records import Record


@dataclass(frozen=True, slots=True)
class NodeEnd:
    """A node, as `dedup.reconcile.audit.node_source` reads it."""

    #: The connector's name, for errors.
    name: str
    connection: Connection

    @asynccontextmanager
    async def open(self) -> AsyncIterator[OpenNode]:
        """Connect to the node."""
        async with NodeClient(self.connection) as client:
            yield OpenNode(self.name, client)


class OpenNode:
    """A node to which the client is connected."""

    def __init__(self, name: str, client: NodeClient) -> None:
        self._name = name
        self._client = client

    async def store(self, bridge: str) -> str:
        """Store identity of the node: its UUID and its incarnation.

        Sends a question about no messages: only the identity in the answer counts.

        Raises:
            Problem: among others, the token may open no link. Unreachable.
        """
        question = Question(bridge=bridge, stream="", address="")
        answer = await self._client.call("POST", HELD_PATH, packed=question)
        return str(answer.body["store"])

    async def page(self, address: str, after: int, most: int) -> Sequence[Record]:
        """The next messages of an address, without their bodies. Raises: ReadFailed."""
        try:
            answer = await self._client.call(
                "GET", address_path(address, "messages"), params={"after": after, "max": most}
            )
        except (Problem, Unreachable) as error:
            raise ReadFailed(
                f"connector {self._name}: {address} could not be read beyond position {after}:"
                f" {error.code}: {error}"
            ) from error
        return [_record(message) for message in answer.body["messages"]]

    async def bounds(self, address: str) -> tuple[int, int] | None:
        """The first stored position and the end of an address; None: there is no such address.

        Raises:
            Problem, Unreachable.
        """
        try:
            answer = await self._client.call("GET", address_path(address))
        except Problem as problem:
            if problem.code == "ADDRESS_NOT_FOUND":
                return None
            raise
        return answer.body["first"], answer.body["next"]


class NodeAddresses:
    """The places of an audit's target that is a node: one for each address."""

    what = "address"
    has_partitions = False

    def __init__(self, node: NodeEnd) -> None:
        self._node = node

    async def store(self, bridge: Bridge) -> str:
        """Implements `AuditTarget.store`: the node's UUID and its incarnation."""
        async with self._node.open() as node:
            return await node.store(bridge.name)

    async def places(self, names: Iterable[str]) -> list[Place]:
        """The places of these addresses, as far as they exist."""
        found: list[Place] = []
        async with self._node.open() as node:
            firsts = {name: await node.bounds(name) for name in sorted(names)}
            for name, first in firsts.items():
                now = await node.bounds(name)
                if first is not None and now is not None:
                    found.append(Place(name, 0, first[0], first[1], now[1]))
        return found

    async def starts(self, places: Sequence[Place]) -> Mapping[tuple[str, int], int]:
        """The present beginning of each place; one that has gone begins at its end."""
        now = {(one.topic, 0): one.start for one in await self.places(one.topic for one in places)}
        return {(one.topic, 0): now.get((one.topic, 0), one.end) for one in places}


def _record(message: dict[str, Any]) -> Record:
    """A message of a msgpack page; a header that occurs several times is a list."""
    headers: list[tuple[str, bytes | None]] = []
    for name, value in message["headers"].items():
        headers += [(name, one) for one in value] if isinstance(value, list) else [(name, value)]
    return message["position"], headers, message["duplicate-id"]
