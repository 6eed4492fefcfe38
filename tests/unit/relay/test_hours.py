"""A bridge and the hours of its schedule. The tests begin on a Tuesday at 22:13:20 UTC."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import LogCapture

from bridge.errors import Conflict, TargetUnavailable
from bridge.relay.backoff import Backoff
from bridge.relay.hours import LOOK_S, Hours
from bridge.relay.lifecycle import Command, State
from bridge.relay.ownership import AllLanes
from bridge.runtime.schedule import Schedule
from tests.fakes.lanes import Bridge, FakeOwnership
from tests.fakes.virtual_time import EPOCH_MS, VirtualClock, in_virtual_time, now_ms
from tests.harness.eventually import until

HOUR_S = 3600
LATER = Schedule.of(["23:00-01:00 UTC"])
NOW = Schedule.of(["22:00-23:00 UTC"])
OPENS_MS = 46 * 60_000 + 40_000
WAITS_TODAY = "waits for 23:00 on Tue 2023-11-14, UTC (schedule)"
WAITS_TOMORROW = "waits for 22:00 on Wed 2023-11-15, UTC (schedule)"


def bridge_with(schedule: Schedule, *owned: int, **options: Any) -> tuple[Bridge, FakeOwnership]:
    ownership = FakeOwnership(*(owned or (0,)))
    return Bridge(ownership, schedule=schedule, **options), ownership


async def reach(bridge: Bridge, state: State, every_s: float = 10) -> None:
    await until(lambda: bridge.relay.state is state, f"the bridge is {state}", 24 * HOUR_S, every_s)


@in_virtual_time
async def test_a_bridge_that_starts_outside_its_hours_waits_without_a_connection_and_then_relays() -> None:
    bridge, ownership = bridge_with(LATER)
    bridge.put(0, b"m")
    await bridge.start()
    await bridge.until(State.SCHEDULED)
    assert (bridge.relay.counts.trouble, bridge.relay.connected) == (WAITS_TODAY, False)
    await asyncio.sleep(OPENS_MS / 1000 - 1)
    assert (ownership.opens, bridge.store.opens) == ([], 0)
    await reach(bridge, State.RUNNING, 0.1)
    assert now_ms() in range(OPENS_MS, OPENS_MS + 1_000)
    await until(lambda: bridge.store.bodies("orders-0") == [b"m"], "it has arrived")
    assert bridge.relay.counts.trouble == ""
    await bridge.stop()


@in_virtual_time
async def test_at_the_end_of_its_hours_batches_are_settled_and_every_connection_is_given_back() -> None:
    bridge, ownership = bridge_with(NOW, 0, 1)
    await bridge.start()
    await bridge.own(0, 1)
    bridge.store.delay_receipts(30)
    await asyncio.sleep(OPENS_MS / 1000 - 10)
    bridge.put(0, b"late")
    await until(lambda: bridge.relay.in_flight == 1, "a batch is in flight")
    await reach(bridge, State.SCHEDULED, 1)
    assert (bridge.relay.in_flight, ownership.is_open) == (1, True)
    await until(lambda: not ownership.is_open, "the lanes are given back", 60)
    assert (bridge.relay.in_flight, bridge.relay.counts.acknowledged) == (0, 1)
    assert (bridge.relay.counts.trouble, bridge.relay.lanes) == (WAITS_TOMORROW, {})
    bridge.store.delay_receipts(0)
    bridge.put(1, b"kept")
    await asyncio.sleep(20 * HOUR_S)
    assert bridge.store.bodies("orders-1") == []
    await reach(bridge, State.RUNNING)
    await until(lambda: bridge.store.bodies("orders-1") == [b"kept"], "it has arrived")
    assert (bridge.store.bodies("orders-0"), bridge.relay.counts.resent) == ([b"late"], 0)
    assert bridge.relay.counts.reconnects == 0, "what was meant to end is no loss"
    await bridge.stop()


@in_virtual_time
async def test_outside_its_hours_nothing_tries_to_reach_a_target_that_is_away(log: LogCapture) -> None:
    bridge, ownership = bridge_with(NOW)
    ownership.refuses = TargetUnavailable("group g: timed out")
    await bridge.start()
    await bridge.until(State.CONNECTING)
    await reach(bridge, State.SCHEDULED)
    tries = len(ownership.opens)
    assert tries > 100
    await asyncio.sleep(22 * HOUR_S)
    assert (len(ownership.opens), bridge.relay.counts.trouble) == (tries, WAITS_TOMORROW)
    ownership.refuses = None
    await reach(bridge, State.RUNNING)
    await bridge.stop()
    assert [entry["reason"] for entry in log.entries if entry["event"] == "bridge-outside-hours"] == [
        WAITS_TOMORROW
    ]


@in_virtual_time
async def test_stop_and_pause_hold_over_an_opening_and_resume_opens_no_window() -> None:
    bridge, ownership = bridge_with(LATER)
    await bridge.start()
    await bridge.until(State.SCHEDULED)
    await bridge.relay.command(Command.PAUSE)
    await asyncio.sleep(1.5 * HOUR_S)
    assert (bridge.relay.state, bridge.store.opens) == (State.PAUSED, 0)
    await bridge.relay.command(Command.RESUME)
    await reach(bridge, State.RUNNING, 1)
    await reach(bridge, State.SCHEDULED)
    await bridge.relay.command(Command.PAUSE)
    await bridge.relay.command(Command.RESUME)
    await asyncio.sleep(60)
    assert (bridge.relay.state, ownership.is_open) == (State.SCHEDULED, False)
    with pytest.raises(Conflict, match="a bridge that is SCHEDULED cannot failback"):
        await bridge.relay.command(Command.FAILBACK)
    await bridge.stop()
    await asyncio.sleep(24 * HOUR_S)
    await bridge.until(State.STOPPED)


@in_virtual_time
async def test_a_stop_amid_the_end_of_the_hours_waits_for_the_batches_as_ever() -> None:
    bridge, ownership = bridge_with(NOW)
    await bridge.start()
    await bridge.own(0)
    bridge.store.delay_receipts(30)
    await asyncio.sleep(OPENS_MS / 1000 - 10)
    bridge.put(0, b"m")
    await reach(bridge, State.SCHEDULED, 1)
    await bridge.stop()
    assert (bridge.relay.state, bridge.relay.in_flight) == (State.STOPPED, 0)
    assert (bridge.relay.counts.acknowledged, ownership.is_open) == (1, False)
    await bridge.start()
    await bridge.until(State.SCHEDULED)
    await bridge.stop()


@pytest.mark.parametrize("alone", [True, False])
@in_virtual_time
async def test_a_lane_that_has_failed_stays_so_over_openings_until_an_operator_starts_it(
    alone: bool,
) -> None:
    bridge = Bridge(AllLanes(2) if alone else FakeOwnership(0, 1), schedule=NOW)
    await bridge.start()
    await bridge.own(0, 1)
    bridge.fail(0)
    await bridge.until(State.FAILED)
    await asyncio.sleep(HOUR_S)
    assert bridge.relay.state is State.FAILED
    made = len(bridge.made[0])
    await asyncio.sleep(24 * HOUR_S)
    assert (bridge.relay.state, len(bridge.made[0])) == (State.FAILED, made)
    await bridge.start()
    await bridge.until(State.SCHEDULED)
    await asyncio.sleep(24 * HOUR_S)
    assert len(bridge.made[0]) > made
    await bridge.stop()


@in_virtual_time
async def test_bridges_with_the_same_hours_do_not_begin_at_the_same_moment() -> None:
    bridge, ownership = bridge_with(LATER, backoff=Backoff(10_000, 1.0, 10_000, lambda: 0.5))
    await bridge.start()
    await reach(bridge, State.RUNNING)
    assert ownership.opens == [OPENS_MS + 5_000]
    await bridge.stop()


class SetClock(VirtualClock):
    """A wall clock that can be set."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


@in_virtual_time
async def test_a_clock_that_is_set_is_followed_soon() -> None:
    clock = SetClock()
    hours = Hours(LATER, clock)
    opened = asyncio.create_task(hours.opened())
    await asyncio.sleep(60)
    assert not opened.done()
    clock.ahead_ms = HOUR_S * 1000
    began = now_ms()
    await opened
    assert now_ms() - began <= LOOK_S * 1000
    closed = asyncio.create_task(hours.closed())
    await asyncio.sleep(60)
    assert not closed.done()
    clock.ahead_ms = 0
    began = now_ms()
    await closed
    assert now_ms() - began <= LOOK_S * 1000
    assert clock.wall_ms() < EPOCH_MS + OPENS_MS


@in_virtual_time
async def test_hours_that_never_end_are_waited_out_in_looks() -> None:
    hours = Hours(Schedule.of(["00:00-24:00 Europe/Berlin"]), VirtualClock())
    await hours.opened()
    closed = asyncio.create_task(hours.closed())
    await asyncio.sleep(HOUR_S)
    assert not closed.done()
    closed.cancel()
    await asyncio.gather(closed, return_exceptions=True)
