from __future__ import annotations

import asyncio

import pytest
from structlog.testing import LogCapture

from bridge.backoff import Backoff
from bridge.errors import Conflict, SourceGap, TargetRefused, TargetUnavailable
from bridge.lanes import STANDBY, AllLanes
from bridge.lifecycle import Command, State
from tests.fakes.ends import FakeSource
from tests.fakes.lanes import Bridge, FakeOwnership, until
from tests.fakes.virtual_time import in_virtual_time, now_ms

START, STOP, PAUSE, RESUME = Command.START, Command.STOP, Command.PAUSE, Command.RESUME
GONE = TargetUnavailable("group g: timed out")


# -- lanes come and go -----------------------------------------------------------------------------------


@in_virtual_time
async def test_a_bridge_that_shares_with_nobody_relays_every_lane() -> None:
    bridge = Bridge(AllLanes(3))
    for lane in range(3):
        bridge.put(lane, b"m%d" % lane)
    await bridge.start()
    await bridge.own(0, 1, 2)
    for lane in range(3):
        await bridge.arrived(lane, b"m%d" % lane)
    await AllLanes(3).confirmed(2)
    await bridge.stop()
    assert bridge.relay.state is State.STOPPED


@in_virtual_time
async def test_a_lane_that_is_gained_relays_and_the_others_go_on_undisturbed() -> None:
    ownership = FakeOwnership(0)
    bridge = Bridge(ownership)
    await bridge.start()
    await bridge.own(0)
    before = bridge.relay.lanes[0]
    bridge.put(1, b"m")
    ownership.give(0, 1)
    await bridge.own(0, 1)
    await bridge.arrived(1, b"m")
    assert bridge.relay.lanes[0] is before
    assert bridge.store.opens == 2
    await bridge.stop()


@in_virtual_time
async def test_a_lane_that_is_lost_stops_and_the_others_go_on_undisturbed() -> None:
    ownership = FakeOwnership(0, 1)
    bridge = Bridge(ownership)
    await bridge.start()
    await bridge.own(0, 1)
    lost = bridge.relay.lanes[1]
    ownership.give(0)
    await until(lambda: lost.state is State.STOPPED)
    bridge.put(0, b"m")
    bridge.put(1, b"stays")
    await bridge.arrived(0, b"m")
    assert [*bridge.relay.lanes] == [0]
    assert bridge.relay.state is State.RUNNING
    assert (bridge.store.opens, bridge.store.bodies("orders-1")) == (2, [])
    await bridge.stop()


@in_virtual_time
async def test_a_lane_that_waits_for_its_receipts_holds_up_no_other() -> None:
    ownership = FakeOwnership(0, 1)
    bridge = Bridge(ownership, pending_ack_timeout_ms=20_000)
    await bridge.start()
    await bridge.own(0, 1)
    bridge.store.drop_receipts()
    bridge.put(1, b"m")
    await until(lambda: bridge.relay.in_flight == 1)
    lost = bridge.relay.lanes[1]
    ownership.give(2)
    began = now_ms()
    await bridge.own(2)
    assert now_ms() - began < 1_000
    assert lost.state is State.STOPPING
    assert bridge.relay.in_flight == 1, "what the lane waits for counts until it has stopped"
    await until(lambda: lost.state is State.STOPPED)
    assert now_ms() - began >= 20_000
    bridge.store.drop_receipts(False)
    await bridge.stop()


@in_virtual_time
async def test_a_lane_that_returns_while_its_relay_stops_begins_after_it() -> None:
    """Two relays of one lane in one process would fence each other."""
    ownership = FakeOwnership(0)
    bridge = Bridge(ownership, pending_ack_timeout_ms=5_000)
    await bridge.start()
    await bridge.own(0)
    bridge.store.drop_receipts()
    bridge.put(0, b"m")
    await until(lambda: bridge.relay.in_flight == 1)
    ownership.give()
    await until(lambda: not bridge.relay.lanes)
    ownership.give(0)
    await until(lambda: 0 in bridge.relay.lanes)
    old, new = bridge.made[0]
    while old.state is State.STOPPING:
        assert new.state is State.STOPPED
        await asyncio.sleep(0.1)
    bridge.store.drop_receipts(False)
    await bridge.own(0)
    assert bridge.relay.lanes[0] is new
    await bridge.stop()


