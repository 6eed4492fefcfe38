"""One HTTP listener: from the socket to the route's handler, and every error to a problem."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Awaitable
from dataclasses import dataclass
from http import HTTPStatus
from itertools import chain
from time import perf_counter
from typing import Final
from urllib.parse import urlsplit

import structlog
from aiohttp import hdrs, web

from bridge.errors import BridgeError, Malformed, Stopping, TooBusy
from bridge.http.answers import Answer
from bridge.http.authentication import Authentication, Principal
from bridge.http.connection import ConnectionServer, connection_of
from bridge.http.limits import Limits
from bridge.http.meter import HttpMeter
from bridge.http.problems import HeadersTooLarge, UnsupportedTransferEncoding, problem
from bridge.http.router import Kind, Router

_PORTS: Final = {"ws": 80, "http": 80, "wss": 443, "https": 443}
#: The setting that holds the URL, by scheme: [acceptor] has ws and wss, [operations] http.
_KEYS: Final = {"ws": "acceptor.url", "wss": "acceptor.url", "http": "operations.url"}
_BACKLOG: Final = 512
#: Time for connections that are still in use once the drain is over, in seconds.
_CUT_AFTER_S: Final = 0.5
#: The caller of a public route, which asks for no credential: it has no right.
_UNAUTHENTICATED: Final = Principal("unauthenticated", (), (), link=False)
_PREFLIGHT_HEADERS: Final = (
    b"Access-Control-Allow-Methods: GET, POST, PUT, DELETE\r\n"
    b"Access-Control-Allow-Headers: *, Authorization\r\n"
    b"Access-Control-Max-Age: 600\r\n"
)
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Bound:
    """The address at which a listener listens."""

    scheme: str
    host: str
    #: The actual port, where the URL has 0.
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class Listener:
    """Accepts connections, checks requests and dispatches them to the routes' handlers."""

    def __init__(
        self,
        url: str,
        router: Router,
        authentication: Authentication,
        limits: Limits,
        ssl_context: ssl.SSLContext | None = None,
        meter: HttpMeter | None = None,
    ) -> None:
        """`url`: the address to listen at; a port of 0 takes a free one."""
        parts = urlsplit(url)
        self._scheme = parts.scheme
        self._host = parts.hostname or "127.0.0.1"
        self._port = parts.port if parts.port is not None else _PORTS[parts.scheme]
        self._router = router
        self._authentication = authentication
        self._limits = limits
        self._ssl_context = ssl_context
        self._meter = meter or HttpMeter("listener", "sends", "reads", "settlements")
        self._server: ConnectionServer | None = None
        self._runner: web.ServerRunner | None = None
        self._site: web.TCPSite | None = None
        self._stopping = False
        self._requests = 0
        #: Requests under way that take up a slot, by kind.
        self._slots: dict[Kind, int] = {"sends": 0, "reads": 0, "settlements": 0}
        self._idle = asyncio.Event()

    async def start(self) -> Bound:
        """Listen. Raises: OSError: the address cannot be used; the error names the key, the rule and the
        address.
        """
        self._server = ConnectionServer(
            self._answer,
            connections_max=self._limits.max_connections,
            headers_size_max=self._limits.max_headers_size,
            transit_size_max=self._limits.max_transit_size,
            transit_share_max=self._transit_share_max,
        )
        self._runner = web.ServerRunner(self._server, shutdown_timeout=_CUT_AFTER_S)
        await self._runner.setup()
        self._site = web.TCPSite(
            self._runner, self._host, self._port, ssl_context=self._ssl_context, backlog=_BACKLOG
        )
        try:
            await self._site.start()
        except OSError as error:
            key, found = _KEYS.get(self._scheme, "url"), Bound(self._scheme, self._host, self._port)
            raise OSError(f"{key}: {_broken_rule(error)}; found {found}") from error
        port: int = self._runner.addresses[0][1]
        return Bound(self._scheme, self._host, port)

    @property
    def _transit_share_max(self) -> int:
        transit = self._limits.max_transit_size
        return transit // 2 if self._authentication.knows_several else transit

    def share_transit(self) -> None:
        """Let each caller have its share of the bodies in transit, by the callers that there are now."""
        if self._server is not None:
            self._server.transit.share_bytes = self._transit_share_max

    async def stop(self, timeout_s: float) -> None:
        """Take no new connections, answer new requests with STOPPING, let those under way end.

        After `timeout_s` requests whose body still arrives are answered with STOPPING, and those that are
        left are cut. Safe to call twice, and before `start`.
        """
        self._stopping = True
        if self._runner is None or self._server is None or self._site is None:
            return
        runner, self._runner = self._runner, None
        await self._site.stop()
        self._server.cancel_polls()
        if not await self._idle_within(timeout_s):
            self._server.give_up_bodies()
            if not await self._idle_within(_CUT_AFTER_S):
                _log.warning("requests-cut", count=self._requests)
        await runner.cleanup()
        self._meter.flush()

    async def _idle_within(self, timeout_s: float) -> bool:
        """Wait until no request is under way; False: one still is."""
        if self._requests:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._idle.wait()
        return not self._requests

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        """Aiohttp's handler. Never raises anything but cancellation."""
        self._requests += 1
        try:
            self._check(request)
            response = await self._routed(request)
        except BridgeError as error:
            response = problem(error)
            self._meter.refuse(request, error)
        except (web.RequestPayloadError, ConnectionError) as error:
            # The body is broken off or badly chunked; the client may not be there to read this answer.
            response = problem(Malformed(f"the body cannot be read: {error}", "body"))
            response.force_close()
        except Exception:  # noqa: BLE001  # the last place where it can become an answer
            _log.exception("request-failed", method=request.method, path=request.path)
            response = problem(BridgeError("an error inside the node; its log says which"))
        finally:
            self._requests -= 1
            if self._stopping and not self._requests:
                self._idle.set()
        if self._stopping:
            response.force_close()
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is not None and self._authentication.allows_origin(origin) and isinstance(response, Answer):
            response.add_header(b"Access-Control-Allow-Origin: " + origin.encode("utf-8", "surrogateescape"))
            response.add_header(b"Vary: Origin")
        return response

    def _check(self, request: web.Request) -> None:
        """Check what no route decides.

        Raises: HeadersTooLarge, UnsupportedTransferEncoding, OriginRefused.
        """
        size = sum(map(len, chain.from_iterable(request.raw_headers)))
        if size > self._limits.max_headers_size:
            limit = self._limits.max_headers_size
            raise HeadersTooLarge(
                f"a request's headers have at most {limit} bytes; found {size}", "headers", limit, size
            )
        coding = request.headers.get(hdrs.TRANSFER_ENCODING)
        if coding is not None and coding.strip().lower() != "chunked":
            raise UnsupportedTransferEncoding("chunked is the only one", "Transfer-Encoding", found=coding)
        self._authentication.check_origin(request)

    async def _routed(self, request: web.Request) -> web.StreamResponse:
        method = request.method
        if method == hdrs.METH_OPTIONS and hdrs.ORIGIN in request.headers:
            # A browser sends this request before the call, without a token; its Origin has been checked.
            return Answer(status=HTTPStatus.NO_CONTENT, extra=_PREFLIGHT_HEADERS)
        route, captured = self._router.find(method, request.rel_url.raw_path)
        if route.public:
            return await route.handler(request, _UNAUTHENTICATED, *captured)
        if self._stopping:
            raise Stopping("the node is going down")
        kind, limit = route.kind, self._limits.max_requests
        if self._slots[kind] >= limit:
            raise TooBusy(f"max-requests {kind} are under way", "max-requests", limit, limit + 1)
        principal = self._authentication.authenticate(request)
        connection_of(request).begin(principal.name if principal.is_user else "")
        if route.lasting:
            return await self._lasting(route.handler(request, principal, *captured))
        self._slots[kind] += 1
        began = perf_counter()
        try:
            return await route.handler(request, principal, *captured)
        finally:
            self._slots[kind] -= 1
            self._meter.durations[kind].observe(perf_counter() - began)

    async def _lasting(self, handling: Awaitable[web.StreamResponse]) -> web.StreamResponse:
        """Handle a link, which holds a connection and no request slot."""
        self._requests -= 1
        try:
            return await handling
        finally:
            self._requests += 1


def _broken_rule(error: OSError) -> str:
    """The rule that an address to listen on breaks, and the system's reason."""
    unknown = isinstance(error, socket.gaierror)
    reason = str(error.strerror) if unknown else os.strerror(error.errno or 0)
    if error.errno == errno.EADDRINUSE:
        rule = "must be free: something listens there"
    elif unknown or error.errno == errno.EADDRNOTAVAIL:
        rule = "must be an address of this machine"
    else:
        rule = "must be one that this user may listen on"
    return f"{rule} ({reason.lower()})"
