"""A link through a proxy, real sockets at every end: how it is opened, and what it says where it is not."""

from __future__ import annotations

import asyncio
import contextlib
import socket as sockets
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from aiohttp import web

from bridge.client.node_client import Connection, NodeClient, Unreachable
from bridge.errors import BridgeError, Malformed, TargetUnavailable
from bridge.link import limits
from bridge.link import socket as link_socket
from bridge.link.correspondent import LinkEnd
from bridge.link.node_target import NodeTarget
from bridge.link.receiving import NodeIdentity
from bridge.link.socket import Endpoint, post, serve_link
from bridge.runtime.event_loop import fast_loop
from bridge.runtime.proxies import Proxy, read_proxy
from dedup.verdict import Verdict
from tests.harness.certificates import client_tls, make_certificates
from tests.harness.eventually import until
from tests.harness.proxies import FakeProxy
from tests.unit.link.fakes import FakeTarget
from tests.unit.link.helpers import HELLO, STREAM, batch

MIB = 1024 * 1024
IDENTITY = NodeIdentity("node-2", "hub", "hub-store", 16 * MIB)
WINDOW = msgspec.structs.replace(HELLO, producer_window=MIB)
#: A name that only the proxies of these tests can resolve.
NAME = "hub.invalid"
Kind = Literal["http", "socks5"]


class Hub:
    """A receiving node on a free port, below `path`."""

    def __init__(self, path: str = "", tls: ssl.SSLContext | None = None) -> None:
        self.target = FakeTarget()
        self.port = 0
        #: Given in place of the link; None: the link.
        self.answer: Callable[[], web.Response] | None = None
        self.requests: list[str] = []
        self._path = path
        self._tls = tls
        self._runner: web.AppRunner | None = None

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request.path)
        if self.answer is not None:
            return self.answer()
        if request.method == "POST":
            return web.Response(body=await request.read())
        try:
            return await serve_link(
                request, lambda _: LinkEnd(self.target, None), identity=IDENTITY, call_timeout_ms=2_000
            )
        except Malformed as error:
            return web.Response(status=error.status, text=error.detail)

    async def __aenter__(self) -> Hub:
        app = web.Application()
        app.router.add_route("*", f"{self._path}/v1/{{rest:.*}}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    async with Hub() as hub:
        yield hub


def through(proxy: FakeProxy, user: str = "", password: str = "") -> Proxy:
    return replace(read_proxy(proxy.url), user=user, password=password)


async def carries(endpoint: Endpoint) -> None:
    """A batch goes over the link at the endpoint, and a call beside it."""
    target = NodeTarget(endpoint, WINDOW, call_timeout_ms=5_000)
    try:
        await target.open([STREAM])
        assert (await target.deliver([batch(0, 3)]))[0].verdict is Verdict.STORED
    finally:
        await target.close()
    assert await post(endpoint, "/v1/calls", b"asked", "text/plain", 5_000) == b"asked"


async def refusal(endpoint: Endpoint, call_timeout_ms: int = 5_000) -> str:
    """The error of an attempt that fails; a call beside the link fails with the same."""
    target = NodeTarget(endpoint, WINDOW, call_timeout_ms=call_timeout_ms)
    link = await failing(target.open([STREAM]))
    await target.close()
    return str(link)


async def failing(awaitable: Awaitable[object]) -> BridgeError:
    with pytest.raises(TargetUnavailable) as caught:
        await awaitable
    return caught.value


# ---------------------------------------------------------------------- through the proxy


@pytest.mark.parametrize("kind", ["http", "socks5"])
@pytest.mark.parametrize("credentials", [None, ("me", "s:cr@t/ü")])
async def test_a_link_goes_through_a_proxy_that_resolves_the_name(
    hub: Hub, kind: Kind, credentials: tuple[str, str] | None
) -> None:
    """For ws://, too, by CONNECT (RFC 6455, section 4.1)."""
    async with FakeProxy(kind, names={NAME: hub.port}, credentials=credentials) as proxy:
        await carries(Endpoint(f"ws://{NAME}:61616", proxy=through(proxy, *(credentials or ()))))
        assert proxy.asked == [f"{NAME}:61616"] * 2


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["http", "socks5"])
async def test_tls_is_between_the_node_and_the_hub(kind: Kind, tmp_path: Path) -> None:
    [*_, pem] = make_certificates(tmp_path, "hub")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(pem, pem.with_suffix(".key"))
    async with Hub(tls=serving) as hub, FakeProxy(kind, names={NAME: hub.port}) as proxy:
        endpoint = Endpoint(f"wss://{NAME}:1", "", client_tls(tmp_path), "localhost", proxy=through(proxy))
        await carries(endpoint)
        assert "another name" in await refusal(replace(endpoint, server_hostname=None))


