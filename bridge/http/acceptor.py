"""The acceptor: the listener on which clients send and read, and other nodes open their links."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from aiohttp import web

from bridge.errors import NotFound
from bridge.http.authentication import Authentication, Principal, User
from bridge.http.describe import Addresses, BridgeState
from bridge.http.limits import Limits
from bridge.http.listener import Bound, Listener
from bridge.http.messages import Messages
from bridge.http.meter import HttpMeter
from bridge.http.queues import Queues
from bridge.http.router import Addition, Router
from bridge.http.transactions import Transactions
from bridge.journal.values.store import Store

#: Takes over a request for ``/v1/link``, or beneath it, from a caller that may open one; returns when it has
#: ended.
Link = Callable[[web.Request, Principal], Awaitable[web.StreamResponse]]


class Links(Protocol):
    """Serves other nodes."""

    async def serve(self, request: web.Request, principal: Principal) -> web.StreamResponse:
        """Take over a request for ``GET /v1/link``."""
        ...

    async def present(self, request: web.Request, principal: Principal) -> web.StreamResponse:
        """Answer ``POST /v1/link/held``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptorOptions:
    """``[acceptor]`` of the settings, with its credentials."""

    url: str
    tokens: Iterable[str] = ()
    users: Iterable[User] = ()
    allowed_origins: Iterable[str] = ()
    ssl_context: ssl.SSLContext | None = None
    limits: Limits = field(default_factory=Limits)
    #: The time in which a request's body has to arrive; the store bounds how long BLOCK holds a POST.
    call_timeout_ms: int = 30_000


class Acceptor:
    """The listener of ``[acceptor]`` of the settings, over a store that is open."""

    def __init__(
        self,
        store: Store,
        options: AcceptorOptions,
        *,
        links: Links | None = None,
        bridge_state: BridgeState = lambda _: ("STOPPED", 0),
        meter: HttpMeter | None = None,
        additions: Iterable[Addition] = (),
    ) -> None:
        """Create the listener, not listening.

        Args:
            store: whatever clients send and read.
            options: the settings.
            links: serves other nodes; None: this node takes no links.
            bridge_state: knows the bridges that read an address.
            meter: counts the requests.
            additions: the calls of the node's extensions.
        """
        limits, ssl_context = options.limits, options.ssl_context
        authentication = Authentication(
            host=urlsplit(options.url).hostname or "127.0.0.1",
            tokens=options.tokens,
            users=options.users,
            allowed_origins=options.allowed_origins,
            client_certificates=ssl_context is not None and ssl_context.verify_mode != ssl.CERT_NONE,
        )
        router = Router()
        body_timeout_s = options.call_timeout_ms / 1000
        _add_messages(router, Messages(store, limits, body_timeout_s))
        transactions = Transactions(store, limits, body_timeout_s)
        router.add("POST", "/v1/transactions", transactions.commit, kind="sends")
        _add_queues(router, Queues(store, body_timeout_s))
        addresses = Addresses(store, bridge_state)
        router.add("GET", "/v1/addresses", addresses.every)
        router.add("GET", "/v1/addresses/{a}", addresses.one)
        router.add("GET", "/v1/link", _link_handler(None if links is None else links.serve), lasting=True)
        router.add("POST", "/v1/link/held", _link_handler(None if links is None else links.present))
        for one in additions:
            router.add(one.method, one.template, one.handler, lasting=one.lasting)
        self._authentication = authentication
        self._listener = Listener(options.url, router, authentication, limits, ssl_context, meter)

    def renew(self, tokens: Iterable[str], users: Sequence[User]) -> None:
        """Accept these callers and no others; links of callers that are gone, or have other rights, end."""
        self._authentication.renew(tokens, users)
        self._listener.share_transit()

    def renew_tokens(self, tokens: Iterable[str], users: Iterable[User]) -> None:
        """Accept these tokens and no others; links that were opened with any other token end."""
        self._authentication.renew_tokens(tokens, users)

    def renew_certificates(self, users: Iterable[User]) -> None:
        """End links that were opened with a client certificate: the authorities may have changed."""
        self._authentication.renew_certificates(users)

    async def start(self) -> Bound:
        """Listen. Raises: OSError: the address cannot be used."""
        return await self._listener.start()

    async def stop(self, timeout_ms: int = 5_000) -> None:
        """Refuse new work with STOPPING, let requests under way end, for at most `timeout_ms` and about a
        second. Links should have been closed by their owner: those that are left are cut.
        """
        await self._listener.stop(timeout_ms / 1000)


def _add_messages(router: Router, messages: Messages) -> None:
    router.add("POST", "/v1/addresses/{a}/messages", messages.send, kind="sends")
    router.add("GET", "/v1/addresses/{a}/messages", messages.browse)
    router.add("GET", "/v1/addresses/{a}/messages/{position}", messages.raw)


def _add_queues(router: Router, queues: Queues) -> None:
    place = "/v1/addresses/{a}/queues/{q}"
    router.add("PUT", place, queues.create)
    router.add("DELETE", place, queues.delete)
    router.add("GET", f"{place}/messages", queues.lease)
    router.add("POST", f"{place}/acknowledge", queues.acknowledge)
    router.add("POST", f"{place}/release", queues.release)


def _link_handler(link: Link | None) -> Link:
    async def open_link(request: web.Request, principal: Principal) -> web.StreamResponse:
        principal.check_link()
        if link is None:
            raise NotFound("this node takes no links")
        return await link(request, principal)

    return open_link
