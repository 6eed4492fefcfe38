"""Since when bridges are in their states, and since when their targets are silent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from bridge.node.bridge_set import NodeBridge
from bridge.node.bridge_watch import SILENT_MS, BridgeWatch
from bridge.relay.counts import Counts
from bridge.relay.lifecycle import State


@dataclass
class Bridge:
    state: State = State.RUNNING
    in_flight: int = 0
    counts: Counts = field(default_factory=Counts)


def among(bridge: Bridge) -> dict[str, NodeBridge]:
    return {"b": NodeBridge(cast("Any", bridge), cast("Any", None))}


def test_a_state_counts_from_the_look_that_saw_it_first() -> None:
    watch, bridge = BridgeWatch(), Bridge(State.CONNECTING)
    assert watch.since_ms("b") is None
    for now_ms in (1_000, 2_000):
        watch.look(among(bridge), now_ms)
    assert watch.since_ms("b") == 1_000
    bridge.state = State.RUNNING
    watch.look(among(bridge), 3_000)
    assert watch.since_ms("b") == 3_000
    watch.look({}, 4_000)
    assert watch.since_ms("b") is None


def test_a_target_is_silent_while_messages_are_on_their_way_and_no_receipt_comes() -> None:
    watch, bridge = BridgeWatch(), Bridge()
    watch.look(among(bridge), 0)
    bridge.in_flight = 3
    watch.look(among(bridge), 1_000)
    assert watch.silent_for_ms("b", 1_000 + SILENT_MS - 1) is None
    assert watch.silent_for_ms("b", 1_000 + SILENT_MS) == SILENT_MS
    bridge.counts.acknowledged = 2
    watch.look(among(bridge), 7_000)
    assert watch.silent_for_ms("b", 7_000 + SILENT_MS) == SILENT_MS, "from the receipt on"
    bridge.in_flight = 0
    watch.look(among(bridge), 8_000)
    assert watch.silent_for_ms("b", 60_000) is None


def test_a_bridge_that_waits_for_its_target_is_not_silent() -> None:
    watch, bridge = BridgeWatch(), Bridge(State.WAITING, in_flight=1)
    watch.look(among(bridge), 0)
    assert watch.silent_for_ms("b", 60_000) is None
