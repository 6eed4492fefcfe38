"""Requests that every node refuses: names, bodies, headers, callers; each with its status and title."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from tests.contracts.http.conftest import MEMORY_AND_PROCESS
from tests.fakes.http_client import Client, Reply, raw_exchange

pytestmark = MEMORY_AND_PROCESS

BAD_NAMES = ["a%20b", "%C3%BC", "a%2Fb", "x" * 250, "$sf.hub", "core-bridge.x", ".", "..", "%2e%2e"]


async def raw_post(client: Client, path: str, headers: bytes, body: bytes) -> Reply:
    """A POST with header lines that no client library writes."""
    request = b"POST %s HTTP/1.1\r\nConnection: close\r\n%s\r\n%s" % (path.encode(), headers, body)
    head, _, content = (await raw_exchange(client.port, request)).partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    found = CIMultiDict[str]()
    for line in lines:
        name, _, value = line.partition(": ")
        found.add(name, value)
    return Reply(int(status.split()[1]), CIMultiDictProxy(found), content)


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: name[:20])
async def test_names_that_no_address_or_queue_can_have(client: Client, name: str) -> None:
    problem = (await client.send(name, b"x")).is_problem(400, "INVALID_ADDRESS")
    assert problem["key"] == "address"
    reply = await client.call("PUT", f"/v1/addresses/orders/queues/{name}")
    assert reply.is_problem(400, "INVALID_ADDRESS")["key"] == "queue"


@pytest.mark.parametrize("name", ["x" * 249, "A-z_0.9", "...", ".a"], ids=lambda name: name[:20])
async def test_names_that_an_address_and_a_queue_can_have(client: Client, name: str) -> None:
    assert (await client.send(name, b"x")).status == 200
    assert await client.make_queue(name, name) == 201


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "title"),
    [
        ("POST", "/v1/transactions", b"{", 400, "MALFORMED"),
        ("POST", "/v1/transactions", b"{}", 400, "MALFORMED"),
        ("POST", "/v1/transactions", b'{"mesages":[]}', 400, "MALFORMED"),
        ("POST", "/v1/transactions", b'{"messages":[{"address":"a"}]}', 400, "MALFORMED"),
        ("POST", "/v1/transactions",
         b'{"messages":[{"address":"a","body":"","body-base64":""}]}', 400, "MALFORMED"),
        ("POST", "/v1/transactions", b'{"messages":[{"address":"$","body":""}]}', 400, "INVALID_ADDRESS"),
        ("POST", "/v1/transactions",
         b'{"messages":[{"address":"a","body":"","duplicate-id":""}]}', 400, "INVALID_DUPLICATE_ID"),
        ("POST", "/v1/transactions",
         b'{"messages":[{"address":"a","body":""}],"duplicate-id":7}', 400, "INVALID_DUPLICATE_ID"),
        ("GET", "/v1/nothing", None, 404, "NOT_FOUND"),
        ("GET", "/", None, 404, "NOT_FOUND"),
        ("GET", "/v1/addresses/absent", None, 404, "ADDRESS_NOT_FOUND"),
        ("GET", "/v1/addresses/absent/messages", None, 404, "ADDRESS_NOT_FOUND"),
        ("GET", "/v1/addresses/absent/messages/0", None, 404, "ADDRESS_NOT_FOUND"),
        ("GET", "/v1/addresses/absent/queues/q/messages", None, 404, "ADDRESS_NOT_FOUND"),
        ("DELETE", "/v1/addresses/absent/queues/q", None, 404, "ADDRESS_NOT_FOUND"),
        ("GET", "/v1/addresses/there/queues/q/messages", None, 404, "QUEUE_NOT_FOUND"),
        ("DELETE", "/v1/addresses/there/queues/q", None, 404, "QUEUE_NOT_FOUND"),
        ("PATCH", "/v1/transactions", b"", 405, "METHOD_NOT_ALLOWED"),
        ("DELETE", "/v1/addresses/there/messages", None, 405, "METHOD_NOT_ALLOWED"),
        ("PUT", "/v1/addresses/there/queues/q", b'{"from":"middle"}', 400, "MALFORMED"),
        ("PUT", "/v1/addresses/there/queues/q", b'{"from":-1}', 400, "MALFORMED"),
        ("GET", "/v1/addresses/there/messages?after=x", None, 400, "MALFORMED"),
    ],
)  # fmt: skip
async def test_errors_of_handlers_router_and_middleware_are_problems(
    client: Client, method: str, path: str, body: bytes | None, status: int, title: str
) -> None:
    await client.send("there", b"x")
    headers = {} if body is None else {"Content-Type": "application/json"}
    reply = await client.call(method, path, body, headers=headers)
    reply.is_problem(status, title)
    assert ("Allow" in reply.headers) == (status == 405)


@pytest.mark.parametrize(
    ("path", "header"),
    [
        ("/v1/addresses/there/messages", b"Host"),
        ("/v1/addresses/there/messages", b"Origin"),
        ("/v1/transactions", b"Content-Type"),
        ("/v1/transactions", b"Content-Encoding"),
    ],
)
async def test_a_header_that_is_not_utf_8_is_malformed(client: Client, path: str, header: bytes) -> None:
    host = b"" if header == b"Host" else b"Host: localhost\r\n"
    lines = host + header + b": a\xffb\r\nContent-Length: 2\r\n"
    problem = (await raw_post(client, path, lines, b"{}")).is_problem(400, "MALFORMED")
    assert (problem["key"], problem["found"]) == (header.decode(), "a\ufffdb")


@pytest.mark.parametrize("coding", ["gzip, chunked", "identity, chunked"])
async def test_a_transfer_coding_besides_chunked_is_not_implemented(
    client: Client, address: str, coding: str
) -> None:
    """RFC 9112, section 6.1. It was stored as it came, gzip and all."""
    path, chunked = f"/v1/addresses/{address}/messages", b"1\r\nx\r\n0\r\n\r\n"
    lines = b"Host: localhost\r\nTransfer-Encoding: %s\r\n"
    reply = await raw_post(client, path, lines % coding.encode(), chunked)
    assert reply.is_problem(501, "UNSUPPORTED_TRANSFER_ENCODING")["found"] == coding
    assert (await raw_post(client, path, lines % b"Chunked", chunked)).status == 200
    assert await client.bodies(address) == ["x"]


async def test_a_content_encoding_and_a_foreign_type_are_unsupported(client: Client, address: str) -> None:
    for encoding in ("gzip", "identity, gzip"):
        reply = await client.send(address, b"x", Content_Encoding=encoding)
        assert reply.is_problem(415, "UNSUPPORTED_MEDIA_TYPE")["found"] == encoding
    for encoding in ("identity", "Identity"):  # no coding
        assert (await client.send(address, b"x", Content_Encoding=encoding)).status == 200
    reply = await client.call("POST", "/v1/transactions", b"{}", headers={"Content-Type": "text/xml"})
    assert reply.is_problem(415, "UNSUPPORTED_MEDIA_TYPE")["found"] == "text/xml"


async def test_a_loopback_listener_answers_to_loopback_names_only(client: Client) -> None:
    """A web page must not reach the node through a name of its own (DNS rebinding)."""
    for host in (
        "localhost",
        f"localhost:{client.port}",
        "127.0.0.1",
        f"127.0.0.1:{client.port}",
        "[::1]",
        "[::1]:80",
    ):
        assert (await client.get("/v1/addresses", Host=host)).status == 200, host
    for host in (
        "evil.example",
        f"evil.example:{client.port}",
        "127.0.0.1.evil.example",
        "localhost.evil",
    ):
        reply = await client.get("/v1/addresses", Host=host)
        assert reply.is_problem(403, "ORIGIN_REFUSED")["found"] == host


async def test_no_origin_may_call_unless_it_was_allowed(client: Client, address: str) -> None:
    own = f"http://127.0.0.1:{client.port}"
    (await client.send(address, b"x", Origin=own)).is_problem(403, "ORIGIN_REFUSED")
