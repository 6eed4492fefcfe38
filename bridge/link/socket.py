"""The link's WebSockets, by aiohttp: connecting to a node, and serving one that connects."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket as sockets
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from bridge.client.moving import Moving, WatchedRequest
from bridge.client.tunnel_connector import TunnelConnector
from bridge.errors import BridgeError, Malformed, Stopping, TargetBusy, TargetRefused, TargetUnavailable
from bridge.link import limits
from bridge.link.compressor import Compression
from bridge.link.connect_errors import NO_ANSWER, is_untrusted, not_a_link, said
from bridge.link.correspondent import LinkEnd
from bridge.link.driver import now
from bridge.link.frames import CloseCode, Hello
from bridge.link.link_server import LinkServer
from bridge.link.machine import Ending
from bridge.link.presented import presented_issuer
from bridge.link.receiver import Receiver
from bridge.link.receiving import NodeIdentity
from bridge.link.room import LinkRoom
from bridge.link.wire import Wire
from bridge.relay.counts import Traffic
from bridge.runtime.clock import Clock, SystemClock
from bridge.runtime.proxies import Proxy
from bridge.runtime.tunnels import ProxyFailed

#: Longest time of a WebSocket's own closing at either end, seconds.
_CLOSE_S: Final = 1.0
#: Answers that mean that the caller's credentials or rights are refused.
_REFUSED_STATUSES: Final = (401, 403)
#: Answers that mean that there is too much to do now.
_BUSY_STATUSES: Final = (429, 503)
#: Digits of a `Retry-After` that are read.
_DIGITS_MOST: Final = 6
#: Most bytes that are read of an answer that is no link.
_ANSWER_MOST: Final = 4096
#: The host's name is resolved again at this interval while an attempt has no connection, in seconds.
RESOLVE_AGAIN_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address and credentials of a node."""

    #: ws:// or wss://, host and port, and the path of a reverse proxy.
    url: str
    #: Bearer token, or a function that returns it: called at each attempt, so that it may be rotated. Empty:
    #: none.
    token: str | Callable[[], str] = field(default="", repr=False)
    #: For wss://; None: the system's authorities.
    ssl_context: ssl.SSLContext | None = None
    #: Checked in the certificate; None: the URL's host.
    server_hostname: str | None = None
    #: The connector's name in the settings, for errors. Empty: they have the URL only.
    connector: str = ""
    #: On the way to it; None: there is none.
    proxy: Proxy | None = None
    #: Whether batches are compressed on the way there.
    compression: Compression = "off"

    def __str__(self) -> str:
        return f"connector {self.connector}: {self.url}" if self.connector else self.url

    def authorization(self) -> dict[str, str]:
        """The header that shows the token; empty where there is none."""
        token = self.token if isinstance(self.token, str) else self.token()
        return {"Authorization": f"Bearer {token}"} if token else {}


class WebSocket:
    """A WebSocket of either end as the driver's `Socket`."""

    def __init__(
        self,
        ws: aiohttp.ClientWebSocketResponse | web.WebSocketResponse,
        wire: Wire,
        session: aiohttp.ClientSession | None = None,
    ) -> None:
        self._ws = ws
        self._wire = wire
        self._session = session

    def watch(self, on_bytes: Callable[[bytes], None]) -> None:
        """Implements `Socket.watch`."""
        self._wire.watch(on_bytes)

    def hold(self, held: bool) -> None:
        """Implements `Socket.hold`."""
        self._wire.hold(held)

    async def send(self, data: bytes) -> None:
        """Implements `Socket.send`."""
        try:
            await self._ws.send_bytes(data)
        except (aiohttp.ClientError, ConnectionError) as error:
            # Aiohttp keeps the error as long as it keeps the connection, and by its frames the sent bytes.
            raise ConnectionError(str(error)) from error.with_traceback(None)

    async def receive(self) -> bytes:
        """Implements `Socket.receive`. A text message comes as its bytes, which are never a frame."""
        message = await self._ws.receive()
        self._wire.stay_held()
        match message.type:
            case aiohttp.WSMsgType.BINARY:
                data: bytes = message.data
                return data
            case aiohttp.WSMsgType.TEXT:
                return str(message.data).encode()
            case aiohttp.WSMsgType.ERROR:
                raise ConnectionError(f"the connection broke: {message.data}")
            case _:
                raise ConnectionError(f"the connection was closed (WebSocket code {self._ws.close_code})")

    async def close(self) -> None:
        """Implements `Socket.close`."""
        with contextlib.suppress(Exception):
            # The WebSocket's own limit covers its waiting for the other end, not its writing.
            async with asyncio.timeout(2 * _CLOSE_S):
                await self._ws.close()
        if self._session is not None:
            await self._session.close()

    def cut(self) -> None:
        """Implements `Socket.cut`."""
        raw = self._ws.get_extra_info("socket")
        if raw is None:
            return
        # uvloop's sockets have no shutdown of their own; a duplicate of the descriptor has.
        with contextlib.suppress(OSError), raw.dup() as duplicate:
            duplicate.shutdown(sockets.SHUT_RDWR)


