"""One Kafka cluster as clients reach it, and the clients, made the way the bridge needs them.

Everything that keeps the guarantee is set here and cannot be configured away: read_committed, no automatic
commits, no automatic resets (docs/kafka-traps.md 8), idempotent transactional producers with ``acks=all``.

A broker that has just come up, or was suspended, may name no broker at all, itself included, until its
controller takes it back. aiokafka connects to it all the same, and then stumbles over an assertion at the
first request (`AIOKafkaClient.coordinator_lookup`) or never begins. Here that is no connection.
"""

from __future__ import annotations

import asyncio
import struct
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

from bridge.kafka.client import line
from bridge.kafka.client.fetch_size import fit_fetches
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
    """aiokafka's connection to one broker, which leaves no socket behind, and waits while bytes move.

    TLS ends with an answer of the broker. aiokafka waits for it where a client is closed. A connection that
    it gives up, because the broker refused the credentials or did not answer, would stay for as long as that
    takes, or for good where the event loop ends before. Such a connection is cut.

    aiokafka gives an answer a fixed time, however large it or its request is. Here it has as much longer as
    the line needs (`bridge.kafka.client.line`).
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        #: The time of its first request and answer, ms: both are small.
        self.round_trip_ms = 0.0
        #: Bytes of requests, and of whole answers.
        self.written = self.received = 0
        #: The requests without an answer: when each was sent, and its size.
        self._unanswered: dict[asyncio.Future[Any], tuple[float, int]] = {}
        self._patience = line.Patience(0.0, 0.0)
        self._looking: asyncio.TimerHandle | None = None
        #: Whole answers, and bytes of the one that is coming, as of the last look.
        self._seen = (0, 0)
        #: Whether one answer was coming all the time between the last two looks.
        self.is_receiving = False

    async def connect(self) -> Any:
        """As aiokafka's: the stream's reader and writer. Raises: OSError, KafkaError, TimeoutError."""
        _begun.get(asyncio.current_task(), []).append(self)
        return await super().connect()

    async def _do_version_lookup(self) -> None:
        began_s = self._loop.time()
        await super()._do_version_lookup()
        self.round_trip_ms = (self._loop.time() - began_s) * 1000

    def send(self, request: Any, expect_response: bool = True) -> Any:
        """As aiokafka's, with the time for the answer as the line needs it. Raises: KafkaConnectionError."""
        if self._writer is None or not expect_response:
            return super().send(request, expect_response)
        prepared = request.prepare(self._versions)
        number = self._next_correlation_id()
        header = prepared.build_request_header(correlation_id=number, client_id=self._client_id)
        message = header.encode() + prepared.encode()
        try:
            self._writer.write(struct.pack(">i", len(message)) + message)
        except OSError as error:
            self.close(reason=CloseReason.CONNECTION_BROKEN)
            where = f"{self._host}:{self._port}"
            raise KafkaConnectionError(f"Connection at {where} broken: {error}") from error
        return self._expected(number, prepared, len(message) + 4)

    def _expected(self, number: int, request: Any, size: int) -> asyncio.Future[Any]:
        """The answer to a request that was written."""
        now_s = self._loop.time()
        answer: asyncio.Future[Any] = self._loop.create_future()
        self.written += size
        if not self._unanswered:
            self._patience = line.Patience(now_s, self._request_timeout)
        self._unanswered[answer] = now_s, size
        answer.add_done_callback(self._answered)
        self._requests.append((number, request, answer))
        if self._looking is None:
            interval_s = min(line.LOOK_INTERVAL_MS / 1000, self._request_timeout / 2)
            self._looking = self._loop.call_later(interval_s, self._look)
        return answer

    def _answered(self, answer: asyncio.Future[Any]) -> None:
        self._unanswered.pop(answer, None)

    def _handle_frame(self, resp: bytes) -> None:
        self.received += len(resp) + 4
        super()._handle_frame(resp)

    def _look(self) -> None:
        """End the waits for answers that do not come, unless bytes move; look again while there are any."""
        self._looking = None
        if self._writer is None or not self._unanswered:
            self.is_receiving = False
            return
        now_s, coming = self._loop.time(), (self.received, self._coming)
        self.is_receiving = coming[0] == self._seen[0] and coming[1] > self._seen[1] > 0
        self._seen = coming
        self._patience.look(now_s, self.moved)
        waits = self.waiting
        for answer, (sent_s, size) in list(self._unanswered.items()):
            # What is not here any more may wait in buffers on the way, as long as the slowest line takes.
            may_take_s = self._request_timeout + (0 if waits else size / line.LEAST_RATE)
            if now_s >= max(self._patience.until_s, sent_s + may_take_s) and not answer.done():
                answer.set_exception(self._stands_still(now_s - sent_s, size, waits))
        interval_s = min(line.LOOK_INTERVAL_MS / 1000, self._request_timeout / 2)
        self._looking = self._loop.call_later(interval_s, self._look)

    def _stands_still(self, waited_s: float, size: int, waits: int) -> line.LineStandsStill:
        left = f", of which {waits} still wait here" if waits else ""
        came = f" and {self._coming} bytes of the answer have come" if self._coming else ""
        return line.LineStandsStill(
            f"{self._host}:{self._port} has not answered a request of {size} bytes{left} in {waited_s:.0f} s"
            f"{came}; a line counts as one that works from {line.LEAST_RATE} bytes a second on"
        )

    @property
    def _coming(self) -> int:
        """Bytes of an answer that has not come whole."""
        return len(self._reader._buffer) if self._reader is not None else 0  # noqa: SLF001

    @property
    def moved(self) -> int:
        """The bytes that have moved over it in both directions, those of unfinished requests too."""
        came = self.received + self._coming
        if self._writer is None:
            return came
        taken = line.acknowledged(self._writer)
        return came + (self.written - self.waiting if taken is None else taken)

    @property
    def waiting(self) -> int:
        """The bytes of requests that the other end has not acknowledged."""
        return 0 if self._writer is None else line.unacknowledged(self._writer)

    @property
    def waits_ms(self) -> float:
        """How long its oldest request without an answer has waited for it."""
        sent_s, _size = next(iter(self._unanswered.values()), (None, 0))
        return 0.0 if sent_s is None or not self.connected() else (self._loop.time() - sent_s) * 1000

    def close(self, reason: CloseReason | None = None, exc: BaseException | None = None) -> Any:
        """As aiokafka's: the future of the end, None before `connect`."""
        writer = self._writer
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
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
        fit_fetches(consumer)
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