@in_virtual_time
async def test_the_counts_of_lanes_that_are_gone_stay_in_the_sum() -> None:
    ownership = FakeOwnership(0, 1)
    bridge = Bridge(ownership)
    bridge.put(0, b"a")
    bridge.put(1, b"b", b"c")
    await bridge.start()
    await until(lambda: bridge.relay.counts.acknowledged == 3)
    seen = bridge.relay.counts
    assert (seen.sent, seen.last_progress_ms > 0) == (3, True)
    ownership.give(0)
    await until(lambda: [*bridge.relay.lanes] == [0])
    assert bridge.relay.counts.acknowledged == 3
    await until(lambda: bridge.made[1][0].state is State.STOPPED)
    assert bridge.relay.counts.acknowledged == 3
    await bridge.stop()
    assert (bridge.relay.counts.sent, bridge.relay.counts.last_progress_ms) == (3, seen.last_progress_ms)
    assert bridge.relay.store == "store-1"


@in_virtual_time
async def test_the_lag_is_that_of_the_lanes_that_are_ours() -> None:
    ownership = FakeOwnership(0)
    bridge = Bridge(ownership)
    await bridge.start()
    await bridge.own(0)
    lags = [bridge.relay.lag]
    ownership.give(0, 2, 3)
    await bridge.own(0, 2, 3)
    lags.append(bridge.relay.lag)
    assert lags == [(0, None), (5, 2_000)]
    await bridge.stop()
    assert bridge.relay.lag == (5, 2_000)  # as it was: what waits has not gone


@in_virtual_time
async def test_what_a_lane_has_parked_is_counted_and_said() -> None:
    bridge = Bridge(FakeOwnership(0, 1))
    await bridge.start()
    await bridge.own(0, 1)
    assert (bridge.relay.counts.parked, bridge.relay.counts.trouble) == (0, "")
    bridge.made[1][0].parked = lambda: ["orders/3 stands still at offset 7: why"]
    seen = bridge.relay.counts
    assert (seen.parked, seen.trouble) == (1, "lane 1: orders/3 stands still at offset 7: why")
    await bridge.stop()
    assert bridge.relay.counts.parked == 0


# -- states ----------------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_worker_without_a_lane_is_a_running_standby() -> None:
    ownership = FakeOwnership()
    bridge = Bridge(ownership)
    assert bridge.relay.state is State.STOPPED
    await bridge.start()
    await bridge.until(State.RUNNING)
    assert (bridge.relay.counts.trouble, bridge.relay.connected, bridge.relay.store) == (STANDBY, True, "")
    ownership.give(0)
    await bridge.own(0)
    assert bridge.relay.counts.trouble == ""
    await bridge.stop()
    assert bridge.relay.counts.trouble == ""


@in_virtual_time
async def test_one_lane_that_connects_makes_the_bridge_connecting_with_its_trouble() -> None:
    ownership = FakeOwnership(0)
    bridge = Bridge(ownership)
    await bridge.start()
    await bridge.own(0)
    bridge.store.down = True
    ownership.give(0, 1)
    await bridge.until(State.CONNECTING)
    await until(lambda: bool(bridge.relay.counts.trouble))
    assert bridge.relay.counts.trouble == "lane 1: TARGET_UNAVAILABLE: connection refused"
    assert not bridge.relay.connected
    bridge.store.down = False
    await bridge.own(0, 1)
    await bridge.stop()


