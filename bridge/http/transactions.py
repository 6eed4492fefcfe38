"""``POST /v1/transactions``: many messages and acknowledgements, all of them or none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from aiohttp import web
from msgspec import UNSET

from bridge.errors import InvalidDuplicateId, Malformed, MessageTooLarge
from bridge.http.answers import Answer, answer
from bridge.http.authentication import Principal
from bridge.http.bodies import read_content, wants_msgpack
from bridge.http.codec import (
    AcknowledgeEntry,
    Decoder,
    JsonMessage,
    JsonParts,
    JsonTransaction,
    MsgpackMessage,
    MsgpackParts,
    MsgpackTransaction,
    to_bytes,
    to_headers,
)
from bridge.http.limits import (
    TRANSACTION_ACKNOWLEDGEMENTS_MAX,
    TRANSACTION_MESSAGES_MAX,
    TRANSACTION_PIECE_BYTES,
    Limits,
)
from bridge.http.send_headers import check_id
from bridge.journal.values.store import Acknowledgement, Sent, Store, Transaction
from bridge.messages.addresses import check_name
from bridge.messages.block import encode_to_hold
from bridge.messages.message import Header, Message, headers_size
from bridge.runtime.fault_injection import crash_point
from dedup.ids import ID_HEADERS

_Given = JsonTransaction | MsgpackTransaction | JsonParts | MsgpackParts
_DECODER: Final = Decoder(JsonTransaction, MsgpackTransaction)
#: The decoder of a large transaction, whose messages are decoded piece by piece.
_PARTS: Final = Decoder(JsonParts, MsgpackParts)
_MESSAGE: Final = Decoder(JsonMessage, MsgpackMessage)


class Transactions:
    """The handler of transactions."""

    def __init__(self, store: Store, limits: Limits, body_timeout_s: float) -> None:
        self._store = store
        self._limits = limits
        self._body_timeout_s = body_timeout_s

    async def commit(self, request: web.Request, principal: Principal) -> Answer:
        """Handles ``POST``."""
        transaction = await self._read(request, principal)
        committed = await self._store.commit(transaction)
        skip = transaction.on_duplicate == "skip"
        msgpack = wants_msgpack(request)
        if not committed.stored:
            return answer({"verdict": "duplicate"}, msgpack=msgpack)
        positions = {**committed.positions, **dict.fromkeys(committed.elsewhere)}
        value: dict[str, Any] = {"verdict": "stored", "positions": positions}
        if skip:
            value["duplicates"] = list(committed.skipped)
        crash_point("http.before-answer")
        return answer(value, msgpack=msgpack)

    async def _read(self, request: web.Request, principal: Principal) -> Transaction:
        """The transaction of the request's body; of that and its parts nothing else is held."""
        body, msgpack = await read_content(request, self._limits.transaction_size, self._body_timeout_s)
        if len(body) > TRANSACTION_PIECE_BYTES:
            return await self._in_pieces(body, principal, msgpack=msgpack)
        given: JsonTransaction | MsgpackTransaction = _DECODER.decode(body, msgpack=msgpack)
        _check_counts(given)
        return self._transaction(given, self._sent(given.messages, principal), principal)

    async def _in_pieces(self, body: bytes, principal: Principal, *, msgpack: bool) -> Transaction:
        """Decode a large transaction in pieces: decoding 64 MiB at once took up to 6 s, in which nothing else
        was served.
        """
        given: JsonParts | MsgpackParts = _PARTS.decode(body, msgpack=msgpack)
        _check_counts(given)
        sent: list[Sent] = []
        piece: list[JsonMessage | MsgpackMessage] = []
        size = 0
        decoded = _MESSAGE.decode_each(given.messages, msgpack=msgpack, within="messages")
        for part, message in zip(given.messages, decoded, strict=True):
            piece.append(message)
            size += len(memoryview(part))
            if size >= TRANSACTION_PIECE_BYTES:
                sent += self._sent(piece, principal, len(sent))
                piece, size = [], 0
                await asyncio.sleep(0)
        sent += self._sent(piece, principal, len(sent))
        return self._transaction(given, sent, principal)

    def _transaction(self, given: _Given, sent: list[Sent], principal: Principal) -> Transaction:
        duplicate_id = None
        if given.duplicate_id is not None:
            duplicate_id = self._id(given.duplicate_id, "duplicate-id")
        return Transaction(
            sent,
            duplicate_id,
            given.on_duplicate,
            _acknowledgements(given.acknowledge, principal),
        )

    def _sent(
        self, entries: Sequence[JsonMessage | MsgpackMessage], principal: Principal, first: int = 0
    ) -> list[Sent]:
        """The messages, of which `first` is the number of the first one.

        Values that are the same for each message are computed once, outside the loop.
        """
        size_max = self._limits.whole_message_size
        sent: list[Sent] = []
        append = sent.append
        checked: str | None = None
        shared = ""
        for index, entry in enumerate(entries, first):
            address = entry.address
            if address != checked:
                key = f"messages[{index}].address"
                check_name(address, key)
                principal.check_send(address, key)
                checked = shared = address
            body = entry.body
            if entry.body_base64 is not UNSET or body is UNSET:
                body = _only_body(entry, index)
            elif type(body) is str:
                body = body.encode()
            elif type(body) is not bytes:
                body = to_bytes(body, f"messages[{index}].body")
            if body is not None and len(body) > size_max:
                raise _message_too_large(index, len(body), size_max)
            key_bytes = entry.key
            if key_bytes is not None:
                key_bytes = to_bytes(key_bytes, f"messages[{index}].key")
            headers = to_headers(entry.headers, f"messages[{index}]") if entry.headers else ()
            if headers or key_bytes:
                self._check_key_and_headers(index, key_bytes, headers)
            timestamp = entry.timestamp
            message = Message(body, key_bytes, headers, -1 if timestamp is None else timestamp)
            duplicate_id = entry.duplicate_id
            if duplicate_id is not None or headers:
                duplicate_id = self._message_id(duplicate_id, headers, f"messages[{index}]")
            append(Sent(shared, encode_to_hold(message), duplicate_id))
        return sent

    def _check_key_and_headers(self, index: int, key: bytes | None, headers: Sequence[Header]) -> None:
        """Refuse a key and headers that a POST could not have, either. Raises: MessageTooLarge."""
        size, limit = headers_size(key, headers), self._limits.max_headers_size
        if size > limit:
            raise MessageTooLarge(
                f"a message's key and headers have at most {limit} bytes (max-headers-size); found {size}",
                f"messages[{index}].headers",
                limit,
                size,
            )

    def _message_id(self, given: object, headers: Sequence[Header], key: str) -> bytes | None:
        """The ID that a message has beside its headers or in them; None: in neither.

        Raises: InvalidDuplicateId.
        """
        found = None if given is None else self._id(given, f"{key}.duplicate-id")
        ids = {value or b"" for name, value in headers if name in ID_HEADERS}
        if not ids:
            return found
        if found is not None:
            ids.add(found)
        if len(ids) > 1:
            raise InvalidDuplicateId("the message names different IDs", f"{key}.headers", 1, len(ids))
        return check_id(ids.pop(), self._limits.max_duplicate_id_size, f"{key}.headers")

    def _id(self, value: object, key: str) -> bytes:
        try:
            duplicate_id = to_bytes(value, key)
        except Malformed as error:
            raise InvalidDuplicateId(error.detail, key) from None
        assert duplicate_id is not None
        return check_id(duplicate_id, self._limits.max_duplicate_id_size, key)


