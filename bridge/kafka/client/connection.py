"""One Kafka cluster as clients reach it, and the clients, made the way the bridge needs them.

Everything that keeps the guarantee is set here and cannot be configured away: read_committed, no automatic
commits, no automatic resets (docs/kafka-traps.md 8), idempotent transactional producers with ``acks=all``.

A broker that has just come up, or was suspended, may name no broker at all, itself included, until its
controller takes it back. aiokafka connects to it all the same, and then stumbles over an assertion at the
first request (`AIOKafkaClient.coordinator_lookup`) or never begins. Here that is no connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import aiokafka
import aiokafka.conn
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.fetch import FetchRequest

from bridge.kafka.client.throttling import honour

#: Bytes a connection reads ahead: with aiokafka's 64 KiB a fetch of 1 MiB wakes the loop sixteen times.
READER_LIMIT: Final = 16 * 1024 * 1024
#: A commit or abort that takes longer is given up, and the producer with it (traps 2 and 3)...
END_TRANSACTION_TIMEOUT_MS: Final = 20_000
#: ...which must be before aiokafka gives up on the request and tries again by itself.
REQUEST_TIMEOUT_MS: Final = 30_000
#: The broker aborts a transaction that its producer forgot after this long.
TRANSACTION_TIMEOUT_MS: Final = 60_000

aiokafka.conn.READER_LIMIT = READER_LIMIT


class BrokerConnection(AIOKafkaConnection):
    """aiokafka's connection to one broker, which leaves no socket behind.

    TLS ends with an answer of the broker. aiokafka waits for it where a client is closed. A connection that
    it gives up, because the broker refused the credentials or did not answer, would stay for as long as that
    takes, or for good where the event loop ends before. Such a connection is cut.
    """

    async def connect(self) -> Any:
        """As aiokafka's: the stream's reader and writer. Raises: OSError, KafkaError, TimeoutError."""
        _begun.get(asyncio.current_task(), []).append(self)
        return await super().connect()

    def close(self, reason: CloseReason | None = None, exc: BaseException | None = None) -> Any:
        """As aiokafka's: the future of the end, None before `connect`."""
        writer = self._writer
        closed = super().close(reason, exc)
        if writer is not None and reason is not CloseReason.SHUTDOWN:
            writer.transport.abort()
        return closed


aiokafka.conn.AIOKafkaConnection = BrokerConnection
#: By task, the connections of the `bootstrap` that it runs. aiokafka forgets its own where it is cancelled.
_begun: dict[asyncio.Task[Any] | None, list[BrokerConnection]] = {}


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """A cluster's address and options, made from `[connectors.NAME]` by `bridge.kafka.client.options`."""

    #: The connector's name, as errors show it.
    name: str
    #: ``host:port,host:port``.
    brokers: str
    #: Overrides the cluster id in stream and store identities; empty: the cluster id.
    identity: str = ""
    #: security_protocol, ssl_context, sasl_*: keyword arguments of every client.
    security: Mapping[str, Any] = field(default_factory=dict, repr=False)
    #: Further options of the settings, each for the client that has it.
    consumer_options: Mapping[str, Any] = field(default_factory=dict)
    producer_options: Mapping[str, Any] = field(default_factory=dict)

    def _common(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.brokers,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
            **self.security,
        }

    def consumer(self, **own: Any) -> aiokafka.AIOKafkaConsumer:
        """A consumer that reads what is committed, and only from offsets that it is given."""
        options = {
            **self._common(),
            **self.consumer_options,
            "isolation_level": "read_committed",
            "enable_auto_commit": False,
            "auto_offset_reset": "none",
            **own,
        }
        consumer = aiokafka.AIOKafkaConsumer(**options)
        _mend_bootstrap(consumer._client)  # noqa: SLF001
        honour(consumer._client, FetchRequest)  # noqa: SLF001
        return consumer

    async def started_consumer(self, **own: Any) -> aiokafka.AIOKafkaConsumer:
        """A consumer, connected. Raises: KafkaError; nothing is left of it then."""
        consumer = self.consumer(**own)
        try:
            await consumer.start()
        except BaseException:
            await consumer.stop()
            raise
        return consumer

    @asynccontextmanager
    async def consuming(self, **own: Any) -> AsyncIterator[Any]:
        """A consumer that is connected, and stopped in the end. Raises: KafkaError."""
        consumer = await self.started_consumer(**own)
        try:
            yield consumer
        finally:
            await consumer.stop()

    def producer(self, transactional_id: str | None, **own: Any) -> aiokafka.AIOKafkaProducer:
        """A transactional producer; `start()` fences the one before it. None: without transactions."""
        options = {
            "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
            **self._common(),
            **self.producer_options,
            "transactional_id": transactional_id,
            "enable_idempotence": True,
            "acks": "all",
            **own,
        }
        producer = aiokafka.AIOKafkaProducer(**options)
        _mend_bootstrap(producer.client)
        return producer

    def admin(self) -> AIOKafkaAdminClient:
        """An admin client."""
        admin = AIOKafkaAdminClient(**self._common())
        _mend_bootstrap(admin._client)  # noqa: SLF001
        return admin

    @asynccontextmanager
    async def administering(self) -> AsyncIterator[Any]:
        """An admin client that is started, and closed in the end. Raises: KafkaError."""
        admin = self.admin()
        try:
            await admin.start()
            yield admin
        finally:
            await admin.close()

    def client(self) -> AIOKafkaClient:
        """A bare client, for requests that the others do not offer; `connected` begins it."""
        client = AIOKafkaClient(**self._common())
        _mend_bootstrap(client)
        return client

    async def connected(self) -> AIOKafkaClient:
        """A bare client, connected. Raises: KafkaError; nothing is left of it then."""
        client = self.client()
        try:
            await client.bootstrap()
        except BaseException:
            await client.close()
            raise
        return client


def _mend_bootstrap(client: AIOKafkaClient) -> None:
    """Make `client` leave no socket where its connecting is cancelled.

    Where no broker is named it fails to connect, and asks anew the next time.
    """
    bootstrap = client.bootstrap

    async def bootstrapped() -> None:
        task = asyncio.current_task()
        _begun[task] = []
        try:
            await bootstrap()
        except BaseException:
            for connection in _begun[task]:
                connection.close()
            raise
        finally:
            del _begun[task]
        if not client.cluster.brokers():
            raise KafkaConnectionError("the cluster names no broker yet: it is starting, or comes back")

    client.bootstrap = bootstrapped
