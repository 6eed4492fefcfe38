"""Waiting as long as brokers ask."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest

from bridge.kafka.client.throttling import RECORDS, Throttle, honour, throttle_of


class Client:
    """Answers as brokers do that throttle; remembers what was sent, and over which connections."""

    def __init__(self, *throttle_ms: int) -> None:
        self.sent: list[tuple[int, int]] = []
        self._answers = list(throttle_ms)

    async def send(self, node: int, _request: Any, *, group: int = 0) -> Any:
        self.sent.append((node, group))
        return SimpleNamespace(throttle_time_ms=self._answers.pop(0))


FETCH = FetchRequest(0, 0, 0, 0, [])


async def test_records_have_connections_of_their_own_and_wait_at_the_broker_that_asked() -> None:
    client: Any = Client(3_600_000, 0, 0)
    heard: list[int] = []
    throttle = honour(client, FetchRequest, lambda answer: heard.append(answer.throttle_time_ms))
    assert throttle_of(client) is throttle
    await client.send(1, FETCH)
    assert throttle.asked_ms == 3_600_000
    assert 3_500_000 < throttle.left_ms(1) <= 3_600_000
    assert throttle.left_ms(2) == 0
    # Another broker, and what carries no records, go on.
    await client.send(2, FETCH)
    await client.send(1, MetadataRequest([]))
    assert client.sent == [(1, RECORDS), (2, RECORDS), (1, 0)]
    assert heard == [3_600_000, 0]
    waiting = asyncio.create_task(client.send(1, FETCH))
    await asyncio.sleep(0)
    assert len(client.sent) == 3
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_what_was_asked_is_over_after_its_time() -> None:
    throttle = Throttle()
    throttle.record(1, 20)
    throttle.record(2, 0)
    await throttle.over()
    assert throttle.left_ms() == 0
    assert throttle.asked_ms == 20
