"""Clients of a cluster that is coming back, and clients that are given up while they connect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.metadata import MetadataRequest, MetadataResponse_v1

from bridge.kafka.client import producers
from bridge.kafka.client.connection import BrokerConnection, KafkaConnection

NOBODY = MetadataResponse_v1([], -1, [])


async def _administer(connection: KafkaConnection) -> None:
    async with connection.administering():
        pass


async def _produce(connection: KafkaConnection) -> None:
    await producers.started(connection, "id")


CLIENTS = pytest.mark.parametrize(
    "connect",
    [
        pytest.param(KafkaConnection.connected, id="client"),
        pytest.param(KafkaConnection.started_consumer, id="consumer"),
        pytest.param(_produce, id="producer"),
        pytest.param(_administer, id="admin"),
    ],
)


@CLIENTS
async def test_brokers_that_name_nobody_are_not_connected_to(
    monkeypatch: pytest.MonkeyPatch, connect: Callable[[KafkaConnection], Awaitable[Any]]
) -> None:
    """A broker answers so until its controller has taken it back: seen after SIGSTOP and SIGCONT."""

    async def bootstrap(self: AIOKafkaClient) -> None:
        self.cluster.update_metadata(NOBODY)

    monkeypatch.setattr(AIOKafkaClient, "bootstrap", bootstrap)
    with pytest.raises(KafkaConnectionError, match="names no broker yet"):
        await connect(KafkaConnection("eu", "127.0.0.1:1"))


@CLIENTS
async def test_a_client_that_is_cancelled_while_it_asks_for_the_brokers_leaves_no_socket(
    monkeypatch: pytest.MonkeyPatch, connect: Callable[[KafkaConnection], Awaitable[Any]]
) -> None:
    """aiokafka has no hold of its first connection yet: the socket stayed until it was collected."""
    asked, gone = asyncio.Event(), asyncio.Event()

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        asked.set()
        while await reader.read(1024):
            pass
        gone.set()
        writer.close()

    async def versions(self: BrokerConnection) -> None:
        self._versions = {MetadataRequest.API_KEY: (0, 5)}

    monkeypatch.setattr(BrokerConnection, "_do_version_lookup", versions)
    async with await asyncio.start_server(broker, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        connecting = asyncio.ensure_future(connect(KafkaConnection("eu", f"127.0.0.1:{port}")))
        await asked.wait()
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        async with asyncio.timeout(10):
            await gone.wait()