@in_virtual_time
async def test_one_lane_that_failed_shows_and_the_others_go_on_until_start_tries_it_again() -> None:
    bridge = Bridge(AllLanes(2))
    gaps = [SourceGap("orders-1/0: 17 messages are gone")]

    def prepare(lane: int, source: FakeSource) -> None:
        if lane == 1:
            source.read_fails = gaps[0]

    bridge.prepare = prepare
    await bridge.start()
    await bridge.until(State.FAILED)
    assert bridge.relay.reason == "lane 1: SOURCE_GAP: orders-1/0: 17 messages are gone"
    bridge.put(0, b"goes on")
    await bridge.arrived(0, b"goes on")
    with pytest.raises(Conflict):
        await bridge.relay.command(PAUSE)
    opens = bridge.store.opens
    await bridge.start()
    await bridge.own(0, 1)
    assert (bridge.relay.reason, bridge.store.opens) == ("", opens + 1)
    await bridge.stop()


# -- ownership comes and goes ----------------------------------------------------------------------------


@in_virtual_time
async def test_an_ownership_that_cannot_be_had_is_tried_by_the_bridges_back_off(
    log: LogCapture,
) -> None:
    """R6"""
    ownership = FakeOwnership(0)
    ownership.refuses = GONE
    bridge = Bridge(ownership, backoff=Backoff(1_000, 2.0, 4_000))
    await bridge.start()
    await until(lambda: len(ownership.opens) == 4)
    assert bridge.relay.state is State.CONNECTING
    assert bridge.relay.counts.trouble == "TARGET_UNAVAILABLE: group g: timed out"
    tries = [opened - ownership.opens[0] for opened in ownership.opens]
    assert tries == [0, 2_010, 6_020, 10_030]
    assert [entry["event"] for entry in log.entries] == ["bridge-disconnected"], "one line, not one a try"
    ownership.refuses = None
    await bridge.own(0)
    assert bridge.relay.counts.trouble == ""
    await bridge.stop()


@in_virtual_time
async def test_an_ownership_that_is_lost_stops_every_lane_until_it_is_had_again() -> None:
    ownership = FakeOwnership(0, 1)
    bridge = Bridge(ownership)
    await bridge.start()
    await bridge.own(0, 1)
    before = [*bridge.relay.lanes.values()]
    ownership.lose(GONE)
    await bridge.until(State.CONNECTING)
    await until(lambda: [relay.state for relay in before] == [State.STOPPED, State.STOPPED])
    assert not bridge.relay.lanes
    await bridge.own(0, 1)
    assert bridge.relay.counts.reconnects == 1
    await bridge.stop()


@in_virtual_time
async def test_so_many_attempts_and_no_more() -> None:
    ownership = FakeOwnership(0)
    ownership.refuses = GONE
    bridge = Bridge(ownership, initial_connect_attempts=2)
    await bridge.start()
    await bridge.until(State.FAILED)
    assert len(ownership.opens) == 3
    assert bridge.relay.reason.startswith("no connection after 3 attempts: TARGET_UNAVAILABLE")
    ownership.refuses = None
    await bridge.start()
    await bridge.own(0)
    await bridge.stop()


@in_virtual_time
async def test_an_ownership_that_is_refused_ends_the_whole_and_start_tries_again() -> None:
    ownership = FakeOwnership(0)
    bridge = Bridge(ownership)
    await bridge.start()
    await bridge.own(0)
    lane = bridge.relay.lanes[0]
    ownership.lose(TargetRefused("needs the ACL Read on group g"))
    await bridge.until(State.FAILED)
    assert bridge.relay.reason == "TARGET_REFUSED: needs the ACL Read on group g"
    await until(lambda: bool(ownership.closes))
    assert (lane.state, [*bridge.relay.lanes]) == (State.STOPPED, [])
    await bridge.start()
    await bridge.own(0)
    assert bridge.relay.reason == ""
    await bridge.stop()


@in_virtual_time
async def test_a_bug_does_not_look_like_a_healthy_bridge() -> None:
    ownership = FakeOwnership(0)
    bridge = Bridge(ownership)
    await bridge.start()
    await bridge.own(0)
    ownership.lose(ZeroDivisionError("a bug"))
    await bridge.until(State.FAILED)
    assert bridge.relay.reason == "ZeroDivisionError: a bug"
    await bridge.stop()
    assert bridge.relay.state is State.STOPPED


