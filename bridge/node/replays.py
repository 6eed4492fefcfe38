"""Replays as an extension of the node: the service that sends plans again, and its call."""

from __future__ import annotations

from collections.abc import Iterable

from bridge.assembly.replays import replay_routes, replay_service
from bridge.http.replaying import replay_route
from bridge.http.router import Addition
from bridge.node.extension import Extension, NodeServices
from bridge.replay.plans import ReplayService


class Replays(Extension):
    """``POST /v1/replays`` for the bridges of the settings."""

    def __init__(self) -> None:
        #: None until the journal is open.
        self.service: ReplayService | None = None
        self._node: NodeServices

    def operations_routes(self) -> Iterable[Addition]:
        """The one call."""
        yield replay_route(lambda: self.service)

    async def start(self, node: NodeServices) -> None:
        """Make the service: its ends are made for each call."""
        self._node = node
        self.service = replay_service(node.settings, node.assembly)

    def reloaded(self) -> None:
        """Take plans for the bridges of the settings as they are now."""
        if self.service is not None:
            self.service.routes = replay_routes(self._node.settings, self._node.assembly)
