from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest
from structlog.testing import LogCapture

from bridge.errors import Conflict, JournalUnavailable, SourceGap, TargetBusy
from bridge.messages.message import Message
from bridge.relay.backoff import Backoff
from bridge.relay.dead_letters import DeadLetters
from bridge.relay.lifecycle import Command, State
from bridge.relay.relay import LaneEnds, RelayOptions
from bridge.relay.stays import Remembered
from tests.fakes.ends import FakeJournal, FakeSource, FakeStore, FakeTarget
from tests.fakes.one_lane import OneLane
from tests.fakes.virtual_time import VirtualClock, in_virtual_time, now_ms
from tests.harness.eventually import until

BRIDGE = "orders-to-hub"
#: Of virtual time; a test that waits longer for something has failed.
LONGEST_S = 60
START, STOP, PAUSE, RESUME = Command.START, Command.STOP, Command.PAUSE, Command.RESUME


def bodies(first: int, end: int) -> list[bytes]:
    return [b"m%d" % number for number in range(first, end)]


class Bridge:
    """A relay between a fake journal and a fake store."""

    def __init__(self, *, most: int = 3, letters: bool = True, **options: object) -> None:
        self.journal = FakeJournal()
        self.journal.make("orders")
        self.store = FakeStore()
        #: The store where dead letters go: this node's own.
        self.home = FakeStore("home")
        self.most = most
        self.letters = letters
        self.options = RelayOptions(BRIDGE, **options)  # type: ignore[arg-type]
        self.relay = self.restarted()

    def restarted(self, store: FakeStore | None = None) -> OneLane:
        """The relay of another process on the same journal and store."""
        dead = DeadLetters(BRIDGE, "dead-letters", lambda name: FakeTarget(self.home, name))
        self.source = FakeSource(self.journal, most=self.most)
        self.relay = OneLane(
            self.options,
            LaneEnds(self.source, FakeTarget(store or self.store), dead if self.letters else None),
            clock=VirtualClock(),
        )
        return self.relay

    def put(self, values: Sequence[bytes], address: str = "orders") -> list[int]:
        return self.journal.put(address, *(Message(value) for value in values))

    async def start(self) -> None:
        await self.relay.command(START)

    async def stop(self) -> None:
        await self.relay.command(STOP)

    def state(self) -> State:
        return self.relay.state

    async def until(self, state: State) -> int:
        """Wait for the state; answers when it came, ms."""
        await until(lambda: self.relay.state is state, f"the relay is {state}", LONGEST_S)
        return now_ms()

    async def in_trouble(self) -> None:
        """Wait until the target has said that it takes nothing now."""
        await until(lambda: self.relay.counts.trouble, "the target takes nothing", LONGEST_S)

    async def idle(self) -> None:
        """Wait until everything has arrived and is settled."""

        def is_idle() -> bool:
            return self.in_flight == (0, 0, 0) and not any(map(self.backlog, self.journal.logs))

        await until(is_idle, "everything is settled", LONGEST_S)

    def backlog(self, address: str = "orders") -> list[Message]:
        return self.journal.backlog(BRIDGE, address)

    def stream(self, address: str = "orders") -> str:
        return self.journal.logs[address].stream

    @property
    def in_flight(self) -> tuple[int, int, int]:
        window = self.relay.window
        return window.bytes, window.messages, window.batches

    @property
    def arrived(self) -> list[bytes | None]:
        return self.store.bodies("orders")


def events(log: LogCapture) -> list[tuple[str, int | None]]:
    return [(entry["event"], entry.get("retry-in-ms")) for entry in log.entries]


# -- start and stop --------------------------------------------------------------------------------------


@in_virtual_time
async def test_start_relay_stop_and_start_again() -> None:
    """R1"""
    bridge = Bridge()
    bridge.put(bodies(0, 10))
    await bridge.start()
    await bridge.idle()
    await bridge.stop()
    assert bridge.relay.state is State.STOPPED
    bridge.put(bodies(10, 20))
    await asyncio.sleep(60)
    assert bridge.arrived == bodies(0, 10)
    await bridge.start()
    await bridge.idle()
    assert bridge.arrived == bodies(0, 20)
    await bridge.stop()


