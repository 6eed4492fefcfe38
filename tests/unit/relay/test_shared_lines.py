"""Bridges over one connector: the higher priority goes first, and the lower one does not stand still."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from bridge.relay.line import LEAST_BATCH
from bridge.relay.shared_lines import SharedLines
from bridge.relay.window import Window
from tests.fakes.virtual_time import in_virtual_time
from tests.unit.relay.test_pump_line import MESSAGE, LineRig, limit


@dataclass(eq=False)
class Lane:
    """A lane as the others see it."""

    priority: int = 4
    target_name: str = "hub"
    window: Window = field(default_factory=lambda: Window(1000))

    def sends(self) -> None:
        self.window.sent(10, 1)


def test_lane_gives_way_to_a_higher_one_that_sends_over_the_same_connector() -> None:
    shared = SharedLines()
    low, high = Lane(2), Lane(9)
    for lane in (low, high):
        shared.join(lane)
    assert not shared.gives_way(low)
    high.sends()
    assert shared.gives_way(low)
    assert not shared.gives_way(high)


@pytest.mark.parametrize("other", [Lane(4), Lane(3), Lane(9, "other")])
def test_lane_gives_way_to_no_other(other: Lane) -> None:
    shared = SharedLines()
    lane = Lane(4)
    for one in (lane, other):
        shared.join(one)
    other.sends()
    assert not shared.gives_way(lane)


def test_lane_that_has_ended_stops_no_other() -> None:
    shared = SharedLines()
    low, high = Lane(2), Lane(9)
    for lane in (low, high):
        shared.join(lane)
    high.sends()
    shared.leave(high)
    shared.leave(high)
    assert not shared.gives_way(low)


class SharingRig(LineRig):
    """A pump among others that share lines."""

    def __init__(self, shared: SharedLines, priority: int) -> None:
        super().__init__(60_000)
        self.session.shared, self.session.priority = shared, priority
        shared.join(self.session)


@in_virtual_time
async def test_bridge_with_a_lower_priority_sends_one_small_batch_at_a_time_meanwhile() -> None:
    shared = SharedLines()
    low, high = SharingRig(shared, 2), SharingRig(shared, 9)
    low.backlogged(2_000)
    running = await low.begin()
    await asyncio.sleep(10)
    high.backlogged(600)
    alarms = await high.begin()
    await asyncio.sleep(4)  # what was on its way has come
    before = len(low.store.batches)
    for _ in range(20):
        await asyncio.sleep(0.1)
        assert low.window.batches <= 1
    later = low.store.batches[before + 1 :]
    assert later, "it does not stand still"
    assert all(batch.size <= max(LEAST_BATCH, MESSAGE) for batch in later)
    assert limit(low) == "priority"
    assert limit(high) == "line"
    await asyncio.sleep(10)
    assert high.backlog() == []
    assert low.window.batches > 1
    for rig in (low, high):
        rig.store.cut()
    await asyncio.gather(running, alarms, return_exceptions=True)
