"""What OpenSSL's errors mean to somebody who connects to a Kafka broker. Pure, but for the types of `ssl`."""

from __future__ import annotations

import ssl
from collections.abc import Collection
from typing import Final

#: A peer that speaks no TLS.
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
#: Alerts about this client's certificate.
_ALERTS: Final = (
    "CERTIFICATE_REQUIRED",
    "BAD_CERTIFICATE",
    "UNKNOWN_CA",
    "CERTIFICATE_UNKNOWN",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REVOKED",
    "UNSUPPORTED_CERTIFICATE",
    "HANDSHAKE_FAILURE",
)


def is_for_good(error: ssl.SSLError) -> bool:
    """Whether a certificate or a setting must change before another attempt helps."""
    return isinstance(error, ssl.SSLCertVerificationError) or _names(error, (*_ALERTS, *_NO_TLS))


def hint(error: ssl.SSLError) -> str:
    """Which setting mends it; empty where none is known to."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = getattr(error, "verify_message", "").lower()
        if "hostname" in reason or "ip address" in reason:
            return "the broker's certificate must bear the name in the URL: see ssl-check-hostname"
        return "see ssl-cafile: the authorities that the brokers' certificates are from"
    if _names(error, _ALERTS):
        return "the broker does not take this client's certificate: see ssl-certfile, ssl-keyfile"
    if _names(error, _NO_TLS):
        return "the listener speaks no TLS: see security-protocol, and the port in the URL"
    return ""


def _names(error: ssl.SSLError, reasons: Collection[str]) -> bool:
    text = str(error)  # "[SSL: REASON] reason"; `reason` itself is missing where Python made the error
    return any(reason in text for reason in reasons)