@in_virtual_time
async def test_the_states_on_the_way_and_connected_only_while_there_is_a_link() -> None:
    """R21"""
    bridge = Bridge()
    relay = bridge.relay
    assert (relay.state, relay.connected) == (State.STOPPED, False)
    bridge.store.down = True
    await bridge.start()
    assert relay.state is State.STARTING
    await bridge.until(State.CONNECTING)
    assert not relay.connected
    bridge.store.down = False
    assert await bridge.until(State.RUNNING) <= 2010
    assert (relay.connected, relay.store) == (True, "store-1")
    bridge.store.down = True
    bridge.put(bodies(0, 1))
    bridge.store.cut()
    await bridge.until(State.CONNECTING)
    assert not relay.connected
    await bridge.stop()
    assert (relay.state, relay.connected) == (State.STOPPED, False)


@pytest.mark.parametrize("again", [RESUME, START])
@in_virtual_time
async def test_resume_and_start_both_continue_after_a_pause(again: Command) -> None:
    """R18"""
    bridge = Bridge()
    bridge.put(bodies(0, 10))
    await bridge.start()
    await bridge.idle()
    await bridge.relay.command(PAUSE)
    assert bridge.relay.state is State.PAUSED
    bridge.put(bodies(10, 20))
    await asyncio.sleep(60)
    assert bridge.arrived == bodies(0, 10)
    await bridge.relay.command(again)
    await bridge.idle()
    assert bridge.arrived == bodies(0, 20)
    await bridge.stop()


@pytest.mark.parametrize(("command", "state"), [(STOP, State.STOPPED), (PAUSE, State.PAUSED)])
@in_virtual_time
async def test_stop_and_pause_give_up_receipts_that_never_come(command: Command, state: State) -> None:
    """R15"""
    bridge = Bridge(pending_ack_timeout_ms=2000)
    bridge.put(bodies(0, 10))
    bridge.store.drop_receipts()
    await bridge.start()
    await asyncio.sleep(0.1)
    before_ms = now_ms()
    await bridge.relay.command(command)
    assert 2000 <= now_ms() - before_ms < 2100
    assert (bridge.relay.state, len(bridge.backlog()), bridge.in_flight) == (state, 10, (0, 0, 0))
    await bridge.stop()


@pytest.mark.parametrize("command", [STOP, PAUSE])
@in_virtual_time
async def test_stop_and_pause_wait_for_receipts_that_come_late(command: Command) -> None:
    """R16"""
    bridge = Bridge(most=10)
    bridge.put(bodies(0, 10))
    bridge.store.delay_receipts(1.0)
    await bridge.start()
    await asyncio.sleep(0.1)
    await bridge.relay.command(command)
    assert (bridge.backlog(), bridge.arrived, bridge.in_flight) == ([], bodies(0, 10), (0, 0, 0))
    await bridge.stop()


@in_virtual_time
async def test_start_while_stopping_is_refused_and_commands_twice_do_nothing() -> None:
    """R19"""
    bridge = Bridge(most=10)
    bridge.put(bodies(0, 10))
    bridge.store.delay_receipts(1.0)
    await bridge.stop()
    await bridge.start()
    await bridge.start()
    await asyncio.sleep(0.1)
    await bridge.start()
    assert bridge.relay.state is State.RUNNING
    stops = [asyncio.create_task(bridge.stop()) for _ in range(2)]
    await asyncio.sleep(0.1)
    with pytest.raises(Conflict):
        await bridge.start()
    with pytest.raises(Conflict):
        await bridge.relay.command(RESUME)
    assert not any(stop.done() for stop in stops)
    await asyncio.gather(*stops)
    assert bridge.state() is State.STOPPED
    await bridge.stop()
    assert bridge.state() is State.STOPPED
    assert bridge.store.opens == 1


@in_virtual_time
async def test_a_stop_that_overtakes_a_pause_wins() -> None:
    bridge = Bridge(most=10)
    bridge.put(bodies(0, 10))
    bridge.store.delay_receipts(1.0)
    await bridge.start()
    await asyncio.sleep(0.1)
    pausing = asyncio.create_task(bridge.relay.command(PAUSE))
    await asyncio.sleep(0.1)
    assert bridge.relay.state is State.PAUSING
    await asyncio.gather(pausing, bridge.stop())
    assert bridge.state() is State.STOPPED


@in_virtual_time
async def test_stop_does_not_wait_for_a_target_that_never_answers() -> None:
    bridge = Bridge()
    bridge.store.hangs = True
    await bridge.start()
    await asyncio.sleep(1)
    assert bridge.relay.state is State.CONNECTING
    before_ms = now_ms()
    await bridge.stop()
    assert now_ms() - before_ms < 10


