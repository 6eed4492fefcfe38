"""Several connectors, tried in order; another store, refused or gone on with; back to the first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import LogCapture

from bridge.errors import Conflict, TargetRefused
from bridge.messages.message import Message
from bridge.relay.backoff import Backoff
from bridge.relay.connectors import Connector
from bridge.relay.lifecycle import Command, State
from bridge.relay.relay import LaneEnds, RelayOptions
from bridge.relay.stays import Remembered, Stays
from tests.fakes.ends import FakeJournal, FakeSource, FakeStore, FakeTarget
from tests.fakes.one_lane import OneLane
from tests.fakes.virtual_time import VirtualClock, in_virtual_time, now_ms
from tests.harness.eventually import until

BRIDGE = "orders-to-hub"
#: Of virtual time; a test that waits longer for something has failed.
LONGEST_S = 60


def bodies(first: int, end: int) -> list[bytes]:
    return [b"m%d" % number for number in range(first, end)]


class Bridge:
    """A relay between a fake journal and fake stores, each behind a connector of its own."""

    def __init__(self, *stores: FakeStore, failover: bool = True, **options: object) -> None:
        self.journal = FakeJournal()
        self.stream = self.journal.make("orders").stream
        self.stores = stores or (FakeStore("store-a"), FakeStore("store-b"))
        self.options = RelayOptions(BRIDGE, changes_store=failover, **options)  # type: ignore[arg-type]
        self.restarted()

    def restarted(self) -> None:
        """The relay of another process on the same journal."""
        ways = [
            Connector(f"hub-{number}", FakeTarget(store), None) for number, store in enumerate(self.stores)
        ]
        self.source = FakeSource(self.journal)
        ends = LaneEnds(self.source, ways[0].target, connector=ways[0].name, failovers=ways[1:])
        self.relay = OneLane(self.options, ends, clock=VirtualClock())

    def put(self, first: int, end: int) -> None:
        self.journal.put("orders", *map(Message, bodies(first, end)))

    async def tell(self, command: Command) -> None:
        await self.relay.command(command)

    async def until(self, state: State, connector: str = "") -> int:
        """Wait for the state, by this connector where one is named; answers when it came, ms."""

        def is_there() -> bool:
            return self.relay.state is state and connector in ("", self.relay.connector)

        await until(is_there, f"it is {state} by {connector}", LONGEST_S)
        return now_ms()

    async def idle(self) -> None:
        """Wait until everything has arrived and is settled."""
        await until(lambda: not self.journal.backlog(BRIDGE, "orders"), "everything is settled", LONGEST_S)
        await until(lambda: self.relay.in_flight == 0, "nothing is in flight", LONGEST_S)

    async def lose(self, store: int) -> None:
        """The store goes, and the relay has noticed it."""
        self.stores[store].down = True
        self.stores[store].cut()
        await self.until(State.CONNECTING)

    def arrived(self, store: int) -> list[bytes | None]:
        return self.stores[store].bodies("orders")


def opens(bridge: Bridge) -> list[int]:
    return [store.opens for store in bridge.stores]


def in_doubt(log: LogCapture) -> list[tuple[int, int]]:
    return [(entry["from"], entry["upto"]) for entry in log.entries if entry["event"] == "failover-in-doubt"]


async def at_the_second(bridge: Bridge) -> None:
    """Messages 0 to 4 to the first, which goes then; 5 to 9 to the second."""
    bridge.put(0, 5)
    await bridge.tell(Command.START)
    await bridge.idle()
    await bridge.lose(0)
    bridge.put(5, 10)
    await bridge.until(State.RUNNING, "hub-1")
    await bridge.idle()


# -- the order, and the counts ---------------------------------------------------------------------------


@in_virtual_time
async def test_the_first_that_answers_is_taken_in_the_configured_order_at_once() -> None:
    bridge = Bridge(*[FakeStore(name) for name in ("store-a", "store-b", "store-c")])
    bridge.stores[0].down = True
    await bridge.tell(Command.START)
    assert await bridge.until(State.RUNNING, "hub-1") < 100
    assert opens(bridge) == [1, 1, 0] or opens(bridge) == [1, 2, 0]
    await bridge.tell(Command.STOP)


@pytest.mark.parametrize("tries", [0, 2, 10])
@in_virtual_time
async def test_after_a_loss_the_same_connector_is_tried_so_often_before_the_others(tries: int) -> None:
    """R24"""
    bridge = Bridge(reconnect_attempts_same_node=tries, backoff=Backoff(200, 1.0, 200))
    bridge.put(0, 5)
    await bridge.tell(Command.START)
    await bridge.idle()
    before, lost_ms = bridge.stores[0].opens, now_ms()
    bridge.stores[0].down = True
    bridge.stores[0].cut()
    took_ms = await bridge.until(State.RUNNING, "hub-1") - lost_ms
    assert bridge.stores[0].opens - before == tries + 1, "and once with all the others"
    assert round(took_ms / 200) == tries + 1
    await bridge.tell(Command.STOP)


@in_virtual_time
async def test_without_an_end_of_tries_at_the_same_connector_no_other_is_tried() -> None:
    """R24"""
    bridge = Bridge(reconnect_attempts_same_node=-1)
    bridge.put(0, 5)
    await bridge.tell(Command.START)
    await bridge.idle()
    bridge.stores[0].down = True
    bridge.stores[0].cut()
    await asyncio.sleep(60)
    assert (bridge.relay.state, bridge.stores[1].opens) == (State.CONNECTING, 0)
    bridge.stores[0].down = False
    await bridge.until(State.RUNNING, "hub-0")
    await bridge.tell(Command.STOP)


@in_virtual_time
async def test_attempts_used_up_end_in_failed_with_every_reason_and_start_tries_again() -> None:
    """R4, R5"""
    bridge = Bridge(initial_connect_attempts=1)
    for store in bridge.stores:
        store.down = True
    await bridge.tell(Command.START)
    await bridge.until(State.FAILED)
    assert opens(bridge) == [2, 2]
    for part in ("after 2 attempts", "hub-0: ", "hub-1: ", "connection refused"):
        assert part in bridge.relay.reason
    bridge.stores[1].down = False
    await bridge.tell(Command.START)
    await bridge.until(State.RUNNING, "hub-1")
    await bridge.tell(Command.STOP)


# -- another store ---------------------------------------------------------------------------------------


@in_virtual_time
async def test_where_another_store_is_refused_the_first_is_waited_for(log: LogCapture) -> None:
    """R22"""
    bridge = Bridge(failover=False, reconnect_attempts_same_node=0)
    bridge.put(0, 5)
    await bridge.tell(Command.START)
    await bridge.idle()
    await bridge.lose(0)
    bridge.put(5, 7)
    await asyncio.sleep(60)
    assert bridge.relay.state is State.CONNECTING
    for part in ("hub-0: ", "connection refused", "hub-1: another store than before, store-b", "refuse"):
        assert part in bridge.relay.counts.trouble
    assert (bridge.arrived(1), in_doubt(log)) == ([], [])

    bridge.stores[0].down = False
    await bridge.idle()
    assert (bridge.relay.connector, bridge.arrived(0)) == ("hub-0", bodies(0, 7))
    await bridge.tell(Command.STOP)


@in_virtual_time
async def test_tries_used_up_where_another_store_is_refused_end_in_failed_and_start_tries_again() -> None:
    """R5"""
    bridge = Bridge(failover=False, reconnect_attempts_same_node=1, reconnect_attempts=3)
    bridge.put(0, 5)
    await bridge.tell(Command.START)
    await bridge.idle()
    before = opens(bridge)
    bridge.stores[0].down = True
    bridge.stores[0].cut()
    await bridge.until(State.FAILED)
    assert [now - then for now, then in zip(opens(bridge), before, strict=True)] == [4, 3]
    for part in ("after 4 attempts", "hub-0: ", "hub-1: another store than before, store-b"):
        assert part in bridge.relay.reason
    bridge.stores[0].down = False
    await bridge.tell(Command.START)
    await bridge.until(State.RUNNING, "hub-0")
    await bridge.tell(Command.STOP)


@in_virtual_time
async def test_where_every_connector_leads_to_another_store_none_is_waited_for() -> None:
    bridge = Bridge(failover=False, reconnect_attempts_same_node=0)
    bridge.put(0, 5)
    await bridge.tell(Command.START)
    await bridge.idle()
    await bridge.tell(Command.STOP)
    bridge.stores = (FakeStore("store-c"), FakeStore("store-d"))
    bridge.restarted()
    await bridge.tell(Command.START)
    await bridge.until(State.FAILED)
    for part in ("store-a", "store-c", "failover", f"positions {BRIDGE} --connector hub-0 --from group"):
        assert part in bridge.relay.reason
    await bridge.tell(Command.STOP)


@in_virtual_time
async def test_another_connector_to_the_same_store_is_gone_on_with_though_failover_refuses() -> None:
    store = FakeStore("store-a")
    gate = FakeStore("store-a")
    gate.positions, gate.addresses = store.positions, store.addresses
    bridge = Bridge(store, gate, failover=False, reconnect_attempts_same_node=0)
    bridge.put(0, 5)
    await bridge.tell(Command.START)
    await bridge.idle()
    store.down = True
    store.cut()
    bridge.put(5, 9)
    await bridge.idle()
    assert (bridge.relay.connector, bridge.arrived(0)) == ("hub-1", bodies(0, 9))
    await bridge.tell(Command.STOP)


@in_virtual_time
async def test_a_first_batch_that_no_store_has_confirmed_is_not_sent_to_another_unnoticed(
    log: LogCapture,
) -> None:
    bridge = Bridge(failover=False, reconnect_attempts_same_node=0, pending_ack_timeout_ms=0)
    bridge.stores[0].cut_after(2)  # the beginning of the stream, and its first batch
    bridge.put(0, 3)
    await bridge.tell(Command.START)
    await until(lambda: bridge.arrived(0), "the batch is stored", LONGEST_S)
    bridge.stores[0].down = True
    assert bridge.journal.settled[BRIDGE, bridge.stream] == Remembered(0, "store-a")
    await bridge.tell(Command.STOP)
    bridge.restarted()
    await bridge.tell(Command.START)
    await until(lambda: "another store than before, store-b" in bridge.relay.counts.trouble, "b is refused")
    assert (bridge.relay.state, bridge.arrived(1)) == (State.CONNECTING, [])
    await bridge.tell(Command.STOP)


@in_virtual_time
async def test_at_least_once_goes_on_and_logs_exactly_what_may_be_doubled(log: LogCapture) -> None:
    """R22"""
    bridge = Bridge(reconnect_attempts_same_node=0)
    bridge.put(0, 5)
    await bridge.tell(Command.START)
    await bridge.idle()
    bridge.stores[0].drop_receipts()
    bridge.put(5, 11)
    await until(lambda: len(bridge.arrived(0)) == 11, "the first has stored them", LONGEST_S)
    await bridge.lose(0)
    bridge.put(11, 20)
    await bridge.idle()
    assert bridge.arrived(1) == bodies(5, 20)
    assert in_doubt(log) == [(5, 11)]
    (entry,) = (entry for entry in log.entries if entry["event"] == "failover-in-doubt")
    assert (entry["before"], entry["store"], entry["stream"]) == ("store-a", "store-b", bridge.stream)
    stays = Stays(first=5, past={"store-a": ((0, 4),)})
    assert bridge.journal.settled[BRIDGE, bridge.stream] == Remembered(20, "store-b", stays)
    await bridge.tell(Command.STOP)


@in_virtual_time
async def test_nothing_in_flight_is_nothing_in_doubt(log: LogCapture) -> None:
    bridge = Bridge(reconnect_attempts_same_node=0)
    await at_the_second(bridge)
    assert (bridge.arrived(0), bridge.arrived(1)) == (bodies(0, 5), bodies(5, 10))
    assert in_doubt(log) == []
    await bridge.tell(Command.STOP)


@in_virtual_time
async def test_a_process_that_does_not_know_what_was_sent_logs_all_that_is_left(log: LogCapture) -> None:
    bridge = Bridge(reconnect_attempts_same_node=0)
    bridge.put(0, 5)
    await bridge.tell(Command.START)
    await bridge.idle()
    await bridge.tell(Command.STOP)
    bridge.put(5, 12)
    bridge.stores[0].down = True
    bridge.restarted()
    await bridge.tell(Command.START)
    await bridge.idle()
    assert (in_doubt(log), bridge.arrived(1)) == ([(5, 12)], bodies(5, 12))
    await bridge.tell(Command.STOP)


@in_virtual_time
async def test_what_the_store_had_at_the_opening_is_in_doubt_where_the_source_does_not_know_it_yet(
    log: LogCapture,
) -> None:
    """A process before this one had sent it. Kafka's source records it once the delivery log has it."""
    bridge = Bridge(reconnect_attempts_same_node=0)
    bridge.put(0, 8)
    await bridge.tell(Command.START)
    await bridge.idle()
    await bridge.tell(Command.STOP)
    bridge.restarted()
    await bridge.tell(Command.START)
    await bridge.until(State.RUNNING, "hub-0")
    bridge.journal.settled[BRIDGE, bridge.stream] = Remembered(5, "store-a")
    await bridge.lose(0)
    bridge.put(8, 10)
    await bridge.idle()
    assert (in_doubt(log), bridge.arrived(1)) == ([(5, 8)], bodies(5, 10))
    await bridge.tell(Command.STOP)


