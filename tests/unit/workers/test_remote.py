from __future__ import annotations

import asyncio

import pytest

from bridge.errors import Conflict
from bridge.relay.lag import PartitionStatus
from bridge.relay.lanes import STANDBY
from bridge.relay.lifecycle import Command, State
from bridge.workers.channel import Ask, Rows, Want, Wanted
from bridge.workers.remote import RemoteBridge
from tests.fakes.virtual_time import in_virtual_time
from tests.fakes.workers import report

START, STOP, PAUSE, RESUME = Command.START, Command.STOP, Command.PAUSE, Command.RESUME


class Bridge(RemoteBridge):
    """A bridge and what its workers were told."""

    def __init__(self, *workers: int) -> None:
        self.told: list[Want | Ask] = []
        super().__init__("orders", self.told.append)
        for worker in workers:
            self.attached(worker)

    def shown(self) -> State:
        """The state; a call, so that a type checker does not think that it stays."""
        return self.state

    def states(self, *states: State, order: int = 1) -> None:
        """Worker 1, 2, ... report these."""
        for worker, state in enumerate(states, 1):
            self.heard(worker, report(state=state, order=order))


async def begin(command: asyncio.Task[None]) -> None:
    """Let a command run until it waits."""
    await asyncio.sleep(0)
    assert not command.done()


async def test_without_a_worker_it_is_what_it_was_told_to_be() -> None:
    bridge = Bridge()
    assert bridge.shown() is State.STOPPED
    await bridge.command(START)
    assert bridge.shown() is State.STARTING
    assert not bridge.connected
    await bridge.command(PAUSE)
    assert bridge.shown() is State.PAUSED
    await bridge.command(STOP)
    assert bridge.shown() is State.STOPPED


async def test_a_worker_that_has_just_started_does_not_keep_anybody_from_commanding() -> None:
    bridge = Bridge(1, 2)
    assert bridge.shown() is State.STOPPED
    await bridge.command(START)
    assert bridge.told == [Want("orders", Wanted.RUNNING, 1)]
    assert bridge.shown() is State.STARTING


@pytest.mark.parametrize(
    ("states", "whole"),
    [
        ((State.RUNNING, State.RUNNING), State.RUNNING),
        ((State.RUNNING, State.CONNECTING), State.CONNECTING),
        ((State.STARTING, State.CONNECTING), State.CONNECTING),
        ((State.RUNNING, State.STARTING), State.STARTING),
        ((State.RUNNING, State.STOPPED), State.STARTING),
        ((State.RUNNING, State.FAILED), State.FAILED),
        ((State.CONNECTING, State.FAILED), State.FAILED),
        # The second has just been started again.
        ((State.RUNNING,), State.RUNNING),
    ],
)
async def test_the_state_of_the_whole(states: tuple[State, ...], whole: State) -> None:
    bridge = Bridge(1, 2)
    await bridge.command(START)
    bridge.states(*states)
    assert bridge.shown() is whole


async def test_what_has_failed_says_where_and_why_until_it_is_started_again() -> None:
    bridge = Bridge(1, 2)
    await bridge.command(START)
    bridge.heard(1, report(state=State.RUNNING))
    bridge.heard(2, report(state=State.FAILED, reason="lane 3: SOURCE_GAP: 7 are gone"))
    assert bridge.reason == "worker 2: lane 3: SOURCE_GAP: 7 are gone"
    with pytest.raises(Conflict, match="FAILED cannot pause"):
        await bridge.command(PAUSE)
    await bridge.command(START)
    # The old report is no answer to the new order.
    assert (bridge.state, bridge.reason) == (State.STARTING, "")
    bridge.states(State.RUNNING, State.RUNNING, order=2)
    assert bridge.shown() is State.RUNNING


@pytest.mark.parametrize(
    ("command", "under_way", "arrived", "wanted"),
    [
        (STOP, State.STOPPING, State.STOPPED, Wanted.STOPPED),
        (PAUSE, State.PAUSING, State.PAUSED, Wanted.PAUSED),
    ],
)
@in_virtual_time
async def test_stop_and_pause_wait_for_every_worker(
    command: Command, under_way: State, arrived: State, wanted: Wanted
) -> None:
    bridge = Bridge(1, 2)
    await bridge.command(START)
    bridge.states(State.RUNNING, State.RUNNING)
    commanding = asyncio.create_task(bridge.command(command))
    await begin(commanding)
    assert bridge.told[-1] == Want("orders", wanted, 2)
    assert bridge.shown() is under_way
    with pytest.raises(Conflict, match=f"{under_way.value} cannot start"):
        await bridge.command(START)
    bridge.heard(1, report(state=arrived, order=2))
    await begin(commanding)
    bridge.heard(2, report(state=State.RUNNING, order=1))  # sent before the order came
    await begin(commanding)
    assert bridge.shown() is under_way
    bridge.heard(2, report(state=arrived, order=2))
    await commanding
    assert bridge.shown() is arrived