@in_virtual_time
async def test_stop_does_not_wait_for_the_next_try() -> None:
    """R20"""
    bridge = Bridge(backoff=Backoff(3_600_000, 1.0, 3_600_000))
    bridge.store.down = True
    await bridge.start()
    await asyncio.sleep(1)
    before_ms = now_ms()
    await bridge.stop()
    assert now_ms() - before_ms < 10
    assert bridge.store.links == set()


@in_virtual_time
async def test_started_twice_at_once_after_a_failure_it_lives_once() -> None:
    """R4"""
    bridge = Bridge(initial_connect_attempts=0)
    bridge.store.down = True
    await bridge.start()
    await bridge.until(State.FAILED)
    bridge.store.down = False
    await asyncio.gather(bridge.start(), bridge.start())
    await bridge.until(State.RUNNING)
    assert bridge.store.opens == 2
    await bridge.stop()


@in_virtual_time
async def test_a_stop_ends_a_start_that_waits_for_the_last_life_to_end() -> None:
    bridge = Bridge(initial_connect_attempts=0)
    source = bridge.source

    async def close_slowly() -> None:
        await asyncio.sleep(1)
        await FakeSource.close(source)

    source.close = close_slowly  # type: ignore[method-assign]
    bridge.store.down = True
    await bridge.start()
    await bridge.until(State.FAILED)
    bridge.store.down = False
    starting = asyncio.create_task(bridge.start())
    await asyncio.sleep(0.1)
    assert bridge.state() is State.CONNECTING
    await asyncio.gather(starting, bridge.stop())
    opens = bridge.store.opens
    await asyncio.sleep(60)
    assert (bridge.state(), bridge.store.opens) == (State.STOPPED, opens)


# -- reconnecting ----------------------------------------------------------------------------------------


async def opens_at(bridge: Bridge, count: int) -> list[int]:
    """When the next `count` openings are tried, ms."""
    times: list[int] = []
    known = bridge.store.opens
    while len(times) < count:
        await asyncio.sleep(0.001)
        times.extend([now_ms()] * (bridge.store.opens - known))
        known = bridge.store.opens
    return times


def gaps(times: Sequence[int]) -> list[int]:
    """Differences, in tenths of a second: the tests' clocks tick by the millisecond."""
    return [round((later - earlier) / 100) * 100 for earlier, later in pairwise(times)]


@in_virtual_time
async def test_a_first_start_tries_at_once_and_then_waits_longer_each_time_up_to_the_cap() -> None:
    """R6"""
    bridge = Bridge(backoff=Backoff(1000, 2.0, 6000))
    bridge.store.down = True
    await bridge.start()
    assert gaps([0, *await opens_at(bridge, 5)]) == [0, 2000, 4000, 6000, 6000]
    await bridge.stop()


@pytest.mark.parametrize(("asked_ms", "wait_ms"), [(5_000, 5_000), (1_000, 2_000), (600_000, 60_000)])
def test_a_target_that_is_busy_is_asked_again_when_it_says_and_not_before_the_interval(
    asked_ms: int, wait_ms: int
) -> None:
    waits: list[int] = []

    @in_virtual_time
    async def attempts() -> None:
        answers = [TargetBusy("come again", retry_after_ms=asked_ms)]

        async def connect() -> None:
            if answers:
                raise answers.pop()

        options = RelayOptions(BRIDGE, Backoff(1000, 2.0, 6000))
        await options.retrying(lost=True, before_wait=lambda _error, ms: waits.append(ms))(connect)

    attempts()
    assert waits == [wait_ms]


@in_virtual_time
async def test_the_logged_wait_is_the_wait_that_chance_has_drawn(log: LogCapture) -> None:
    """R6"""
    draws = iter([0.9, 0.1, *[0.5] * 20])
    bridge = Bridge(backoff=Backoff(4000, 1.0, 4000, lambda: next(draws)))
    await bridge.start()
    await bridge.until(State.RUNNING)
    bridge.store.down = True
    bridge.put(bodies(0, 1))
    bridge.store.cut()
    lost_ms = now_ms()
    (opened_ms,) = await opens_at(bridge, 1)
    (logged,) = [entry for entry in log.entries if entry["event"] == "bridge-disconnected"][:1]
    assert gaps([lost_ms, opened_ms]) == [round(logged["retry-in-ms"] / 100) * 100]
    await bridge.stop()