@in_virtual_time
async def test_a_crash_between_both_ends_changes_the_store_again_and_loses_nothing(
    log: LogCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge = Bridge(reconnect_attempts_same_node=0)
    bridge.put(0, 5)
    await bridge.tell(Command.START)
    await bridge.idle()
    await bridge.tell(Command.STOP)
    bridge.put(5, 8)
    bridge.stores[0].down = True
    bridge.restarted()

    async def dies(*_: object) -> None:
        raise TargetRefused("the process dies here")

    monkeypatch.setattr(bridge.source, "begin", dies)
    await bridge.tell(Command.START)
    await bridge.until(State.FAILED)
    await bridge.tell(Command.STOP)
    assert bridge.stores[1].next(BRIDGE, bridge.stream) == 5
    assert bridge.journal.settled[BRIDGE, bridge.stream] == Remembered(5, "store-a")
    bridge.restarted()
    await bridge.tell(Command.START)
    await bridge.idle()
    assert (bridge.arrived(1), in_doubt(log)) == (bodies(5, 8), [(5, 8)] * 2)
    await bridge.tell(Command.STOP)


@in_virtual_time
async def test_a_node_that_hands_over_is_waited_for_until_its_heir_answers_for_its_store(
    log: LogCapture,
) -> None:
    """S3, R22: no change of store, though `failover` would allow one meanwhile."""
    bridge = Bridge(reconnect_attempts_same_node=0)
    bridge.put(0, 5)
    await bridge.tell(Command.START)
    await bridge.idle()
    leaver, heir = bridge.stores
    leaver.stopping = True
    leaver.cut()
    bridge.put(5, 9)
    await asyncio.sleep(60)
    assert (bridge.relay.state, bridge.arrived(1)) == (State.CONNECTING, [])
    heir.positions, heir.inherited = leaver.positions, (leaver.identity,)
    await bridge.idle()
    assert (bridge.relay.connector, bridge.arrived(1)) == ("hub-1", bodies(5, 9))
    assert in_doubt(log) == []
    await bridge.tell(Command.STOP)


# -- staying, and going back -----------------------------------------------------------------------------


@in_virtual_time
async def test_it_stays_where_it_is_when_the_first_is_back_and_after_a_restart(log: LogCapture) -> None:
    """R22"""
    bridge = Bridge(reconnect_attempts_same_node=0)
    await at_the_second(bridge)
    bridge.stores[0].down = False
    bridge.put(10, 12)
    await asyncio.sleep(60)
    assert bridge.relay.connector == "hub-1"
    await bridge.tell(Command.STOP)
    bridge.restarted()
    bridge.put(12, 15)
    await bridge.tell(Command.START)
    await bridge.idle()
    assert (bridge.relay.connector, bridge.arrived(1)) == ("hub-1", bodies(5, 15))
    assert (bridge.arrived(0), in_doubt(log)) == (bodies(0, 5), [])
    await bridge.tell(Command.STOP)


@in_virtual_time
async def test_failback_returns_to_the_first_once_what_was_sent_is_answered(log: LogCapture) -> None:
    bridge = Bridge(reconnect_attempts_same_node=0)
    await at_the_second(bridge)
    bridge.stores[0].down = False
    bridge.stores[1].delay_receipts(1)
    bridge.put(10, 13)
    await until(lambda: bridge.relay.in_flight, "the messages are sent", LONGEST_S)
    await bridge.tell(Command.FAILBACK)
    await bridge.until(State.RUNNING, "hub-0")
    bridge.put(13, 16)
    await bridge.idle()
    assert bridge.arrived(0) == [*bodies(0, 5), *bodies(13, 16)]
    assert (bridge.arrived(1), in_doubt(log)) == (bodies(5, 13), [])
    await bridge.tell(Command.FAILBACK)  # it is there
    assert bridge.relay.state is State.RUNNING
    await bridge.tell(Command.STOP)


@pytest.mark.parametrize("first_is_there", [True, False])
@in_virtual_time
async def test_failback_that_comes_while_another_connector_is_tried_is_not_forgotten(
    log: LogCapture, first_is_there: bool
) -> None:
    bridge = Bridge(reconnect_attempts_same_node=0)
    await at_the_second(bridge)
    bridge.stores[0].down = not first_is_there
    opening = bridge.stores[1].opening = asyncio.Event()
    before = bridge.stores[1].opens
    bridge.stores[1].cut()
    await until(lambda: bridge.stores[1].opens > before, "the second is tried", LONGEST_S)
    await bridge.tell(Command.FAILBACK)
    opening.set()
    if not first_is_there:
        failed = "failback-failed"
        await until(lambda: failed in [entry["event"] for entry in log.entries], "it tried", LONGEST_S)
    await bridge.until(State.RUNNING, "hub-0" if first_is_there else "hub-1")
    bridge.put(10, 12)
    await bridge.idle()
    assert bridge.arrived(0) == [*bodies(0, 5), *(bodies(10, 12) if first_is_there else [])]
    await bridge.tell(Command.STOP)


@pytest.mark.parametrize("failover", [True, False])
@in_virtual_time
async def test_failback_to_a_first_where_it_may_not_go_stays(failover: bool, log: LogCapture) -> None:
    bridge = Bridge(reconnect_attempts_same_node=0, failover=failover)
    if failover:
        await at_the_second(bridge)
    else:  # the second is the only one that it has ever known
        bridge.stores[0].down = True
        await bridge.tell(Command.START)
        bridge.put(5, 10)
        await bridge.idle()
        bridge.stores[0].down = False
    await bridge.tell(Command.FAILBACK)
    bridge.put(10, 12)
    await until(lambda: "failback-failed" in [entry["event"] for entry in log.entries], "it tried", LONGEST_S)
    await bridge.idle()
    assert (bridge.relay.connector, bridge.arrived(1)) == ("hub-1", bodies(5, 12))
    assert bridge.relay.state is State.RUNNING
    await bridge.tell(Command.STOP)


@in_virtual_time
async def test_fail_back_returns_by_itself_once_the_first_answers(log: LogCapture) -> None:
    bridge = Bridge(reconnect_attempts_same_node=0, fail_back=True)
    await at_the_second(bridge)
    await asyncio.sleep(60)
    assert bridge.relay.connector == "hub-1"
    bridge.stores[0].down = False
    await bridge.until(State.RUNNING, "hub-0")
    bridge.put(10, 12)
    await bridge.idle()
    assert (bridge.arrived(0), in_doubt(log)) == ([*bodies(0, 5), *bodies(10, 12)], [])
    await bridge.tell(Command.STOP)


@in_virtual_time
async def test_fail_back_still_comes_after_an_error_that_nobody_has_foreseen(
    log: LogCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge = Bridge(reconnect_attempts_same_node=0, fail_back=True)
    await at_the_second(bridge)
    first = bridge.relay._latest._connectors.first.target
    opens, errors = first.open, [RuntimeError("a defect")]

    async def opened(*streams: Any) -> Any:
        if errors:
            raise errors.pop()
        return await opens(*streams)

    monkeypatch.setattr(first, "open", opened)
    await asyncio.sleep(60)
    assert not errors
    bridge.stores[0].down = False
    await bridge.until(State.RUNNING, "hub-0")
    assert [entry["reason"] for entry in log.entries if entry["event"] == "task-failed"] == [
        "RuntimeError: a defect"
    ]
    await bridge.tell(Command.STOP)


@in_virtual_time
async def test_fail_back_leaves_a_first_alone_that_is_another_store_where_failover_refuses() -> None:
    bridge = Bridge(failover=False, fail_back=True)
    bridge.stores[0].down = True
    bridge.put(0, 3)
    await bridge.tell(Command.START)
    await bridge.idle()
    bridge.stores[0].down = False
    await asyncio.sleep(60)
    assert (bridge.relay.state, bridge.relay.connector) == (State.RUNNING, "hub-1")
    await bridge.tell(Command.STOP)


@in_virtual_time
async def test_failback_is_refused_where_there_is_one_connector_or_the_bridge_does_not_run() -> None:
    bridge = Bridge(FakeStore("store-a"))
    with pytest.raises(Conflict, match="STOPPED cannot failback"):
        await bridge.tell(Command.FAILBACK)
    await bridge.tell(Command.START)
    await bridge.until(State.RUNNING)
    with pytest.raises(Conflict, match="one connector"):
        await bridge.tell(Command.FAILBACK)
    await bridge.tell(Command.STOP)


# -- a store that was put back from a backup -------------------------------------------------------------


def went_back(log: LogCapture) -> list[tuple[str, int | None, object]]:
    return [
        (entry["store"], entry["next"], entry["missing"])
        for entry in log.entries
        if entry["event"] == "target-went-back"
    ]


async def put_back_while_away(bridge: Bridge) -> None:
    """0 to 9 at the first, which is put back to 0 to 4; 10 to 14 at the second, where the bridge is."""
    bridge.put(0, 5)
    await bridge.tell(Command.START)
    await bridge.idle()
    backup = bridge.stores[0].backup()
    bridge.put(5, 10)
    await bridge.idle()
    await bridge.lose(0)
    await bridge.until(State.RUNNING, "hub-1")
    bridge.put(10, 15)
    await bridge.idle()
    bridge.stores[0].restore(backup)
    bridge.stores[0].down = False


@in_virtual_time
async def test_a_store_that_was_put_back_gets_again_what_it_lost_and_nothing_that_another_one_has(
    log: LogCapture,
) -> None:
    bridge = Bridge(reconnect_attempts_same_node=0)
    await put_back_while_away(bridge)
    bridge.put(15, 20)
    await bridge.idle()
    await bridge.tell(Command.FAILBACK)
    await bridge.until(State.RUNNING, "hub-0")
    bridge.put(20, 25)
    await bridge.idle()
    assert bridge.arrived(0) == [*bodies(0, 10), *bodies(20, 25)]
    assert bridge.arrived(1) == bodies(10, 20)
    assert went_back(log) == [("store-a", 5, ((5, 9),))]
    assert bridge.source.missing == [(bridge.stream, "store-a", ((5, 9),))]
    assert in_doubt(log) == []
    await bridge.tell(Command.STOP)


@in_virtual_time
async def test_until_a_store_has_again_what_it_lost_the_bridge_goes_on_at_no_store_that_has_passed_it(
    log: LogCapture,
) -> None:
    bridge = Bridge(reconnect_attempts_same_node=0)
    await put_back_while_away(bridge)
    bridge.stores[0].not_now(10**6)
    await bridge.tell(Command.FAILBACK)
    await until(lambda: bool(went_back(log)), "it has noticed", LONGEST_S)
    await bridge.lose(0)
    await bridge.tell(Command.STOP)
    bridge.restarted()
    await bridge.tell(Command.START)

    def waits() -> bool:
        return any("store-a has lost positions 5 to 9" in str(one.get("reason")) for one in log.entries)

    await until(waits, "it waits", LONGEST_S)
    assert bridge.arrived(1) == bodies(10, 15)
    bridge.stores[0].not_now(0)
    bridge.stores[0].down = False
    await bridge.until(State.RUNNING, "hub-0")
    await bridge.idle()
    assert bridge.arrived(0) == bodies(0, 10)
    await bridge.tell(Command.STOP)


@in_virtual_time
async def test_a_store_that_has_forgotten_the_stream_while_the_bridge_was_away_is_refused(
    log: LogCapture,
) -> None:
    bridge = Bridge(reconnect_attempts_same_node=0)
    await put_back_while_away(bridge)
    bridge.stores[0].restore(FakeStore("store-a"))
    bridge.stores[1].down = True
    bridge.stores[1].cut()
    await bridge.until(State.FAILED)
    assert "store-a knows nothing of" in bridge.relay.reason
    assert "which it had confirmed up to 10" in bridge.relay.reason
    assert went_back(log) == [("store-a", None, ((0, 9),))]
    await bridge.tell(Command.STOP)


@in_virtual_time
async def test_the_only_store_that_was_put_back_is_noticed_too(log: LogCapture) -> None:
    bridge = Bridge(FakeStore("store-a"), failover=False)
    bridge.put(0, 5)
    await bridge.tell(Command.START)
    await bridge.idle()
    backup = bridge.stores[0].backup()
    bridge.put(5, 10)
    await bridge.idle()
    bridge.stores[0].restore(backup)
    await until(lambda: bridge.arrived(0) == bodies(0, 10), "it has them again", LONGEST_S)
    assert went_back(log) == [("store-a", 5, ((5, 9),))]
    assert bridge.source.missing == [(bridge.stream, "store-a", ((5, 9),))]
    await bridge.tell(Command.STOP)
