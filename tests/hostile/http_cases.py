"""What a hostile client does over HTTP: each case is a name, what it does, and how the node may answer."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from tests.hostile.http_peer import PATIENCE_S, Client, request
from tests.hostile.link_cases import MIB, TOKEN, Case

SEND: Final = "/v1/addresses/orders/messages"
QUEUE: Final = "/v1/addresses/orders/queues/q"
PAGES: Final = "/v1/addresses/orders.pages/messages"
MANY: Final = "/v1/transactions"
#: Answers of a node that is well: to what it can take, and to what is wrong with a request.
TAKEN: Final = ("200", "201", "204")
WRONG: Final = ("400", "403", "404", "405", "409", "413", "415", "431")
#: An address of `orders.#` is full now and then, and so is the transit.
BUSY: Final = ("503",)
#: Long enough for an answer that may come or not.
MOMENT_S: Final = 0.05
ANY: Final = (*TAKEN, *WRONG, *BUSY)
_MSGPACK: Final = b"Content-Type: application/msgpack"


def _case(name: str, act: Callable[[Client], str], ends: tuple[str, ...], token: str = TOKEN) -> Case:
    def attack(port: int) -> str:
        client = Client(port, token)
        try:
            return act(client)
        finally:
            client.close()

    return Case(f"HTTP: {name}", attack, ends)


def _lingering(name: str, act: Callable[[Client], None]) -> Case:
    """One that stays open and still when it is over."""

    def attack(port: int) -> str:
        client = Client(port, TOKEN)
        act(client)
        client.stay()
        return "stays"

    return Case(f"HTTP: {name}, and stays", attack)


def _says(data: bytes, patience_s: float = PATIENCE_S) -> Callable[[Client], str]:
    """Bytes instead of a request; ``HONEST`` in them stands for honest header lines. Then it reads."""

    def act(client: Client) -> str:
        client.raw(data.replace(b"HONEST", client.honest))
        return client.answer(patience_s)

    return act


def _asks(method: str, path: str, body: bytes = b"", *lines: bytes) -> Callable[[Client], str]:
    return lambda client: client.ask(method, path, body, *lines)


# -- out of turn ---------------------------------------------------------------------------------------------

_POST: Final = b"POST " + SEND.encode() + b" HTTP/1.1\r\nHONEST"
_OUT_OF_TURN: Final[dict[str, bytes]] = {
    "an answer": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "a body without a request": b'{"messages":[]}\r\n\r\n',
    "a chunk without a request": b"5\r\nhello\r\n0\r\n\r\n",
    "a TLS greeting": bytes.fromhex("16030100a5010000a10303") + bytes(160),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(64),
    "another version": _POST.replace(b"1.1", b"9.9") + b"\r\n",
    "a WebSocket frame without an upgrade": b"\x82\xfe\xff\xff" + bytes(1000),
    "CONNECT": b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHONEST\r\n",
    "an upgrade to nothing": b"GET /v1/link HTTP/1.1\r\nHONESTConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
    "an upgrade of a send": _POST
    + b"Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n\r\nx",
    "nulls": bytes(4096),
    "line ends": b"\r\n" * 4096,
    "no host": b"GET /v1/addresses HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /v1/addresses HTTP/1.1\r\nHONESTHost: localhost\r\n\r\n",
    "a folded header": _POST + b"X-A: b\r\n c\r\nContent-Length: 0\r\n\r\n",
    "a header without a name": _POST + b": b\r\nContent-Length: 0\r\n\r\n",
    "a space before the colon": _POST + b"Content-Length : 1\r\n\r\nx",
    "a carriage return in a value": _POST + b"X-A: b\rc\r\nContent-Length: 0\r\n\r\n",
}


def _settles(how: str, times: int) -> Callable[[Client], str]:
    """A lease that is settled more often than it was had."""

    def act(client: Client) -> str:
        client.ask("PUT", QUEUE)
        client.ask("POST", SEND, b"x")
        client.ask("GET", f"{QUEUE}/messages?max=1&lease=1000")
        lease = json.loads(client.body)["lease"]
        body = json.dumps({"lease": lease or "none"}).encode()
        return [client.ask("POST", f"{QUEUE}/{how}", body) for _ in range(times)][-1]

    return act


def _expects(client: Client) -> str:
    """Ask whether to go on, and then do not."""
    client.raw(b"POST " + SEND.encode() + b" HTTP/1.1\r\n" + client.honest)
    client.raw(b"Expect: 100-continue\r\nContent-Length: 10\r\n\r\n")
    return client.answer()


def out_of_turn() -> Iterator[Case]:
    """What no request begins with, and calls before or after those that they need."""
    for name, data in _OUT_OF_TURN.items():
        yield _case(name, _says(data, MOMENT_S), (*TAKEN, *WRONG, "GONE", "NOTHING"))
    for how in ("acknowledge", "release"):
        yield _case(f"{how} twice", _settles(how, 2), ("409",))
        yield _case(f"{how} of no lease", _asks("POST", f"{QUEUE}/{how}", b'{"lease":"x"}'), ("404", "409"))
    yield _case("a body that is promised and does not come", _expects, ("100",))
    yield _case("DELETE of no queue", _asks("DELETE", "/v1/addresses/orders/queues/none"), ("404",))
    yield _case("DELETE of another's", _asks("DELETE", "/v1/addresses/payments/queues/none"), ("403",))
    for method in ("PATCH", "TRACE", "OPTIONS", "PUT", "DELETE"):
        yield _case(f"{method} of a transaction", _asks(method, MANY), ("404", "405"))


# -- lies about length -------------------------------------------------------------------------------------

_LENGTHS: Final = (
    "-1", "+1", "0x1", "1, 1", "1 1", "", " ", "a", "1.0", "1e3", "18446744073709551616", "9" * 400, "\u0661",
)  # fmt: skip
_CHUNKS: Final[dict[str, bytes]] = {
    "that never ends": b"ffffffffffffffff\r\nx",
    "of more than there is": b"5\r\nx\r\n0\r\n\r\n",
    "of less than there is": b"1\r\nxxxxx\r\n0\r\n\r\n",
    "with a negative size": b"-1\r\nx\r\n0\r\n\r\n",
    "with a size that is none": b"xyz\r\nx\r\n0\r\n\r\n",
    "without a size": b"\r\nx\r\n0\r\n\r\n",
    "with an extension of 64 KiB": b"1;" + b"e" * 65_536 + b"\r\nx\r\n0\r\n\r\n",
    "with a size of 64 KiB": b"0" * 65_536 + b"1\r\nx\r\n0\r\n\r\n",
    "without an end": b"1\r\nx\r\n",
    "with line feeds alone": b"1\nx\n0\n\n",
    "with 10,000 trailers": b"1\r\nx\r\n0\r\n" + b"X-T: y\r\n" * 10_000 + b"\r\n",
    "10,000 times a byte": b"1\r\nx\r\n" * 10_000 + b"0\r\n\r\n",
}
_CODINGS: Final = (
    "gzip, chunked",
    "chunked, chunked",
    "gzip",
    "identity",
    "xchunked",
    "chunked, gzip",
    ",",
    "",
)


def lengths() -> Iterator[Case]:
    """Content-Length, chunks and transfer codings that do not say what comes."""
    framed = (*TAKEN, *WRONG, *BUSY, "501", "GONE", "NOTHING")
    for value in _LENGTHS:
        data = _POST + b"Content-Length: " + value.encode() + b"\r\n\r\nx"
        yield _case(f"Content-Length {value!r:.30}", _says(data), ("400", "GONE", "200", "431"))
    yield _case("less than it says", _says(_POST + b"Content-Length: 100\r\n\r\nx", MOMENT_S), ("NOTHING",))
    more = _POST + b"Content-Length: 1\r\n\r\nxGET / HTTP/1.1\r\n\r\n"
    yield _case("more than it says", _says(more), ("200", "400", *BUSY))
    for pair in itertools.permutations((b"1", b"2"), 2):
        two = b"".join(b"Content-Length: " + one + b"\r\n" for one in pair)
        yield _case(f"two lengths, {pair[0]!r} first", _says(_POST + two + b"\r\nx"), ("400", "GONE"))
    for name, chunks in _CHUNKS.items():
        data = _POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks
        yield _case(f"a chunk {name}", _says(data, MOMENT_S), framed)
    for coding in _CODINGS:
        head = _POST + b"Transfer-Encoding: " + coding.encode() + b"\r\n"
        yield _case(f"Transfer-Encoding {coding!r}", _says(head + b"\r\n1\r\nx\r\n0\r\n\r\n"), ("400", "501"))
        both = head + b"Content-Length: 1\r\n\r\n1\r\nx\r\n0\r\n\r\n"
        yield _case(f"Transfer-Encoding {coding!r} and a length", _says(both), ("400", "501"))


# -- odd values --------------------------------------------------------------------------------------------

ODD: Final[tuple[Any, ...]] = (
    None, -1, 2**53 + 1, 2**63, 2**64, 1.5, "", "x" * 20_000, "\u0000", "\ud7ff\U0010ffff", [], [[[]]], {},
    {"base64": "?"}, {"base64": "/w=="}, {"base64": 1, "x": 2}, True, ["x"] * 1000, "$sf.hub", "a/b", "..",
)  # fmt: skip
_MESSAGE_KEYS: Final = ("address", "body", "body-base64", "key", "headers", "duplicate-id", "timestamp", "x")
_UNIT_KEYS: Final = ("messages", "duplicate-id", "on-duplicate", "acknowledge", "x")
_SETTLED_KEYS: Final = ("address", "queue", "lease", "upto", "x")
_MESSAGE: Final = {"address": "orders", "body": "x"}
_SETTLED: Final = {"address": "orders", "queue": "q", "lease": "x"}


def odd_fields() -> Iterator[Case]:
    """Every field of every body, in JSON and msgpack, and every parameter, with values of every kind."""
    for key, value in itertools.product(_MESSAGE_KEYS, ODD):
        yield from _in_both(f"messages.{key}={value!r:.20}", MANY, {"messages": [_MESSAGE | {key: value}]})
    for key, value in itertools.product(_UNIT_KEYS, ODD):
        yield from _in_both(f"{key}={value!r:.20}", MANY, {"messages": [_MESSAGE]} | {key: value})
    for key, value in itertools.product(_SETTLED_KEYS, ODD):
        unit = {"acknowledge": [_SETTLED | {key: value}]}
        yield from _in_both(f"acknowledge.{key}={value!r:.20}", MANY, unit)
    for place, value in itertools.product((f"{QUEUE}/acknowledge", f"{QUEUE}/release"), ODD):
        yield from _in_both(f"lease={value!r:.20}", place, {"lease": value})
        yield from _in_both(f"upto={value!r:.20}", place, {"lease": "x", "upto": value})
    for value in ODD:
        yield from _in_both(f"from={value!r:.20}", QUEUE, {"from": value}, method="PUT")
        yield from _in_both(f"a whole body {value!r:.20}", MANY, value)
    for name, text in itertools.product(("max", "wait", "lease", "after", "x"), _NUMBERS):
        for path in (f"{QUEUE}/messages", SEND):
            yield _case(f"{path}?{name}={text:.20}", _asks("GET", f"{path}?{name}={text}"), ANY)


_NUMBERS: Final = (
    "-1",
    "0",
    "1",
    "1001",
    "9" * 18,
    "9" * 400,
    "1.5",
    "1e3",
    "%00",
    "%ff",
    "%d9%a1",
    "",
    "+1",
    "1_0",
)


def _in_both(name: str, path: str, value: Any, method: str = "POST") -> Iterator[Case]:
    text = json.dumps(value).encode()
    yield _case(f"JSON {name}", _asks(method, path, text, b"Content-Type: application/json"), ANY)
    try:
        packed = msgspec.msgpack.encode(value)
    except OverflowError:
        return
    yield _case(f"msgpack {name}", _asks(method, path, packed, _MSGPACK), ANY)


_READ: Final = (
    "Host", "Origin", "Authorization", "Accept", "Content-Type", "Content-Encoding", "Connection", "Expect",
    "Idempotency-Key", "Duplicate-Id", "_AMQ_DUPL_ID", "Message-Key", "Message-Timestamp", "Message-Header-x",
    "ce-id", "ce-source", "traceparent",
)  # fmt: skip
_VALUES: Final = (
    b"", b"\xff", b"\xc3", b"x" * 15_000, b'"', b'"a', b'"a"b', b"\\", b"%00", b"-1", b"9" * 100, b"1" * 18,
    b"a, b", b"Bearer", b"Bearer x", b"application/msgpack", b"100-continue", b"gzip", b"http://evil.example",
    b"localhost",
)  # fmt: skip


def odd_headers() -> Iterator[Case]:
    """Every header that a node reads, with values of every kind, instead of the honest one and beside it."""
    for name, value in itertools.product(_READ, _VALUES):
        line = name.encode() + b": " + value
        for path, body in ((SEND, b"x"), (MANY, b'{"messages":[]}')):
            asked = _asks("POST", path, body, line)
            yield _case(f"{name}: {value!r:.20} to {path}", asked, (*ANY, "401", "100"))


# -- too much ----------------------------------------------------------------------------------------------


def _deep(opening: bytes, closing: bytes, depth: int) -> bytes:
    return opening * depth + closing * depth


_LARGE: Final[dict[str, tuple[str, bytes, bytes]]] = {
    "arrays in arrays": (MANY, _deep(b"[", b"]", 100_000), b"X: y"),
    "objects in objects": (MANY, b'{"messages":' * 50_000, b"X: y"),
    "msgpack arrays in arrays": (MANY, b"\x91" * 100_000 + b"\xc0", _MSGPACK),
    "a msgpack list of 2^32 entries": (MANY, b"\x81\xa8messages\xdd\xff\xff\xff\xff\xc0", _MSGPACK),
    "a msgpack map of 2^32 entries": (MANY, b"\xdf\xff\xff\xff\xff\xa1x", _MSGPACK),
    "a msgpack body of 4 GiB": (MANY, b"\x81\xa8messages\x91\x81\xa4body\xc6\xff\xff\xff\xffx", _MSGPACK),
    "a number of 100,000 digits": (MANY, b'{"messages":[{"timestamp":' + b"9" * 100_000 + b"}]}", b"X: y"),
    "10,001 messages": (
        MANY, json.dumps({"messages": [_MESSAGE] * 10_001}).encode(), b"X: y",
    ),
    "10,001 acknowledgements": (
        MANY, json.dumps({"acknowledge": [_SETTLED] * 10_001}).encode(), b"X: y",
    ),
    "a million small messages": (
        MANY,
        b"\x81\xa8messages\xdd\x00\x0f\x42\x40" + b"\x82\xa7address\xa1a\xa4body\xa0" * 1_000_000,
        _MSGPACK,
    ),
    "headers of 8 MiB": (
        MANY, json.dumps({"messages": [_MESSAGE | {"headers": {"h": "v" * (8 * MIB)}}]}).encode(), b"X: y",
    ),
    "a million headers": (
        MANY,
        b'{"messages":[{"address":"orders","body":"","headers":{"h":[' + b'"",' * 1_000_000 + b'""]}}]}',
        b"X: y",
    ),
    "a key of 8 MiB": (
        MANY, json.dumps({"messages": [_MESSAGE | {"key": "k" * (8 * MIB)}]}).encode(), b"X: y",
    ),
    "a body of 17 MiB": (SEND, bytes(17 * MIB), b"X: y"),
    "a transaction of 65 MiB": (MANY, bytes(65 * MIB), b"X: y"),
    "a question of 2 MiB": ("/v1/link/held", bytes(2 * MIB), _MSGPACK),
    "a queue's body of 1 MiB": (f"{QUEUE}/acknowledge", bytes(MIB), b"X: y"),
}  # fmt: skip


def _chunked_without_end(client: Client) -> str:
    """Chunks of a MiB for as long as they are taken."""
    client.raw(
        b"POST " + SEND.encode() + b" HTTP/1.1\r\n" + client.honest + b"Transfer-Encoding: chunked\r\n\r\n"
    )
    chunk = b"100000\r\n" + bytes(MIB) + b"\r\n"
    for _ in range(40):
        if not client.raw(chunk):
            break
    return client.answer()


def _pipelined(times: int, data: bytes) -> Callable[[Client], None]:
    """So many requests at once, none of whose answers is read."""

    def act(client: Client) -> None:
        client.raw((data.replace(b"HONEST", client.honest)) * times)

    return act


def _fill(client: Client) -> str:
    """Messages of a MiB, as many as a page takes."""
    return [client.ask("POST", PAGES, bytes(MIB)) for _ in range(15)][-1]


def _page(client: Client) -> None:
    """A page of 15 MiB, which is not read."""
    client.raw(request("GET", PAGES + "?max=1000", client.honest + b"Accept: application/msgpack\r\n", b""))


def too_much() -> Iterator[Case]:
    """Bodies, headers, paths and numbers of requests above every limit."""
    for name, (path, body, line) in _LARGE.items():
        yield _case(name, _asks("POST", path, body, line), ("400", "413", "503", "GONE"))
    yield _case("chunks without end", _chunked_without_end, ("413", "503", "GONE"))
    yield _case(
        "a request line of 1 MiB", _says(b"GET /" + b"x" * MIB + b" HTTP/1.1\r\n\r\n"), ("431", "400", "GONE")
    )
    yield _case("a header of 1 MiB", _says(_POST + b"X: " + b"y" * MIB + b"\r\n\r\n"), ("431", "400", "GONE"))
    many = b"".join(b"X-%d: y\r\n" % number for number in range(5000))
    yield _case("5,000 headers", _says(_POST + many + b"\r\n"), ("431", "400", "GONE"))
    yield _case("a path of 3,000 segments", _asks("GET", "/a" * 3000), ("404",))
    yield _case(
        "a query of 5,000 parameters", _asks("GET", f"{SEND}?" + "&".join(["max=1"] * 1000)), ("400",)
    )
    post = _POST + b"Content-Length: 1000\r\n\r\n" + bytes(1000)
    yield _lingering("1,000 sends at once", _pipelined(1000, post))
    yield _lingering(
        "1,000 pages at once", _pipelined(1000, b"GET " + SEND.encode() + b" HTTP/1.1\r\nHONEST\r\n")
    )
    yield _case("messages for a page", _fill, ("200", *BUSY))
    for _ in range(8):
        yield _lingering("a page that is not read", _page)


# -- half open, and slow -----------------------------------------------------------------------------------

_HALVES: Final[dict[str, bytes]] = {
    "nothing": b"",
    "half a method": b"PO",
    "half a line": b"POST /v1/addr",
    "half a header": _POST + b"Conte",
    "headers without an end": _POST + b"X: y\r\n",
    "half a body": _POST + b"Content-Length: 1000000\r\n\r\n" + bytes(500_000),
    "a body of which nothing comes": _POST + b"Content-Length: 1000000\r\n\r\n",
    "half a chunk": _POST + b"Transfer-Encoding: chunked\r\n\r\nfffff\r\n" + bytes(500_000),
    "half a transaction": b"POST /v1/transactions HTTP/1.1\r\nHONESTContent-Length: 100\r\n\r\n{",
    "a long poll": b"GET " + QUEUE.encode() + b"/messages?wait=60000 HTTP/1.1\r\nHONEST\r\n",
    "half an upgrade": b"GET /v1/link HTTP/1.1\r\nHONESTUpgrade: websocket\r\nConnec",
}


def _finishes(data: bytes) -> Callable[[Client], str]:
    def act(client: Client) -> str:
        client.raw(data.replace(b"HONEST", client.honest))
        client.finish()
        return client.answer()

    return act


def half_open() -> Iterator[Case]:
    """Requests that stop: their connection ends, ends on one side, or stays as it is."""

    def left(data: bytes) -> Callable[[Client], str]:
        return lambda client: "left" if client.raw(data.replace(b"HONEST", client.honest)) else "GONE"

    for name, data in _HALVES.items():
        yield _case(f"{name}, and it leaves", left(data), ("left",))
        if "poll" not in name:
            yield _case(f"{name}, and says no more", _finishes(data), ("GONE", "400"))
        yield _lingering(name, _pipelined(1, data))


# -- another's names ---------------------------------------------------------------------------------------


def names() -> Iterator[Case]:
    """What the user may not touch, what no one may, and callers that are not known."""
    for address in ("payments", "dead-letters", "clients", "bridged", "Orders"):
        yield _case(
            f"a send to {address}", _asks("POST", f"/v1/addresses/{address}/messages", b"x"), ("403",)
        )
        unit = json.dumps({"messages": [_MESSAGE, {"address": address, "body": "x"}]}).encode()
        yield _case(f"a transaction to {address}", _asks("POST", MANY, unit), ("403",))
        for method, rest in (
            ("GET", "/messages"), ("GET", "/messages/0"), ("GET", ""), ("PUT", "/queues/q"),
            ("DELETE", "/queues/q"), ("GET", "/queues/q/messages"), ("POST", "/queues/q/acknowledge"),
            ("POST", "/queues/q/release"),
        ):  # fmt: skip
            yield _case(
                f"{method} of {address}{rest}", _asks(method, f"/v1/addresses/{address}{rest}"), ("403",)
            )
    for address in (
        "$sf.hub",
        "$replay",
        "core-bridge.x",
        "a b",
        "%00",
        "..",
        ".",
        "%2e%2e",
        "a%2fb",
        "x" * 250,
    ):
        for method, rest in (("POST", "/messages"), ("PUT", "/queues/q"), ("GET", "/queues/q/messages")):
            path = f"/v1/addresses/{address}{rest}".replace(" ", "%20")
            yield _case(f"{method} of {address[:20]}{rest}", _asks(method, path), ("400",))
    for path in ("/", "/v1", "/v1/addresses/", "//v1/addresses", "/v1/status", "/metrics", "/v1/link/x", "*"):
        yield _case(f"GET of {path}", _asks("GET", path), ("400", "404"))
    for token in ("", "x", TOKEN[:-1], TOKEN + "x", "s3cret-honest "[:-2], base64.b64encode(b"a:b").decode()):
        yield _case(f"the token {token!r}", _asks("POST", SEND, b"x"), ("401",), token)
    yield _case("another's origin", _asks("POST", SEND, b"x", b"Origin: http://evil.example"), ("403",))


def quick_cases() -> list[Case]:
    """All that take no time."""
    return [*out_of_turn(), *lengths(), *odd_fields(), *odd_headers(), *half_open(), *names()]