async def connect(endpoint: Endpoint, call_timeout_ms: int) -> WebSocket:
    """A WebSocket to the node link at `endpoint`; one attempt, of `call_timeout_ms` at most (-1: no limit).

    Raises:
        TargetUnavailable: unreachable, no answer in time, or an answer that is not the link. Credentials that
            are refused, too: they may be rotated at either end, and a right may be granted.
        TargetRefused: the protocol was refused, or the URL is invalid.
    """
    problems: list[str] = []
    wires: list[Wire] = []
    names = _Names()
    connector = _connector(endpoint, names)
    session = aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None),
        middlewares=(_stay, _keeping_problem(problems), _watching(wires)),
    )
    try:
        async with asyncio.timeout(call_timeout_ms / 1000 if call_timeout_ms >= 0 else None):
            ws = await _upgrade_where_it_is(session, endpoint, names)
    except BaseException as error:
        await session.close()
        if isinstance(error, Exception):
            evidence = await _evidence(error, endpoint, connector)
            raise _named(error, endpoint, call_timeout_ms, "".join(problems), evidence) from error
        raise
    link = WebSocket(ws, wires[-1], session)
    if ws.protocol != limits.SUBPROTOCOL:
        await link.close()
        raise TargetRefused(
            f"{endpoint} does not speak {limits.SUBPROTOCOL}; it answered {ws.protocol or 'none'}"
        )
    return link


class _Names(aiohttp.ThreadedResolver):
    """Resolves the host of one endpoint, and compares later answers with the addresses that were tried."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: tuple[str, int, sockets.AddressFamily] | None = None
        self._tried: set[str] = set()
        self._sockets: list[sockets.socket] = []

    def socket(self, place: aiohttp.AddrInfoType) -> sockets.socket:
        """The socket for one address of the host."""
        made = sockets.socket(*place[:3])
        self._sockets.append(made)
        return made

    async def resolve(
        self, host: str, port: int = 0, family: sockets.AddressFamily = sockets.AddressFamily.AF_INET
    ) -> list[aiohttp.abc.ResolveResult]:
        """Implements AbstractResolver's."""
        found = await super().resolve(host, port, family)
        self._asked = host, port, family
        self._tried = {one["host"] for one in found}
        self._sockets = []
        return found

    async def moved(self) -> bool:
        """Whether the name leads to none of the addresses that were tried any more, and none has accepted.

        One that is left may still answer: a name with many addresses shows some of them at a time. One that
        has accepted may be slow: a handshake over a bad line takes longer than a look-up.
        """
        if self._asked is None or any(map(_is_connected, self._sockets)):
            return False
        try:
            found = await super().resolve(*self._asked)
        except OSError:
            return False
        return self._tried.isdisjoint(one["host"] for one in found)


def _connector(endpoint: Endpoint, names: _Names) -> aiohttp.BaseConnector:
    """Of one attempt: it resolves the host's name anew, and tries all its addresses (RFC 8305)."""
    if endpoint.proxy is not None:
        return TunnelConnector(endpoint.proxy, endpoint.ssl_context, endpoint.server_hostname)
    return aiohttp.TCPConnector(resolver=names, use_dns_cache=False, socket_factory=names.socket)


def _is_connected(made: sockets.socket) -> bool:
    try:
        made.getpeername()
    except OSError:
        return False
    return True


async def _upgrade_where_it_is(
    session: aiohttp.ClientSession, endpoint: Endpoint, names: _Names
) -> aiohttp.ClientWebSocketResponse:
    """Ask for the upgrade; from the beginning where the host has moved and its old place does not answer."""
    while True:
        attempt = asyncio.create_task(_upgrade(session, endpoint))
        try:
            while not attempt.done():
                await asyncio.wait((attempt,), timeout=RESOLVE_AGAIN_S)
                if not attempt.done() and await names.moved() and not attempt.done():
                    break
            else:
                return await attempt
        finally:
            if not attempt.done():
                attempt.cancel()
                await asyncio.gather(attempt, return_exceptions=True)


class _Redirected(aiohttp.ClientError):
    """The answer sends the caller elsewhere."""


