"""How much a consumer fetches at a time: as much as the line carries in a moment."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import RequestTimedOutError
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest

from bridge.kafka.client.fetch_size import (
    AIM_MS,
    FIRST_BYTES,
    LEAST_BYTES,
    ROUND_TRIPS,
    SHRINK,
    FetchSize,
    fit_fetches,
    is_receiving,
)
from bridge.kafka.client.throttling import RECORDS, honour
from tests.fakes.virtual_time import in_virtual_time

MIB = 2**20


def grown(most: int = 4 * MIB) -> FetchSize:
    size = FetchSize(most)
    while size.bytes < most:
        size.took(20, size.bytes, 0)
    return size


def test_fetches_begin_small_and_grow_while_they_are_quick_and_full() -> None:
    size = FetchSize(4 * MIB)
    assert size.bytes == FIRST_BYTES
    for _ in range(10):
        size.took(20, 100, 0)
    assert size.bytes == FIRST_BYTES
    assert grown().bytes == 4 * MIB
    assert grown(1_000).bytes == 1_000


def test_a_fetch_takes_what_the_line_carries_in_a_moment() -> None:
    size = grown()
    size.took(50_000, MIB, 0)
    assert size.bytes == MIB * AIM_MS // 50_000
    size.took(10 * AIM_MS, size.bytes, 0)
    assert size.bytes == LEAST_BYTES


def test_a_far_broker_is_no_slow_line() -> None:
    size = grown()
    size.took(ROUND_TRIPS * 600, MIB, 600)
    assert size.bytes == 4 * MIB


def test_a_fetch_that_ran_out_of_time_is_followed_by_a_smaller_one() -> None:
    size = grown()
    size.timed_out()
    assert size.bytes == 4 * MIB // SHRINK


class Client:
    """A broker's answers: the time that each takes, ms, and its bytes; no bytes: none in time."""

    def __init__(self, *answers: tuple[int, int]) -> None:
        self._answers = list(answers)
        self.connection = SimpleNamespace(received=0, round_trip_ms=0.0, is_receiving=False)
        self._conns = {(1, RECORDS): self.connection}

    async def send(self, _node: int, _request: Any, *, group: int = 0) -> Any:
        took_ms, size = self._answers.pop(0)
        await asyncio.sleep(took_ms / 1000)
        if not size:
            raise RequestTimedOutError
        self.connection.received += size
        return SimpleNamespace(throttle_time_ms=0)


FETCH = FetchRequest(0, 0, 0, 0, [])


def fitted(client: Client, whole: int = 4 * MIB, part: int = MIB) -> Any:
    consumer: Any = SimpleNamespace(
        _client=client, _fetcher=SimpleNamespace(), _fetch_max_bytes=whole, _max_partition_fetch_bytes=part
    )
    honour(consumer._client, FetchRequest)
    fit_fetches(consumer)
    return consumer


@in_virtual_time
async def test_a_consumers_next_fetch_has_the_size_that_fits() -> None:
    client = Client((0, FIRST_BYTES), (0, 4 * FIRST_BYTES), (40_000, 200_000), (30_000, 0), (0, 1))
    consumer = fitted(client)
    assert (consumer._fetch_max_bytes, consumer._max_partition_fetch_bytes) == (FIRST_BYTES, FIRST_BYTES)
    sizes = []
    for _ in range(2):
        await client.send(1, FETCH)
        sizes.append(consumer._fetcher._fetch_max_bytes)
    assert sizes == [4 * FIRST_BYTES, 16 * FIRST_BYTES]
    await client.send(1, FETCH)
    assert consumer._fetcher._fetch_max_bytes == 200_000 * AIM_MS // 40_000
    with pytest.raises(RequestTimedOutError):
        await client.send(1, FETCH)
    assert consumer._fetcher._fetch_max_bytes == LEAST_BYTES
    await client.send(1, MetadataRequest([]))
    assert consumer._fetcher._fetch_max_bytes == LEAST_BYTES


@in_virtual_time
async def test_a_partition_takes_no_more_than_its_limit() -> None:
    client = Client(*((0, 4 * MIB),) * 10)
    consumer = fitted(client, part=100_000)
    for _ in range(10):
        await client.send(1, FETCH)
    assert consumer._fetcher._fetch_max_bytes == 4 * MIB
    assert consumer._fetcher._max_partition_fetch_bytes == 100_000
    assert not is_receiving(consumer)
    client.connection.is_receiving = True
    assert is_receiving(consumer)
