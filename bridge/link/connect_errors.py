"""Reasons why a link cannot be opened, in plain sentences that name the setting. Pure, but for types."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from typing import Final

from bridge.runtime.tls import Fault, fault

_SENTENCES: Final = {
    Fault.AUTHORITY: "the node's certificate is not trusted ({}); see ca, the authorities to trust",
    Fault.EXPIRED: "the node's certificate is not valid now ({}); renew it at that node, or set the clocks",
    Fault.OWN_EXPIRED: "this connector's certificate has expired ({}); renew certificate and key",
    Fault.NAME: "the node's certificate is for another name ({}); see the host in url, and server-name",
    Fault.OWN_CERTIFICATE: "the node does not take this one's certificate ({}); see certificate and key",
    Fault.NO_TLS: "the port speaks no TLS ({}); such a port is reached with ws:// in url",
    Fault.OTHER: "the TLS handshake failed ({})",
}

#: The certificate that was presented: that of a proxy that reads what passes has another issuer.
_ISSUED: Final = (
    "; the certificate presented is issued by {}: if that is not the node's authority, a proxy on the way "
    "inspects TLS, which must pass this host, or whose authority belongs into ca, too"
)

#: By the URL's scheme: the other end closed the connection, or answered with something that is not HTTP.
NO_ANSWER: Final[Mapping[str, str]] = {
    "ws": "the port does not answer HTTP; one that speaks TLS is reached with wss:// in url",
    "wss": "the port does not answer HTTP",
}


#: By status, what a web page in place of the link means; others: a portal, or another server.
_PAGES: Final[Mapping[int, str]] = {
    404: "the web server there knows no such path: see the path in url, and the rules of the reverse proxy",
    **dict.fromkeys((502, 503, 504), "a reverse proxy is there, and cannot reach the node behind it"),
}


def not_a_link(status: int, reason: str, *, is_page: bool) -> str:
    """An answer that is no WebSocket, as the rest of a sentence; `is_page`: it is one for people."""
    if not is_page:
        return f"is no node link: HTTP {status} ({reason})"
    means = _PAGES.get(
        status, "a portal of the network asks for a sign-in, or another server is at this place"
    )
    return f"is no node link: it answered with a web page (HTTP {status}); {means}"


def is_untrusted(error: BaseException) -> bool:
    """Whether no trusted authority has signed the certificate that the host presented."""
    cause = getattr(error, "certificate_error", None) or error.__cause__ or error
    return isinstance(cause, ssl.SSLError) and fault(cause) is Fault.AUTHORITY


def said(error: BaseException, issuer: str = "") -> str:
    """An error of the network or of TLS as a sentence. `issuer`: of the certificate that is not trusted."""
    match error:
        case ssl.SSLError():
            reason = getattr(error, "verify_message", "") or error.reason or str(error)
            seen = _ISSUED.format(issuer) if issuer else ""
            return _SENTENCES[fault(error)].format(reason) + seen
        case socket.gaierror():
            return f"the host in url does not resolve ({error.strerror})"
        case ConnectionRefusedError():
            return "connection refused: nothing listens at that host and port"
        case OSError():
            return error.strerror or str(error)
        case _:
            return str(error) or type(error).__name__
