"""Connections through a proxy: CONNECT of HTTP (RFC 9110, section 9.3.6) and SOCKS5 (RFC 1928, RFC 1929).

The proxy resolves the host's name. What it says is bounded, and each refusal becomes a sentence.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import re
import socket
import ssl
from collections.abc import Mapping
from typing import Final

import aiohappyeyeballs

from bridge.errors import BridgeError
from bridge.runtime.proxies import Proxy, authority

#: Longest answer of a proxy to CONNECT, in bytes.
ANSWER_MOST: Final = 16 * 1024
#: Most answers before the final one (RFC 9110: 1xx).
INTERIM_MOST: Final = 5
#: Longest text of a proxy's that an error shows, in characters.
SHOWN_MOST: Final = 200
#: After this long without a connection the next address of a name is tried, too, in seconds (RFC 8305).
NEXT_ADDRESS_S: Final = 0.25

_STATUS: Final = re.compile(rb"HTTP/1\.[01] (\d{3})(?: ([^\r\n]*))?\r?\n")
_SCHEME_ASKED: Final = re.compile(rb"(?im)^Proxy-Authenticate:[ \t]*([A-Za-z0-9-]+)")
#: By status, what it means that a proxy refuses CONNECT.
_REFUSALS: Final[Mapping[int, str]] = {
    400: "does not take CONNECT to it",
    403: "forbids it: its rules must allow CONNECT to this host and port",
    404: "cannot reach it: it knows no such host",
    405: "does not take CONNECT: it is no proxy for tunnels, or not to this port",
    429: "takes no more connections now",
    500: "cannot reach it",
    501: "does not know CONNECT: it is no proxy for tunnels",
    502: "cannot reach it: the host does not resolve there, or refuses the connection",
    503: "cannot reach it: the host does not resolve there, or refuses the connection",
    504: "got no answer from it in time",
}

_SOCKS: Final = 5
_NO_AUTHENTICATION, _PASSWORD, _NONE_OF_THESE = 0, 2, 0xFF
_IPV4, _NAME, _IPV6 = 1, 3, 4
#: Longest name of a host, in bytes.
_NAME_MOST: Final = 255
#: RFC 1928, section 6.
_REPLIES: Final[Mapping[int, str]] = {
    1: "failed (general failure)",
    2: "forbids it: its rules must allow this host and port",
    3: "cannot reach it: its network is unreachable from there",
    4: "cannot reach it: the host does not resolve or answer there",
    5: "cannot reach it: the host refuses the connection",
    6: "cannot reach it: the connection takes too many hops or too long",
    7: "does not take CONNECT",
    8: "does not take this kind of address",
}


class ProxyFailed(BridgeError):
    """The proxy cannot be reached, or does not connect this node to the other one."""

    code = "PROXY_FAILED"


class Tunnel:
    """Opens one connection to a host through a proxy; `waits_for` says where it stands meanwhile."""

    def __init__(self, proxy: Proxy, tls: ssl.SSLContext | None = None) -> None:
        """`tls`: the authorities of an https:// proxy; None: the system's."""
        self._proxy = proxy
        self._tls = tls
        #: The place that has not answered yet; empty: the tunnel is open.
        self.waits_for = f"the proxy {proxy}"

    async def open(self, host: str, port: int) -> asyncio.Transport:
        """The connection, through which the host is reached; its protocol is to be replaced.

        Raises: ProxyFailed.
        """
        reader = asyncio.StreamReader(ANSWER_MOST)
        transport = await self._reach(asyncio.StreamReaderProtocol(reader))
        place = authority(host, port)
        try:
            if self._proxy.scheme == "socks5":
                await _socks(self._proxy, reader, transport, host, port)
            else:
                await _connect(self._proxy, reader, transport, place)
        except BaseException as error:
            transport.abort()
            match error:
                case asyncio.IncompleteReadError():
                    text = f"the proxy {self._proxy}, asked for {place}, closed the connection"
                    raise ProxyFailed(text) from error
                case asyncio.LimitOverrunError():
                    text = f"the proxy {self._proxy} answered more than {ANSWER_MOST} bytes"
                    raise ProxyFailed(text) from error
                case OSError():
                    text = f"the connection to the proxy {self._proxy} broke: {error.strerror or error}"
                    raise ProxyFailed(text) from error
                case _:
                    raise
        transport.pause_reading()
        self.waits_for = ""
        return transport

    async def _reach(self, protocol: asyncio.Protocol) -> asyncio.Transport:
        """A connection to the proxy, at the first of its addresses that answers."""
        loop, proxy = asyncio.get_running_loop(), self._proxy
        try:
            found = await loop.getaddrinfo(proxy.host, proxy.port, type=socket.SOCK_STREAM)
            connection = await aiohappyeyeballs.start_connection(found, happy_eyeballs_delay=NEXT_ADDRESS_S)
        except OSError as error:
            raise ProxyFailed(f"the proxy {proxy} cannot be reached: {_reason(error)}") from error
        tls = (self._tls or ssl.create_default_context()) if proxy.scheme == "https" else None
        try:
            transport, _ = await loop.create_connection(
                lambda: protocol, sock=connection, ssl=tls, server_hostname=proxy.host if tls else None
            )
        except OSError as error:  # ssl.SSLError is one
            connection.close()
            text = f"the proxy {proxy} cannot be reached over TLS ({_reason(error)})"
            raise ProxyFailed(
                f"{text}; see ca, which has its authority, or http:// in the proxy's URL"
            ) from error
        except BaseException:
            connection.close()
            raise
        return transport