@pytest.mark.processes
async def test_a_proxy_is_reached_over_tls(tmp_path: Path) -> None:
    [*_, pem] = make_certificates(tmp_path, "hub")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(pem, pem.with_suffix(".key"))
    async with Hub(tls=serving) as hub, FakeProxy("http", names={NAME: hub.port}, tls=serving) as proxy:
        endpoint = Endpoint(f"wss://{NAME}:1", "", client_tls(tmp_path), "localhost", proxy=through(proxy))
        await carries(endpoint)
        said = await refusal(replace(endpoint, ssl_context=None))
    assert f"the proxy {endpoint.proxy} cannot be reached over TLS" in said


@pytest.mark.processes
def test_tls_goes_through_tls_on_the_loop_of_nodes(tmp_path: Path) -> None:
    [*_, pem] = make_certificates(tmp_path, "hub")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(pem, pem.with_suffix(".key"))

    async def both() -> None:
        async with Hub(tls=serving) as hub, FakeProxy("http", names={NAME: hub.port}, tls=serving) as proxy:
            await carries(
                Endpoint(f"wss://{NAME}:1", "", client_tls(tmp_path), "localhost", proxy=through(proxy))
            )

    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(both())


async def test_a_command_goes_through_a_proxy(hub: Hub) -> None:
    """As those of an audit, which reads where connectors lead."""
    async with FakeProxy(names={NAME: hub.port}) as proxy:
        async with NodeClient(Connection(f"ws://{NAME}:1", proxy=through(proxy))) as client:
            assert (await client.call("POST", "/v1/calls", body=b"asked")).body == b"asked"
        proxy.answer = b"HTTP/1.1 403 No\r\n\r\n"
        async with NodeClient(Connection(f"ws://{NAME}:1", proxy=through(proxy))) as client:
            with pytest.raises(Unreachable, match="its rules must allow CONNECT"):
                await client.call("GET", "/v1/calls")


