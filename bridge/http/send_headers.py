"""Reads the headers of a POST: the message's ID, key, time, and the headers that it keeps.

One pass over the header lines as they came, so that IDs and values stay unchanged, byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from bridge.errors import InvalidDuplicateId, Malformed
from bridge.http.answers import MSGPACK
from bridge.http.bodies import check_encoding, is_whole_number
from bridge.http.codec import CloudEvent, Decoder
from bridge.http.problems import UnsupportedMediaType
from bridge.messages.message import TIMESTAMP_MAX, Header
from dedup.ids import ID_HEADERS

#: How the types of CloudEvents in structured and in batched mode begin, and the one that is read.
_EVENT_TYPES: Final = b"application/cloudevents"
_EVENT_TYPE: Final = b"application/cloudevents+json"
_EVENT: Final = Decoder(CloudEvent)

#: Every usual header that says nothing about the message, so that few are tested for prefixes.
_IGNORED: Final = frozenset(
    {
        b"accept-encoding",
        b"authorization",
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"origin",
        b"transfer-encoding",
        b"user-agent",
    }
)
_HEADER_PREFIX: Final = b"message-header-"
_EVENT_PREFIX: Final = b"ce-"
#: Headers of a message that name it, by their names as HTTP has them, in lower case.
_ID_NAMES: Final = {name.lower(): name for name in ID_HEADERS}
_MSGPACK: Final = MSGPACK.encode("ascii")
#: A structured-field string (RFC 8941, section 3.3.3), of which bytes beyond ASCII are let through.
_QUOTED: Final = re.compile(rb'"((?:[^"\\\x00-\x1f\x7f]|\\["\\])*)"')
_ESCAPE: Final = re.compile(rb'\\(["\\])')


class SendHeaders:
    """The headers of one POST."""

    __slots__ = ("_event_id", "_event_source", "_ids", "headers", "is_event", "key", "msgpack", "timestamp")

    def __init__(self, raw_headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Read the header lines. Raises: Malformed, InvalidDuplicateId, UnsupportedMediaType."""
        #: The headers that the message keeps, in the order in which they came.
        self.headers: list[Header] = []
        self.key: bytes | None = None
        #: Milliseconds since the epoch; -1: none.
        self.timestamp = -1
        #: Whether the answer has to be msgpack.
        self.msgpack = False
        #: Whether the body is a CloudEvent in structured mode: `read_event` takes its ID from there.
        self.is_event = False
        self._ids: set[bytes] = set()
        self._event_id: bytes | None = None
        self._event_source: bytes | None = None
        for raw_name, value in raw_headers:
            name = raw_name.lower()
            if name in _IGNORED:
                continue
            read = self._READERS.get(name)
            if read is not None:
                read(self, name, value)
            elif name.startswith(_HEADER_PREFIX):
                self._keep_message_header(name, value)
            elif name.startswith(_EVENT_PREFIX):
                self._keep(name, value)

    def read_event(self, body: bytes) -> None:
        """Take the ID of a CloudEvent from its body. Raises: Malformed, InvalidDuplicateId."""
        event: CloudEvent = _EVENT.decode(body, msgpack=False, within="body")
        self._ids.add(_event_identity(event.source.encode(), event.id.encode(), "body."))

    def duplicate_id(self, size_max: int) -> bytes | None:
        """The message's ID. Raises: InvalidDuplicateId: different ones, an empty or too long one."""
        ids = self._ids
        if self._event_id is not None and self._event_source is not None:
            ids.add(_event_identity(self._event_source, self._event_id, "ce-"))
        if not ids:
            return None
        if len(ids) > 1:
            raise InvalidDuplicateId("the headers name different IDs", "Duplicate-Id", 1, len(ids))
        return check_id(next(iter(ids)), size_max, "Duplicate-Id")

    def _keep(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.decode("ascii"), value))

    def _keep_message_header(self, prefixed: bytes, value: bytes) -> None:
        name = _header_name(prefixed)
        if name in _ID_NAMES:
            name = _ID_NAMES[name]
            self._ids.add(value)
        self.headers.append((name, value))

    def _read_id(self, _name: bytes, value: bytes) -> None:
        self._ids.add(value)

    def _read_idempotency_key(self, _name: bytes, value: bytes) -> None:
        self._ids.add(unquoted(value))

    def _read_event_id(self, name: bytes, value: bytes) -> None:
        self._event_id = value
        self._keep(name, value)

    def _read_event_source(self, name: bytes, value: bytes) -> None:
        self._event_source = value
        self._keep(name, value)

    def _read_key(self, _name: bytes, value: bytes) -> None:
        self.key = value

    def _read_timestamp(self, _name: bytes, value: bytes) -> None:
        text = value.decode("utf-8", "replace")
        if not is_whole_number(text) or int(text) > TIMESTAMP_MAX:
            rule = f"a timestamp is milliseconds since the epoch, a whole number up to {TIMESTAMP_MAX}"
            raise Malformed(f"{rule}; found {text}", "Message-Timestamp", TIMESTAMP_MAX, text)
        self.timestamp = int(text)

    def _read_accept(self, _name: bytes, value: bytes) -> None:
        self.msgpack = _MSGPACK in value

    def _read_content_type(self, _name: bytes, value: bytes) -> None:
        self.headers.append(("content-type", value))
        if value[: len(_EVENT_TYPES)].lower() == _EVENT_TYPES:
            if value.partition(b";")[0].strip().lower() != _EVENT_TYPE:
                raise UnsupportedMediaType(
                    "a body of one CloudEvent in JSON is taken, application/cloudevents+json: send a batch "
                    "one by one, or as a transaction, and other formats with attributes in ce- headers",
                    "Content-Type",
                    found=value.decode("utf-8", "replace"),
                )
            self.is_event = True

    def _read_encoding(self, _name: bytes, value: bytes) -> None:
        check_encoding(value.decode("utf-8", "replace"))

    _READERS: ClassVar[dict[bytes, Callable[[SendHeaders, bytes, bytes], None]]] = {
        b"accept": _read_accept,
        b"content-encoding": _read_encoding,
        b"content-type": _read_content_type,
        b"traceparent": _keep,
        b"tracestate": _keep,
        b"idempotency-key": _read_idempotency_key,
        b"duplicate-id": _read_id,
        b"_amq_dupl_id": _read_id,
        b"_hq_dupl_id": _read_id,
        b"ce-id": _read_event_id,
        b"ce-source": _read_event_source,
        b"message-key": _read_key,
        b"message-timestamp": _read_timestamp,
    }