@in_virtual_time
async def test_after_the_loss_of_a_live_link_the_interval_comes_first_and_the_count_begins_anew() -> None:
    """R5, R6"""
    bridge = Bridge(backoff=Backoff(1000, 2.0, 6000))
    await bridge.start()
    await bridge.until(State.RUNNING)
    for _ in range(2):
        bridge.store.down = True
        bridge.put(bodies(0, 1))
        bridge.store.cut()
        lost_ms = now_ms()
        assert gaps([lost_ms, *await opens_at(bridge, 4)]) == [1000, 2000, 4000, 6000]
        bridge.store.down = False
        await bridge.until(State.RUNNING)
        await bridge.idle()
    assert bridge.relay.counts.reconnects == 2
    await bridge.stop()


@pytest.mark.parametrize("attempts", [0, 1, 3])
@in_virtual_time
async def test_n_attempts_are_n_plus_one_tries_and_then_it_has_failed(attempts: int) -> None:
    """R4, R5"""
    bridge = Bridge(initial_connect_attempts=attempts)
    bridge.put(bodies(0, 3))
    bridge.store.down = True
    await bridge.start()
    await bridge.until(State.FAILED)
    assert bridge.store.opens == attempts + 1
    assert f"after {attempts + 1} attempts" in bridge.relay.reason
    assert "connection refused" in bridge.relay.reason
    assert len(bridge.backlog()) == 3
    await asyncio.sleep(3600)
    assert bridge.store.opens == attempts + 1

    bridge.store.down = False
    await bridge.start()
    await bridge.idle()
    assert (bridge.arrived, bridge.relay.reason) == (bodies(0, 3), "")
    await bridge.stop()


@in_virtual_time
async def test_reconnecting_counts_its_own_attempts() -> None:
    """R5"""
    bridge = Bridge(initial_connect_attempts=-1, reconnect_attempts=1)
    bridge.store.down = True
    await bridge.start()
    await asyncio.sleep(60)
    assert bridge.relay.state is State.CONNECTING
    bridge.store.down = False
    await bridge.until(State.RUNNING)
    tried = bridge.store.opens
    bridge.store.down = True
    bridge.put(bodies(0, 1))
    await bridge.idle()
    bridge.put(bodies(1, 2))
    bridge.store.cut()
    bridge.put(bodies(2, 3))
    await bridge.until(State.FAILED)
    assert bridge.store.opens == tried + 2
    await bridge.stop()


@in_virtual_time
async def test_endless_attempts_never_end() -> None:
    """R5"""
    bridge = Bridge()
    bridge.store.down = True
    await bridge.start()
    await asyncio.sleep(3600)
    assert bridge.relay.state is State.CONNECTING
    assert bridge.store.opens > 1790
    await bridge.stop()


@in_virtual_time
async def test_a_target_that_comes_later_gets_what_waited() -> None:
    """B19"""
    bridge = Bridge()
    bridge.put(bodies(0, 100))
    bridge.store.down = True
    await bridge.start()
    await asyncio.sleep(60)
    bridge.store.down = False
    await bridge.idle()
    assert bridge.arrived == bodies(0, 100)
    await bridge.stop()


@in_virtual_time
async def test_a_target_that_comes_and_goes_gets_each_message_once() -> None:
    """R3"""
    bridge = Bridge()
    bridge.store.down = True
    bridge.put(bodies(0, 10))
    await bridge.start()
    await asyncio.sleep(5)
    bridge.store.down = False
    await bridge.idle()
    bridge.put(bodies(10, 20))
    await bridge.idle()
    bridge.store.down = True
    bridge.store.cut()
    bridge.put(bodies(20, 30))
    await asyncio.sleep(30)
    assert len(bridge.backlog()) == 10
    bridge.store.down = False
    await bridge.idle()
    assert bridge.arrived == bodies(0, 30)
    await bridge.stop()


@in_virtual_time
async def test_two_failed_tries_after_a_cut_then_a_hundred_in_order() -> None:
    """R7"""
    bridge = Bridge()
    await bridge.start()
    await bridge.until(State.RUNNING)
    bridge.store.down = True
    bridge.put(bodies(0, 1))
    bridge.store.cut()
    await opens_at(bridge, 2)
    assert bridge.in_flight == (0, 0, 0)
    bridge.store.down = False
    bridge.put(bodies(1, 100))
    await bridge.idle()
    assert bridge.arrived == bodies(0, 100)
    await bridge.stop()