async def test_a_large_batch_goes_through_whole(hub: Hub) -> None:
    async with FakeProxy("socks5") as proxy:
        target = NodeTarget(
            Endpoint(f"ws://127.0.0.1:{hub.port}", proxy=through(proxy)), WINDOW, call_timeout_ms=5_000
        )
        await target.open([STREAM])
        receipts = await target.deliver([batch(n, n + 1, body=MIB // 2) for n in range(4)])
        await target.close()
    assert [receipt.verdict for receipt in receipts] == [Verdict.STORED] * 4
    assert proxy.asked == [f"127.0.0.1:{hub.port}"]


# ---------------------------------------------------------------------- what a proxy says instead


CONNECT_ANSWERS = {
    b"HTTP/1.1 403 Filtered\r\n\r\n": "must allow CONNECT to this host and port (HTTP 403 Filtered)",
    b"HTTP/1.0 502 Bad\x07Gateway\r\nX: y\r\n\r\n": "refuses the connection (HTTP 502 Bad Gateway)",
    b"HTTP/1.1 504 \r\n\r\n": "got no answer from it in time (HTTP 504)",
    b"HTTP/1.1 405 No\r\n\r\n": "does not take CONNECT: it is no proxy for tunnels",
    b"HTTP/1.1 302 Found\r\nLocation: http://portal\r\n\r\n": "a portal of the network may ask for a sign-in",
    b"HTTP/1.1 418 Teapot\r\n\r\n": "refused it (HTTP 418 Teapot)",
    b"HTTP/1.1 407 No\r\nProxy-Authenticate: NTLM\r\nProxy-Authenticate: Negotiate\r\n\r\n": (
        "wants credentials by negotiate, ntlm (HTTP 407 No); this node shows user and password (Basic)"
    ),
    b"HTTP/1.1 100 Continue\r\n\r\n" * 9: "gave 5 interim answers (HTTP 1xx) and no final one",
    b"\x05\xff": "does not speak HTTP; is it a socks5:// proxy",
    b"HTTP/1.1 200 OK\r\n" + b"x" * 20_000: "answered more than 16384 bytes",
    b"": "closed the connection",
}


@pytest.mark.parametrize("answer", CONNECT_ANSWERS, ids=lambda answer: repr(answer[:20]))
async def test_each_refusal_of_connect_is_a_sentence(answer: bytes) -> None:
    async with FakeProxy() as proxy:
        proxy.answer = answer
        endpoint = Endpoint(f"ws://{NAME}:1", connector="hub", proxy=through(proxy))
        said = await refusal(endpoint)
    assert said.startswith(f"connector hub: ws://{NAME}:1: the proxy {endpoint.proxy}")
    assert CONNECT_ANSWERS[answer] in said


SOCKS_REPLIES = {
    1: "failed (general failure)",
    2: "its rules must allow this host and port",
    3: "its network is unreachable from there",
    4: "the host does not resolve or answer there",
    5: "the host refuses the connection",
    6: "too many hops or too long",
    7: "does not take CONNECT",
    8: "does not take this kind of address",
    99: "refused it",
}


@pytest.mark.parametrize("reply", SOCKS_REPLIES)
async def test_each_reply_of_socks_is_a_sentence(reply: int) -> None:
    async with FakeProxy("socks5") as proxy:
        proxy.answer = bytes((5, reply, 0, 1, 0, 0, 0, 0, 0, 0))
        said = await refusal(Endpoint(f"ws://{NAME}:1", proxy=through(proxy)))
    assert f"asked for {NAME}:1, " in said
    assert said.endswith(f"{SOCKS_REPLIES[reply]} (SOCKS reply {reply})")


@pytest.mark.parametrize("kind", ["http", "socks5"])
async def test_credentials_that_are_missing_or_wrong_are_named_and_never_shown(hub: Hub, kind: Kind) -> None:
    async with FakeProxy(kind, names={NAME: hub.port}, credentials=("me", "right")) as proxy:
        missing = await refusal(Endpoint(f"ws://{NAME}:1", proxy=through(proxy)))
        wrong = await refusal(Endpoint(f"ws://{NAME}:1", proxy=through(proxy, "me", "wr0ng")))
    assert "wants user and password" in missing
    assert "see proxy: " in missing
    assert "refused user and password" in wrong
    assert "wr0ng" not in wrong
    assert not hub.requests


async def test_a_proxy_of_the_other_kind_is_named(hub: Hub) -> None:
    async with FakeProxy("http") as http, FakeProxy("socks5") as socks:
        http.answer = b"HTTP/1.1 400 Bad Request\r\n\r\n"
        as_socks = Proxy("socks5", "127.0.0.1", http.port)
        as_http = Proxy("http", "127.0.0.1", socks.port)
        listening = Proxy("socks5", "127.0.0.1", hub.port)
        assert "closed the connection" in await refusal(Endpoint(f"ws://{NAME}:1", proxy=as_http))
        for proxy in (as_socks, listening):
            assert "the proxy socks5://" in await refusal(Endpoint(f"ws://{NAME}:1", proxy=proxy), 500)


@pytest.mark.parametrize("kind", ["http", "socks5"])
async def test_a_proxy_that_is_away_or_mute_is_named_and_not_the_hub(hub: Hub, kind: Kind) -> None:
    with sockets.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        away = Proxy(kind, "127.0.0.1", reserved.getsockname()[1])
        said = await refusal(Endpoint(f"ws://127.0.0.1:{hub.port}", proxy=away))
    assert f"the proxy {away} cannot be reached: connection refused" in said
    async with FakeProxy(kind) as proxy:
        proxy.mute = True
        mute = through(proxy)
        said = await refusal(Endpoint(f"ws://127.0.0.1:{hub.port}", proxy=mute), 1_000)
    assert said.endswith(f"the proxy {mute} did not answer within 1000 ms (call-timeout)")
    lost = Proxy(kind, "proxy.invalid", 1)
    assert "its name does not resolve" in await refusal(Endpoint(f"ws://127.0.0.1:{hub.port}", proxy=lost))


async def test_a_hub_that_is_mute_behind_a_proxy_is_the_hub(hub: Hub) -> None:
    async with FakeProxy() as silent, FakeProxy() as proxy:
        silent.mute = True
        endpoint = Endpoint(f"ws://127.0.0.1:{silent.port}", proxy=through(proxy))
        assert await refusal(endpoint, 1_000) == f"{endpoint} did not answer within 1000 ms (call-timeout)"


async def test_a_call_beside_the_link_names_the_proxy_too() -> None:
    async with FakeProxy() as proxy:
        proxy.answer = b"HTTP/1.1 403 No\r\n\r\n"
        endpoint = Endpoint(f"ws://{NAME}:1", proxy=through(proxy))
        assert "forbids it" in str(await failing(post(endpoint, "/v1/calls", b"", "text/plain", 5_000)))


# ---------------------------------------------------------------------- what stands in the node's place


@pytest.mark.processes
@pytest.mark.parametrize("kind", [None, "http"])
async def test_a_certificate_of_a_proxy_that_inspects_tls_is_named(kind: Kind | None, tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    [*_] = make_certificates(own, "hub")
    [*_, pem] = make_certificates(other, "inspector")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(pem, pem.with_suffix(".key"))
    async with Hub(tls=serving) as hub, FakeProxy(names={"localhost": hub.port}) as proxy:
        way = through(proxy) if kind else None
        said = await refusal(Endpoint(f"wss://localhost:{hub.port}", "", client_tls(own), proxy=way))
    assert "the node's certificate is not trusted" in said
    assert "see ca" in said
    assert (
        "issued by CN=authority: if that is not the node's authority, a proxy on the way inspects TLS" in said
    )
    assert not hub.requests


def page(status: int) -> Callable[[], web.Response]:
    return lambda: web.Response(status=status, text="<html>Welcome", content_type="text/html")


@pytest.mark.parametrize(
    ("status", "means"),
    [
        (200, "a portal of the network asks for a sign-in"),
        (511, "a portal of the network asks for a sign-in"),
        (404, "the web server there knows no such path: see the path in url"),
        (502, "a reverse proxy is there, and cannot reach the node behind it"),
        (504, "a reverse proxy is there, and cannot reach the node behind it"),
    ],
)
async def test_a_web_page_in_place_of_the_link_is_said(hub: Hub, status: int, means: str) -> None:
    hub.answer = page(status)
    said = await refusal(Endpoint(f"ws://127.0.0.1:{hub.port}"))
    assert f"it answered with a web page (HTTP {status}); {means}" in said


@pytest.mark.parametrize("path", ["/relay", "/relay/", "/a/b"])
async def test_link_and_calls_go_below_the_path_of_the_url(path: str) -> None:
    below = path.rstrip("/")
    async with Hub(below) as hub:
        await carries(Endpoint(f"ws://127.0.0.1:{hub.port}{path}"))
        assert hub.requests == [f"{below}{limits.PATH}", f"{below}/v1/calls"]


# ---------------------------------------------------------------------- names


class Names:
    """Resolves names as the test says, for all of this process."""

    def __init__(self) -> None:
        self.addresses: dict[str, list[str]] = {}
        self.looked_up: list[str] = []
        self._real = sockets.getaddrinfo

    def __call__(self, host: Any, port: Any, *args: Any, **options: Any) -> Any:
        if host not in self.addresses:
            return self._real(host, port, *args, **options)
        self.looked_up.append(host)
        if not self.addresses[host]:
            raise sockets.gaierror(sockets.EAI_NONAME, "Name or service not known")
        kind = (sockets.AF_INET, sockets.SOCK_STREAM, sockets.IPPROTO_TCP, "")
        return [(*kind, (address, port)) for address in self.addresses[host]]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    names = Names()
    monkeypatch.setattr(sockets, "getaddrinfo", names)
    return names


async def test_a_name_is_resolved_again_at_each_attempt(hub: Hub, names: Names) -> None:
    """A hub that comes to another address is there at the next attempt."""
    endpoint = Endpoint(f"ws://{NAME}:{hub.port}")
    names.addresses[NAME] = []
    assert "the host in url does not resolve" in await refusal(endpoint)
    names.addresses[NAME] = ["127.0.0.3"]
    assert "connection refused" in await refusal(endpoint)
    names.addresses[NAME] = ["127.0.0.1"]
    await carries(endpoint)
    assert len(names.looked_up) == 4


async def test_every_address_of_a_name_is_tried(hub: Hub, names: Names) -> None:
    names.addresses[NAME] = ["127.0.0.3", "127.0.0.2", "127.0.0.1"]
    await carries(Endpoint(f"ws://{NAME}:{hub.port}"))


@pytest.fixture
def black_hole(hub: Hub) -> Iterator[str]:
    """An address that answers no attempt to connect to the hub's port: its queue of connections is full."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(sockets.socket())
        listening.bind(("127.0.0.2", hub.port))
        listening.listen(0)
        for _ in range(2):
            waiting = stack.enter_context(sockets.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield "127.0.0.2"


async def test_a_hub_that_moves_while_its_old_place_is_silent_is_reached_at_once(
    hub: Hub, names: Names, black_hole: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt at an address that answers nothing ends when the name leads elsewhere."""
    monkeypatch.setattr(link_socket, "RESOLVE_AGAIN_S", 0.02)
    names.addresses[NAME] = [black_hole]
    target = NodeTarget(Endpoint(f"ws://{NAME}:{hub.port}"), WINDOW, call_timeout_ms=60_000)
    opening = asyncio.create_task(target.open([STREAM]))
    await until(lambda: len(names.looked_up) >= 3, "looked up again")
    names.addresses[NAME] = ["127.0.0.1", "127.0.0.4"]
    await opening
    await target.close()


async def test_an_attempt_goes_on_while_one_of_its_addresses_is_left(
    hub: Hub, names: Names, black_hole: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name with many addresses shows some of them at a time; a resolver may be away for a while."""
    monkeypatch.setattr(link_socket, "RESOLVE_AGAIN_S", 0.01)
    begun: list[int] = []
    resolve = link_socket._Names.resolve

    async def counted(*arguments: Any, **options: Any) -> Any:
        begun.append(1)
        return await resolve(*arguments, **options)

    monkeypatch.setattr(link_socket._Names, "resolve", counted)
    names.addresses[NAME] = [black_hole]
    opening = asyncio.create_task(refusal(Endpoint(f"ws://{NAME}:{hub.port}"), 1_000))
    await until(lambda: len(names.looked_up) >= 2, "looked up again")
    names.addresses[NAME] = ["127.0.0.3", black_hole]
    await until(lambda: len(names.looked_up) >= 5, "looked up again")
    names.addresses[NAME] = []
    assert "did not answer within 1000 ms" in await opening
    assert len(begun) == 1


async def test_an_attempt_that_was_accepted_is_not_begun_anew(
    hub: Hub, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handshake over a slow line takes longer than a look-up; a name may show one address at a time."""
    monkeypatch.setattr(link_socket, "RESOLVE_AGAIN_S", 0.01)
    accepted, later = asyncio.Event(), asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set()
        await later.wait()
        writer.write(b"HTTP/1.1 503 Late\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(slow, "127.0.0.2", hub.port):
        names.addresses[NAME] = ["127.0.0.2"]
        opening = asyncio.create_task(refusal(Endpoint(f"ws://{NAME}:{hub.port}")))
        await accepted.wait()
        names.addresses[NAME] = ["127.0.0.1"]
        for _ in range(10):
            await asyncio.sleep(link_socket.RESOLVE_AGAIN_S)
        later.set()
        assert "HTTP 503" in await opening
    assert not hub.requests
