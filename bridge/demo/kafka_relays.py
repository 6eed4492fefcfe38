"""The Kafka demo's relays: two processes with one bridge, of which one at a time has its lane."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from bridge.client.node_client import NodeClient, Problem, Unreachable
from bridge.demo.nodes import LOOK_AGAIN_S, DemoFailed, NodeProcess
from bridge.demo.ports import HOST

#: Longest that a lane may stay without an owner, in seconds: several times a session.
TAKEN_WITHIN_S: Final = 60.0
#: The least session timeout that Kafka's brokers take by default: a lane moves after its owner's silence of
#: so long.
SESSION_TIMEOUT_MS: Final = 6_000

_SETTINGS: Final = """\
[node]
name = "{name}"
data-directory = "{name}-data"
log-format = "json"

[operations]
url = "http://{host}:{operations_port}"

[duplicate-detection]
id-cache-size = {id_cache_size}

[connectors.source]
url = "kafka://{source}"

[connectors.target]
url = "kafka://{target}"

[connectors.target.kafka]
session-timeout-ms = {session_timeout_ms}

[[bridges]]
name = "{bridge}"
source-connector = "source"
queue-name = "{topic}"
static-connectors = ["target"]
dead-letter-address = ""
retry-interval = 100
max-retry-interval = 500
"""


@dataclass(frozen=True, slots=True)
class Route:
    """The topic that the bridge relays, and the two clusters."""

    bridge: str
    topic: str
    #: ``host:port,host:port``.
    source: str
    target: str


class Relay(NodeProcess):
    """One of the two relays."""

    def configure(self, route: Route, id_cache_size: int) -> None:
        """Write the settings file: the same for both, but for names, directories and ports."""
        text = _SETTINGS.format(
            name=self.name,
            host=HOST,
            operations_port=self.operations_port,
            id_cache_size=id_cache_size,
            source=route.source,
            target=route.target,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            bridge=route.bridge,
            topic=route.topic,
        )
        self.settings.write_text(text, encoding="utf-8")

    async def has_lane(self) -> bool:
        """Whether it relays now. Raises: DemoFailed: its bridge is FAILED."""
        async with NodeClient(self.operations) as operations:
            try:
                status: dict[str, Any] = (await operations.call("GET", "/v1/status")).body
            except (Problem, Unreachable):
                return False
        (bridge,) = status["bridges"]
        if bridge["state"] == "FAILED":
            raise DemoFailed(f"{self.name}: {bridge['reason']}", self.log_end())
        # A relay that waits for a lane is RUNNING too, and says so.
        return bridge["state"] == "RUNNING" and bridge["reason"] is None


async def owner(relays: Sequence[Relay]) -> Relay:
    """The relay that has the lane, as soon as one has. Raises: DemoFailed."""
    deadline = time.monotonic() + TAKEN_WITHIN_S
    while time.monotonic() < deadline:
        for relay in relays:
            if await relay.has_lane():
                return relay
        await asyncio.sleep(LOOK_AGAIN_S)
    logs = "\n".join(relay.log_end() for relay in relays)
    raise DemoFailed(f"no relay has taken the lane within {TAKEN_WITHIN_S:g} s", logs)