@in_virtual_time
async def test_cut_twice_with_a_hundred_after_each() -> None:
    """R8"""
    bridge = Bridge()
    await bridge.start()
    await bridge.until(State.RUNNING)
    for number in range(2):
        bridge.store.cut()
        bridge.put(bodies(100 * number, 100 * number + 100))
        await bridge.idle()
    assert bridge.arrived == bodies(0, 200)
    await bridge.stop()


@in_virtual_time
async def test_ten_thousand_with_cuts_while_more_than_a_hundred_are_in_flight_arrive_once_each() -> None:
    """R12"""
    bridge = Bridge(most=10)
    bridge.store.delay_receipts(0.05)
    await bridge.start()
    await bridge.until(State.RUNNING)
    bridge.put(bodies(0, 10))
    await bridge.idle()
    for number in range(10):
        await bridge.until(State.RUNNING)
        bridge.put(bodies(10 + 1000 * number, 1010 + 1000 * number))
        await asyncio.sleep(0.02)
        assert bridge.relay.window.messages > 100
        bridge.store.cut()
        await bridge.until(State.CONNECTING)
    await bridge.idle()
    assert bridge.arrived == bodies(0, 10_010)
    assert bridge.in_flight == (0, 0, 0)
    assert bridge.relay.counts.reconnects == 10
    await bridge.stop()


@in_virtual_time
async def test_what_a_lost_receipt_confirmed_is_settled_at_the_next_opening_and_never_sent_again() -> None:
    bridge = Bridge(most=10)
    bridge.put(bodies(0, 10))
    bridge.store.drop_receipts()
    await bridge.start()
    await asyncio.sleep(0.1)
    bridge.store.drop_receipts(False)
    bridge.store.cut()
    await bridge.idle()
    assert bridge.journal.recovered == [(bridge.stream(), 0, 10)]
    assert len(bridge.store.batches) == 1
    counts = bridge.relay.counts
    assert (counts.sent, counts.acknowledged, counts.resent) == (10, 10, 0), "confirmed is acknowledged"
    await bridge.stop()


@in_virtual_time
async def test_what_a_cut_lost_counts_as_sent_again_and_what_it_did_not_as_acknowledged() -> None:
    bridge = Bridge(most=2)
    bridge.put(bodies(0, 10))
    bridge.store.cut_after(3)
    await bridge.start()
    await bridge.idle()
    counts = bridge.relay.counts
    assert (counts.acknowledged, counts.sent) == (10, 10 + counts.resent)
    assert counts.resent == 4, "two batches behind the one whose receipt the cut took"
    await bridge.stop()


@in_virtual_time
async def test_stamped_ids_are_the_same_after_a_cut_and_a_restart_and_others_in_a_new_incarnation() -> None:
    """B10, B13"""

    async def ids(cut: bool) -> list[str]:
        bridge = Bridge(most=2)
        bridge.put(bodies(0, 6))
        if cut:
            bridge.store.cut_after(2)
        await bridge.start()
        await asyncio.sleep(0.5 if cut else 3)
        await bridge.stop()
        bridge.restarted()
        await bridge.start()
        await bridge.idle()
        await bridge.stop()
        return [arrived.duplicate_id for arrived in bridge.store.addresses["orders"]]

    undisturbed = await ids(cut=False)
    assert await ids(cut=True) == undisturbed
    assert len(set(undisturbed)) == 6

    restored = Bridge()
    restored.journal = FakeJournal("incarnation-2")
    restored.put(bodies(0, 6))
    await restored.restarted().command(START)
    await restored.idle()
    assert not {arrived.duplicate_id for arrived in restored.store.addresses["orders"]} & set(undisturbed)
    await restored.stop()


@in_virtual_time
async def test_a_restored_source_with_a_new_incarnation_delivers_all_it_has() -> None:
    """B13"""
    bridge = Bridge()
    bridge.put(bodies(0, 10))
    await bridge.start()
    await bridge.idle()
    await bridge.stop()
    bridge.journal = FakeJournal("incarnation-2")
    bridge.put(bodies(10, 20))
    await bridge.restarted().command(START)
    await bridge.idle()
    assert bridge.arrived == bodies(0, 20)
    await bridge.stop()


