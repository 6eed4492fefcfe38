"""Tokens, users, browsers, links and certificates, as a listening acceptor treats them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import WSMsgType, web

from bridge.errors import Forbidden
from bridge.http.acceptor import Acceptor, AcceptorOptions
from bridge.http.answers import Answer
from bridge.http.authentication import Authentication, Principal, User
from bridge.http.limits import Limits
from bridge.http.listener import Listener
from bridge.http.operations import NodeControl, Operations
from bridge.http.router import Router
from tests.fakes.http_client import Client, Reply, http_client
from tests.fakes.store import MemoryStore
from tests.unit.http.conftest import Start

EVERY_CALL = [
    ("POST", "/v1/addresses/orders/messages"),
    ("POST", "/v1/transactions"),
    ("PUT", "/v1/addresses/orders/queues/q"),
    ("DELETE", "/v1/addresses/orders/queues/q"),
    ("GET", "/v1/addresses/orders/queues/q/messages"),
    ("POST", "/v1/addresses/orders/queues/q/acknowledge"),
    ("POST", "/v1/addresses/orders/queues/q/release"),
    ("GET", "/v1/addresses/orders/messages"),
    ("GET", "/v1/addresses/orders/messages/0"),
    ("GET", "/v1/addresses"),
    ("GET", "/v1/addresses/orders"),
    ("GET", "/v1/link"),
]


@pytest.mark.parametrize(("method", "path"), EVERY_CALL)
async def test_every_call_asks_for_the_token(start: Start, method: str, path: str) -> None:
    client = await start(tokens=["secret"])
    reply = await client.call(method, path)
    assert reply.problem == (401, "UNAUTHENTICATED")
    assert reply.headers["WWW-Authenticate"] == "Bearer"
    assert (await client.call(method, path, headers=bearer("other"))).problem == (401, "UNAUTHENTICATED")
    assert (await client.call(method, path, headers=bearer("secret"))).status != 401


async def test_tokens_are_never_logged(start: Start, store: MemoryStore, caplog: Any, capsys: Any) -> None:
    caplog.set_level(logging.DEBUG)
    client = await start(tokens=["secret-1"])
    store.fails_with = ZeroDivisionError()  # type: ignore[assignment]
    for token in ("secret-1", "secret-2"):
        reply = await client.call("POST", "/v1/addresses/orders/messages", b"x", headers=bearer(token))
        assert b"secret" not in reply.content
    assert "secret-" not in caplog.text + "".join(capsys.readouterr())


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_a_user_may_what_its_wildcards_say(start: Start, store: MemoryStore) -> None:
    user = User("shop", token="t", send=["orders.#"], receive=["receipts"])
    client = await start(tokens=["root"], users=[user])

    async def call(method: str, path: str, token: str = "t", **how: Any) -> Reply:
        return await client.call(method, path, headers=bearer(token), **how)

    for address in ("orders.eu", "receipts", "secret"):
        assert (await call("POST", f"/v1/addresses/{address}/messages", "root")).status == 200
        assert (await call("PUT", f"/v1/addresses/{address}/queues/q", "root")).status == 201
    forbidden = (403, "FORBIDDEN")
    assert (await call("POST", "/v1/addresses/orders.eu/messages")).status == 200
    assert (await call("POST", "/v1/addresses/receipts/messages")).problem == forbidden
    assert (await call("GET", "/v1/addresses/receipts/messages")).status == 200
    for method, path in (
        ("GET", "/v1/addresses/orders.eu/messages"),
        ("GET", "/v1/addresses/orders.eu/messages/0"),
        ("PUT", "/v1/addresses/orders.eu/queues/x"),
        ("DELETE", "/v1/addresses/orders.eu/queues/q"),
        ("GET", "/v1/addresses/orders.eu/queues/q/messages"),
        ("POST", "/v1/addresses/orders.eu/queues/q/acknowledge"),
        ("POST", "/v1/addresses/orders.eu/queues/q/release"),
        ("GET", "/v1/addresses/secret"),
        ("GET", "/v1/addresses/not.there"),
        ("GET", "/v1/link"),
    ):
        assert (await call(method, path)).problem == forbidden, path
    listed = (await call("GET", "/v1/addresses")).value["addresses"]
    assert [address["address"] for address in listed] == ["orders.eu", "receipts"]


async def test_a_transaction_is_checked_address_by_address(start: Start) -> None:
    user = User("shop", token="t", send=["orders.#"], receive=["receipts"])
    client = await start(users=[user])
    messages = [{"address": "orders.eu", "body": "x"}, {"address": "secret", "body": "x"}]
    reply = await client.call("POST", "/v1/transactions", json={"messages": messages}, headers=bearer("t"))
    assert reply.problem == (403, "FORBIDDEN")
    assert reply.value["key"] == "messages[1].address"
    acknowledge = [{"address": "orders.eu", "queue": "q", "lease": "l"}]
    reply = await client.call(
        "POST", "/v1/transactions", json={"acknowledge": acknowledge}, headers=bearer("t")
    )
    assert reply.problem == (403, "FORBIDDEN")
    assert reply.value["key"] == "acknowledge[0].address"


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}]
)
async def test_web_pages_that_were_not_allowed_are_refused(client: Client, headers: dict[str, str]) -> None:
    reply = await client.call("POST", "/v1/addresses/orders/messages", b"x", headers=headers)
    assert reply.problem == (403, "ORIGIN_REFUSED")
    assert "Access-Control-Allow-Origin" not in reply.headers


async def test_an_allowed_page_may_ask_call_and_read_answers_and_errors(start: Start) -> None:
    origin = "https://shop.example"
    client = await start(allowed_origins=[origin], tokens=["secret"])
    asked = await client.call("OPTIONS", "/v1/transactions", headers={"Origin": origin})
    assert asked.status == 204
    assert "POST" in asked.headers["Access-Control-Allow-Methods"]
    for token, status in (("secret", 200), ("wrong", 401)):
        reply = await client.call("GET", "/v1/addresses", headers={"Origin": origin, **bearer(token)})
        assert reply.status == status
        assert reply.headers["Access-Control-Allow-Origin"] == origin
        assert reply.headers["Vary"] == "Origin"
    refused = await client.call("OPTIONS", "/v1/transactions", headers={"Origin": "https://evil.example"})
    assert refused.problem == (403, "ORIGIN_REFUSED")


async def test_a_link_is_handed_on_with_its_caller_and_is_no_request(start: Start) -> None:
    async def link(request: web.Request, principal: Principal) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str(principal.name)
        async for message in socket:
            assert message.type is WSMsgType.BINARY
            await socket.send_bytes(message.data[::-1])
        return socket

    edge = User("edge", token="t", link=True)
    links = SimpleNamespace(serve=link, present=link)
    client = await start(links=links, users=[edge], tokens=["root"], limits=Limits(max_requests=1))
    async with client.session.ws_connect(f"{client.base}/v1/link", headers=bearer("t")) as socket:
        assert await socket.receive_str() == "edge"
        await socket.send_bytes(b"abc")
        assert await socket.receive_bytes() == b"cba"
        assert (await client.call("GET", "/v1/addresses", headers=bearer("root"))).status == 200


async def test_a_link_that_is_open_does_not_keep_the_node_from_stopping(store: MemoryStore) -> None:
    async def link(request: web.Request, _principal: Principal) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        return socket

    links = SimpleNamespace(serve=link, present=link)
    acceptor = Acceptor(store, AcceptorOptions(url="ws://127.0.0.1:0"), links=links)
    bound = await acceptor.start()
    async with (
        http_client(str(bound)) as client,
        client.session.ws_connect(f"{client.base}/v1/link"),
        asyncio.timeout(3),
    ):
        await acceptor.stop(60_000)


async def test_the_caller_of_a_public_route_has_no_right() -> None:
    """Whatever its handler does with it: no credential was asked for."""
    callers: list[Principal] = []

    async def handler(_request: web.Request, principal: Principal) -> web.StreamResponse:
        callers.append(principal)
        return Answer(b"")

    router = Router()
    router.add("GET", "/ping", handler, public=True)
    listener = Listener("http://127.0.0.1:0", router, Authentication(host="127.0.0.1"), Limits())
    bound = await listener.start()
    try:
        async with http_client(str(bound)) as client:
            assert (await client.call("GET", "/ping")).status == 200
    finally:
        await listener.stop(0)
    (caller,) = callers
    checks = (caller.check_send, caller.check_deliver, caller.check_receive, caller.check_delete_queue)
    for check in checks:
        with pytest.raises(Forbidden, match="unauthenticated may not"):
            check("orders")
    with pytest.raises(Forbidden, match="unauthenticated may not open a node link"):
        caller.check_link()


async def test_no_route_of_the_acceptor_is_public_and_of_operations_only_the_probes() -> None:
    acceptor = Acceptor(MemoryStore(), AcceptorOptions(url="ws://127.0.0.1:0"))
    operations = Operations(cast("NodeControl", None), url="http://127.0.0.1:0")
    assert public_routes(acceptor._listener._router) == set()
    assert public_routes(operations._listener._router) == {
        (method, path) for method in ("GET", "HEAD") for path in ("/ping", "/ready", "/metrics")
    }


def public_routes(router: Router) -> set[tuple[str, str]]:
    """Method and path of each, of those below captures, too."""

    def below(node: Any, path: str) -> Iterator[tuple[str, str]]:
        yield from ((method, path) for method, route in node.methods.items() if route.public)
        for segment, child in (*node.literal.items(), ("{}", node.capture)):
            if child is not None:
                yield from below(child, f"{path}/{segment}")

    return set(below(router._root, ""))
