"""`[acceptor]` and `[operations]`: the listeners of this node, and the rights of their callers."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator

from bridge.settings import urls
from bridge.settings.fields import (
    AddressPattern,
    BodySizeBytes,
    Count,
    Flag,
    NotEmpty,
    OptionalToken,
    PemFile,
    PositiveTimeMs,
    SizeBytes,
    Table,
    Token,
    WholeSizeBytes,
    setting,
)
from bridge.settings.urls import Endpoint

_ORIGIN: Final = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+")


def _acceptor_url(value: str) -> str:
    urls.listening(value, "ws", "wss")
    return value


def _operations_url(value: str) -> str:
    urls.listening(value, "http")
    return value


def _origin(value: str) -> str:
    if value != "*" and not _ORIGIN.fullmatch(value):
        raise ValueError('must be an origin such as "https://app.example", or "*" for any')
    return value


class User(Table):
    """A user with rights of its own: a token or a client certificate, or either."""

    name: NotEmpty = setting("Appears in logs; the token never does.")
    token: OptionalToken = setting("The user's bearer token; or certificate-name.", "", repr=False)
    certificate_name: str = setting(
        "Common or alternative name of the user's client certificate; needs client-ca.", ""
    )
    send: tuple[AddressPattern, ...] | None = setting(
        "Addresses the user may send to; wildcards '*' (one word) and '#' (any). Where it is not given, the"
        " user may send to none, and a node link of link = true delivers to every address.",
        None,
    )
    receive: tuple[AddressPattern, ...] = setting("Addresses the user may read, with the same wildcards.", ())
    delete_queues: tuple[AddressPattern, ...] = setting(
        "Addresses whose queues the user may delete, with the messages that only they hold, or give another "
        "filter; with the same wildcards.",
        (),
    )
    link: Flag = setting(
        "Whether the user may open a node link, as bridges do; where send is given, it delivers only there.",
        False,
    )


class Acceptor(Table):
    """The listener on which messages come in."""

    url: Annotated[str, AfterValidator(_acceptor_url)] = setting(
        "Serves HTTP and the node link. wss:// needs certificate and key; port 0 takes a free one.",
        "ws://127.0.0.1:61616",
    )
    certificate: PemFile = setting("PEM file of the server's certificate chain.", "")
    key: PemFile = setting("PEM file of its key.", "")
    client_ca: PemFile = setting(
        "PEM file of the authorities of client certificates; turns on mutual TLS.", ""
    )
    insecure: Flag = setting("Allows ws:// off loopback, where TLS is ended in front of this node.", False)
    tokens: tuple[Token, ...] = setting(
        "Bearer tokens with every right. Off loopback every request needs one of these, a user or "
        "a client certificate.",
        (),
        repr=False,
    )
    allowed_origins: tuple[Annotated[str, AfterValidator(_origin)], ...] = setting(
        'Origin headers of browsers that may call, as "https://app.example".', ()
    )
    max_message_size_bytes: BodySizeBytes = setting(
        "Largest message; at most 1GiB. Above it: 413 MESSAGE_TOO_LARGE.", "16MiB"
    )
    min_large_message_size_bytes: WholeSizeBytes = setting(
        "From here on a message's body is stored in chunks as it comes, and travels in them; at most 64MiB.",
        "1MiB",
    )
    max_headers_size_bytes: SizeBytes = setting(
        "Largest headers of a request. Above it: 431 HEADERS_TOO_LARGE.", "16KiB"
    )
    max_duplicate_id_size_bytes: SizeBytes = setting("Longest duplicate ID that a producer may set.", "1KiB")
    max_requests: Count = setting(
        "Requests in progress, sends, reads and settlements each; beyond it 503 TOO_BUSY.", 512
    )
    max_held_requests: Count = setting(
        "Sends that are held until a full address or disk has room, at most half of max-requests; one "
        "more is refused at once.",
        256,
    )
    max_held_size_bytes: SizeBytes = setting("Bytes of their messages.", "64MiB")
    max_transit_size_bytes: SizeBytes = setting(
        "Bytes of all bodies that are coming in and pages that are going out; beyond it 503 TOO_BUSY. One "
        "alone is always taken; a user has at most half where there are other callers.",
        "256MiB",
    )
    max_connections: Count = setting("Open connections, node links included.", 1000)
    call_timeout_ms: PositiveTimeMs = setting(
        "Longest that a send is held: by BLOCK, where a bridge that reads the address may say less, and by a "
        "full disk. Also the longest wait for a link's HELLO. A request's body has to come at 100 bytes a "
        "second at least, over twice as long.",
        30_000,
    )
    max_link_size_bytes: SizeBytes = setting(
        "Bytes of frames that come over all node links, from their header on, and of batches that are not "
        "stored; beyond it no frame begins.",
        "256MiB",
    )
    compression: Literal["auto", "off"] = setting(
        "Whether node links may bring batches compressed with zstd: auto takes them, off does not.", "auto"
    )
    max_addresses: Count = setting(
        "Addresses that there may be before clients and links make no more: 404 ADDRESS_NOT_FOUND.",
        10_000,
    )
    max_queues: Count = setting(
        "Readers' queues of all addresses before clients make no more: 409 CONFLICT.", 10_000
    )
    users: tuple[User, ...] = setting("Users with rights of their own, any number.", ())

    @property
    def endpoint(self) -> Endpoint:
        """Scheme, host and port of `url`."""
        return urls.listening(self.url, "ws", "wss")


class Operations(Table):
    """The listener for operators and probes."""

    url: Annotated[str, AfterValidator(_operations_url)] = setting(
        "Serves /ping, /ready, /metrics and management; port 0 takes a free one.", "http://127.0.0.1:8161"
    )
    tokens: tuple[Token, ...] = setting(
        "Bearer tokens for management; required off loopback. /ping, /ready and /metrics never need one.",
        (),
        repr=False,
    )
    partition_metrics: Flag = setting(
        "Whether /metrics has position, end and lag of each partition that a bridge reads from Kafka.", False
    )

    @property
    def endpoint(self) -> Endpoint:
        """Scheme, host and port of `url`."""
        return urls.listening(self.url, "http")