@in_virtual_time
async def test_bodies_headers_and_order_of_another_readers_copy_are_untouched() -> None:
    """B8"""
    bridge = Bridge()
    original = [Message(value, headers=(("a", b"1"), ("b", None))) for value in bodies(0, 1000)]
    bridge.journal.put("orders", *original)
    await bridge.start()
    await bridge.idle()
    assert list(bridge.journal.logs["orders"].messages.values()) == original
    assert [arrived.message for arrived in bridge.store.addresses["orders"]] == original
    await bridge.stop()


# -- what a target says ----------------------------------------------------------------------------------


@in_virtual_time
async def test_a_full_target_is_asked_again_after_the_interval_and_flows_when_there_is_room() -> None:
    """B20, B23"""
    bridge = Bridge(most=10)
    bridge.put(bodies(0, 1000))
    bridge.store.not_now(1 << 30)
    await bridge.start()
    await bridge.in_trouble()
    assert (bridge.relay.state, bridge.relay.connected) == (State.WAITING, True)
    assert gaps(await opens_at(bridge, 4)) == [2000, 2000, 2000]
    assert "ADDRESS_FULL" in bridge.relay.counts.trouble
    assert (bridge.arrived, len(bridge.backlog())) == ([], 1000)
    room_ms = now_ms()
    bridge.store.not_now(0)
    await bridge.idle()
    assert now_ms() - room_ms <= 2010
    assert bridge.arrived == bodies(0, 1000)
    assert bridge.home.bodies("dead-letters") == []
    assert bridge.relay.counts.trouble == ""
    await bridge.stop()


@in_virtual_time
async def test_a_full_target_is_asked_with_one_batch_and_gets_more_as_it_stores_them() -> None:
    bridge = Bridge(most=10)
    bridge.put(bodies(0, 1000))
    bridge.store.not_now(1 << 30)
    await bridge.start()
    await opens_at(bridge, 1)
    first = bridge.relay.counts.sent
    seen: set[State] = set()
    for _ in range(10):
        await opens_at(bridge, 1)
        seen.add(bridge.relay.state)
    assert seen == {State.WAITING}, "it does not flap"
    assert bridge.relay.counts.sent - first <= 10 * 10
    bridge.store.not_now(0)
    await bridge.idle()
    assert bridge.arrived == bodies(0, 1000)
    assert bridge.relay.state is State.RUNNING
    await bridge.stop()


@in_virtual_time
async def test_a_target_that_stays_full_is_asked_less_and_less_often() -> None:
    bridge = Bridge(backoff=Backoff(1000, 2.0, 6000))
    bridge.put(bodies(0, 1))
    bridge.store.not_now(1 << 30)
    await bridge.start()
    assert gaps(await opens_at(bridge, 6)) == [1000, 2000, 4000, 6000, 6000]
    await bridge.stop()


@in_virtual_time
async def test_stop_while_waiting_for_room_is_done_at_once() -> None:
    bridge = Bridge()
    bridge.put(bodies(0, 1))
    bridge.store.not_now(1 << 30)
    await bridge.start()
    await bridge.in_trouble()
    before_ms = now_ms()
    await bridge.stop()
    assert now_ms() - before_ms < 10
    assert len(bridge.backlog()) == 1


@in_virtual_time
async def test_a_refused_message_becomes_a_dead_letter_and_the_rest_goes_on(log: LogCapture) -> None:
    bridge = Bridge(most=10)
    bridge.put(bodies(0, 10))
    bridge.store.refuse(3)
    await bridge.start()
    await bridge.idle()
    assert bridge.store.places("orders") == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert bridge.home.bodies("dead-letters") == [b"m3"]
    assert [entry for entry in log.entries if entry["event"] == "dead-letter"] == [
        {
            "event": "dead-letter",
            "log_level": "warning",
            "bridge": BRIDGE,
            "stream": bridge.stream(),
            "position": 3,
            "reason": "MESSAGE_TOO_LARGE: it is",
        }
    ]
    assert bridge.relay.counts.refused == 1
    await bridge.stop()


