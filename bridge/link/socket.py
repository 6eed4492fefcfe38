"""The link's WebSockets, by aiohttp: connecting to a node, and serving one that connects."""

from __future__ import annotations

import asyncio
import contextlib
import socket as sockets
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from bridge.clock import Clock, SystemClock
from bridge.errors import BridgeError, Malformed, TargetRefused, TargetUnavailable
from bridge.link import limits
from bridge.link.driver import now
from bridge.link.frames import CloseCode, Hello
from bridge.link.hosting import Host
from bridge.link.machine import Ending
from bridge.link.receiver import Receiver
from bridge.link.receiving import NodeIdentity
from bridge.ports import Target

#: How long a WebSocket's own closing may take at either end, seconds.
_CLOSE_S: Final = 1.0
#: Answers to the upgrade that credentials are the reason for: trying again does not help.
_REFUSED_STATUSES: Final = (401, 403)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How to reach a node."""

    #: ws:// or wss://, host and port.
    url: str
    #: Bearer token; empty: none.
    token: str = field(default="", repr=False)
    #: For wss://; None: the system's authorities.
    ssl_context: ssl.SSLContext | None = None
    #: Checked in the certificate; None: the URL's host.
    server_hostname: str | None = None


class WebSocket:
    """A WebSocket of either end as the driver's `Socket`."""

    def __init__(
        self,
        ws: aiohttp.ClientWebSocketResponse | web.WebSocketResponse,
        session: aiohttp.ClientSession | None = None,
    ) -> None:
        self._ws = ws
        self._session = session

    async def send(self, data: bytes) -> None:
        """As `Socket.send`."""
        try:
            await self._ws.send_bytes(data)
        except (aiohttp.ClientError, ConnectionError) as error:
            # Aiohttp keeps the error as long as the connection's remains, and by its frames what was sent.
            raise ConnectionError(str(error)) from error.with_traceback(None)

    async def receive(self) -> bytes:
        """As `Socket.receive`. A text message comes as its bytes, which are never a frame."""
        message = await self._ws.receive()
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
        """As `Socket.close`."""
        with contextlib.suppress(Exception):
            # The WebSocket's own limit covers its waiting for the other end, not its writing.
            async with asyncio.timeout(2 * _CLOSE_S):
                await self._ws.close()
        if self._session is not None:
            await self._session.close()

    def cut(self) -> None:
        """As `Socket.cut`."""
        raw = self._ws.get_extra_info("socket")
        if raw is None:
            return
        # uvloop's sockets have no shutdown of their own; a duplicate of the descriptor has.
        with contextlib.suppress(OSError), raw.dup() as duplicate:
            duplicate.shutdown(sockets.SHUT_RDWR)


async def connect(endpoint: Endpoint, call_timeout_ms: int) -> WebSocket:
    """A WebSocket to the node link at `endpoint`; one attempt, of `call_timeout_ms` at most (-1: no limit).

    Raises:
        TargetUnavailable: refused, unreachable, no answer in time, or an answer that is not the link.
        TargetRefused: credentials or protocol were refused.
    """
    session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None), middlewares=(_stay,))
    try:
        async with asyncio.timeout(call_timeout_ms / 1000 if call_timeout_ms >= 0 else None):
            ws = await _upgrade(session, endpoint)
    except BaseException as error:
        await session.close()
        if isinstance(error, Exception):
            raise _named(error, endpoint.url, call_timeout_ms) from error
        raise
    if ws.protocol != limits.SUBPROTOCOL:
        await WebSocket(ws, session).close()
        raise TargetRefused(
            f"{endpoint.url} does not speak {limits.SUBPROTOCOL}; it answered {ws.protocol or 'none'}"
        )
    return WebSocket(ws, session)


class _Redirected(aiohttp.ClientError):
    """The answer sends the caller elsewhere."""