def unquoted(value: bytes) -> bytes:
    """An Idempotency-Key's ID: ``"abc"`` is ``abc``, and so is ``abc``. Raises: InvalidDuplicateId."""
    if not value.startswith(b'"'):
        return value
    quoted = _QUOTED.fullmatch(value)
    if quoted is None:
        raise InvalidDuplicateId(
            r"a quoted key ends with its quotation mark; \" and \\ are its only escapes",
            "Idempotency-Key",
            found=value.decode("utf-8", "replace"),
        )
    return _ESCAPE.sub(rb"\1", quoted[1])


def check_id(duplicate_id: bytes, size_max: int, key: str) -> bytes:
    """An ID of a message or transaction. Raises: InvalidDuplicateId: empty or too long."""
    if not duplicate_id:
        raise InvalidDuplicateId("an ID is not empty", key, found=0)
    if len(duplicate_id) > size_max:
        raise InvalidDuplicateId(
            f"an ID has at most {size_max} bytes; found {len(duplicate_id)}", key, size_max, len(duplicate_id)
        )
    return duplicate_id


def _header_name(name: bytes) -> str:
    if len(name) == len(_HEADER_PREFIX):
        raise Malformed("the header's name is missing", "Message-Header-")
    return name[len(_HEADER_PREFIX) :].decode("ascii")


def _event_identity(source: bytes, event_id: bytes, key: str) -> bytes:
    """The ID of a CloudEvent: two are the same where source and id are (CloudEvents 1.0, section "id").

    `key`: stands before the names of both in an error. Raises: InvalidDuplicateId: one of them is empty.
    """
    if not source or not event_id:
        name = f"{key}id" if source else f"{key}source"
        raise InvalidDuplicateId("source and id of a CloudEvent are not empty", name, found="")
    return source + b" " + event_id