@in_virtual_time
async def test_a_worker_that_dies_has_stopped_and_the_next_one_has_nothing_to_stop() -> None:
    bridge = Bridge(1, 2)
    await bridge.command(START)
    bridge.states(State.RUNNING, State.RUNNING)
    stopping = asyncio.create_task(bridge.command(STOP))
    await begin(stopping)
    bridge.heard(1, report(state=State.STOPPED, order=2))
    bridge.detached(2)
    await stopping
    bridge.attached(2)
    assert bridge.want == Want("orders", Wanted.STOPPED, 2)
    assert bridge.shown() is State.STOPPED


@in_virtual_time
async def test_a_worker_that_starts_just_before_a_stop_is_waited_for() -> None:
    bridge = Bridge()
    await bridge.command(START)
    bridge.attached(1)  # it has the order to run, and no word of it has come yet
    stopping = asyncio.create_task(bridge.command(STOP))
    await begin(stopping)
    assert bridge.shown() is State.STOPPING
    bridge.heard(1, report(state=State.STOPPED, order=2))
    await stopping


@in_virtual_time
async def test_a_stop_overtakes_a_pause_and_ends_it() -> None:
    bridge = Bridge(1)
    await bridge.command(START)
    bridge.states(State.RUNNING)
    pausing = asyncio.create_task(bridge.command(PAUSE))
    await begin(pausing)
    stopping = asyncio.create_task(bridge.command(STOP))
    await begin(stopping)
    again = asyncio.create_task(bridge.command(STOP))
    await begin(again)
    assert [want.wanted for want in bridge.told if isinstance(want, Want)] == [
        Wanted.RUNNING,
        Wanted.PAUSED,
        Wanted.STOPPED,
    ]
    bridge.heard(1, report(state=State.STOPPED, order=3))
    await asyncio.gather(pausing, stopping, again)
    assert bridge.shown() is State.STOPPED


async def test_a_paused_bridge_goes_on_with_resume_and_with_start() -> None:
    for command in (RESUME, START):
        bridge = Bridge()
        await bridge.command(START)
        await bridge.command(PAUSE)
        await bridge.command(command)
        assert bridge.want.wanted is Wanted.RUNNING


async def test_numbers_are_sums_and_counters_of_a_dead_worker_stay() -> None:
    bridge = Bridge(1, 2)
    await bridge.command(START)
    bridge.heard(
        1, report(sent=10, acknowledged=8, in_flight=2, last_progress_ms=50, lag=(5, 700), store="kafka:a")
    )
    bridge.heard(
        2, report(sent=100, acknowledged=90, refused=3, replayed=4, in_flight=10, lag=(1, 600), reconnects=1)
    )
    counts = bridge.counts
    assert (counts.sent, counts.acknowledged, counts.refused, counts.replayed) == (110, 98, 3, 4)
    assert (counts.reconnects, counts.last_progress_ms) == (1, 50)
    assert (bridge.in_flight, bridge.lag, bridge.store) == (12, (6, 600), "kafka:a")

    bridge.detached(1)
    assert (bridge.in_flight, bridge.lag, bridge.store) == (10, (1, 600), "kafka:a")
    assert (bridge.counts.sent, bridge.counts.last_progress_ms) == (110, 50)
    bridge.attached(1)
    assert bridge.counts.sent == 110
    bridge.heard(1, report(sent=1))
    assert bridge.counts.sent == 111
    bridge.heard(1, report(sent=2))
    bridge.detached(1)
    bridge.detached(2)
    assert bridge.counts.sent == 112
    assert bridge.lag is None


async def test_the_lag_is_not_known_before_every_worker_has_reported_it() -> None:
    bridge = Bridge(1, 2)
    assert bridge.lag is None
    bridge.heard(1, report(lag=(5, 700)))
    assert bridge.lag is None
    bridge.heard(2, report(lag=None))
    assert bridge.lag is None
    bridge.heard(2, report(lag=(0, None)))
    assert bridge.lag == (5, 700)