async def _stay(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Follow no redirect: messages and token go to the node that the settings name, and to no other."""
    response = await handler(request)
    if 300 <= response.status < 400:
        response.close()
        place = response.headers.get("Location", "nowhere")
        raise _Redirected(f"it redirects (HTTP {response.status}) to {place}, which is not followed")
    return response


async def _upgrade(session: aiohttp.ClientSession, endpoint: Endpoint) -> aiohttp.ClientWebSocketResponse:
    """Ask for the upgrade, with the token in its header."""
    headers = {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {}
    return await session.ws_connect(
        endpoint.url.rstrip("/") + limits.PATH,
        protocols=(limits.SUBPROTOCOL,),
        headers=headers,
        ssl=endpoint.ssl_context or True,
        server_hostname=endpoint.server_hostname,
        compress=0,
        max_msg_size=limits.ANSWER_MOST,
        timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_S),
    )


async def post(endpoint: Endpoint, path: str, body: bytes, content_type: str, timeout_ms: int) -> bytes:
    """The answer of a call beside the link; one attempt, of `timeout_ms` at most (-1: no limit).

    Raises:
        TargetUnavailable: no answer, or one that is an error. TargetRefused: the credentials were refused.
    """
    parts = urlsplit(endpoint.url)
    scheme = "https" if parts.scheme == "wss" else "http"
    headers = {"Content-Type": content_type, "Accept": content_type}
    if endpoint.token:
        headers["Authorization"] = f"Bearer {endpoint.token}"
    timeout = aiohttp.ClientTimeout(total=timeout_ms / 1000 if timeout_ms >= 0 else None)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, middlewares=(_stay,)) as session,
            session.post(
                f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}{path}",
                data=body,
                headers=headers,
                ssl=endpoint.ssl_context or True,
                server_hostname=endpoint.server_hostname,
            ) as response,
        ):
            status, answer = response.status, await response.read()
    except Exception as error:
        raise _named(error, endpoint.url, timeout_ms) from error
    if status in _REFUSED_STATUSES:
        raise TargetRefused(f"{endpoint.url} refused the credentials (HTTP {status})", found=status)
    if status != 200:
        raise TargetUnavailable(f"{endpoint.url} has no answer for {path}: HTTP {status}", found=status)
    return answer


def _named(error: Exception, url: str, call_timeout_ms: int) -> BridgeError:
    """What went wrong on the way to the upgrade, without the request, which holds the token."""
    match error:
        case aiohttp.WSServerHandshakeError(status=status) if status in _REFUSED_STATUSES:
            return TargetRefused(f"{url} refused the credentials (HTTP {status})", found=status)
        case aiohttp.WSServerHandshakeError(status=status, message=message):
            return TargetUnavailable(f"{url} is no node link: HTTP {status} ({message})", found=status)
        case aiohttp.InvalidURL():
            return TargetRefused(f"{url} is no URL")
        case TimeoutError():
            return TargetUnavailable(f"{url} did not answer within {call_timeout_ms} ms (call-timeout)")
        case aiohttp.ClientConnectorError(os_error=cause) if not isinstance(error, aiohttp.ClientSSLError):
            return TargetUnavailable(f"{url}: {cause.strerror or cause}")
        case aiohttp.ClientError() | OSError():
            return TargetUnavailable(f"{url}: {error}")
        case _:
            raise error


async def serve_link(
    request: web.Request,
    make_target: Callable[[Hello], Target],
    *,
    identity: NodeIdentity,
    call_timeout_ms: int,
    stopping: asyncio.Event | None = None,
    clock: Clock | None = None,
    on_end: Callable[[Ending], None] | None = None,
) -> web.WebSocketResponse:
    """The handler of `GET /v1/link`: carries what comes on the link to a local target until the link ends.

    Credentials have been checked by then. `make_target` is called once, after HELLO; what it raises
    (TargetRefused, TargetUnavailable) goes to the sender. `call_timeout_ms` bounds the wait for HELLO.
    `stopping`, when set, closes the link with STOPPING, after the answers of the deliveries under way.
    `on_end` is told how the link ended.

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
    await ws.prepare(request)
    clock = clock or SystemClock()
    machine = Receiver(identity, call_timeout_ms=call_timeout_ms, now=now(clock))
    if ws.ws_protocol != limits.SUBPROTOCOL:
        asked = ascii(request.headers.get("Sec-WebSocket-Protocol", "none"))[1:-1]
        detail = f"this node speaks {limits.SUBPROTOCOL}; found {asked}"
        machine.close(CloseCode.VERSION, detail, permanent=True)
    host = Host(WebSocket(ws), machine, make_target, clock)
    waiter = asyncio.create_task(_stop(stopping, host)) if stopping is not None else None
    try:
        await host.run()
    finally:
        if on_end is not None and machine.ending is not None:
            on_end(machine.ending)
        if waiter is not None:
            waiter.cancel()
            await asyncio.gather(waiter, return_exceptions=True)
    return ws


async def _stop(stopping: asyncio.Event, host: Host) -> None:
    await stopping.wait()
    host.stop()