def _only_body(entry: JsonMessage | MsgpackMessage, index: int) -> bytes:
    """The body-base64, where the entry has no other body."""
    key = f"messages[{index}].body"
    if entry.body_base64 is UNSET:
        raise Malformed("a message has a body or a body-base64; null for a tombstone", key)
    if entry.body is not UNSET:
        raise Malformed("a message has a body or a body-base64, not both", key)
    assert type(entry.body_base64) is bytes
    return entry.body_base64


def _message_too_large(index: int, found: int, limit: int) -> MessageTooLarge:
    return MessageTooLarge(
        f"a message's body has at most {limit} bytes; found {found}", f"messages[{index}].body", limit, found
    )


def _check_counts(given: _Given) -> None:
    _check_count("messages", len(given.messages), TRANSACTION_MESSAGES_MAX)
    _check_count("acknowledge", len(given.acknowledge), TRANSACTION_ACKNOWLEDGEMENTS_MAX)
    if not given.messages and not given.acknowledge:
        raise Malformed("a transaction has at least one message or acknowledgement", "messages", 1, 0)


def _check_count(key: str, found: int, limit: int) -> None:
    if found > limit:
        raise Malformed(f"a transaction has at most {limit} {key}; found {found}", key, limit, found)


def _acknowledgements(entries: Sequence[AcknowledgeEntry], principal: Principal) -> list[Acknowledgement]:
    acknowledgements = []
    for index, entry in enumerate(entries):
        key = f"acknowledge[{index}]"
        check_name(entry.address, f"{key}.address")
        check_name(entry.queue, f"{key}.queue")
        principal.check_receive(entry.address, f"{key}.address")
        acknowledgements.append(Acknowledgement(entry.address, entry.queue, entry.lease, entry.upto))
    return acknowledgements
