"""aiohttp's side of a connection, with the node's errors and limits, and polls that end with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

import structlog
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong
from aiohttp.web_request import BaseRequest

from bridge.errors import BridgeError, Malformed, TooBusy
from bridge.http.limits import HEADER_FIELDS_MAX, KEEP_ALIVE_S, LINGER_S
from bridge.http.problems import HeadersTooLarge, problem
from bridge.http.transit import Transit
from bridge.relay.ports import Upload

#: Most bytes that are read ahead of a handler: a transaction of 500 x 1 KiB is one step.
READ_BUFFER_BYTES: Final = 524_288


_log = structlog.get_logger(__name__)


class Connection(web.RequestHandler):
    """One client's connection."""

    __slots__ = ("_in_transit", "_transit", "_user", "arriving", "poll", "upload")

    def __init__(self, manager: ConnectionServer, **how: Any) -> None:
        super().__init__(manager, **how)
        #: The long poll that this connection waits in; it ends with the connection.
        self.poll: asyncio.Future[Any] | None = None
        #: The large body that this connection brings: without the connection no chunk of it is stored.
        self.upload: Upload | None = None
        #: The timer of the request's body, which still arrives; None: no handler waits for one.
        self.arriving: asyncio.Timeout | None = None
        #: The user that its request is from; empty: no user's, or a caller's with every right.
        self._user = ""
        self._transit = manager.transit
        #: Bytes of its request's body and answer, until the answer is written.
        self._in_transit = 0

    def begin(self, user: str) -> None:
        """Begin a request of this user; empty: no user's share of the bytes under way limits it."""
        if self._in_transit:  # no bytes of the request before it stay, or they would count for another user
            self._let_go()
        self._user = user

    def take(self, size: int) -> None:
        """Count bytes of the request's body, or of its answer. Raises: TooBusy."""
        self._transit.take(size, self._in_transit, self._user)
        self._in_transit += size

    def give_back(self, size: int) -> None:
        """Count bytes no more that have been taken: they are stored, or written.

        Once the connection is lost they do not count any more.
        """
        size = min(size, self._in_transit)
        self._transit.release(size, self._user)
        self._in_transit -= size

    def log_access(self, request: BaseRequest, response: web.StreamResponse, time: float | None) -> None:  # noqa: ARG002
        """Called by aiohttp once the answer is written: no bytes of this request are under way any more."""
        self._let_go()

    def _let_go(self) -> None:
        if self._in_transit:
            self._transit.release(self._in_transit, self._user)
            self._in_transit = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Refuse a connection above `max-connections`, with an answer."""
        assert isinstance(self._manager, ConnectionServer)
        if self._manager.is_full():
            # Not `isinstance`: uvloop's transports are asyncio's by their methods only.
            self._refuse(cast("asyncio.Transport", transport), self._manager.refusal())
            return
        super().connection_made(transport)

    def _refuse(self, transport: asyncio.Transport, refusal: bytes) -> None:
        """Answer and close, but not before the client's request has come: a socket that is closed with unread
        bytes resets the connection, and the client sees that instead of the answer.
        """
        self.close()  # bytes that arrive from now on are dropped
        transport.write(refusal)
        if transport.can_write_eof():
            transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, transport.close)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End the connection, its long poll, and the large body that it brings."""
        self.cancel_poll()
        if self.upload is not None:
            self.upload.abandon()
        self._let_go()
        super().connection_lost(exc)

    def cancel_poll(self) -> None:
        """End the long poll, if there is one: it answers with an empty page."""
        if self.poll is not None:
            self.poll.cancel()

    def give_up_body(self) -> None:
        """Stop waiting for the rest of the request's body."""
        if self.arriving is not None:
            self.arriving.reschedule(asyncio.get_running_loop().time())

    @property
    def gives_up(self) -> bool:
        """Whether the node waits for no body any more, because it is going down."""
        assert isinstance(self._manager, ConnectionServer)
        return self._manager.gives_up_bodies

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a request that aiohttp could not read as HTTP, or an error that no handler turned into an
        answer.
        """
        if status >= 500:
            _log.error("request-failed", method=request.method, path=request.path, exc_info=exc)
        answer = problem(_as_error(self._manager, status, exc, message))
        answer.force_close()
        return answer


def take(request: web.Request, size: int) -> None:
    """Count bytes that are under way because of this request, until its answer is written.

    Raises: TooBusy: `max-transit-size` would be exceeded.
    """
    connection_of(request).take(size)


def connection_of(request: web.Request) -> Connection:
    """The connection that the request came by."""
    connection: Connection = request.protocol  # type: ignore[assignment]  # `ConnectionServer` makes all
    return connection


def _request(loop: asyncio.AbstractEventLoop, *parts: Any) -> web.Request:
    # aiohttp's five parts of a request, in their order.
    return web.Request(*parts, loop)  # type: ignore[arg-type, call-arg]


def _as_error(manager: object, status: int, exc: BaseException | None, message: str | None) -> BridgeError:
    if isinstance(exc, LineTooLong):
        assert isinstance(manager, ConnectionServer)
        limit = manager.headers_size_max
        return HeadersTooLarge(f"a header line has at most {limit} bytes", "headers", limit)
    if isinstance(exc, BadHttpMessage) and exc.message == "Too many headers received":
        return HeadersTooLarge(exc.message, "headers")
    if status < 500:
        return Malformed(f"not HTTP: {message or exc}".splitlines()[0])
    return BridgeError("an error inside the node; its log says which")


class ConnectionServer(web.Server):
    """Makes a `Connection` for every client, up to `max-connections`."""

    def __init__(
        self,
        handler: Callable[[web.Request], Any],
        *,
        connections_max: int,
        headers_size_max: int,
        transit_size_max: int,
        transit_share_max: int,
    ) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(handler, request_factory=partial(_request, loop), loop=loop)  # type: ignore[arg-type]
        self.headers_size_max = headers_size_max
        self.transit = Transit(transit_size_max, transit_share_max)
        #: Set by `give_up_bodies`.
        self.gives_up_bodies = False
        self._connections_max = connections_max
        self._how: dict[str, Any] = {
            "loop": loop,
            "keepalive_timeout": KEEP_ALIVE_S,
            "lingering_time": LINGER_S,
            "read_bufsize": READ_BUFFER_BYTES,
            "max_line_size": headers_size_max,
            "max_field_size": headers_size_max,
            "max_headers": HEADER_FIELDS_MAX,
            "auto_decompress": False,
            "access_log": None,
        }

    def __call__(self) -> web.RequestHandler:
        """Aiohttp calls this for every connection."""
        return Connection(self, **self._how)

    def is_full(self) -> bool:
        """Whether there are `max-connections` already."""
        return len(self.connections) >= self._connections_max

    def refusal(self) -> bytes:
        """The bytes of an answer for a client above `max-connections`."""
        answer = problem(
            TooBusy(
                "max-connections are open", "max-connections", self._connections_max, self._connections_max
            )
        )
        return answer.closing_bytes()

    def cancel_polls(self) -> None:
        """End every long poll."""
        for connection in self.connections:
            assert isinstance(connection, Connection)
            connection.cancel_poll()

    def give_up_bodies(self) -> None:
        """Stop waiting for bodies that still arrive: their requests are answered with STOPPING."""
        self.gives_up_bodies = True
        for connection in self.connections:
            assert isinstance(connection, Connection)
            connection.give_up_body()
