"""One lane from Kafka to Kafka, made as `bridge.assembly.kafka` does, for what goes through both ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from bridge.kafka.source.source import KafkaSource
from bridge.kafka.target.target import KafkaTarget
from bridge.relay.backoff import Backoff
from bridge.relay.lifecycle import Command
from bridge.relay.relay import LaneEnds, RelayOptions
from bridge.relay.stages import LoopGuard
from bridge.runtime.clock import SystemClock
from tests.fakes.one_lane import OneLane
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.source import rig as source_rig
from tests.kafka.target import rig as target_rig

#: Longest wait for anything, seconds.
WITHIN_S: Final = 30.0
#: Pause between two looks at something that has no event, seconds.
LOOK_S: Final = 0.05


class Lane:
    """The relay of one lane and its ends."""

    def __init__(self, sources: source_rig.Rig, targets: target_rig.Rig) -> None:
        self.sources, self.targets = sources, targets
        self.relay: OneLane
        self.source: KafkaSource
        self.target: KafkaTarget

    async def start(self, *topics: str, target: dict[str, Any] | None = None, **source: Any) -> OneLane:
        """A new relay, as a process makes it that has just started."""
        self.source = self.sources.source(*topics, **{"forward": lambda topic: topic, **source})
        self.target = self.targets.target(**(target or {}))
        letters = self.target if (target or {}).get("dead_letter_address") else None
        options = RelayOptions(self.sources.bridge, backoff=Backoff(100, 1.0, 100))
        self.relay = OneLane(
            options,
            LaneEnds(self.source, self.target, letters, lag=lambda: self.source.lag),
            clock=SystemClock(),
            stages=(LoopGuard(self.sources.bridge, 8, lambda: self.source.store),),
        )  # fmt: skip
        await self.relay.command(Command.START)
        return self.relay

    async def stop(self) -> None:
        await self.relay.command(Command.STOP)


@asynccontextmanager
async def lane(here: Reachable, there: Reachable, bridge: str, **rigs: Any) -> AsyncIterator[Lane]:
    async with (
        source_rig.rigged(here, bridge) as sources,
        target_rig.rig(there, bridge, **rigs) as targets,
    ):
        made = Lane(sources, targets)
        try:
            yield made
        finally:
            if hasattr(made, "relay"):
                await made.stop()


async def arrived(there: Reachable, topic: str, count: int, within_s: float = WITHIN_S) -> list[bytes | None]:
    """The values in a topic, once there are `count`; as many as there are when the time is over."""
    found: list[bytes | None] = []
    try:
        async with asyncio.timeout(within_s):
            while len(found) < count:
                found = await target_rig.values(there, topic)
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        pass
    return found
