"""Single messages: a POST for each, browsing, and one raw body by its position."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web

from bridge.errors import Malformed, NotFound
from bridge.http.answers import MSGPACK, OCTETS, Answer, StreamedAnswer, encode_msgpack, no_content
from bridge.http.authentication import Principal
from bridge.http.bodies import (
    IncomingBody,
    Query,
    is_whole_number,
    may_be_large,
    messages_page,
    read_body,
)
from bridge.http.connection import connection_of, take
from bridge.http.limits import (
    EVENT_BYTES_MAX,
    MESSAGES_A_PAGE_DEFAULT,
    MESSAGES_A_PAGE_MAX,
    PAGE_BYTES_MAX,
    POSITION_MAX,
    Limits,
)
from bridge.http.send_headers import SendHeaders
from bridge.journal.values.store import Committed, Sent, Store, Transaction
from bridge.messages.addresses import check_name, check_readable
from bridge.messages.block import KeptBody
from bridge.messages.message import CHUNK_BYTES, LargeBody, Message
from bridge.runtime.fault_injection import crash_point

_DUPLICATE: Final = b'{"verdict":"duplicate"}'
#: A stored content-type that is safe in a header: it came from a client, control characters and all.
_SAFE_CONTENT_TYPE: Final = re.compile(rb"[\x21-\x2e\x30-\x7e]+/[\x20-\x7e]+")
#: A raw body comes from another client: a browser must neither guess its type nor run it.
_RAW_HEADERS: Final = (
    b"X-Content-Type-Options: nosniff\r\nContent-Security-Policy: sandbox; default-src 'none'\r\n"
)


class Messages:
    """Handlers for ``/v1/addresses/{a}/messages``."""

    def __init__(self, store: Store, limits: Limits, body_timeout_s: float) -> None:
        self._store = store
        self._limits = limits
        self._body_timeout_s = body_timeout_s

    async def send(self, request: web.Request, principal: Principal, address: str) -> Answer:
        """Handles ``POST``: one message, its body byte for byte. The call whose cost matters most."""
        check_name(address)
        principal.check_send(address)
        sent = SendHeaders(request.raw_headers)
        if not sent.is_event and may_be_large(request, self._limits.min_large_message_size):
            committed = await self._commit_large(request, address, sent)
        else:
            # Bound to no name: while it waits for room, a message is held in one form.
            committed = await self._store.commit(
                Transaction((await self._read(request, address, sent),), plain=True)
            )
        if not committed.stored:
            return _verdict(_DUPLICATE, {"verdict": "duplicate"}, msgpack=sent.msgpack)
        positions = committed.positions.get(address)
        crash_point("http.before-answer")
        return _verdict(
            b'{"verdict":"stored","positions":%b}'
            % (b"null" if positions is None else b"[%d,%d]" % positions),
            {"verdict": "stored", "positions": positions},
            msgpack=sent.msgpack,
        )

    async def _read(self, request: web.Request, address: str, sent: SendHeaders) -> Sent:
        limits, timeout_s = self._limits, self._body_timeout_s
        if sent.is_event:  # its ID is in its body
            body = await read_body(request, min(EVENT_BYTES_MAX, limits.max_message_size), timeout_s)
            sent.read_event(body)
            duplicate_id = sent.duplicate_id(limits.max_duplicate_id_size)
        else:
            duplicate_id = sent.duplicate_id(limits.max_duplicate_id_size)
            body = await read_body(request, limits.max_message_size, timeout_s)
        message = Message(body, sent.key, tuple(sent.headers), sent.timestamp)
        return Sent.of(address, message, duplicate_id)

    async def _commit_large(self, request: web.Request, address: str, sent: SendHeaders) -> Committed:
        """Store a message whose body is stored in chunks, as it comes; one that turns out to be small, as any
        other.
        """
        duplicate_id = sent.duplicate_id(self._limits.max_duplicate_id_size)
        incoming = IncomingBody(request, self._limits.max_message_size, self._body_timeout_s)
        chunk = await incoming.chunk()
        body: bytes | LargeBody = chunk
        connection = connection_of(request)
        upload = connection.upload = self._store.upload(address, request.content_length or 0)
        try:
            large: KeptBody | None = None
            if len(chunk) >= min(self._limits.min_large_message_size, CHUNK_BYTES):
                while chunk:
                    await upload.add(chunk)
                    incoming.stored(chunk)
                    crash_point("http.after-chunk")
                    chunk = await incoming.chunk()
                large = upload.kept
                body = large.body
            message = Message(body, sent.key, tuple(sent.headers), sent.timestamp)
            transaction = Transaction((Sent.of(address, message, duplicate_id),), plain=True, large=large)
            del message
            chunk = body = b""
            return await self._store.commit(transaction)
        finally:
            chunk = body = b""  # an error that is kept keeps this frame
            connection.upload = None
            upload.give_up()

    async def browse(self, request: web.Request, principal: Principal, address: str) -> Answer:
        """Handles ``GET``: messages after a position; changes nothing."""
        check_readable(address)
        principal.check_receive(address)
        query = Query(request, "after", "max")
        messages = await self._store.browse(
            address,
            after=query.number("after", -1, -1, POSITION_MAX),
            most=query.number("max", MESSAGES_A_PAGE_DEFAULT, 1, MESSAGES_A_PAGE_MAX),
            most_bytes=PAGE_BYTES_MAX,
        )
        made, _ = messages_page(request, messages)
        take(request, len(made.body))
        return made

    async def raw(self, request: web.Request, principal: Principal, address: str, position: str) -> Answer:
        """Handles ``GET .../{position}``: the body alone, with the type it came with; 204 for a tombstone."""
        check_readable(address)
        principal.check_receive(address)
        Query(request)
        if not is_whole_number(position):
            raise Malformed(f"a position is a whole number; found {position}", "position", found=position)
        wanted = int(position)
        found = await self._store.browse(address, after=wanted - 1, most=1, most_bytes=PAGE_BYTES_MAX)
        if not found or found[0].position != wanted:
            raise NotFound(f"{address} holds no message at position {wanted}", "position", found=wanted)
        message = found[0].message
        if message.body is None:
            return no_content()
        stored = message.header("content-type") or b""
        content_type = stored.decode("ascii") if _SAFE_CONTENT_TYPE.fullmatch(stored) else OCTETS
        if found[0].large is not None:
            return self._streamed(request, found[0].large, content_type)
        body = message.whole or b""
        take(request, len(body))
        return Answer(body, content_type=content_type, extra=_RAW_HEADERS)

    def _streamed(self, request: web.Request, large: KeptBody, content_type: str) -> Answer:
        """The answer with a large body, of which it holds a chunk at a time."""
        take(request, CHUNK_BYTES)

        async def chunks() -> AsyncIterator[bytes]:
            size = number = 0
            while size < large.body.size:
                chunk = await self._store.read_chunk(large, number)
                yield chunk
                size += len(chunk)
                number += 1

        return StreamedAnswer(chunks(), large.body.size, content_type=content_type, extra=_RAW_HEADERS)


def _verdict(as_json: bytes, value: dict[str, object], *, msgpack: bool) -> Answer:
    return Answer(encode_msgpack(value), content_type=MSGPACK) if msgpack else Answer(as_json)
