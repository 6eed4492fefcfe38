"""How long a transaction may take: by what moves on its lines, and by what brokers say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import pytest

from bridge.errors import TargetUnavailable
from bridge.kafka.client.connection import END_TRANSACTION_TIMEOUT_MS, TRANSACTION_TIMEOUT_MS
from bridge.kafka.client.throttling import RECORDS, Throttle
from bridge.kafka.records.topic_rules import TopicRules
from bridge.kafka.target.failures import send_failure
from bridge.kafka.target.transaction import SEND_TIMEOUT_MS, LineTooSlow, SendFailed, Throttled, Until
from tests.fakes.virtual_time import in_virtual_time

SECOND: Final = 1_000


class Connection:
    """A connection to a broker, over a line that carries `rate` bytes a second from now on."""

    def __init__(self) -> None:
        self.host, self.port = "kafka", 9092
        self.written = self.acknowledged = 0
        self.round_trip_ms = 0.0

    @property
    def moved(self) -> int:
        return self.acknowledged

    @property
    def waiting(self) -> int:
        return self.written - self.acknowledged


class Producer:
    """What `Until` asks of aiokafka's."""

    def __init__(self, transaction_ms: int = TRANSACTION_TIMEOUT_MS) -> None:
        self.connection = Connection()
        self.throttle = Throttle()
        self.client = SimpleNamespace(_conns={(1, RECORDS): self.connection}, throttle=self.throttle)
        self._txn_manager = SimpleNamespace(transaction_timeout_ms=transaction_ms)
        self._sender = SimpleNamespace(error=0)

    def fails(self, code: int) -> None:
        self._sender.error = code

    async def carry(self, size: int, rate: int) -> None:
        """Write so many bytes, and let the line take them."""
        self.connection.written += size
        while self.connection.waiting:
            await asyncio.sleep(1)
            self.connection.acknowledged += min(rate, self.connection.waiting)


async def _late(producer: Any, during: Callable[[], Any], expected_ms: float = 0) -> tuple[int, TimeoutError]:
    """When a transaction that never ends is given up, ms, and why; `during` runs beside it."""
    loop = asyncio.get_running_loop()
    until, began = Until(producer, expected_ms), loop.time()
    beside = asyncio.ensure_future(during())
    work = loop.create_future()
    try:
        with pytest.raises(TimeoutError) as found:
            await until.done([work])
    finally:
        beside.cancel()
        work.cancel()
        await asyncio.gather(beside, return_exceptions=True)
    return round((loop.time() - began) * 1000), found.value


async def _nothing() -> None:
    pass


@in_virtual_time
async def test_brokers_that_are_sent_nothing_have_no_leader() -> None:
    took_ms, error = await _late(Producer(), _nothing)
    assert (took_ms, type(error)) == (SEND_TIMEOUT_MS, TimeoutError)


@in_virtual_time
async def test_a_transaction_lasts_while_the_line_takes_its_bytes() -> None:
    producer: Any = Producer()
    took_ms, error = await _late(producer, lambda: producer.carry(20_000, 1_000))
    # The last byte is seen by the look after it.
    assert took_ms == 21 * SECOND + SEND_TIMEOUT_MS
    assert isinstance(error, LineTooSlow)
    assert "20000 bytes were sent, and in 36 s no answer has come" in str(error)


@in_virtual_time
async def test_a_line_that_stands_still_is_the_reason_with_its_figures() -> None:
    producer: Any = Producer()

    async def during() -> None:
        producer.connection.written = 100_000
        await asyncio.sleep(3)
        producer.connection.acknowledged = 7_000

    took_ms, error = await _late(producer, during)
    assert 15 * SECOND <= took_ms <= 19 * SECOND
    assert isinstance(error, LineTooSlow)
    assert "the line to kafka:9092 took 7000 of 100000 bytes" in str(error)
    assert "and 93000 wait" in str(error)
    assert not error.is_at_limit


@in_virtual_time
async def test_no_transaction_lasts_longer_than_the_brokers_keep_it_open() -> None:
    producer: Any = Producer()
    took_ms, error = await _late(producer, lambda: producer.carry(1_000_000, 2_000))
    assert took_ms == TRANSACTION_TIMEOUT_MS - END_TRANSACTION_TIMEOUT_MS
    assert isinstance(error, LineTooSlow)
    assert error.is_at_limit
    assert error.rate == pytest.approx(2_000, rel=0.05)
    assert f"{took_ms} ms (transaction-timeout-ms)" in str(error)


@in_virtual_time
async def test_a_longer_transaction_lasts_longer() -> None:
    producer: Any = Producer(900 * SECOND)
    took_ms, _error = await _late(producer, lambda: producer.carry(200_000, 2_000))
    assert took_ms == 101 * SECOND + SEND_TIMEOUT_MS


@in_virtual_time
async def test_bytes_that_are_sent_again_after_an_error_of_a_broker_are_no_progress() -> None:
    """NOT_ENOUGH_REPLICAS: aiokafka sends the record batch again, ten times a second."""
    producer: Any = Producer()

    async def during() -> None:
        producer.fails(19)
        await producer.carry(10**9, 10**6)

    took_ms, error = await _late(producer, during)
    assert (took_ms, type(error)) == (SEND_TIMEOUT_MS, TimeoutError)


@in_virtual_time
async def test_what_is_known_of_the_line_is_waited_for_where_buffers_hide_it() -> None:
    producer: Any = Producer()

    async def during() -> None:
        producer.connection.written = producer.connection.acknowledged = 30_000

    took_ms, _error = await _late(producer, during, expected_ms=20_000)
    assert took_ms == SEND_TIMEOUT_MS + 20_000


@in_virtual_time
async def test_a_quota_is_the_reason_where_brokers_asked_to_wait() -> None:
    producer: Any = Producer()

    async def during() -> None:
        producer.throttle.record(1, 100 * SECOND)

    took_ms, error = await _late(producer, during)
    assert (took_ms, type(error)) == (TRANSACTION_TIMEOUT_MS - END_TRANSACTION_TIMEOUT_MS, Throttled)


def test_the_error_names_the_line_or_the_replicas() -> None:
    rules = {"orders": TopicRules("orders", 1)}
    slow = LineTooSlow("the line to kafka:9092 took 7 of 9 bytes", rate=1, is_at_limit=False)
    found = send_failure(SendFailed("orders", 3, slow), "hub", rules)
    assert isinstance(found, TargetUnavailable)
    assert "connector hub: topic orders partition 3: the line to kafka:9092 took 7 of 9 bytes" in str(found)
    assert "replicas" not in str(found)
    found = send_failure(SendFailed("orders", 3, TimeoutError()), "hub", rules)
    assert "no leader, or less in-sync replicas" in str(found)