async def _stay(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Follow no redirect: messages and token go to the node that the settings name, and to no other node."""
    response = await handler(request)
    if 300 <= response.status < 400:
        response.close()
        place = response.headers.get("Location", "nowhere")
        raise _Redirected(f"it redirects (HTTP {response.status}) to {place}, which is not followed")
    return response


def _keeping_problem(problems: list[str]) -> aiohttp.ClientMiddlewareType:
    """Keep the body of an answer that is no upgrade: it says why, and aiohttp drops it."""

    async def keep(
        request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        response = await handler(request)
        if response.status >= 400:
            problems.append(_problem(await response.content.read(_ANSWER_MOST)))
        return response

    return keep


def _watching(wires: list[Wire]) -> aiohttp.ClientMiddlewareType:
    """Watch the bytes of the connection once it is upgraded."""

    async def watch(
        request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        response = await handler(request)
        if response.status == 101 and (connection := response.connection) is not None:
            assert connection.transport is not None
            wires.append(Wire(connection.transport))
        return response

    return watch


async def _upgrade(session: aiohttp.ClientSession, endpoint: Endpoint) -> aiohttp.ClientWebSocketResponse:
    """Ask for the upgrade, with the token in its header."""
    return await session.ws_connect(
        endpoint.url.rstrip("/") + limits.PATH,
        protocols=(limits.SUBPROTOCOL,),
        headers=endpoint.authorization(),
        ssl=endpoint.ssl_context or True,
        server_hostname=endpoint.server_hostname,
        compress=0,
        max_msg_size=limits.ANSWER_MOST,
        timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_S),
    )


async def post(endpoint: Endpoint, path: str, body: bytes, content_type: str, timeout_ms: int) -> bytes:
    """The answer to a call beside the link; one attempt, given up once no byte of it moves for `timeout_ms`
    (-1: never).

    Raises:
        TargetUnavailable: no answer, or one that is an error. TargetRefused: the credentials were refused.
    """
    parts = urlsplit(endpoint.url)
    scheme = "https" if parts.scheme == "wss" else "http"
    headers = {"Content-Type": content_type, "Accept": content_type, **endpoint.authorization()}
    moving = Moving(timeout_ms / 1000 if timeout_ms >= 0 else None)
    timeout = aiohttp.ClientTimeout(total=None)
    connector = _connector(endpoint, _Names())
    try:
        async with (
            moving.limit(),
            aiohttp.ClientSession(
                connector=connector,
                timeout=timeout,
                middlewares=(_stay,),
                request_class=WatchedRequest,
            ) as session,
            session.post(
                f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}{path}",
                data=body,
                headers=headers,
                ssl=endpoint.ssl_context or True,
                server_hostname=endpoint.server_hostname,
            ) as response,
        ):
            status, answer = response.status, await moving.whole(response)
    except Exception as error:
        evidence = await _evidence(error, endpoint, connector)
        raise _named(error, endpoint, timeout_ms, evidence=evidence) from error
    if status in _REFUSED_STATUSES:
        raise TargetRefused(_refused(endpoint, status, _problem(answer[:_ANSWER_MOST])), found=status)
    if status != 200:
        raise TargetUnavailable(f"{endpoint} has no answer for {path}: HTTP {status}", found=status)
    return answer


async def _evidence(error: Exception, endpoint: Endpoint, connector: aiohttp.BaseConnector) -> str:
    """What the error itself does not say: the issuer of a certificate that is not trusted, the proxy that has
    not answered; empty: nothing.
    """
    if isinstance(error, TimeoutError):
        return connector.waits_for if isinstance(connector, TunnelConnector) else ""
    if not is_untrusted(error):
        return ""
    parts = urlsplit(endpoint.url)
    host, port = parts.hostname or "", parts.port or 443
    name = endpoint.server_hostname or host
    return await presented_issuer(host, port, name, endpoint.proxy, endpoint.ssl_context)


def _named(
    error: Exception, endpoint: Endpoint, call_timeout_ms: int, problem: str = "", evidence: str = ""
) -> BridgeError:
    """The error that prevented the upgrade, without the request, which holds the token.

    `problem`: the explanation in the node's answer. `evidence`: as `_evidence` found it.
    """
    match error:
        case aiohttp.WSServerHandshakeError():
            return _no_upgrade(error, endpoint, problem)
        case ProxyFailed():
            text = f"{endpoint}: {error}"
        case aiohttp.InvalidURL():
            return TargetRefused(f"{endpoint} is no URL")
        case TimeoutError():
            who = f"{endpoint}: {evidence}" if evidence else str(endpoint)
            text = f"{who} did not answer within {call_timeout_ms} ms (call-timeout)"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientResponseError():
            # Not HTTP: a TLS alert, perhaps, or nothing at all.
            text = f"{endpoint}: {NO_ANSWER[urlsplit(endpoint.url).scheme]}"
        case aiohttp.ClientConnectorCertificateError(certificate_error=cause):
            text = f"{endpoint}: {said(cause, evidence)}"
        case aiohttp.ClientConnectorError(os_error=cause):
            text = f"{endpoint}: {said(cause)}"
        case aiohttp.ClientError() | OSError():
            text = f"{endpoint}: {said(error.__cause__ or error, evidence)}"
        case _:
            raise error
    return TargetUnavailable(text)


def _no_upgrade(error: aiohttp.WSServerHandshakeError, endpoint: Endpoint, problem: str) -> BridgeError:
    """The error of an answer that is no upgrade."""
    status, headers = error.status, error.headers
    if status in _REFUSED_STATUSES:
        return TargetUnavailable(_refused(endpoint, status, problem), found=status)
    if asked_ms := _asked_ms(status, headers, problem):
        text = f"{endpoint} asks to come again in {asked_ms // 1000} s: HTTP {status}"
        said_so = f" ({problem})" if problem else ""
        return TargetBusy(text + said_so, found=status, retry_after_ms=asked_ms)
    is_page = headers is not None and "html" in headers.get("Content-Type", "")
    text = f"{endpoint} {not_a_link(status, problem or error.message, is_page=is_page)}"
    return TargetUnavailable(text, found=status)


def _asked_ms(status: int, headers: Mapping[str, str] | None, problem: str) -> int:
    """The wait that an answer asks for (RFC 9110, section 10.2.3, in seconds); 0: none. A node that stops
    asks for more than its restart takes.
    """
    asked = (headers or {}).get("Retry-After", "")
    if status not in _BUSY_STATUSES or problem.startswith(Stopping.code):
        return 0
    return int(asked[:_DIGITS_MOST]) * 1000 if asked.isascii() and asked.isdecimal() else 0


def _refused(endpoint: Endpoint, status: int, problem: str) -> str:
    """Names the setting that lets this node in, and the end that has it."""
    mend = {
        401: "see token, or certificate and key, of the connector; they may be rotated at either end",
        403: "the other node's acceptor.users grant rights",
    }
    said_so = f": {problem}" if problem else ""
    return f"{endpoint} refused the credentials (HTTP {status}){said_so}; {mend[status]}"


def _problem(body: bytes) -> str:
    """The code and detail of a problem (RFC 9457), on one line; empty where there is none."""
    with contextlib.suppress(ValueError, LookupError, TypeError):
        found = json.loads(body)
        text = f"{found['title']}: {found['detail']}"
        return "".join(character if character.isprintable() else " " for character in text)
    return ""


async def serve_link(  # noqa: PLR0913 - one link, from the upgrade to its end
    request: web.Request,
    make_end: Callable[[Hello], LinkEnd],
    *,
    identity: NodeIdentity,
    call_timeout_ms: int,
    endings: Sequence[tuple[asyncio.Event, str]] = (),
    clock: Clock | None = None,
    on_end: Callable[[Ending], None] | None = None,
    room: LinkRoom | None = None,
    traffic: Traffic | None = None,
) -> web.WebSocketResponse:
    """The handler of `GET /v1/link`: carries the link's batches to a local target until the link ends.

    Credentials have been checked by then. `make_end` is called once, after HELLO; its errors
    (TargetRefused, TargetUnavailable) go to the sender. `call_timeout_ms` bounds the wait for HELLO. The
    first event of `endings` that is set closes the link with STOPPING and its text, after the answers of the
    deliveries under way. `on_end` is called with the link's ending. `room` is the memory that all links may
    take together; `traffic` counts the bytes that come.

    Raises:
        Malformed: the request is no WebSocket upgrade.
    """
    ws = web.WebSocketResponse(
        protocols=(limits.SUBPROTOCOL,),
        compress=False,
        max_msg_size=limits.largest_frame(identity.max_message_size),
        timeout=_CLOSE_S,
    )
    if not ws.can_prepare(request):
        raise Malformed(f"{limits.PATH} is opened as a WebSocket (RFC 6455)", "Upgrade")
    assert request.transport is not None
    wire = Wire(request.transport)  # before the answer: no byte of a frame is missed
    await ws.prepare(request)
    clock = clock or SystemClock()
    machine = Receiver(identity, call_timeout_ms=call_timeout_ms, now=now(clock), room=room, traffic=traffic)
    if ws.ws_protocol != limits.SUBPROTOCOL:
        asked = ascii(request.headers.get("Sec-WebSocket-Protocol", "none"))[1:-1]
        detail = f"this node speaks {limits.SUBPROTOCOL}; found {asked}"
        machine.close(CloseCode.VERSION, detail, permanent=True)
    server = LinkServer(WebSocket(ws, wire), machine, make_end, clock)
    waiters = [asyncio.create_task(_stop(event, reason, server)) for event, reason in endings]
    try:
        await server.run()
    finally:
        if on_end is not None and machine.ending is not None:
            on_end(machine.ending)
        for waiter in waiters:
            waiter.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)
    return ws


async def _stop(event: asyncio.Event, reason: str, server: LinkServer) -> None:
    await event.wait()
    server.stop(reason)
