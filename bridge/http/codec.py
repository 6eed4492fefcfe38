"""The codec of bodies of the HTTP calls: JSON and msgpack to and from `bridge.messages.message`.

JSON carries text; bytes that are not UTF-8 become ``"body-base64"`` or ``{"base64": "..."}``. msgpack has the
same keys with `bin` values, and takes text too. Decoders and encoders are typed and made once: nothing is
checked twice, and nothing is looked up by name per message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NoReturn, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from bridge.errors import BridgeError, InvalidDuplicateId, Malformed
from bridge.journal.values.store import Delivered
from bridge.messages.message import TIMESTAMP_MAX, Header, LargeBody

#: Milliseconds since the epoch; the upper bound is that of a signed 64-bit column.
Timestamp = Annotated[int, Meta(ge=0, le=TIMESTAMP_MAX)]
Position = Annotated[int, Meta(ge=0, le=2**50)]
T = TypeVar("T")


class Base64(Struct, forbid_unknown_fields=True, gc=False):
    """Bytes that are not UTF-8."""

    base64: bytes


#: A key, an ID or a header's value in JSON.
Text = str | Base64 | None


class JsonMessage(Struct, forbid_unknown_fields=True, rename="kebab"):
    """A message of a transaction, in JSON."""

    address: str
    body: str | UnsetType | None = UNSET
    body_base64: bytes | UnsetType = UNSET
    key: Text = None
    headers: dict[str, Text | list[Text]] | None = None
    duplicate_id: Text = None
    timestamp: Timestamp | None = None


class MsgpackMessage(Struct, forbid_unknown_fields=True, rename="kebab"):
    """A message of a transaction, in msgpack. `Any` is bin, or str for UTF-8: msgspec takes no union of the
    two.
    """

    address: str
    body: Any = UNSET
    body_base64: bytes | UnsetType = UNSET
    key: Any = None
    headers: dict[str, Any] | None = None
    duplicate_id: Any = None
    timestamp: Timestamp | None = None


class AcknowledgeEntry(Struct, forbid_unknown_fields=True):
    """Messages of a lease that a transaction settles."""

    address: str
    queue: str
    lease: str
    upto: Position | None = None


class JsonTransaction(Struct, forbid_unknown_fields=True, rename="kebab"):
    """The body of ``POST /v1/transactions``, in JSON."""

    messages: list[JsonMessage] = []
    duplicate_id: Text = None
    on_duplicate: Literal["reject", "skip"] = "reject"
    acknowledge: list[AcknowledgeEntry] = []


class MsgpackTransaction(Struct, forbid_unknown_fields=True, rename="kebab"):
    """The body of ``POST /v1/transactions``, in msgpack."""

    messages: list[MsgpackMessage] = []
    duplicate_id: Any = None
    on_duplicate: Literal["reject", "skip"] = "reject"
    acknowledge: list[AcknowledgeEntry] = []


class JsonParts(Struct, forbid_unknown_fields=True, rename="kebab"):
    """A transaction in JSON whose messages are still to be decoded, as `JsonMessage`."""

    messages: list[msgspec.Raw] = []
    duplicate_id: Text = None
    on_duplicate: Literal["reject", "skip"] = "reject"
    acknowledge: list[AcknowledgeEntry] = []


class MsgpackParts(Struct, forbid_unknown_fields=True, rename="kebab"):
    """A transaction in msgpack whose messages are still to be decoded, as `MsgpackMessage`."""

    messages: list[msgspec.Raw] = []
    duplicate_id: Any = None
    on_duplicate: Literal["reject", "skip"] = "reject"
    acknowledge: list[AcknowledgeEntry] = []


class QueueRequest(Struct, forbid_unknown_fields=True, rename={"start": "from"}):
    """The body of ``PUT .../queues/{q}``."""

    start: Literal["earliest", "latest"] | Position = "earliest"
    #: Not given: a queue that is there keeps its own.
    filter: str | None = None


class LeaseRequest(Struct, forbid_unknown_fields=True):
    """The body of ``POST .../acknowledge`` and ``/release``."""

    lease: str
    upto: Position | None = None


class SizeRequest(Struct, forbid_unknown_fields=True):
    """The body of ``PUT .../id-cache``."""

    size: Annotated[int, Meta(ge=0, le=2**31 - 1)]


class ReplayRequest(Struct, forbid_unknown_fields=True):
    """The body of ``POST /v1/dead-letters/replay``."""

    positions: list[Position] | Literal["all"]


class CloudEvent(Struct):
    """The names of a CloudEvent in structured mode (CloudEvents 1.0, JSON format)."""

    source: str
    id: str


#: Stands before the place in an error of msgspec, at its end.
_PLACE: Final = " - at `$"


_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`$")


class Decoder:
    """One kind of body, in both forms."""

    def __init__(
        self,
        json_type: type[Any],
        msgpack_type: type[Any] | None = None,
        *,
        answers: Mapping[str, str] | None = None,
    ) -> None:
        """`answers`: by field that the body cannot have, what stands for it here."""
        self._answers = answers or {}
        self._json = msgspec.json.Decoder(json_type)
        self._msgpack = msgspec.msgpack.Decoder(msgpack_type or json_type)

    def decode(self, body: bytes | memoryview | msgspec.Raw, *, msgpack: bool, within: str = "") -> Any:
        """The body's value. `within`: where the body is, if it is a part of another.

        Raises:
            Malformed: with the place as key, ``messages[3].address``.
            InvalidDuplicateId: the value cannot be an ID, a number for example.
        """
        try:
            return self._msgpack.decode(body) if msgpack else self._json.decode(body)
        except (ValueError, RecursionError) as error:
            self._refuse(error, within)

    def decode_each(self, parts: Iterable[msgspec.Raw], *, msgpack: bool, within: str) -> Iterator[Any]:
        """The values of a list's entries; `within`: the list's place. Raises: as `decode`."""
        decode = self._msgpack.decode if msgpack else self._json.decode
        index = 0
        try:
            for index, part in enumerate(parts):  # noqa: B007 - names the place of an error
                yield decode(part)
        except (ValueError, RecursionError) as error:
            self._refuse(error, f"{within}[{index}]")

    def _refuse(self, error: Exception, within: str) -> NoReturn:
        unknown = _UNKNOWN.match(str(error))
        if unknown and (answer := self._answers.get(unknown[1])):
            raise Malformed(f"{unknown[1]}: {answer}", unknown[1]) from None
        _raise_malformed(error, within)


def _raise_malformed(error: Exception, within: str) -> NoReturn:
    text = str(error) or type(error).__name__
    detail, mark, place = text.rpartition(_PLACE)
    if not mark or not place.endswith("`"):
        raise Malformed(text, within or None) from None
    key = ".".join(filter(None, (within, place[:-1].removeprefix(".")))) or None
    kind: type[BridgeError] = Malformed
    if key and key.endswith("duplicate-id"):
        kind = InvalidDuplicateId
    raise kind(detail, key) from None


def to_bytes(value: object, key: str) -> bytes | None:
    """A body, key, ID or header value as bytes. Raises: Malformed, naming `key`."""
    if value is None or type(value) is bytes:
        return value
    if type(value) is str:
        return value.encode()
    if type(value) is Base64:
        return value.base64
    if type(value) is dict and len(value) == 1 and type(value.get("base64")) is bytes:
        return bytes(value["base64"])
    raise Malformed(f"expected text or bytes, got {type(value).__name__}", key)


def to_headers(values: dict[str, Any], key: str) -> tuple[Header, ...]:
    """Headers as pairs; a list stands for a header that occurs several times. Raises: Malformed."""
    headers: list[Header] = []
    for name, value in values.items():
        if not name:
            raise Malformed("a header's name is not empty", f"{key}.headers")
        if type(value) is list:
            headers.extend((name, to_bytes(one, f"{key}.headers")) for one in value)
        else:
            headers.append((name, to_bytes(value, f"{key}.headers")))
    return tuple(headers)


# ------------------------------------------------------------------ out


def text_or_base64(value: bytes | None) -> str | Base64 | None:
    """Bytes as JSON shows them: text where they are UTF-8."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return Base64(value)


