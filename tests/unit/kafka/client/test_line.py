"""Bytes that move are a sign of life: waits that last while they do, and reasons with their figures."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, Final

import pytest
from aiokafka.errors import RequestTimedOutError
from aiokafka.protocol.metadata import MetadataRequest, MetadataResponse_v1

from bridge.kafka.client.connection import BrokerConnection
from bridge.kafka.client.errors import explained, said
from bridge.kafka.client.line import LEAST_RATE, LineStandsStill, Patience, while_moving
from tests.fakes.virtual_time import in_virtual_time

#: The time that a request may take without a byte that moves, ms.
TIMEOUT_MS: Final = 400
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


# -- the rule ----------------------------------------------------------------------------------------------


def test_a_wait_ends_where_nothing_moves() -> None:
    patience = Patience(100, 15)
    assert [patience.look(now, 1_000) for now in (101, 110, 115)] == [14, 5, 0]


def test_a_wait_lasts_as_long_as_bytes_move() -> None:
    patience, moved = Patience(0, 15), 0
    for now in range(1, 1_000):
        moved += LEAST_RATE
        assert patience.look(now, moved) > 13


def test_one_byte_a_minute_is_not_enough() -> None:
    patience, now, moved = Patience(0, 15), 0, 0
    while patience.look(now, moved) > 0:
        now, moved = now + 1, moved + (now % 60 == 0)
    assert now <= 16


def test_a_burst_buys_no_more_than_the_usual_patience() -> None:
    patience = Patience(0, 15)
    patience.look(1, 0)
    assert patience.look(2, 10**9) == 15
    assert patience.look(17, 10**9) == 0


def test_a_connection_that_was_replaced_is_no_loss_of_bytes() -> None:
    patience = Patience(0, 15)
    assert [patience.look(1, 10**6), patience.look(2, 0), patience.look(3, 0)] == [14, 13, 12]


def client(**moved: int) -> Any:
    connections = {(name, 0): SimpleNamespace(moved=count) for name, count in moved.items()}
    return SimpleNamespace(_conns=connections)


async def moving_for(one: Any, seconds: int) -> None:
    async with while_moving(one, 10_000):
        for _ in range(seconds):
            await asyncio.sleep(1)
            one._conns["broker", 0].moved += LEAST_RATE
        await asyncio.sleep(3_600)


@in_virtual_time
async def test_what_is_asked_of_a_client_takes_longer_while_bytes_move() -> None:
    one = client(broker=0)
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(TimeoutError):
        await moving_for(one, 60)
    assert 68 <= loop.time() - began <= 71
    async with while_moving(one, 10_000):
        await asyncio.sleep(9)


# -- a connection ------------------------------------------------------------------------------------------


@asynccontextmanager
async def connected(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BrokerConnection]:
    """A connection to a broker of which `serve` is all; what it writes is taken in small pieces."""

    async def versions(self: BrokerConnection) -> None:
        self._versions = {MetadataRequest.API_KEY: (0, 1)}

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()
            ended.set()

    ended = asyncio.Event()
    monkeypatch.setattr(BrokerConnection, "_do_version_lookup", versions)
    async with await asyncio.start_server(served, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        made = BrokerConnection("127.0.0.1", port, request_timeout_ms=TIMEOUT_MS)
        await made.connect()
        try:
            yield made
        finally:
            made.close()
            await ended.wait()


def answer(topics: int) -> bytes:
    """The answer to the first request, with so many topics."""
    listed: list[Any] = [(0, f"a-topic-of-some-name-{number}", False, []) for number in range(topics)]
    body: bytes = struct.pack(">i", 1) + MetadataResponse_v1([], -1, listed).encode()
    return struct.pack(">i", len(body)) + body


async def test_an_answer_that_comes_slowly_comes_whole_after_more_than_the_time_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began = asyncio.get_running_loop().time()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        whole = answer(200)
        for start in range(0, len(whole), 500):
            writer.write(whole[start : start + 500])
            await asyncio.sleep(3 * TIMEOUT_MS / 1000 / (len(whole) / 500))

    async with connected(serve, monkeypatch) as connection:
        found = await connection.send(MetadataRequest([]))
        assert len(found.topics) == 200
        assert asyncio.get_running_loop().time() - began > 2 * TIMEOUT_MS / 1000
        assert connection.received == len(answer(200))


async def test_a_broker_that_says_nothing_is_given_up_with_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        while await reader.read(1024):
            pass

    async with connected(serve, monkeypatch) as connection:
        with pytest.raises(LineStandsStill, match=r"not answered a request of \d+ bytes in \d+ s; a line"):
            await connection.send(MetadataRequest([]))
        assert not connection._unanswered


async def test_an_answer_that_stops_in_the_middle_is_given_up_with_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer(5)[:50])
        while await reader.read(1024):
            pass

    async with connected(serve, monkeypatch) as connection:
        with pytest.raises(LineStandsStill, match=r"46 bytes of the answer have come"):
            await connection.send(MetadataRequest([]))


async def test_a_request_that_the_line_does_not_take_is_given_up_with_what_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await gone.wait()

    gone = asyncio.Event()
    topics = [f"a-topic-of-some-name-{number}" for number in range(500_000)]
    async with connected(serve, monkeypatch) as connection:
        with pytest.raises(LineStandsStill, match=r"of \d{8} bytes, of which \d+ still wait here"):
            await connection.send(MetadataRequest(topics))
        assert 0 < connection.waiting < connection.written
        gone.set()


async def test_a_connection_that_is_closed_looks_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)

    async with connected(serve, monkeypatch) as connection:
        waiting = asyncio.ensure_future(connection.send(MetadataRequest([])))
        connection.close()
        with pytest.raises(Exception, match="closed"):
            await waiting
        assert connection._looking is None
        assert (connection.moved, connection.waiting) == (0, 0)


def test_the_figures_are_in_the_reason() -> None:
    error = RequestTimedOutError()
    error.__cause__ = LineStandsStill("host:9092 has not answered a request of 70 bytes in 30 s")
    assert said(error) == "timed out: host:9092 has not answered a request of 70 bytes in 30 s"
    found = explained(error, side="target", connector="hub", operation="Write", resource="topic orders")
    assert "host:9092 has not answered a request of 70 bytes in 30 s" in str(found)
