"""Named limits, and bytes that are not HTTP."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import urlsplit

import msgspec
import pytest

from bridge.http.limits import Limits
from tests.fakes.http_client import Client, raw_exchange
from tests.fakes.store import MemoryStore
from tests.harness.eventually import until
from tests.unit.http.conftest import Start

POST = b"POST /v1/addresses/orders/messages HTTP/1.1\r\nHost: localhost\r\n"


def port_of(client: Client) -> int:
    port = urlsplit(client.base).port
    assert port is not None
    return port


def problem_in(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Content-Type: application/problem+json\r\n" in head
    assert b"Connection: close" in head
    value = msgspec.json.decode(body)
    assert head.startswith(b"HTTP/1.1 %d " % value["status"])
    return value["status"], value["title"]


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n",
        POST + b"Content-Length: x\r\n\r\n",
        POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxy",
        POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_malformed(client: Client, sent: bytes) -> None:
    assert problem_in(await raw_exchange(port_of(client), sent)) == (400, "MALFORMED")


async def test_a_badly_chunked_body_is_malformed(client: Client, store: MemoryStore) -> None:
    sent = POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n"
    assert problem_in(await raw_exchange(port_of(client), sent)) == (400, "MALFORMED")
    assert await store.addresses() == []


@pytest.mark.parametrize(
    "headers",
    [
        b"Message-Header-A: " + b"x" * 2000 + b"\r\n",
        b"Message-Header-" + b"x" * 2000 + b": a\r\n",
        b"".join(b"Message-Header-%d: " % n + b"x" * 200 + b"\r\n" for n in range(6)),
        b"".join(b"M%d: x\r\n" % n for n in range(129)),
    ],
    ids=["one-long-value", "one-long-name", "many-that-add-up", "too-many"],
)
async def test_headers_above_their_limit_are_refused(start: Start, headers: bytes) -> None:
    client = await start(limits=Limits(max_headers_size=1000))
    sent = POST + headers + b"Connection: close\r\nContent-Length: 0\r\n\r\n"
    assert problem_in(await raw_exchange(port_of(client), sent)) == (431, "HEADERS_TOO_LARGE")


async def test_a_long_request_line_is_refused(start: Start) -> None:
    client = await start(limits=Limits(max_headers_size=1000))
    sent = b"GET /" + b"x" * 2000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert problem_in(await raw_exchange(port_of(client), sent)) == (431, "HEADERS_TOO_LARGE")


async def test_a_declared_size_above_the_limit_is_refused_before_the_body_comes(start: Start) -> None:
    client = await start(limits=Limits(max_message_size=1000))
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(client))
    writer.write(POST + b"Expect: 100-continue\r\nContent-Length: 1001\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
    writer.close()
    await writer.wait_closed()


async def test_a_client_that_asks_first_is_told_to_continue(client: Client) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(client))
    writer.write(POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"ab")
    assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    writer.close()
    await writer.wait_closed()


async def waiting_for_chunks(client: Client) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection whose POST has been admitted and whose body is awaited."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(client))
    writer.write(POST + b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    return reader, writer


@pytest.mark.parametrize(
    ("chunk", "status"),
    [(b"b\r\n01234567890\r\n", 413), (b"zz\r\n", 408), (b"a\r\n0123456789\r\n0\r\n\r\n", 200)],
    ids=["too-much", "not-a-chunk", "just-enough"],
)
async def test_a_chunked_body_is_judged_while_it_comes(start: Start, chunk: bytes, status: int) -> None:
    # aiohttp 3.14 tells the reader of a body nothing about a bad chunk: the body's deadline ends the wait.
    client = await start(limits=Limits(max_message_size=10), call_timeout_ms=100)
    reader, writer = await waiting_for_chunks(client)
    writer.write(chunk)
    assert (await reader.readline()).startswith(b"HTTP/1.1 %d " % status)
    writer.close()
    await writer.wait_closed()


async def test_a_body_that_is_broken_off_is_not_stored(client: Client, store: MemoryStore) -> None:
    _, writer = await waiting_for_chunks(client)
    writer.write(b"5\r\nhal")
    writer.close()
    await writer.wait_closed()
    assert (await client.call("GET", "/v1/addresses")).value == {"addresses": []}
    assert await store.addresses() == []


async def test_a_body_that_does_not_come_is_given_up_with_its_numbers(
    start: Start, store: MemoryStore
) -> None:
    client = await start(call_timeout_ms=20)
    sent = POST + b"Connection: close\r\nContent-Length: 10\r\n\r\nha"
    answer = await raw_exchange(port_of(client), sent)
    assert problem_in(answer) == (408, "BODY_TOO_SLOW")
    detail = rb"the body came too slowly: 2 bytes in 0\.\d+ s, fewer than 100 a second \(call-timeout\)"
    assert re.search(detail, answer)
    assert await store.addresses() == []


@pytest.mark.parametrize("large", [False, True])
async def test_a_body_that_keeps_coming_is_taken_however_long_it_takes(
    start: Start, store: MemoryStore, large: bool
) -> None:
    least = 1 if large else 1 << 20
    client = await start(call_timeout_ms=200, limits=Limits(min_large_message_size=least))
    reader, writer = await waiting_for_chunks(client)
    began_s = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() < began_s + 0.9:
        writer.write(b"64\r\n" + bytes(100) + b"\r\n")
        await asyncio.sleep(0.005)  # time is the subject: more than two windows
    writer.write(b"0\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    writer.close()
    await writer.wait_closed()


async def test_requests_above_the_limit_are_told_to_come_back(start: Start, store: MemoryStore) -> None:
    client = await start(limits=Limits(max_requests=2))
    store.room.clear()
    held = [asyncio.create_task(client.send("orders", b"x")) for _ in range(2)]
    await until(lambda: store.held == 2, "two are held")
    reply = await client.send("others", b"x")
    assert reply.problem == (503, "TOO_BUSY")
    assert (reply.value["key"], reply.value["limit"]) == ("max-requests", 2)
    # Readers and acknowledgements have slots of their own.
    assert (await client.call("GET", "/v1/addresses")).status == 200
    assert (await client.call("PUT", "/v1/addresses/orders/queues/q")).status == 201
    store.room.set()
    assert [reply.status for reply in await asyncio.gather(*held)] == [200, 200]
    assert (await client.call("GET", "/v1/addresses")).status == 200


async def test_a_waiting_poll_counts_as_a_request(start: Start, store: MemoryStore) -> None:
    client = await start(limits=Limits(max_requests=1))
    queue = "/v1/addresses/orders/queues/q"
    await client.call("PUT", queue)
    poll = asyncio.create_task(client.call("GET", f"{queue}/messages?wait=60000"))
    await until(lambda: store.polls == 1, "a poll waits")
    assert (await client.call("GET", "/v1/addresses")).problem == (503, "TOO_BUSY")
    poll.cancel()


async def test_connections_above_the_limit_are_refused_and_then_there_is_room_again(start: Start) -> None:
    client = await start(limits=Limits(max_connections=2))
    request = b"GET /v1/addresses HTTP/1.1\r\nHost: localhost\r\n\r\n"
    first = await asyncio.open_connection("127.0.0.1", port_of(client))
    second = await asyncio.open_connection("127.0.0.1", port_of(client))
    for reader, writer in (first, second):
        writer.write(request)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    assert problem_in(await raw_exchange(port_of(client), b"")) == (503, "TOO_BUSY")
    first[1].close()
    await first[1].wait_closed()
    assert (await client.call("GET", "/v1/addresses")).status == 200
    second[1].close()
    await second[1].wait_closed()


async def test_a_connection_serves_one_request_after_another(client: Client) -> None:
    body = POST + b"Content-Length: 1\r\n\r\nx"
    last = POST + b"Connection: close\r\nContent-Length: 1\r\n\r\nx"
    answer = await raw_exchange(port_of(client), body + body + last)
    assert [b"[%d,%d]" % (n, n) in answer for n in range(3)] == [True] * 3
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert answer.count(b"\r\nDate: ") == 3


async def test_http_1_0_closes_unless_it_asks_otherwise(client: Client) -> None:
    request = b"GET /v1/addresses HTTP/1.0\r\n"
    host = b"Host: localhost\r\n"
    assert b"Connection: close" in await raw_exchange(port_of(client), request + host + b"\r\n")
    kept = request + host + b"Connection: keep-alive\r\n\r\n" + request + host + b"\r\n"
    answer = await raw_exchange(port_of(client), kept)
    assert b"Connection: keep-alive" in answer
    assert answer.count(b"HTTP/1.1 200") == 2


async def test_a_page_larger_than_a_write_comes_whole(client: Client) -> None:
    bodies = [bytes([65 + n]) * 50_000 for n in range(20)]
    for body in bodies:
        await client.send("orders", body)
    reply = await client.call("GET", "/v1/addresses/orders/messages")
    assert [message["body"].encode() for message in reply.value["messages"]] == bodies