def _reason(error: OSError) -> str:
    match error:
        case ssl.SSLError():
            return str(getattr(error, "verify_message", "") or error.reason or error)
        case socket.gaierror():
            return f"its name does not resolve ({error.strerror})"
        case ConnectionRefusedError():
            return "connection refused: nothing listens at that host and port"
        case _:
            return error.strerror or str(error)


# ---------------------------------------------------------------- CONNECT


async def _connect(
    proxy: Proxy, reader: asyncio.StreamReader, transport: asyncio.Transport, place: str
) -> None:
    request = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
    if proxy.user:
        credentials = base64.b64encode(f"{proxy.user}:{proxy.password}".encode()).decode()
        request.append(f"Proxy-Authorization: Basic {credentials}")
    transport.write("\r\n".join((*request, "", "")).encode())
    status, reason, head = await _answer(proxy, reader)
    if not 200 <= status < 300:
        raise ProxyFailed(_refusal(proxy, place, status, reason, head))


async def _answer(proxy: Proxy, reader: asyncio.StreamReader) -> tuple[int, str, bytes]:
    """Status, reason and head of the answer to CONNECT."""
    for _ in range(INTERIM_MOST):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if not error.partial:
                raise
            head = error.partial
        found = _STATUS.match(head)
        if found is None:
            raise ProxyFailed(
                f"the proxy {proxy} does not speak HTTP; is it a socks5:// proxy, or an https:// one?"
            )
        status = int(found[1])
        if status >= 200:
            return status, _shown(found[2] or b""), head
    raise ProxyFailed(f"the proxy {proxy} gave {INTERIM_MOST} interim answers (HTTP 1xx) and no final one")


def _refusal(proxy: Proxy, place: str, status: int, reason: str, head: bytes) -> str:
    said = f"HTTP {status} {reason}".rstrip()
    if status == 407:
        asked = {scheme.decode().lower() for scheme in _SCHEME_ASKED.findall(head)}
        if asked and "basic" not in asked:
            names = ", ".join(sorted(asked))
            text = f"the proxy {proxy} wants credentials by {names} ({said})"
            return f"{text}; this node shows user and password (Basic)"
        if proxy.user:
            return f"the proxy {proxy} refused user and password ({said}); see {proxy.origin}"
        return f"the proxy {proxy} wants user and password ({said}); see {proxy.origin}: http://user:password@host:port"
    means = _REFUSALS.get(status, "refused it")
    if 300 <= status < 400:
        means = "redirects, which is not followed: a portal of the network may ask for a sign-in"
    return f"the proxy {proxy}, asked for {place}, {means} ({said})"


def _shown(text: bytes) -> str:
    return "".join(one if one.isprintable() else " " for one in text.decode("utf-8", "replace"))[
        :SHOWN_MOST
    ].strip()


# ---------------------------------------------------------------- SOCKS5


async def _socks(
    proxy: Proxy, reader: asyncio.StreamReader, transport: asyncio.Transport, host: str, port: int
) -> None:
    methods = (_NO_AUTHENTICATION, _PASSWORD) if proxy.user else (_NO_AUTHENTICATION,)
    transport.write(bytes((_SOCKS, len(methods), *methods)))
    version, method = await reader.readexactly(2)
    if version != _SOCKS:
        hint = "; is it an http:// proxy?" if version == ord("H") else ""
        raise ProxyFailed(f"the proxy {proxy} does not speak SOCKS5{hint}")
    if method == _PASSWORD and proxy.user:
        await _authenticate(proxy, reader, transport)
    elif method == _NONE_OF_THESE:
        wants = "refused user and password as a way to sign in" if proxy.user else "wants user and password"
        raise ProxyFailed(f"the proxy {proxy} {wants}; see {proxy.origin}: socks5://user:password@host:port")
    elif method != _NO_AUTHENTICATION:
        raise ProxyFailed(f"the proxy {proxy} chose a way to sign in that was not offered ({method})")
    transport.write(bytes((_SOCKS, 1, 0)) + _socks_address(host) + port.to_bytes(2))
    version, reply, _, kind = await reader.readexactly(4)
    if version != _SOCKS:
        raise ProxyFailed(f"the proxy {proxy} does not speak SOCKS5")
    if reply:
        means = _REPLIES.get(reply, "refused it")
        raise ProxyFailed(
            f"the proxy {proxy}, asked for {authority(host, port)}, {means} (SOCKS reply {reply})"
        )
    lengths = {_IPV4: 4, _IPV6: 16}
    length = lengths[kind] if kind in lengths else (await reader.readexactly(1))[0]
    await reader.readexactly(length + 2)


async def _authenticate(proxy: Proxy, reader: asyncio.StreamReader, transport: asyncio.Transport) -> None:
    user, password = proxy.user.encode(), proxy.password.encode()
    transport.write(bytes((1, len(user))) + user + bytes((len(password),)) + password)
    _, status = await reader.readexactly(2)
    if status:
        raise ProxyFailed(
            f"the proxy {proxy} refused user and password (status {status}); see {proxy.origin}"
        )


def _socks_address(host: str) -> bytes:
    """The host with its kind in front: a name is resolved by the proxy."""
    try:
        packed = ipaddress.ip_address(host).packed
    except ValueError:
        name = host.encode("ascii", "replace")
        if len(name) > _NAME_MOST:
            raise ProxyFailed(f"SOCKS5 takes names of {_NAME_MOST} bytes; found {len(name)}") from None
        return bytes((_NAME, len(name))) + name
    return bytes((_IPV4 if len(packed) == 4 else _IPV6,)) + packed
