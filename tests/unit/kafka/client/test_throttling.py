"""Waiting as long as brokers ask, and how much the next transaction takes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest

from bridge.kafka.client.throttling import RECORDS, Throttle, honour, throttle_of
from bridge.kafka.target.delivery_queue import TRANSACTION_BYTES
from bridge.kafka.target.pace import AIM_MS, LEAST_BYTES, Pace
from bridge.relay.counts import Counts


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


def transaction(pace: Pace, throttle: Throttle, size: int, asked_ms: int) -> None:
    with pace.measured(throttle, size):
        throttle.asked_ms += asked_ms


def test_transactions_shrink_while_brokers_ask_for_long_and_grow_again() -> None:
    counts, throttle = Counts(), Throttle()
    pace = Pace(counts, structlog.get_logger())
    with structlog.testing.capture_logs() as logged:
        transaction(pace, throttle, 1_000_000, 4 * AIM_MS)
        assert pace.most_bytes == 250_000
        assert "producer_byte_rate" in counts.throttled
        transaction(pace, throttle, 250_000, AIM_MS)
        assert pace.most_bytes == 250_000
        transaction(pace, throttle, 250_000, 10**9)
        assert pace.most_bytes == LEAST_BYTES
        transaction(pace, throttle, 1, 0)
        assert (pace.most_bytes, counts.throttled) == (2 * LEAST_BYTES, "")
        for _ in range(20):
            transaction(pace, throttle, 1, 0)
        assert pace.most_bytes == TRANSACTION_BYTES
    assert [one["event"] for one in logged] == ["throttled"]
    assert counts.throttled_ms == 5 * AIM_MS + 10**9


def test_nothing_is_throttled_while_nothing_is_sent() -> None:
    counts = Counts()
    pace = Pace(counts, structlog.get_logger())
    transaction(pace, Throttle(), 100, 100)
    assert counts.throttled
    pace.rest()
    assert counts.throttled == ""


def test_a_transaction_that_fails_is_measured_too() -> None:
    pace = Pace(Counts(), structlog.get_logger())
    with pytest.raises(TimeoutError):
        failing(pace, Throttle())
    assert pace.most_bytes == 500_000


def failing(pace: Pace, throttle: Throttle) -> None:
    with pace.measured(throttle, 1_000_000):
        throttle.asked_ms += 2 * AIM_MS
        raise TimeoutError
