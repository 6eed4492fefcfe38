from __future__ import annotations

import asyncio

import pytest
from structlog.testing import LogCapture

from bridge.errors import Conflict, SourceGap, TargetRefused, TargetUnavailable
from bridge.relay.backoff import Backoff
from bridge.relay.lanes import STANDBY
from bridge.relay.lifecycle import Command, State
from bridge.relay.ownership import AllLanes
from tests.fakes.ends import FakeSource
from tests.fakes.lanes import LONGEST_S, Bridge, FakeGroup, FakeOwnership, failing
from tests.fakes.virtual_time import in_virtual_time, now_ms
from tests.harness.eventually import until

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
    await until(lambda: lost.state is State.STOPPED, "the lost lane has stopped", LONGEST_S)
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
    await until(lambda: bridge.relay.in_flight == 1, "a batch is in flight")
    lost = bridge.relay.lanes[1]
    ownership.give(2)
    began = now_ms()
    await bridge.own(2)
    assert now_ms() - began < 1_000
    assert lost.state is State.STOPPING
    assert bridge.relay.in_flight == 1, "what the lane waits for counts until it has stopped"
    await until(lambda: lost.state is State.STOPPED, "the lost lane has stopped", LONGEST_S)
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
    await until(lambda: bridge.relay.in_flight == 1, "a batch is in flight")
    ownership.give()
    await until(lambda: not bridge.relay.lanes, "it owns no lane")
    ownership.give(0)
    await until(lambda: 0 in bridge.relay.lanes, "it owns lane 0")
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
    await until(lambda: bridge.relay.counts.acknowledged == 3, "three are acknowledged")
    seen = bridge.relay.counts
    assert (seen.sent, seen.last_progress_ms > 0) == (3, True)
    ownership.give(0)
    await until(lambda: [*bridge.relay.lanes] == [0], "it owns lane 0")
    assert bridge.relay.counts.acknowledged == 3
    await until(lambda: bridge.made[1][0].state is State.STOPPED, "lane 1 has stopped")
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
    bridge.made[1][0].parked = lambda: {("orders", 3): "orders/3 stands still at offset 7: why"}
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
    await until(lambda: bool(bridge.relay.counts.trouble), "the lane is in trouble")
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


# -- lanes that FAILED, shared with others ---------------------------------------------------------------


@in_virtual_time
async def test_a_lane_that_failed_is_given_up_and_the_others_go_on(log: LogCapture) -> None:
    ownership = FakeOwnership(0, 1, 2)
    bridge = Bridge(ownership)
    bridge.prepare = failing(1)
    await bridge.start()
    await until(lambda: [*bridge.relay.lanes] == [0, 2], "it owns lanes 0 and 2")
    assert (ownership.given_up, ownership.is_open) == ({1}, True)
    assert bridge.relay.state is State.FAILED
    assert bridge.relay.reason == "lane 1: SOURCE_REFUSED: needs the ACL Read on topic orders-1"
    given_up = [entry for entry in log.entries if entry["event"] == "lane-given-up"]
    assert [(entry["lane"], entry["owned"]) for entry in given_up] == [(1, [0, 2])]
    assert bridge.relay.lag == (3, 1_000), "what waits in the lane may wait for good"
    bridge.put(2, b"goes on")
    await bridge.arrived(2, b"goes on")
    await bridge.stop()
    assert (bridge.relay.state, bridge.relay.reason) == (State.STOPPED, "")


@in_virtual_time
async def test_a_lane_is_given_up_when_its_ends_are_closed() -> None:
    """The next worker need not wait for what this one holds, nor fence it."""
    ownership = FakeOwnership(0)
    bridge = Bridge(ownership)
    done: list[str] = []

    class Closing(FakeSource):
        async def close(self) -> None:
            await asyncio.sleep(5)
            done.append("closed")
            await super().close()

    def prepare(lane: int, source: FakeSource) -> None:
        source.__class__ = Closing
        failing(0)(lane, source)

    bridge.prepare = prepare
    ownership.on_given_up = lambda lane: done.append(f"lane {lane} given up")
    await bridge.start()
    await until(lambda: bool(ownership.closes), "the ownership is closed")
    assert done == ["closed", "lane 0 given up"]
    await bridge.stop()


@in_virtual_time
async def test_a_bridge_that_failed_on_every_lane_leaves_and_start_takes_part_again(log: LogCapture) -> None:
    ownership = FakeOwnership(0, 1)
    bridge = Bridge(ownership)
    bridge.prepare = failing(0, 1)
    await bridge.start()
    await until(lambda: bool(ownership.closes), "the ownership is closed")
    assert (bridge.relay.state, ownership.is_open, [*bridge.relay.lanes]) == (State.FAILED, False, [])
    assert bridge.relay.lag == (1, 1_000)
    reason = "lane 0: SOURCE_REFUSED: needs the ACL Read on topic orders-0 (FAILED too: lane 1)"
    assert bridge.relay.reason == reason
    assert [entry["reason"] for entry in log.entries if entry["event"] == "bridge-failed"][-1] == reason
    bridge.prepare = failing()
    bridge.put(1, b"m")
    await bridge.start()
    await bridge.own(0, 1)
    await bridge.arrived(1, b"m")
    assert bridge.relay.reason == ""
    await bridge.stop()


@in_virtual_time
async def test_start_takes_a_lane_again_that_was_given_up_while_the_others_went_on() -> None:
    ownership = FakeOwnership(0, 1)
    bridge = Bridge(ownership)
    bridge.prepare = failing(1)
    await bridge.start()
    await until(lambda: [*bridge.relay.lanes] == [0], "it owns lane 0")
    stayed = bridge.relay.lanes[0]
    bridge.prepare = failing()
    await bridge.start()
    await bridge.own(0, 1)
    assert (bridge.relay.reason, bridge.relay.lanes[0] is stayed) == ("", True)
    assert len(ownership.opens) == 1
    await bridge.stop()


