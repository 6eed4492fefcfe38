"""`GET /v1/link` as the acceptor hands it over: every link that is open here, until the node stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog
from aiohttp import web

from bridge.errors import Stopping
from bridge.http.answers import Answer, answer
from bridge.http.authentication import Principal
from bridge.http.bodies import read_value, wants_msgpack
from bridge.http.codec import Decoder
from bridge.http.handshakes import Handshake, Handshakes
from bridge.link.correspondent import LinkEnd
from bridge.link.duplicate_query import QUESTION_MOST, BoundedQuestion
from bridge.link.frames import Hello
from bridge.link.machine import Ending
from bridge.link.receiving import NodeIdentity
from bridge.link.room import LinkRoom
from bridge.link.socket import serve_link
from bridge.relay.counts import Traffic
from bridge.replay.node_presence import Present, Question
from bridge.runtime.clock import Clock

_QUESTION: Final = Decoder(BoundedQuestion)
_log: Final = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class OpenLink:
    """A bridge of another node that is connected to this one."""

    bridge: str
    #: The name of its node, by its HELLO.
    node: str
    #: Name of the caller.
    user: str
    #: The address that its connection comes from.
    peer: str
    #: Wall clock, ms.
    since_ms: int
    #: What has come over it.
    traffic: Traffic


class LinkService:
    """Serves links to one node's store."""

    def __init__(
        self,
        make_end: Callable[[Hello, Principal], LinkEnd],
        identity: NodeIdentity,
        *,
        call_timeout_ms: int,
        clock: Clock,
        answer: Callable[[Question], Awaitable[Present]],
        max_link_bytes: int,
    ) -> None:
        """`make_end` makes this node's end of the link of the bridge that HELLO names, for the caller.

        `answer` says which messages are here. `max_link_bytes`: memory that batches of all links may take
        (`max-link-size`).
        """
        self._make_end = make_end
        self._identity = identity
        self._call_timeout_ms = call_timeout_ms
        self._clock = clock
        self._answer = answer
        self._room = LinkRoom(max_link_bytes)
        self._handshakes = Handshakes()
        self._stopping = asyncio.Event()
        #: Links that are open.
        self.open: dict[OpenLink, None] = {}
        #: Links that were opened since the node started.
        self.opened = 0
        #: What has come over links that have ended.
        self._ended = Traffic()

    def received(self) -> Traffic:
        """The bytes that have come over all links since the node started."""
        total = Traffic()
        for traffic in (self._ended, *(link.traffic for link in self.open)):
            total.count(traffic.frame_bytes, traffic.wire_bytes)
        return total

    async def serve(self, request: web.Request, principal: Principal) -> web.StreamResponse:
        """Serve one link, from the upgrade to its end. Credentials have been checked.

        Raises: TooBusy, Stopping, Malformed.
        """
        handshake = await self._handshakes.begin()
        try:
            if self._stopping.is_set():
                raise Stopping("the node is going down")
            return await self._serve(request, principal, handshake)
        finally:
            handshake.end()

    async def _serve(
        self, request: web.Request, principal: Principal, handshake: Handshake
    ) -> web.StreamResponse:
        peer, traffic = request.remote or "", Traffic()
        link: OpenLink | None = None

        def make_end(hello: Hello) -> LinkEnd:
            nonlocal link
            end = self._make_end(hello, principal)
            since_ms = self._clock.wall_ms()
            link = OpenLink(hello.bridge, hello.node_name, principal.name, peer, since_ms, traffic)
            self.open[link] = None
            self.opened += 1
            handshake.end()
            _log.info("link-opened", bridge=link.bridge, peer_node=link.node, user=link.user, peer=link.peer)
            return end

        def ended(ending: Ending) -> None:
            reason = f"{ending.code}: {ending.detail}"
            if link is None:
                _log.warning("link-refused", user=principal.name, peer=peer, reason=reason)
                return
            del self.open[link]
            self._ended.count(traffic.frame_bytes, traffic.wire_bytes)
            _log.info(
                "link-closed",
                bridge=link.bridge,
                peer_node=link.node,
                user=link.user,
                peer=link.peer,
                reason=reason,
            )

        return await serve_link(
            request,
            make_end,
            identity=self._identity,
            call_timeout_ms=self._call_timeout_ms,
            endings=(
                (self._stopping, "the node is going down"),
                (principal.revoked, "the credentials that opened the link hold no longer"),
            ),
            clock=self._clock,
            on_end=ended,
            room=self._room,
            traffic=traffic,
        )

    async def present(self, request: web.Request, principal: Principal) -> Answer:
        """Handles ``POST /v1/link/held``: which of the messages that are to be sent again this node has.

        Raises: UnsupportedMediaType, MessageTooLarge, Malformed, Forbidden, JournalUnavailable.
        """
        question: Question = await read_value(request, _QUESTION, QUESTION_MOST, self._call_timeout_ms / 1000)
        principal.check_deliver(question.address)
        return answer(await self._answer(question), msgpack=wants_msgpack(request))

    def stop(self) -> None:
        """Tell every sender that this node is going down; batches under way are still answered."""
        self._stopping.set()
