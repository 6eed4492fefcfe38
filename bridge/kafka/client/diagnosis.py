"""Clients that say why they cannot connect.

aiokafka asks one broker after the other, logs why each did not take the connection, and raises "Unable to
bootstrap": a wrong password looks like a network that is down, and would be tried for ever. So where that
happens each broker is asked once more, and the error becomes what they answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import collect_hosts
from aiokafka.errors import KafkaConnectionError, KafkaError
from aiokafka.protocol.metadata import MetadataRequest

from bridge.kafka.client.connection import BrokerConnection, KafkaConnection
from bridge.kafka.client.errors import NoBroker, Unanswered

#: Longest that a broker may take to give the reason, for each step of connecting.
ASKING_TIMEOUT_MS: Final = 5_000
#: Most brokers that are asked for the reason.
MAX_ASKED: Final = 8
#: The errors with which asking may end; anything else is a bug.
_ANSWERS: Final = (OSError, KafkaError, TimeoutError, ValueError, AssertionError)

_OF_SECURITY: Final = ("sasl_", "ssl_", "security_")

_SILENT: Final = "the broker closed the connection without a word"
_WANTS_TLS: Final = "the listener may want TLS: see security-protocol, and the port in the URL"
_WANTS_SASL: Final = "the listener may want SASL: see security-protocol, and the port in the URL"
_WANTS_CERTIFICATE: Final = "the broker may want a client certificate: see ssl-certfile"
_SPEAKS_NO_TLS: Final = "the listener may speak no TLS: see security-protocol, and the port in the URL"


class Connection(KafkaConnection):
    """A connection whose clients raise `NoBroker` where aiokafka's say "Unable to bootstrap"."""

    __slots__ = ()

    def consumer(self, **own: Any) -> aiokafka.AIOKafkaConsumer:
        """As `KafkaConnection.consumer`."""
        return self._diagnosing(KafkaConnection.consumer(self, **own), "start")

    def producer(self, transactional_id: str | None, **own: Any) -> aiokafka.AIOKafkaProducer:
        """As `KafkaConnection.producer`."""
        return self._diagnosing(KafkaConnection.producer(self, transactional_id, **own), "start")

    def admin(self) -> AIOKafkaAdminClient:
        """As `KafkaConnection.admin`."""
        return self._diagnosing(KafkaConnection.admin(self), "start")

    def client(self) -> AIOKafkaClient:
        """As `KafkaConnection.client`."""
        return self._diagnosing(KafkaConnection.client(self), "bootstrap")

    def _diagnosing(self, client: Any, method: str) -> Any:
        """`client`, whose `method` says why it cannot connect."""
        setattr(client, method, functools.partial(_diagnosed, getattr(client, method), self))
        return client


async def _diagnosed(begin: Callable[[], Awaitable[None]], connection: KafkaConnection) -> None:
    """Run `begin`. Raises: NoBroker: no broker takes a connection, for these reasons; else as `begin`."""
    try:
        await begin()
    except KafkaConnectionError as error:
        reasons = await why(connection)
        if not reasons:
            raise
        raise NoBroker(reasons) from error


async def why(connection: KafkaConnection) -> list[tuple[str, BaseException]]:
    """Broker and reason, for each broker that does not take a connection; none, if one of them takes it."""
    hosts = [(host, port) for host, port, _ in collect_hosts(connection.brokers, randomize=False)][:MAX_ASKED]
    answers = await asyncio.gather(*(_ask(host, port, connection.security) for host, port in hosts))
    if None in answers:
        return []
    return [(f"{host}:{port}", answer) for (host, port), answer in zip(hosts, answers, strict=True) if answer]


async def _ask(host: str, port: int, security: Mapping[str, Any]) -> BaseException | None:
    """Connect as aiokafka does, and ask for metadata; returns the error, None if there is none."""
    options = {
        key: value for key, value in security.items() if key.startswith(("sasl_", "ssl_", "security_"))
    }
    broker = BrokerConnection(host, port, request_timeout_ms=ASKING_TIMEOUT_MS, **options)
    connected = False
    try:
        await broker.connect()
        connected = True
        await broker.send(MetadataRequest([]))
    except _ANSWERS as error:
        return _guess(error, security, connected=connected)
    finally:
        closed = broker.close()
        if connected and closed is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(closed, ASKING_TIMEOUT_MS / 1000)
    return None


def _guess(error: BaseException, security: Mapping[str, Any], *, connected: bool) -> BaseException:
    """`error`, or where a broker closed the connection without an answer, the likely reason."""
    protocol = security.get("security_protocol", "PLAINTEXT")
    if isinstance(error, ConnectionResetError | ssl.SSLEOFError) and protocol.endswith("SSL"):
        return Unanswered(_SILENT, _SPEAKS_NO_TLS)
    if type(error) is not KafkaConnectionError:
        return error
    if isinstance(error.__cause__, OSError):  # a TLS alert is an answer
        return error.__cause__
    if connected:
        return Unanswered(_SILENT, "" if protocol.startswith("SASL_") else _WANTS_SASL)
    return Unanswered(_SILENT, _WANTS_CERTIFICATE if protocol.endswith("SSL") else _WANTS_TLS)