async def test_the_lanes_of_a_dead_worker_are_missing_in_the_lag_until_another_has_them() -> None:
    bridge = Bridge(1, 2)
    bridge.heard(1, report(lag=(5, 700), owned_lanes=(0, 1)))
    bridge.heard(2, report(lag=(1, 800), owned_lanes=(2,)))
    bridge.detached(1)
    assert bridge.lag is None
    bridge.heard(2, report(lag=(4, 750), owned_lanes=(0, 2)))
    assert bridge.lag is None, "nobody has lane 1"
    bridge.heard(2, report(lag=(6, 700), owned_lanes=(0, 1, 2)))
    assert bridge.lag == (6, 700)


async def test_workers_that_do_not_know_their_lanes_yet_show_the_lag_of_all_once() -> None:
    bridge = Bridge(1, 2)
    bridge.heard(1, report(lag=(9, 700), lanes_known=False))
    bridge.heard(2, report(lag=(3, 800)))
    assert bridge.lag == (9, 700)


async def test_a_name_is_missing_where_no_worker_has_met_it() -> None:
    bridge = Bridge(1, 2)
    for worker, missing in ((1, {"a", "b"}), (2, {"b", "c"})):
        bridge.heard(worker, report(examined=500, taken=worker, missing=frozenset(missing)))
    assert (bridge.counts.examined, bridge.counts.taken) == (1000, 3)
    assert bridge.counts.missing == {"b"}
    bridge.heard(2, report(missing=frozenset()))
    assert bridge.counts.missing == {"a", "b"}, "a worker that has met no message knows nothing"


async def test_a_dead_workers_trouble_dies_with_it() -> None:
    bridge = Bridge(1)
    bridge.heard(1, report(trouble="TARGET_UNAVAILABLE: away"))
    assert bridge.counts.trouble == "TARGET_UNAVAILABLE: away"
    bridge.detached(1)
    assert bridge.counts.trouble == ""


@pytest.mark.parametrize(
    ("troubles", "whole"),
    [
        (("", STANDBY), ""),
        ((STANDBY, "away"), "away"),
        ((STANDBY, STANDBY), STANDBY),
        (("", ""), ""),
    ],
)
async def test_standby_workers_are_no_trouble_while_others_relay(
    troubles: tuple[str, ...], whole: str
) -> None:
    bridge = Bridge(1, 2)
    await bridge.command(START)
    for worker, trouble in enumerate(troubles, 1):
        bridge.heard(worker, report(trouble=trouble))
    assert bridge.counts.trouble == whole


async def test_it_is_connected_while_every_worker_is() -> None:
    bridge = Bridge(1, 2)
    await bridge.command(START)
    bridge.states(State.RUNNING, State.RUNNING)
    assert bridge.connected
    bridge.states(State.RUNNING, State.CONNECTING)
    assert not bridge.connected


async def test_its_lanes_are_those_of_all_workers_that_live() -> None:
    bridge = Bridge(1, 2)
    assert bridge.owned_lanes == []
    bridge.heard(1, report(owned_lanes=(3, 4)))
    bridge.heard(2, report(owned_lanes=(0,)))
    assert bridge.owned_lanes == [0, 3, 4]
    bridge.detached(1)
    assert bridge.owned_lanes == [0]


async def test_the_partitions_of_all_workers_are_asked_for_and_shown_in_order() -> None:
    bridge = Bridge(1, 2)
    asking = asyncio.create_task(bridge.partitions())
    await asyncio.sleep(0)
    ask = bridge.told[-1]
    assert ask == Ask("orders", 1)
    late, some, more = (PartitionStatus("orders", number, 0, number) for number in (2, 0, 1))
    bridge.answered(1, Rows("orders", 1, (late,), more=False))
    bridge.answered(2, Rows("orders", 7, (late,), more=False))  # to no question that waits
    bridge.answered(2, Rows("orders", 1, (some,), more=True))
    await asyncio.sleep(0)
    assert not asking.done()
    bridge.answered(2, Rows("orders", 1, (more,), more=False))
    assert await asking == [some, more, late]


async def test_a_worker_that_dies_with_a_question_is_not_waited_for() -> None:
    bridge = Bridge(1, 2)
    asking = asyncio.create_task(bridge.partitions())
    await asyncio.sleep(0)
    row = PartitionStatus("orders", 0, 3, 5)
    bridge.answered(1, Rows("orders", 1, (row,), more=False))
    bridge.detached(2)
    assert await asking == [row]