@in_virtual_time
async def test_a_bridge_left_without_a_lane_by_the_others_leaves_if_one_has_failed_on_it() -> None:
    """The last lane that worked here went to another worker: what has failed is all that there is to say."""
    ownership = FakeOwnership(0, 1)
    bridge = Bridge(ownership)
    bridge.prepare = failing(1)
    await bridge.start()
    await until(lambda: [*bridge.relay.lanes] == [0], "it owns lane 0")
    ownership.give(1)
    await until(lambda: bool(ownership.closes), "the ownership is closed")
    assert bridge.relay.state is State.FAILED
    await bridge.stop()


@in_virtual_time
async def test_a_failed_bridge_does_not_lose_its_reason_with_its_membership() -> None:
    ownership = FakeOwnership(0, 1)
    bridge = Bridge(ownership)
    bridge.prepare = failing(1)
    await bridge.start()
    await until(lambda: [*bridge.relay.lanes] == [0], "it owns lane 0")
    ownership.lose(GONE)
    await until(lambda: len(ownership.opens) == 2 and [*bridge.relay.lanes] == [0], "it owns lane 0 again")
    await until(lambda: bridge.relay.lanes[0].state is State.RUNNING, "lane 0 relays")
    assert (bridge.relay.state, ownership.given_up) == (State.FAILED, {1})
    await bridge.stop()


# -- several workers and a group that divides as a real one does -----------------------------------------


@in_virtual_time
async def test_what_fails_on_one_node_only_is_moved_by_the_others_and_comes_back_with_start() -> None:
    group = FakeGroup(4)
    first, second = Bridge(group.member()), Bridge(group.member())
    second.share_with(first)
    await first.start()
    await second.start()
    await first.own(0, 1)
    await second.own(2, 3)
    undisturbed, tried = dict(second.relay.lanes), sum(map(len, first.made.values()))
    first.prepare = failing(0, 1, 2, 3)
    first.fail(*range(4))
    await second.own(0, 1, 2, 3)
    assert {lane: second.relay.lanes[lane] for lane in undisturbed} == undisturbed
    assert (first.relay.state, [*first.relay.lanes], len(group.members)) == (State.FAILED, [], 1)
    assert sum(map(len, first.made.values())) == tried, "no lane of the other one's was tried on it"
    for lane in range(4):
        second.put(lane, b"m%d" % lane)
        refused = [b"refused"] if lane in (0, 1) else []
        await second.arrived(lane, *refused, b"m%d" % lane)
    first.prepare = failing()
    await first.start()
    await until(lambda: len(first.relay.lanes) == len(second.relay.lanes) == 2, "each owns two lanes")
    await first.stop()
    await second.stop()


@in_virtual_time
async def test_a_lane_that_fails_everywhere_stands_still_alone_and_each_worker_names_it(
    log: LogCapture,
) -> None:
    group = FakeGroup(4)
    workers = [Bridge(group.member()) for _ in range(3)]
    for worker in workers:
        worker.share_with(workers[0])
        worker.prepare = failing(2)
    for worker in workers:
        await worker.start()

    def given_up() -> list[int]:
        return [entry["lane"] for entry in log.entries if entry["event"] == "lane-given-up"]

    await until(lambda: len(given_up()) == 3, "three have given the lane up")
    await until(
        lambda: sorted(lane for worker in workers for lane in worker.relay.lanes) == [0, 1, 3],
        "the others relay",
    )
    assert {worker.relay.state for worker in workers} == {State.FAILED}
    assert all(worker.relay.reason.startswith("lane 2: ") for worker in workers)
    divisions = group.divisions
    await asyncio.sleep(600)
    assert group.divisions == divisions, "it does not go round and round"
    assert given_up() == [2, 2, 2]
    for worker in workers:
        worker.prepare = failing()
    await workers[1].start()
    await until(lambda: 2 in workers[1].relay.lanes, "lane 2 is owned")
    for worker in workers:
        await worker.stop()


@in_virtual_time
async def test_the_last_worker_takes_what_the_others_leave_though_a_lane_has_failed_on_it() -> None:
    group = FakeGroup(3)
    first, second = Bridge(group.member()), Bridge(group.member())
    second.share_with(first)
    first.prepare = failing(0)
    await first.start()
    await second.start()
    await until(
        lambda: first.relay.state is State.FAILED and len(second.relay.lanes) == 2,
        "the first has failed, the second has all lanes",
    )
    assert sorted([*first.relay.lanes, *second.relay.lanes]) == [0, 1, 2]
    await second.stop()
    await until(lambda: [*first.relay.lanes] == [1, 2], "it owns lanes 1 and 2")
    await first.stop()


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
    await until(lambda: len(ownership.opens) == 4, "it has opened four times")
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
    await until(
        lambda: [relay.state for relay in before] == [State.STOPPED, State.STOPPED], "both have stopped"
    )
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
    await until(lambda: bool(ownership.closes), "the ownership is closed")
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
    await until(lambda: bridge.relay.in_flight == 1, "a batch is in flight")
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
    assert [relay.state for relay in bridge.relay.lanes.values()] == [State.STOPPED, State.STOPPED]
    assert (ownership.is_open, ownership.closes) == (True, [])
    ownership.give(1, 2)
    await until(lambda: [*bridge.relay.lanes] == [1, 2], "it owns lanes 1 and 2")
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
    await until(lambda: len(ownership.opens) == 2 and ownership.is_open, "it is open again")
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
