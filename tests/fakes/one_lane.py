"""A bridge of one lane between two ends that a test has made."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.relay.lanes import LanedRelay
from bridge.relay.ownership import AllLanes
from bridge.relay.relay import LaneEnds, Relay, RelayOptions
from bridge.relay.stages import Stage
from bridge.relay.transforming import Transforming
from bridge.relay.window import Window
from bridge.runtime.clock import Clock


class OneLane(LanedRelay):
    """A bridge whose source has no lanes, as `bridge.assembly` makes it. Each start is a new relay."""

    def __init__(
        self,
        options: RelayOptions,
        ends: LaneEnds,
        *,
        clock: Clock,
        stages: Sequence[Stage] = (),
        transforming: Transforming | None = None,
    ) -> None:
        def make(lane: int) -> Relay:
            self._latest = Relay(options, ends, clock=clock, stages=stages, transforming=transforming)
            return self._latest

        super().__init__(options, AllLanes(1), make, numbered=False)
        self._latest = make(0)

    @property
    def store(self) -> str:
        """Store identity of the latest relay's target."""
        return self._latest.session.store

    @property
    def window(self) -> Window:
        """The messages in flight of the latest relay."""
        return self._latest.session.window
