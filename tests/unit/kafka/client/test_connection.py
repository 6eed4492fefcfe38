"""Clients of a cluster that is coming back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.metadata import MetadataResponse_v1

from bridge.kafka.client import producers
from bridge.kafka.client.connection import KafkaConnection

NOBODY = MetadataResponse_v1([], -1, [])


async def _administer(connection: KafkaConnection) -> None:
    async with connection.administering():
        pass


async def _produce(connection: KafkaConnection) -> None:
    await producers.started(connection, "id")


@pytest.mark.parametrize(
    "connect",
    [
        pytest.param(KafkaConnection.connected, id="client"),
        pytest.param(KafkaConnection.started_consumer, id="consumer"),
        pytest.param(_produce, id="producer"),
        pytest.param(_administer, id="admin"),
    ],
)
async def test_brokers_that_name_nobody_are_not_connected_to(
    monkeypatch: pytest.MonkeyPatch, connect: Callable[[KafkaConnection], Awaitable[Any]]
) -> None:
    """A broker answers so until its controller has taken it back: seen after SIGSTOP and SIGCONT."""

    async def bootstrap(self: AIOKafkaClient) -> None:
        self.cluster.update_metadata(NOBODY)

    monkeypatch.setattr(AIOKafkaClient, "bootstrap", bootstrap)
    with pytest.raises(KafkaConnectionError, match="names no broker yet"):
        await connect(KafkaConnection("eu", "127.0.0.1:1"))
