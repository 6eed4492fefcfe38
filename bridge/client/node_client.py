"""The HTTP client of the commands: one node, its token and certificates, and the meaning of its answers.

Works on the acceptor and on operations alike; ``ws`` and ``wss`` URLs of a settings file are taken as
``http`` and ``https``. A call either returns an answer or raises one of two errors: `Problem`, the node's own
error, or `Unreachable`, after which it is unknown whether the call took effect.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec
from yarl import URL

from bridge.client.moving import Moving, WatchedRequest
from bridge.client.tunnel_connector import TunnelConnector
from bridge.errors import BridgeError
from bridge.runtime.proxies import Proxy
from bridge.runtime.tunnels import ProxyFailed

#: Most simultaneous connections of one client.
MAX_CONNECTIONS: Final = 64
#: Longest time to make a connection, and longest wait in which no byte of a call moves, in seconds.
CONNECT_TIMEOUT_S: Final = 10.0
ANSWER_TIMEOUT_S: Final = 90.0

#: Of a call: `Moving` limits the rest.
_CALL_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)

MSGPACK: Final = "application/msgpack"
_CERTIFICATE: Final = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
#: Schemes whose own port, 80 or 443, a node may be reached at by way of a proxy.
_OWN_PORTS: Final = frozenset({"http", "https"})
_SCHEMES: Final = {"ws": "http", "wss": "https", "http": "http", "https": "https"}


@dataclass(frozen=True, slots=True)
class Connection:
    """The address and credentials of a node."""

    #: ``http``, ``https``, ``ws`` or ``wss``, host and port.
    url: str
    #: Bearer token; empty: none.
    token: str = ""
    #: PEM paths; empty: the system's authorities, no client certificate.
    ca: str = ""
    certificate: str = ""
    key: str = ""
    #: PEM path of the node's certificate, where it is known: with no `ca`, the only one that is trusted,
    #: whatever the node's name. Empty: not known.
    own_certificate: str = ""
    #: On the way to it; None: there is none.
    proxy: Proxy | None = None

    @property
    def base(self) -> str:
        """The URL that calls are made to, without a trailing slash.

        Raises:
            ClientError: it is not the URL of a node.
        """
        with contextlib.suppress(ValueError):  # an invalid port, half a bracket, or no name of the DNS
            parts = urlsplit(self.url)
            (parts.hostname or "").encode("idna")
            has_port = parts.scheme in _OWN_PORTS if parts.port is None else parts.port > 0
            if parts.scheme in _SCHEMES and parts.hostname and has_port:
                return f"{_SCHEMES[parts.scheme]}://{parts.netloc}{parts.path}".rstrip("/")
        raise ClientError(f"a node's URL is http, https, ws or wss, host and port; found {self.url}")

    def tls(self) -> ssl.SSLContext | bool:
        """The TLS context; True: the default one.

        Raises:
            ClientError: a file cannot be read; its key is the option that named it.
        """
        if not (self.ca or self.certificate or self.own_certificate):
            return True
        trusted, key = (self.ca, "--ca") if self.ca else (self.own_certificate, "acceptor.certificate")
        try:
            if self.ca or not self.own_certificate:
                context = ssl.create_default_context(cafile=self.ca or None)
            else:
                context = _trusting_only(Path(self.own_certificate))
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            rule = "must be a PEM file with certificates"
            reason = error.strerror if isinstance(error, OSError) else error
            raise ClientError(f"{rule}; found {trusted}: {reason}", key=key) from error
        if self.certificate:
            try:
                context.load_cert_chain(self.certificate, self.key or None)
            except OSError as error:
                rule = "must be PEM files of a certificate and its key"
                found = f"{self.certificate} and {self.key or 'no --key'}: {error.strerror}"
                raise ClientError(f"{rule}; found {found}", key="--certificate") from error
        return context


def _trusting_only(path: Path) -> ssl.SSLContext:
    """Trusts the first certificate of a file, the node's own, and no authority: not even its issuers.

    The node proves that it has the key of the certificate, so its name, which may be another machine's, is
    not checked.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    found = _CERTIFICATE.search(path.read_text("ascii", "replace"))
    context.load_verify_locations(cadata=found[0] if found else "")
    return context


class ClientError(BridgeError):
    """The call cannot be made at all."""

    code = "CLIENT"


class Unreachable(BridgeError):
    """No answer came: whether the call took effect is unknown."""

    code = "UNREACHABLE"
    #: Whether bytes of the call moved: the line is there, if slow.
    has_moved = False


