"""The meaning of a failed TLS handshake with a Kafka broker, and which setting mends it."""

from __future__ import annotations

import ssl
from typing import Final

from bridge.runtime.tls import Fault, fault

_HINTS: Final = {
    Fault.NAME: "the broker's certificate must bear the name in the URL: see ssl-check-hostname",
    Fault.EXPIRED: "the broker's certificate has to be renewed at the broker; compare both clocks",
    Fault.OWN_EXPIRED: "this client's certificate has expired: renew ssl-certfile, ssl-keyfile",
    Fault.AUTHORITY: "see ssl-cafile: the authorities that the brokers' certificates are from",
    Fault.OWN_CERTIFICATE: (
        "the broker does not take this client's certificate: see ssl-certfile, ssl-keyfile"
    ),
    Fault.NO_TLS: "the listener speaks no TLS: see security-protocol, and the port in the URL",
    Fault.OTHER: "",
}


def is_for_good(error: ssl.SSLError) -> bool:
    """Whether a certificate or a setting must change before another attempt helps."""
    return fault(error) is not Fault.OTHER


def hint(error: ssl.SSLError) -> str:
    """The setting that mends it; empty where none is known."""
    return _HINTS[fault(error)]