@in_virtual_time
async def test_a_crash_between_the_dead_letter_and_its_coverage_stores_it_once() -> None:
    bridge = Bridge(most=10)
    bridge.put(bodies(0, 10))
    bridge.store.refuse(3, 4, 7)
    bridge.store.delay_receipts(0.1)
    await bridge.start()
    await until(lambda: len(bridge.home.bodies("dead-letters")) == 2, "two dead letters are stored")
    bridge.store.down = True  # the process dies before anything is covered
    bridge.store.cut()
    await bridge.stop()
    assert bridge.store.next(BRIDGE, bridge.stream()) is None
    bridge.store.down = False
    await bridge.restarted().command(START)
    await bridge.idle()
    assert bridge.home.bodies("dead-letters") == [b"m3", b"m4", b"m7"]
    assert bridge.store.places("orders") == [0, 1, 2, 5, 6, 8, 9]
    await bridge.stop()


@in_virtual_time
async def test_without_a_dead_letter_address_the_first_refusal_fails_the_bridge(log: LogCapture) -> None:
    bridge = Bridge(letters=False)
    bridge.put(bodies(0, 3))
    bridge.store.refuse(1)
    await bridge.start()
    await bridge.until(State.FAILED)
    assert "dead-letter-address is empty" in bridge.relay.reason
    assert "position 1" in bridge.relay.reason
    assert len(bridge.backlog()) == 3
    assert events(log)[-1] == ("bridge-failed", None)
    await bridge.stop()


@in_virtual_time
async def test_a_dead_letter_that_finds_no_room_is_tried_again_and_nothing_is_lost() -> None:
    bridge = Bridge()
    bridge.put(bodies(0, 3))
    bridge.store.refuse(1)
    bridge.home.not_now(2)
    await bridge.start()
    await bridge.idle()
    assert bridge.home.bodies("dead-letters") == [b"m1"]
    assert bridge.arrived == [b"m0", b"m2"]
    await bridge.stop()


@in_virtual_time
async def test_a_dead_letter_that_can_never_be_stored_fails_the_bridge() -> None:
    bridge = Bridge()
    bridge.put(bodies(0, 3))
    bridge.store.refuse(1)
    bridge.home.refuse(0)
    await bridge.start()
    await bridge.until(State.FAILED)
    assert "the dead letter of" in bridge.relay.reason
    assert len(bridge.backlog()) == 3
    await bridge.stop()


# -- who the target is -----------------------------------------------------------------------------------


async def ran_before() -> Bridge:
    bridge = Bridge()
    bridge.put(bodies(0, 10))
    await bridge.start()
    await bridge.idle()
    await bridge.stop()
    return bridge


@in_virtual_time
async def test_a_bridge_that_has_run_refuses_another_store() -> None:
    bridge = await ran_before()
    other = FakeStore("store-2")
    await bridge.restarted(other).command(START)
    await bridge.until(State.FAILED)
    for part in ("TARGET_REFUSED", "store-1", "store-2", "failover", "up to 10"):
        assert part in bridge.relay.reason
    assert other.batches == []
    await bridge.stop()


@in_virtual_time
async def test_a_bridge_that_has_run_refuses_a_store_that_knows_nothing_of_it() -> None:
    bridge = await ran_before()
    bridge.put(bodies(10, 12))
    emptied = FakeStore("store-1")
    await bridge.restarted(emptied).command(START)
    await bridge.until(State.FAILED)
    for part in ("core-bridge positions", "store-1", "up to 10"):
        assert part in bridge.relay.reason
    assert emptied.batches == []
    await bridge.stop()


@in_virtual_time
async def test_a_target_that_is_ahead_of_the_source_fails_the_bridge_by_the_numbers() -> None:
    bridge = await ran_before()
    bridge.store.positions[BRIDGE, bridge.stream()].next = 50
    await bridge.start()
    await bridge.until(State.FAILED)
    assert "50" in bridge.relay.reason
    assert SourceGap.code in bridge.relay.reason
    await bridge.stop()


@in_virtual_time
async def test_a_target_restored_from_a_backup_gets_again_what_the_source_still_has() -> None:
    bridge = Bridge(most=2)
    bridge.put(bodies(0, 4))
    await bridge.start()
    await bridge.idle()
    backup = bridge.store.backup()
    bridge.put(bodies(4, 10))
    await bridge.idle()
    await bridge.stop()
    bridge.store.restore(backup)
    await bridge.start()
    bridge.put(bodies(10, 12))
    await bridge.idle()
    assert bridge.arrived == bodies(0, 12)
    assert bridge.journal.settled[BRIDGE, bridge.stream()] == Remembered(12, "store-1")
    await bridge.stop()