class Problem(BridgeError):
    """The node's answer is an error; its `code` is the problem's title."""

    def __init__(
        self, status: int, title: str, detail: str, retry_after_s: float | None = None, body: object = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        #: The decoded body of the answer.
        self.body = body
        self.code = title
        if isinstance(body, dict) and body.get("key") is not None:
            self.key = str(body["key"])
        #: Seconds that the node asks the client to wait; None where it does not.
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer."""

    status: int
    #: JSON or msgpack, decoded; bytes for anything else; None for no body.
    body: Any


class NodeClient:
    """Calls to one node over kept-alive connections. Use as an async context manager."""

    def __init__(self, connection: Connection) -> None:
        self._base = connection.base
        self._proxy = connection.proxy
        self._tls = connection.tls()
        self._headers = {"Authorization": f"Bearer {connection.token}"} if connection.token else {}
        self._session: aiohttp.ClientSession | None = None

    def _connector(self) -> aiohttp.BaseConnector:
        if self._proxy is None:
            return aiohttp.TCPConnector(limit=MAX_CONNECTIONS, ssl=self._tls)
        tls = self._tls if isinstance(self._tls, ssl.SSLContext) else None
        return TunnelConnector(self._proxy, tls, limit=MAX_CONNECTIONS)

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=self._connector(),
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=ANSWER_TIMEOUT_S
            ),
            auto_decompress=False,
            request_class=WatchedRequest,
            middlewares=(_name_lost_answers,),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(
        self,
        method: str,
        path: str,
        *,
        packed: object = None,
        body: bytes | None = None,
        params: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Make one request. `packed` goes as msgpack and asks for msgpack back; `body` goes unchanged.

        Raises:
            Problem: the node answered with an error.
            Unreachable: no answer came.
        """
        assert self._session is not None, "use `async with`"
        sent = dict(headers or {})
        if packed is not None:
            body = msgspec.msgpack.encode(packed)
            sent["Content-Type"] = MSGPACK
        if body is None or packed is not None:
            sent.setdefault("Accept", MSGPACK)
        url = URL(self._base + path, encoded=True)
        moving = Moving(ANSWER_TIMEOUT_S)
        try:
            # No redirect is followed: messages go to the node that was named, and to no other node.
            async with (
                moving.limit(),
                self._session.request(
                    method,
                    url,
                    data=body,
                    params=params,
                    headers=sent,
                    allow_redirects=False,
                    timeout=_CALL_TIMEOUT,
                ) as response,
            ):
                content = await moving.whole(response)
        except (aiohttp.ClientError, ProxyFailed, TimeoutError, OSError) as error:
            raise _unreachable(f"{method} {url}: {_reason(error)}", moving) from error
        except Unreachable as error:
            error.has_moved = moving.has_moved
            raise
        decoded = _decode(content, response.content_type)
        if response.status >= 300:
            raise _problem(response, decoded)
        return Answer(response.status, decoded)

    async def pieces(self, path: str) -> AsyncIterator[bytes]:
        """The body of the answer to a GET, piece by piece as it comes. Raises: as `call`."""
        assert self._session is not None, "use `async with`"
        url = URL(self._base + path, encoded=True)
        try:
            async with self._session.get(url, allow_redirects=False) as response:
                if response.status >= 300:
                    raise _problem(response, _decode(await response.read(), response.content_type))
                async for piece in response.content.iter_any():
                    yield piece
        except (aiohttp.ClientError, ProxyFailed, TimeoutError, OSError) as error:
            raise Unreachable(f"GET {url}: {_reason(error)}") from error


def _unreachable(detail: str, moving: Moving) -> Unreachable:
    error = Unreachable(detail)
    error.has_moved = moving.has_moved
    return error


def address_path(address: str, *rest: str) -> str:
    """The path ``/v1/addresses/{address}/...``, quoted."""
    return "/v1/addresses/" + "/".join(quote(part, safe="") for part in (address, *rest))


async def _name_lost_answers(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep aiohttp from making a GET again by itself when its connection breaks.

    A GET that leases messages is idempotent by its name only: the lost answer's page would stay leased, and
    the reader would be given the messages behind it.
    """
    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise Unreachable(f"{request.method} {request.url}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """The error of a failed call, without the library's decoration."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"the node's certificate is not trusted: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return os.strerror(number) if number else str(error.os_error)
    if isinstance(error, TimeoutError):
        return str(error) or f"no byte moved for {ANSWER_TIMEOUT_S:g} s"
    return str(error) or type(error).__name__


def _decode(content: bytes, content_type: str) -> Any:
    if not content:
        return None
    try:
        if content_type == MSGPACK:
            return msgspec.msgpack.decode(content)
        if content_type == "application/json" or content_type.endswith("+json"):
            return json.loads(content)
    except ValueError as error:  # msgspec.DecodeError and JSONDecodeError are
        raise Unreachable(f"the answer cannot be read: {error}") from error
    return content


def _problem(response: aiohttp.ClientResponse, decoded: Any) -> Problem:
    said = decoded if isinstance(decoded, dict) else {}
    detail = str(said.get("detail") or response.reason or "no reason given")
    if response.status < 400:
        detail = f"it redirects to {response.headers.get('Location', 'nowhere')}, which is not followed"
    if said.get("limit") is not None and str(said["limit"]) not in detail:
        detail += f" (limit {said['limit']}, found {said.get('found')})"
    try:
        wait = float(response.headers["Retry-After"])
    except (KeyError, ValueError):
        wait = None
    return Problem(
        response.status, str(said.get("title") or f"HTTP {response.status}"), detail, wait, decoded
    )
