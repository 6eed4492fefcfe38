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

#: By the URL's scheme: the other end closed the connection, or answered with something that is not HTTP.
NO_ANSWER: Final[Mapping[str, str]] = {
    "ws": "the port does not answer HTTP; one that speaks TLS is reached with wss:// in url",
    "wss": "the port does not answer HTTP",
}


def said(error: BaseException) -> str:
    """An error of the network or of TLS as a sentence."""
    match error:
        case ssl.SSLError():
            reason = getattr(error, "verify_message", "") or error.reason or str(error)
            return _SENTENCES[fault(error)].format(reason)
        case socket.gaierror():
            return f"the host in url does not resolve ({error.strerror})"
        case ConnectionRefusedError():
            return "connection refused: nothing listens at that host and port"
        case OSError():
            return error.strerror or str(error)
        case _:
            return str(error) or type(error).__name__
