"""Problems: errors as answers (RFC 9457), and the errors that only HTTP has."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from bridge.errors import BridgeError, DuplicateIdRejected, FilterRefused, Malformed, Stopping
from bridge.http.answers import PROBLEM, Answer, encode_json
from bridge.http.codec import text_or_base64

#: Time that a client should wait before it tries again, in seconds, by code.
RETRY_AFTER_S: Final = {
    "ADDRESS_FULL": 1,
    "DISK_FULL": 5,
    "JOURNAL_DAMAGED": 60,
    "STOPPING": 5,
    "TOO_BUSY": 1,
}
_RETRY_AFTER_DEFAULT_S: Final = 1


class Unauthenticated(BridgeError):
    """The request has no token, user or client certificate that is known here."""

    code, status = "UNAUTHENTICATED", 401


class OriginRefused(BridgeError):
    """A web page that may not call, or a Host that a loopback listener does not answer to."""

    code, status = "ORIGIN_REFUSED", 403


class MethodNotAllowed(BridgeError):
    """The path exists, without this method; `found` is the method, `limit` the ones it has."""

    code, status = "METHOD_NOT_ALLOWED", 405


class BodyTooSlow(BridgeError):
    """A body that came below `LEAST_RATE`; `limit` is that rate, bytes a second."""

    code, status = "BODY_TOO_SLOW", 408


class UnsupportedMediaType(BridgeError):
    """A body of another type than the call takes, or an encoded one."""

    code, status = "UNSUPPORTED_MEDIA_TYPE", 415


class HeadersTooLarge(BridgeError):
    """The headers are above `max-headers-size`."""

    code, status = "HEADERS_TOO_LARGE", 431


class UnsupportedTransferEncoding(BridgeError):
    """A body in another transfer coding than chunked (RFC 9112, section 6.1)."""

    code, status = "UNSUPPORTED_TRANSFER_ENCODING", 501


def problem(error: BridgeError) -> Answer:
    """The error as ``application/problem+json``; 400 where it is about a header that is not UTF-8."""
    if isinstance(error.found, str) and error.found != (shown := _shown(error.found)):
        error = Malformed(f"{error.key} is not UTF-8", error.key, found=shown)
    status = HTTPStatus(error.status)
    fields: dict[str, object] = {
        "type": "about:blank",
        "title": error.code,
        "status": int(status),
        "detail": error.detail,
    }
    for name in ("key", "limit", "found"):
        value = getattr(error, name)
        if value is not None:
            fields[name] = value
    if isinstance(error, FilterRefused) and error.line:
        fields |= {"line": error.line, "column": error.column}
    if isinstance(error, DuplicateIdRejected):
        fields["duplicates"] = [
            {"index": index, "address": address, "duplicate-id": text_or_base64(duplicate_id)}
            for index, address, duplicate_id in error.duplicates
        ]
    return Answer(encode_json(fields), status=status, content_type=PROBLEM, extra=_extra(error, status))


def _shown(text: str) -> str:
    """Text with a replacement character for each byte that was not UTF-8 (aiohttp's surrogates)."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _extra(error: BridgeError, status: HTTPStatus) -> bytes:
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        seconds = RETRY_AFTER_S.get(error.code, _RETRY_AFTER_DEFAULT_S)
        elsewhere = error.location if isinstance(error, Stopping) else ""
        location = f"Location: {elsewhere}\r\n" if elsewhere else ""
        return b"Retry-After: %d\r\n" % seconds + location.encode("ascii", "ignore")
    if status == HTTPStatus.UNAUTHORIZED:
        return b"WWW-Authenticate: Bearer\r\n"
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        return f"Allow: {error.limit}\r\n".encode("ascii")
    return b""