@in_virtual_time
async def test_a_source_that_fails_for_a_moment_is_tried_again() -> None:
    bridge = Bridge()
    await bridge.start()
    await bridge.until(State.RUNNING)
    bridge.source.read_fails = JournalUnavailable("the disk is gone")
    bridge.put(bodies(0, 10))
    await bridge.idle()
    assert bridge.arrived == bodies(0, 10)
    await bridge.stop()


@in_virtual_time
async def test_a_bug_in_an_end_shows_as_failed_with_its_name(log: LogCapture) -> None:
    bridge = Bridge()
    await bridge.start()
    await bridge.until(State.RUNNING)
    bridge.source.read_fails = ZeroDivisionError("division by zero")
    bridge.put(bodies(0, 1))
    await bridge.until(State.FAILED)
    assert bridge.relay.reason == "ZeroDivisionError: division by zero"
    assert log.entries[-1]["exc_info"] is not None
    await bridge.start()
    await bridge.idle()
    await bridge.stop()


@in_virtual_time
async def test_addresses_that_come_to_be_are_relayed_without_a_restart() -> None:
    bridge = Bridge()
    bridge.source.forward = lambda address: f"us.{address}"
    await bridge.start()
    await bridge.until(State.RUNNING)
    bridge.put(bodies(0, 3))
    bridge.put(bodies(3, 6), "invoices")
    await bridge.idle()
    assert bridge.store.bodies("us.orders") == bodies(0, 3)
    assert bridge.store.bodies("us.invoices") == bodies(3, 6)
    assert bridge.relay.counts.reconnects == 0
    await bridge.stop()


@in_virtual_time
async def test_two_relays_of_one_bridge_store_each_message_once() -> None:
    bridge = Bridge(most=2)
    first = bridge.relay
    await bridge.start()
    await bridge.until(State.RUNNING)
    second = bridge.restarted()
    await second.command(START)
    for number in range(5):
        bridge.put(bodies(10 * number, 10 * number + 10))
        await asyncio.sleep(3)
    await first.command(STOP)
    await bridge.idle()
    assert bridge.arrived == bodies(0, 50)
    await second.command(STOP)


@in_virtual_time
async def test_while_it_waits_for_room_it_says_why_once_and_again_after_room_was_found(
    log: LogCapture,
) -> None:
    """B20"""
    bridge = Bridge()
    for number in range(2):
        bridge.store.not_now(5)
        bridge.put(bodies(number, number + 1))
        await bridge.start()
        await bridge.idle()
    await bridge.stop()
    assert events(log) == [
        ("bridge-connected", None),
        ("bridge-waits", 2000),
    ]


# -- what is logged --------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_loss_and_its_end_are_one_line_each_however_long_it_took(log: LogCapture) -> None:
    bridge = Bridge(backoff=Backoff(1000, 1.0, 5000))
    await bridge.start()
    await bridge.until(State.RUNNING)
    bridge.store.down = True
    bridge.store.drop_receipts()
    bridge.put(bodies(0, 1))
    await asyncio.sleep(0.01)
    bridge.store.cut()
    await asyncio.sleep(600)
    bridge.store.down = False
    bridge.store.drop_receipts(False)
    await bridge.until(State.RUNNING)
    await bridge.stop()
    assert events(log) == [
        ("bridge-connected", None),
        ("bridge-disconnected", 1000),
        ("bridge-disconnected", 1000),
        ("bridge-connected", None),
    ]
    reasons = [entry["reason"] for entry in log.entries if "reason" in entry]
    assert reasons == ["TARGET_UNAVAILABLE: the link was cut", "TARGET_UNAVAILABLE: connection refused"]
    assert {entry["bridge"] for entry in log.entries} == {BRIDGE}


@in_virtual_time
async def test_attempts_used_up_are_logged_with_the_last_reason(log: LogCapture) -> None:
    bridge = Bridge(initial_connect_attempts=1)
    bridge.store.down = True
    await bridge.start()
    await bridge.until(State.FAILED)
    assert events(log) == [("bridge-disconnected", 2000), ("bridge-failed", None)]
    assert log.entries[-1] == {
        "event": "bridge-failed",
        "log_level": "error",
        "bridge": BRIDGE,
        "reason": "no connection after 2 attempts: TARGET_UNAVAILABLE: connection refused",
    }
    await bridge.stop()
