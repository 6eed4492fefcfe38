"""`GET /v1/link` as the acceptor hands it over: every link that is open here, until the node stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from bridge.clock import Clock
from bridge.link.frames import Hello
from bridge.link.receiving import NodeIdentity
from bridge.link.socket import serve_link
from bridge.ports import Target


class LinkService:
    """Serves links to one node's store."""

    def __init__(
        self,
        make_target: Callable[[Hello], Target],
        identity: NodeIdentity,
        *,
        call_timeout_ms: int,
        clock: Clock,
    ) -> None:
        """`make_target` makes the local target of the bridge that HELLO names."""
        self._make_target = make_target
        self._identity = identity
        self._call_timeout_ms = call_timeout_ms
        self._clock = clock
        self._stopping = asyncio.Event()

    async def serve(self, request: web.Request, _principal: object) -> web.StreamResponse:
        """One link, from the upgrade to its end. Credentials have been checked."""
        return await serve_link(
            request,
            self._make_target,
            identity=self._identity,
            call_timeout_ms=self._call_timeout_ms,
            stopping=self._stopping,
            clock=self._clock,
        )

    def stop(self) -> None:
        """Tell every sender that this node is going down; batches under way are still answered."""
        self._stopping.set()
