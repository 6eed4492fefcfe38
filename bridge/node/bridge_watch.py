"""Since when each bridge is in its state, and since when its target has confirmed nothing.

A bridge's state follows from its lanes and workers, and no event says that it has changed; so the bridges are
looked at once a second. Pure: the time is handed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bridge.node.bridge_set import NodeBridge
from bridge.relay.lifecycle import State

#: Interval of the looks, in seconds.
LOOK_S: Final = 1.0
#: From this long without a receipt while messages are on their way, status says so, ms.
SILENT_MS: Final = 5000


@dataclass(slots=True)
class _Seen:
    """One bridge, as it was at the last look."""

    state: State
    #: When it was first seen in that state, ms since the epoch.
    since_ms: int
    acknowledged: int = 0
    #: When messages were first seen on their way with no receipt since, ms since the epoch; None: none are.
    unanswered_ms: int | None = None


class BridgeWatch:
    """What was seen of each bridge at the looks."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def look(self, bridges: Mapping[str, NodeBridge], now_ms: int) -> None:
        """Look at every bridge; `now_ms` is the wall clock."""
        for gone in self._seen.keys() - bridges.keys():
            del self._seen[gone]
        for name, (relay, _) in bridges.items():
            state, acknowledged = relay.state, relay.counts.acknowledged
            seen = self._seen.get(name)
            if seen is None:
                seen = self._seen[name] = _Seen(state, now_ms, acknowledged)
            elif seen.state is not state:
                seen.state, seen.since_ms = state, now_ms
            if not relay.in_flight or state is not State.RUNNING:
                seen.unanswered_ms = None
            elif seen.unanswered_ms is None or acknowledged != seen.acknowledged:
                seen.unanswered_ms = now_ms
            seen.acknowledged = acknowledged

    def since_ms(self, name: str) -> int | None:
        """When the bridge was first seen in its state, ms since the epoch; None: it was not looked at yet."""
        seen = self._seen.get(name)
        return None if seen is None else seen.since_ms

    def silent_for_ms(self, name: str, now_ms: int) -> int | None:
        """How long messages have been on their way without a receipt; None: not for `SILENT_MS`."""
        seen = self._seen.get(name)
        if seen is None or seen.unanswered_ms is None or now_ms - seen.unanswered_ms < SILENT_MS:
            return None
        return now_ms - seen.unanswered_ms
