"""How the tasks of an audit reach an end: functions that Spark's workers import by name.

Each reads the settings itself, wherever it runs: the file, its ``${VAR}`` and ``${file:}`` places and the
certificates must be there on every machine, and no secret travels in a job.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bridge.client.node_client import Connection, NodeClient, Problem, Unreachable, address_path
from bridge.ends import JOURNAL
from bridge.errors import BridgeError, NotFound
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.errors import explained
from bridge.kafka.client.options import kafka_connection
from bridge.link.asking import PATH as HELD_PATH
from bridge.replay.node_presence import Question
from bridge.settings import load
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


def kafka(settings: str, connector: str) -> KafkaEnd:
    """The cluster of a connector. Raises: ReadFailed: the settings, or a certificate, are of no use here."""
    with _of_use(connector):
        return KafkaEnd(kafka_connection(connector, _settings(settings, connector).connectors[connector]))


def node(settings: str, connector: str) -> NodeEnd:
    """The node of a connector, or ``journal``'s own. Raises: ReadFailed: as `kafka`."""
    with _of_use(connector):
        return node_end(_settings(settings, connector), connector)


def _settings(path: str, connector: str) -> Settings:
    """What this machine has at the path. Raises: SettingsInvalid, NotFound: it has another file there."""
    found = load(Path(path), os.environ)
    if connector not in found.connectors and connector != JOURNAL:
        raise NotFound(f"{path}: no connector of this name", key="connectors", found=connector)
    return found


@contextmanager
def _of_use(connector: str) -> Iterator[None]:
    """Whatever is wrong with an end's settings, as a task says it: in one line."""
    try:
        yield
    except BridgeError as error:
        raise ReadFailed(f"connector {connector}: {'; '.join(str(error).splitlines())}") from error


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
class KafkaEnd:
    """A cluster, as `dedup.reconcile.audit.kafka_source` reads it."""

    connection: KafkaConnection

    @property
    def name(self) -> str:
        """The connector's name: what errors call it."""
        return self.connection.name

    def consumer(self, **own: Any) -> Any:
        """As `KafkaConnection.consumer`."""
        return self.connection.consumer(**own)

    def told(self, error: Exception, topic: str) -> str:
        """What an error at reading a topic means, and which right or setting mends it."""
        resource = f"topic {topic}"
        text = explained(error, side="source", connector=self.name, operation="Read", resource=resource)
        return str(text).removeprefix(f"connector {self.name}: Read {resource}: ")


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

    async def store(self, bridge: str) -> str:
        """Store identity of the node: its UUID and its incarnation.

        Asks what the node has of nothing at all: who answers is all that counts.

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
