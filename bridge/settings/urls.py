"""URLs of listeners and connectors: ``scheme://host:port``, with a path for a connector; pure."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote, urlsplit

from bridge import ends

KAFKA_SCHEME: Final = "kafka://"
_NODE_SCHEMES: Final = frozenset({"ws", "wss"})
#: A path of a reverse proxy: segments of RFC 3986, none of them empty.
_PATH: Final = re.compile(r"(/([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+)*")
_PATH_RULE: Final = (
    "must have a path without '.', '..' and empty segments, and no query (?) and fragment (#) behind it"
)
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address to listen at or to reach."""

    scheme: str
    #: A name or an IP address, without the brackets of IPv6.
    host: str
    #: 0: the system chooses.
    port: int
    #: Before the paths of the node's calls, without a slash at its end; only of URLs of connectors.
    path: str = ""

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"


def scheme_of(url: str) -> str:
    """The text before ``://``, in lower case; the whole text where there is none."""
    return url.partition("://")[0].lower()


def listening(url: str, *schemes: str) -> Endpoint:
    """The address to listen at; the port must be given, 0 takes a free one.

    Raises:
        ValueError: the rule that `url` breaks.
    """
    rule = "must be " + " or ".join(f"{scheme}://host:port" for scheme in schemes)
    endpoint = _endpoint(url, rule)
    if endpoint.scheme not in schemes or endpoint.port < 0:
        raise ValueError(rule)
    return endpoint


def reaching(url: str) -> Endpoint:
    """The address that a ws:// or wss:// connector reaches; the port must be given, a path may.

    Without one a WebSocket goes to port 80 or 443, where no node listens unless its settings say so.

    Raises:
        ValueError: the rule that `url` breaks.
    """
    place, path = _split(url)
    try:
        endpoint = _endpoint(place, "")
    except ValueError:
        raise ValueError(ends.url_rule()) from None
    if endpoint.scheme not in _NODE_SCHEMES or endpoint.port <= 0:
        raise ValueError(ends.url_rule())
    segments = unquote(path).split("/")
    if not _PATH.fullmatch(path) or "." in segments or ".." in segments:
        raise ValueError(_PATH_RULE)
    return replace(endpoint, path=path)


def _split(url: str) -> tuple[str, str]:
    """Scheme, host and port, and the rest without one slash at its end."""
    scheme, separator, rest = url.partition("://")
    end = min((at for mark in "/?#" if (at := rest.find(mark)) >= 0), default=len(rest))
    return f"{scheme}{separator}{rest[:end]}", rest[end:].removesuffix("/")


def brokers(url: str) -> tuple[Endpoint, ...]:
    """The brokers of a kafka:// URL, at least one.

    Raises:
        ValueError: the rule that `url` breaks.
    """
    rule = "must be kafka://host:port,host:port"
    found = tuple(_endpoint(f"kafka://{place}", rule) for place in url.removeprefix(KAFKA_SCHEME).split(","))
    if any(endpoint.port <= 0 for endpoint in found):
        raise ValueError(rule)
    return found


def _endpoint(url: str, rule: str) -> Endpoint:
    """The parts of a URL that has no others; port -1 where none is given."""
    if not url.isascii() or not url.isprintable() or " " in url:  # urlsplit would drop some of these silently
        raise ValueError(rule)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        ip = str(ipaddress.IPv6Address(host)) if ":" in host else ""
    except ValueError:
        raise ValueError(rule) from None
    others = parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc
    if others or not (ip or _HOST.fullmatch(host)) or "?" in url or "#" in url:
        raise ValueError(rule)
    return Endpoint(parts.scheme, ip or host, -1 if port is None else port)
