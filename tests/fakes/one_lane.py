"""A bridge of one lane between two ends that a test has made."""

from __future__ import annotations

from typing import Any

from bridge.relay.dead_letters import DeadLetterSink
from bridge.relay.lanes import LanedRelay
from bridge.relay.ownership import AllLanes
from bridge.relay.ports import Source, Target
from bridge.relay.relay import LaneEnds, Relay, RelayOptions
from bridge.relay.window import Window


class OneLane(LanedRelay):
    """A bridge whose source has no lanes, as `bridge.assembly` makes it. Each start is a new relay."""

    def __init__(
        self,
        options: RelayOptions,
        source: Source,
        target: Target,
        dead_letters: DeadLetterSink | None = None,
        **rest: Any,
    ) -> None:
        """`rest`: as `Relay` takes it."""

        def make(lane: int) -> Relay:
            self._latest = Relay(options, LaneEnds(source, target, dead_letters), **rest)
            return self._latest

        super().__init__(options, AllLanes(1), make, numbered=False)
        self._latest = make(0)

    @property
    def window(self) -> Window:
        """The messages in flight of the latest relay."""
        return self._latest.session.window
