"""Proxies between this node and others: their URLs, and which of them the environment names. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

#: The setting's value for no proxy, whatever the environment names.
DIRECT: Final = "none"
#: The setting that names a proxy.
SETTING: Final = "proxy"
#: What a proxy's URL must be.
RULE: Final = (
    "must be http://host:port, https://host:port or socks5://host:port, with user:password@ before the host "
    "where the proxy asks for them"
)

#: Schemes of proxies, each with its own name here; the proxy always resolves the names of hosts.
_SCHEMES: Final = {
    "http": "http",
    "https": "https",
    "socks5": "socks5",
    "socks5h": "socks5",
    "socks": "socks5",
}
#: Ports of proxies in variables of the environment that give none.
_PORTS: Final = {"http": 80, "https": 443, "socks5": 1080}
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
#: Longest user and password, each: RFC 1929 has one byte for their lengths.
CREDENTIAL_MOST: Final = 255
#: By the scheme of a node's URL, the variables that name its proxy, the first that is set: in small letters
#: before capitals.
_VARIABLES: Final = {"wss": ("HTTPS_PROXY", "ALL_PROXY"), "ws": ("HTTP_PROXY", "ALL_PROXY")}
_EXCEPTIONS: Final = "NO_PROXY"


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy, and how this node came to use it."""

    #: http, https or socks5.
    scheme: str
    #: A name or an IP address, without the brackets of IPv6.
    host: str
    port: int
    #: Shown to the proxy; empty: none.
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    #: The setting, or the variable of the environment, that names it.
    origin: str = SETTING

    def __str__(self) -> str:
        """Its URL without user and password, and its origin."""
        return f"{self.scheme}://{authority(self.host, self.port)} ({self.origin})"


class ProxyInvalid(ValueError):
    """The text of a setting or variable is no proxy: the rule that it breaks."""

    def __init__(self, origin: str) -> None:
        super().__init__(RULE if origin == SETTING else f"{origin} of the environment {RULE}")
        #: The setting, or the variable of the environment, that names it.
        self.origin = origin


def authority(host: str, port: int) -> str:
    """``host:port``, an address of IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def read_proxy(url: str, origin: str = SETTING) -> Proxy:
    """The proxy of a URL. User and password may have any characters but ``%``, which is written ``%25``.

    A variable of the environment may leave out the scheme (http) and the port.

    Raises:
        ProxyInvalid: it is no URL of a proxy.
    """
    is_variable = origin != SETTING
    scheme, separator, rest = url.partition("://")
    if not separator and is_variable:
        scheme, rest = "http", url
    credentials, has_credentials, place = rest.rpartition("@")
    user, _, password = credentials.partition(":")
    known = _SCHEMES.get(scheme.lower())
    host, port = _place(place.removesuffix("/"))
    if port is None and is_variable and known:
        port = _PORTS[known]
    user, password = unquote(user), unquote(password)
    valid = known and host and port and bool(user) == bool(has_credentials)
    if not valid or not (_is_credential(user) and _is_credential(password)) or ":" in user:
        raise ProxyInvalid(origin)
    assert known is not None
    assert port is not None
    return Proxy(known, host, port, user, password, origin)


def _is_credential(text: str) -> bool:
    try:
        return len(text.encode()) <= CREDENTIAL_MOST
    except UnicodeEncodeError:  # a variable that is not UTF-8
        return False


def _place(text: str) -> tuple[str, int | None]:
    """Host and port; no host: it is none; no port: it has none."""
    if not text.isascii() or not text.isprintable() or set(text) & set(" /?#@%\\"):
        return "", None
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname or "", parts.port
        if ":" in host:
            return str(ipaddress.IPv6Address(host)), port
    except ValueError:
        return "", None
    return (host, port) if _HOST.fullmatch(host) else ("", None)


def proxy_for(setting: str, url: str, environ: Mapping[str, str]) -> Proxy | None:
    """The proxy on the way to the node at a ``ws://`` or ``wss://`` URL; None: there is none.

    `setting` is that of the connector: a URL, `DIRECT`, or empty: the environment names one. To this machine
    itself the environment names none.

    Raises:
        ProxyInvalid: the setting, or the variable, names no proxy.
    """
    if setting == DIRECT:
        return None
    if setting:
        return read_proxy(setting)
    parts = urlsplit(url)
    host = parts.hostname or ""
    for name in _VARIABLES.get(parts.scheme, ()):
        found = environ.get(name.lower()) or environ.get(name, "")
        if found.strip():
            excepted = environ.get(_EXCEPTIONS.lower()) or environ.get(_EXCEPTIONS, "")
            if _is_loopback(host) or _is_excepted(host, parts.port, excepted):
                return None
            return read_proxy(found.strip(), name)
    return None


def _is_loopback(host: str) -> bool:
    name = host.lower().rstrip(".")
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def _is_excepted(host: str, port: int | None, exceptions: str) -> bool:
    """Whether an item of ``NO_PROXY`` names the host: a domain with all below it, an address, a network in
    CIDR notation, each with or without a port, or ``*``.
    """
    name = host.lower().rstrip(".")
    for item in filter(None, (part.strip().lower() for part in exceptions.replace(" ", ",").split(","))):
        place, of_port = _without_port(item)
        if of_port is not None and of_port != port:
            continue
        if place == "*" or _is_within(name, place):
            return True
    return False


def _without_port(item: str) -> tuple[str, int | None]:
    """An item's host and its port; None: all ports."""
    if item.startswith("["):
        host, _, rest = item[1:].partition("]")
        port = rest.removeprefix(":")
    else:
        host, _, port = item.partition(":") if item.count(":") == 1 else (item, "", "")
    return host, int(port) if port.isdecimal() else None


def _is_within(host: str, place: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(place, strict=False)
    except ValueError:
        domain = place.removeprefix("*").strip(".")
        return bool(domain) and (host == domain or host.endswith(f".{domain}"))
