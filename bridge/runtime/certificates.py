"""Reads when certificates expire, and who issued them: the fields of X.509 (RFC 5280, section 4.1.2)."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

#: From this long before a certificate expires, warnings say so.
WARN_BEFORE_S: Final = 30 * 24 * 3600.0
#: Certificates of one file that are read; more are a bundle of authorities, which does not expire as a whole.
MOST_CERTIFICATES: Final = 20

_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
#: Tags of DER.
_VERSION, _UTC_TIME, _GENERALIZED_TIME = 0xA0, 0x17, 0x18
#: Parts of a certificate before its validity: serial number, signature algorithm, issuer.
_BEFORE_VALIDITY: Final = 3
#: Parts of a certificate before its issuer.
_BEFORE_ISSUER: Final = 2
#: Attributes of a name that are shown, by their object identifiers in DER (RFC 5280, section 4.1.2.4).
_ATTRIBUTES: Final = {b"\x55\x04\x03": "CN", b"\x55\x04\x0a": "O"}
#: Longest attribute that is shown, in characters.
_SHOWN_MOST: Final = 100


def expiries(path: Path) -> list[float]:
    """When each of a file's certificates expires, in seconds since the epoch, in the file's order.

    Empty where there are more than `MOST_CERTIFICATES`. What cannot be read is left out: `bridge.runtime.tls`
    reports it.
    """
    try:
        found = _CERTIFICATE.findall(path.read_text("ascii", "replace"))
    except OSError:
        return []
    return [*_each(found)] if len(found) <= MOST_CERTIFICATES else []


def _each(certificates: list[str]) -> Iterator[float]:
    for text in certificates:
        try:
            yield _not_after(ssl.PEM_cert_to_DER_cert(text))
        except (ValueError, IndexError):
            continue


def issuer(certificate: bytes) -> str:
    """The issuer of a certificate in DER, as ``CN=name, O=organization``; empty: it cannot be shown."""
    shown = {}
    try:
        place, end = _content(certificate, _part(certificate, _BEFORE_ISSUER))
        while place < end:
            start, place = _content(certificate, place)
            start, _ = _content(certificate, start)
            identifier_start, identifier_end = _content(certificate, start)
            value_start, value_end = _content(certificate, identifier_end)
            name = _ATTRIBUTES.get(certificate[identifier_start:identifier_end])
            if name is not None:
                text = certificate[value_start:value_end].decode("utf-8", "replace")[:_SHOWN_MOST]
                shown[name] = "".join(one if one.isprintable() else " " for one in text)
    except (ValueError, IndexError):
        return ""
    return ", ".join(f"{name}={shown[name]}" for name in _ATTRIBUTES.values() if name in shown)


def _part(certificate: bytes, before: int) -> int:
    """The beginning of the part after its version and `before` others. Raises: ValueError, IndexError."""
    start, _ = _content(certificate, 0)
    start, _ = _content(certificate, start)
    if certificate[start] == _VERSION:
        _, start = _content(certificate, start)
    for _ in range(before):
        _, start = _content(certificate, start)
    return start


def _not_after(certificate: bytes) -> float:
    """The end of a certificate's validity. Raises: ValueError, IndexError: it is no certificate."""
    start, _ = _content(certificate, _part(certificate, _BEFORE_VALIDITY))
    _, second = _content(certificate, start)
    begin, end = _content(certificate, second)
    return _time(certificate[second], certificate[begin:end].decode("ascii"))


def _content(der: bytes, start: int) -> tuple[int, int]:
    """Begin and end of the content of the value that begins at `start`."""
    length, begin = der[start + 1], start + 2
    if length & 0x80:
        begin += length & 0x7F
        length = int.from_bytes(der[start + 2 : begin])
    if begin + length > len(der):
        raise ValueError("the value is cut off")
    return begin, begin + length


def _time(tag: int, text: str) -> float:
    if tag == _UTC_TIME:  # its years are 1950 to 2049
        text = ("19" if text >= "5" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("no time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
