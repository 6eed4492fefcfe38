"""Reading requests: bodies within their limits, their type, the query, and the form of the answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import accumulate, takewhile
from typing import Any, Final

from aiohttp import hdrs, web

from bridge.errors import Malformed, MessageTooLarge, Stopping
from bridge.http.answers import JSON, MSGPACK, Answer, answer, encode_json, encode_msgpack
from bridge.http.codec import Decoder, json_messages, msgpack_messages
from bridge.http.connection import connection_of, take
from bridge.http.limits import PAGE_TEXT_BYTES_MAX
from bridge.http.problems import BodyTooSlow, UnsupportedMediaType
from bridge.journal.values.store import Delivered
from bridge.link.limits import LEAST_RATE
from bridge.link.pace import Pace
from bridge.messages.message import CHUNK_BYTES

#: A body of settings for a queue, a lease or a cache, in bytes.
SMALL_BODY_BYTES_MAX: Final = 65_536
_DIGITS_MAX: Final = 19
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


async def read_body(request: web.Request, limit_bytes: int, timeout_s: float) -> bytes:
    """The whole body.

    Raises:
        TooBusy: `max-transit-size` bytes are on their way.
        MessageTooLarge: above `limit_bytes`; decided by Content-Length before anything is read.
        BodyTooSlow: it came below `LEAST_RATE`. Stopping: it had not arrived when the node went down.
    """
    content = request.content
    if content.is_eof():
        # The usual case: headers and body came in one segment, and there is nothing to wait for.
        body = content.read_nowait()
        if len(body) > limit_bytes:
            raise _too_large(limit_bytes, len(body))
        take(request, len(body))
        return body
    length = request.content_length
    if length is not None and length > limit_bytes:
        raise _too_large(limit_bytes, length)
    await _let_come(request)
    async with _Arrival(request, timeout_s).waiting() as arrived:
        return await _read_parts(request, limit_bytes, arrived)


async def _let_come(request: web.Request) -> None:
    """Tell a client that waits for it to send the body."""
    if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue" and request.version >= (1, 1):
        await request.writer.write(_CONTINUE)


class _Arrival:
    """Waits for parts of a request's body, which have to come at `LEAST_RATE` at least.

    The rate is measured over twice `timeout_s`, so that a line which is cut for that long is not too slow.
    """

    def __init__(self, request: web.Request, timeout_s: float) -> None:
        self._connection = connection_of(request)
        self._loop = asyncio.get_running_loop()
        self._pace = Pace(round(2000 * timeout_s))
        self._timer: asyncio.TimerHandle | None = None
        #: The numbers of a body that was too slow.
        self._slowness = ""

    @contextlib.asynccontextmanager
    async def waiting(self) -> AsyncIterator[Callable[[int], None]]:
        """Wait for parts of the body, and call what is yielded with the size of each.

        Raises: BodyTooSlow, Stopping.
        """
        now_ms = self._now_ms()
        self._pace.begin(now_ms)
        try:
            async with asyncio.timeout(None) as self._connection.arriving:
                self._set_timer()
                yield self._add
        except TimeoutError:
            if self._connection.gives_up:
                raise Stopping("the node is going down, and the body has not arrived") from None
            detail = f"the body came too slowly: {self._slowness} (call-timeout)"
            raise BodyTooSlow(detail, "body", LEAST_RATE) from None
        finally:
            self._connection.arriving = None
            if self._timer is not None:
                self._timer.cancel()

    def _now_ms(self) -> int:
        return round(self._loop.time() * 1000)

    def _add(self, size: int) -> None:
        self._pace.add(size, 0)

    def _set_timer(self) -> None:
        self._timer = self._loop.call_later(self._pace.window_ms / 1000, self._judge)

    def _judge(self) -> None:
        self._slowness = self._pace.too_slow(self._now_ms()) or ""
        if not self._slowness:
            self._set_timer()
        elif self._connection.arriving is not None:
            self._connection.arriving.reschedule(self._loop.time())


def may_be_large(request: web.Request, least_bytes: int) -> bool:
    """Whether the body has `least_bytes`, or perhaps: its length is not known before it has come."""
    if request.content.is_eof():
        return False
    length = request.content_length
    return length is None or length >= least_bytes


class IncomingBody:
    """A body that is read in chunks of `CHUNK_BYTES`; only while one is read it has to come fast enough."""

    def __init__(self, request: web.Request, limit_bytes: int, timeout_s: float) -> None:
        self._request = request
        self._limit_bytes = limit_bytes
        self._arrival = _Arrival(request, timeout_s)
        self._size = 0
        self._begun = False

    async def chunk(self) -> bytes:
        """The next chunk; empty at the end. Its bytes count as under way until `stored`.

        Raises: TooBusy, MessageTooLarge, BodyTooSlow, Stopping.
        """
        if not self._begun:
            self._begun = True
            length = self._request.content_length
            if length is not None and length > self._limit_bytes:
                raise _too_large(self._limit_bytes, length)
            await _let_come(self._request)
        async with self._arrival.waiting() as arrived:
            return await self._read(arrived)

    async def _read(self, arrived: Callable[[int], None]) -> bytes:
        content, chunk = self._request.content, bytearray()
        try:
            while len(chunk) < CHUNK_BYTES and (part := await content.read(CHUNK_BYTES - len(chunk))):
                chunk += part
                arrived(len(part))
                self._size += len(part)
                take(self._request, len(part))
                if self._size > self._limit_bytes:
                    raise _too_large(self._limit_bytes, self._size)
            return bytes(chunk)
        except (web.RequestPayloadError, ConnectionError) as error:
            raise web.RequestPayloadError(str(error)) from error.with_traceback(None)
        finally:
            chunk.clear()  # as in `_read_parts`: an error that is kept keeps this frame

    def stored(self, chunk: bytes) -> None:
        """The chunk is not held any more."""
        connection_of(self._request).give_back(len(chunk))


async def _read_parts(request: web.Request, limit_bytes: int, arrived: Callable[[int], None]) -> bytes:
    parts: list[bytes] = []
    size = 0
    content = request.content
    try:
        while not content.at_eof():
            parts.append(await content.readany())
            size += len(parts[-1])
            arrived(len(parts[-1]))
            take(request, len(parts[-1]))
            if size > limit_bytes:
                raise _too_large(limit_bytes, size)
        return b"".join(parts)
    except (web.RequestPayloadError, ConnectionError) as error:
        # Aiohttp keeps the error with the body, and by its frames it would keep the body: so another error is
        # raised from here on.
        raise web.RequestPayloadError(str(error)) from error.with_traceback(None)
    finally:
        parts.clear()


def _too_large(limit_bytes: int, found_bytes: int) -> MessageTooLarge:
    return MessageTooLarge(
        f"the body has at most {limit_bytes} bytes; found {found_bytes}", "body", limit_bytes, found_bytes
    )


def refuse_encoding(request: web.Request) -> None:
    """Bodies are stored and read as they are. Raises: UnsupportedMediaType."""
    encoding = request.headers.get(hdrs.CONTENT_ENCODING)
    if encoding is not None:
        check_encoding(encoding)


def check_encoding(encoding: str) -> None:
    """Refuse a coding; ``identity`` is none (RFC 9110, section 8.4.1). Raises: UnsupportedMediaType."""
    if encoding.strip().lower() != "identity":
        raise UnsupportedMediaType("no Content-Encoding is understood", "Content-Encoding", found=encoding)


async def read_value(
    request: web.Request, decoder: Decoder, limit_bytes: int, timeout_s: float, *, default: bytes = b""
) -> Any:
    """The body decoded by its Content-Type: JSON, also where it has none, or msgpack.

    `default` is decoded (as JSON) where the body is empty, whatever its Content-Type.

    Raises: UnsupportedMediaType, Malformed, InvalidDuplicateId, MessageTooLarge.
    """
    refuse_encoding(request)
    if not default:  # before it is read
        _is_msgpack(request)
    body = await read_body(request, limit_bytes, timeout_s)
    if not body and default:
        return decoder.decode(default, msgpack=False)
    return decoder.decode(body, msgpack=_is_msgpack(request))


async def read_content(request: web.Request, limit_bytes: int, timeout_s: float) -> tuple[bytes, bool]:
    """The body, and whether it is msgpack. Raises: UnsupportedMediaType, Malformed, MessageTooLarge."""
    refuse_encoding(request)
    msgpack = _is_msgpack(request)
    return await read_body(request, limit_bytes, timeout_s), msgpack


def _is_msgpack(request: web.Request) -> bool:
    given = request.headers.get(hdrs.CONTENT_TYPE)
    if given is None:
        return False
    media_type = given.partition(";")[0].strip().lower()
    if media_type == MSGPACK:
        return True
    if media_type == JSON:
        return False
    raise UnsupportedMediaType(f"this call takes {JSON} or {MSGPACK}", "Content-Type", found=given)


def page(request: web.Request, value: object) -> Answer:
    """An answer that may be large, in the form that the client asked for. Raises: TooBusy."""
    made = answer(value, msgpack=wants_msgpack(request))
    take(request, len(made.body))
    return made


def messages_page(
    request: web.Request, messages: Sequence[Delivered], **beside: object
) -> tuple[Answer, Sequence[Delivered]]:
    """An answer with messages in the form that the client asked for, after the keys `beside` them; and these
    messages.

    Only the first messages that fit `PAGE_TEXT_BYTES_MAX` as they are written, one at least.
    """
    msgpack = wants_msgpack(request)
    text = msgpack_messages(messages) if msgpack else json_messages(messages)
    made = answer({**beside, "messages": text}, msgpack=msgpack)
    if len(made.body) > PAGE_TEXT_BYTES_MAX and len(text) > 1:
        messages = messages[: _fitting(text, encode_msgpack if msgpack else encode_json)]
        made = answer({**beside, "messages": text[: len(messages)]}, msgpack=msgpack)
    return made, messages


def _fitting(text: Sequence[object], encode: Callable[[object], bytes]) -> int:
    """The number of these messages that fit a page."""
    sizes = accumulate(len(encode(one)) for one in text)
    return max(1, sum(1 for _ in takewhile(PAGE_TEXT_BYTES_MAX.__ge__, sizes)))


def wants_msgpack(request: web.Request) -> bool:
    """Whether the client asks for msgpack."""
    return MSGPACK in request.headers.get(hdrs.ACCEPT, "")


class Query:
    """The query's parameters: whole numbers within limits, each known by name."""

    def __init__(self, request: web.Request, *names: str) -> None:
        """Raises: Malformed: a parameter that is not one of `names`, or is there twice."""
        self._values: dict[str, str] = {}
        if not request.rel_url.raw_query_string:
            return
        for name, value in request.query.items():
            if name not in names or name in self._values:
                known = ", ".join(names) or "none"
                raise Malformed(f"parameters of this call, at most once each: {known}", name, found=value)
            self._values[name] = value

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Raises: Malformed: not a whole number, or out of ``[least, most]``."""
        given = self._values.get(name)
        if given is None:
            return default
        limit = f"{least}..{most}"
        if not is_whole_number(given.removeprefix("-")):
            raise Malformed(f"{name} is a whole number; found {given}", name, limit, given)
        if not least <= int(given) <= most:
            raise Malformed(f"{name} is {limit}; found {given}", name, limit, int(given))
        return int(given)


def is_whole_number(digits: str) -> bool:
    """ASCII digits only, and few of them: int() takes other scripts, spaces and underscores too."""
    return digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS_MAX
