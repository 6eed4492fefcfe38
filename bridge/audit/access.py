"""How the tasks of an audit reach an end: functions that Spark's workers import by name.

Each reads the settings itself, wherever it runs: the file, its ``${VAR}`` and ``${file:}`` places and the
certificates must be there on every machine, and no secret travels in a job.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bridge.cli.client import Connection, NodeClient, Problem, Unreachable, address_path
from bridge.errors import BridgeError
from bridge.kafka.connection import KafkaConnection
from bridge.kafka.options import kafka_connection
from bridge.settings import load
from bridge.settings.connectors import JOURNAL
from bridge.settings.model import Settings
from dedup.reconcile.audit.errors import ReadFailed
from dedup.reconcile.audit.plan import Access
from dedup.reconcile.audit.records import Record

KAFKA: Final = "bridge.audit.access:kafka"
NODE: Final = "bridge.audit.access:node"


def access(settings: Settings, path: Path, connector: str) -> Access:
    """How a task reaches what a connector of the settings at `path` leads to."""
    where = str(path.absolute())
    if settings.is_kafka(connector):
        return Access(KAFKA, where, connector, "kafka")
    return Access(NODE, where, connector, "node")


def kafka(settings: str, connector: str) -> KafkaConnection:
    """The cluster of a connector. Raises: SettingsInvalid, SecurityUnusable."""
    return kafka_connection(connector, load(Path(settings), os.environ).connectors[connector])


def node(settings: str, connector: str) -> NodeEnd:
    """The node of a connector, or ``journal``'s own. Raises: SettingsInvalid."""
    return node_end(load(Path(settings), os.environ), connector)


def node_end(settings: Settings, connector: str) -> NodeEnd:
    """As `node`, of settings that are there. Raises: BridgeError: this node does not listen."""
    if connector != JOURNAL:
        one = settings.connectors[connector]
        return NodeEnd(
            connector,
            Connection(
                one.url, one.token or "", str(one.ca or ""), str(one.certificate or ""), str(one.key or "")
            ),
        )
    if settings.acceptor is None:
        raise BridgeError("an audit of this node's journal needs an [acceptor] to ask", key="acceptor")
    token = settings.acceptor.tokens[0] if settings.acceptor.tokens else ""
    return NodeEnd(connector, Connection(settings.acceptor.url, token))


@dataclass(frozen=True, slots=True)
class NodeEnd:
    """A node, as `dedup.reconcile.audit.node_source` reads it."""

    #: The connector's name: what errors call it.
    name: str
    connection: Connection

    @asynccontextmanager
    async def open(self) -> AsyncIterator[OpenNode]:
        """Connect."""
        async with NodeClient(self.connection) as client:
            yield OpenNode(self.name, client)


class OpenNode:
    """A node that can be asked."""

    def __init__(self, name: str, client: NodeClient) -> None:
        self._name = name
        self._client = client

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
        """First position that is there, and the end of an address; None: there is no such address.

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


def _record(message: dict[str, Any]) -> Record:
    """A message of a msgpack page; a header that occurs several times is a list."""
    headers: list[tuple[str, bytes | None]] = []
    for name, value in message["headers"].items():
        headers += [(name, one) for one in value] if isinstance(value, list) else [(name, value)]
    return message["position"], headers, message["duplicate-id"]