class TextOut(Struct, gc=False, rename="kebab"):
    """A message of an answer, its body text or null; in msgpack every value is bin."""

    position: int
    body: Any
    key: Any
    headers: dict[str, Any]
    duplicate_id: Any
    timestamp: int | None


class BytesOut(Struct, gc=False, rename="kebab"):
    """A message of a JSON answer whose body is not UTF-8."""

    position: int
    body_base64: bytes
    key: Any
    headers: dict[str, Any]
    duplicate_id: Any
    timestamp: int | None


class LargeOut(Struct, gc=False, rename="kebab"):
    """A message of an answer whose body is too large for a page: it is read by its position."""

    position: int
    body_size: int
    key: Any
    headers: dict[str, Any]
    duplicate_id: Any
    timestamp: int | None


def json_messages(messages: Iterable[Delivered]) -> list[TextOut | BytesOut | LargeOut]:
    """Messages as a JSON answer holds them."""
    shown: list[TextOut | BytesOut | LargeOut] = []
    for delivered in messages:
        message = delivered.message
        rest = (
            text_or_base64(message.key),
            _by_name([(name, text_or_base64(value)) for name, value in message.headers])
            if message.headers
            else {},
            text_or_base64(delivered.duplicate_id),
            message.timestamp if message.timestamp >= 0 else None,
        )
        if isinstance(message.body, LargeBody):
            shown.append(LargeOut(delivered.position, message.body.size, *rest))
            continue
        body = text_or_base64(message.body)
        if type(body) is Base64:
            shown.append(BytesOut(delivered.position, body.base64, *rest))
        else:
            shown.append(TextOut(delivered.position, body, *rest))
    return shown


def msgpack_messages(messages: Iterable[Delivered]) -> list[TextOut | LargeOut]:
    """Messages as a msgpack answer holds them."""
    return [_msgpack_message(delivered) for delivered in messages]


def _msgpack_message(delivered: Delivered) -> TextOut | LargeOut:
    message = delivered.message
    rest = (
        message.key,
        _by_name(message.headers),
        delivered.duplicate_id,
        message.timestamp if message.timestamp >= 0 else None,
    )
    if isinstance(message.body, LargeBody):
        return LargeOut(delivered.position, message.body.size, *rest)
    return TextOut(delivered.position, message.body, *rest)


def _by_name(headers: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Headers by name; a header that occurs several times becomes a list."""
    by_name = dict(headers)
    if len(by_name) == len(headers):
        return by_name
    lists: dict[str, list[Any]] = {}
    for name, value in headers:
        lists.setdefault(name, []).append(value)
    return {name: values if len(values) > 1 else values[0] for name, values in lists.items()}