# -- commands --------------------------------------------------------------------------------------------


@in_virtual_time
async def test_stop_gives_the_lanes_back_once_they_have_stopped_and_start_takes_them_again() -> None:
    """R1"""
    ownership = FakeOwnership(0, 1)
    bridge = Bridge(ownership, pending_ack_timeout_ms=3_000)
    await bridge.start()
    await bridge.own(0, 1)
    bridge.store.drop_receipts()
    bridge.put(0, b"m")
    await until(lambda: bridge.relay.in_flight == 1)
    began = now_ms()
    stopping = asyncio.create_task(bridge.stop())
    await bridge.until(State.STOPPING)
    with pytest.raises(Conflict):
        await bridge.start()
    await stopping
    assert bridge.relay.state is State.STOPPED
    assert [closed - began for closed in ownership.closes] == [3_000], "lanes first, then the group"
    bridge.store.drop_receipts(False)
    await bridge.start()
    await bridge.own(0, 1)
    await bridge.stop()


@in_virtual_time
async def test_a_pause_stops_the_lanes_and_keeps_them() -> None:
    ownership = FakeOwnership(0, 1)
    bridge = Bridge(ownership)
    await bridge.start()
    await bridge.own(0, 1)
    await bridge.relay.command(PAUSE)
    assert bridge.relay.state is State.PAUSED
    assert [relay.state for relay in bridge.relay.lanes.values()] == [State.PAUSED, State.PAUSED]
    assert (ownership.is_open, ownership.closes) == (True, [])
    ownership.give(1, 2)
    await until(lambda: [*bridge.relay.lanes] == [1, 2])
    bridge.put(2, b"m")
    await asyncio.sleep(60)
    assert (bridge.relay.state, bridge.store.bodies("orders-2")) == (State.PAUSED, [])
    await bridge.relay.command(RESUME)
    await bridge.own(1, 2)
    await bridge.arrived(2, b"m")
    await bridge.stop()


@in_virtual_time
async def test_a_paused_bridge_stays_paused_while_its_ownership_is_lost_and_had_again() -> None:
    ownership = FakeOwnership(0)
    bridge = Bridge(ownership)
    await bridge.start()
    await bridge.own(0)
    await bridge.relay.command(PAUSE)
    ownership.lose(GONE)
    await until(lambda: len(ownership.opens) == 2 and ownership.is_open)
    assert bridge.relay.state is State.PAUSED
    await bridge.relay.command(START)
    await bridge.own(0)
    await bridge.relay.command(PAUSE)
    await bridge.stop()
    assert (bridge.relay.state, ownership.is_open) == (State.STOPPED, False)


@pytest.mark.parametrize("at_ms", [0, 5, 15, 1_000])
@in_virtual_time
async def test_a_start_that_is_stopped_at_once_leaves_nothing_behind(at_ms: int) -> None:
    ownership = FakeOwnership(0)
    ownership.refuses = GONE if at_ms == 1_000 else None
    bridge = Bridge(ownership)
    await bridge.start()
    await asyncio.sleep(at_ms / 1000)
    await bridge.stop()
    assert (bridge.relay.state, ownership.is_open) == (State.STOPPED, False)


@in_virtual_time
async def test_the_last_of_many_commands_counts() -> None:
    ownership = FakeOwnership(0, 1)
    bridge = Bridge(ownership)
    await bridge.start()
    commands = [asyncio.create_task(bridge.relay.command(each)) for each in (START, PAUSE, STOP, STOP)]
    await asyncio.gather(*commands)
    assert (bridge.relay.state, ownership.is_open) == (State.STOPPED, False)
    await bridge.start()
    await bridge.own(0, 1)
    await bridge.relay.command(PAUSE)
    await asyncio.gather(bridge.relay.command(RESUME), bridge.relay.command(START))
    await bridge.own(0, 1)
    await bridge.stop()
    with pytest.raises(Conflict):
        await bridge.relay.command(RESUME)
