from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
from structlog.testing import LogCapture

from bridge.errors import Conflict, TargetRefused
from bridge.relay.counts import Counts
from bridge.relay.lag import PartitionStatus
from bridge.relay.lifecycle import Command, State
from bridge.workers import worker
from bridge.workers.channel import (
    MOST_LANES_NAMED,
    MOST_REASON_CHARS,
    Ask,
    Begin,
    Channel,
    Failed,
    FromWorker,
    Ready,
    Renew,
    Report,
    Rows,
    Stop,
    Want,
    Wanted,
)
from tests.fakes.workers import ObedientBridge, channels

pytestmark = pytest.mark.usefixtures("log")

START, STOP, PAUSE = Command.START, Command.STOP, Command.PAUSE
#: Longest wait for anything, in seconds.
PATIENCE_S = 10


@dataclass
class Running:
    """A worker in this process, seen by its supervisor."""

    channel: Channel[FromWorker]
    bridges: dict[str, ObedientBridge]
    #: With which it was asked to make bridges.
    begun: list[Begin]
    exit: asyncio.Task[int] = field(init=False)

    def order(self, number: int, wanted: Wanted, bridge: str = "orders") -> None:
        self.channel.send(Want(bridge, wanted, number))

    async def report(self, *, order: int = 0, bridge: str = "orders") -> Report:
        """The first report of the bridge that has carried out `order`."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                said = await self.channel.receive()
                assert said is not None, "it has ended"
                if isinstance(said, Report) and said.bridge == bridge and said.order >= order:
                    return said

    async def rest(self) -> list[FromWorker]:
        """All that it says until its end."""
        said: list[FromWorker] = []
        async with asyncio.timeout(PATIENCE_S):
            while (message := await self.channel.receive()) is not None:
                said.append(message)
        return said


@asynccontextmanager
async def working(**bridges: ObedientBridge) -> AsyncIterator[Running]:
    """Each time that it makes bridges it makes those that are in `Running.bridges` then."""
    ours, theirs = channels()
    made = bridges or {"orders": ObedientBridge()}
    ours.send(Begin(3, "text", 5_000))
    running = Running(ours, made, [])

    def make(begin: Begin) -> dict[str, ObedientBridge]:
        running.begun.append(begin)
        if "bad" in begin.settings:
            raise Conflict("they do not hold")
        return dict(running.bridges)

    exit_code = running.exit = asyncio.create_task(worker._be_worker(theirs, make))
    try:
        assert await ours.receive() == Ready()
        yield running
    finally:
        await ours.close()
        async with asyncio.timeout(PATIENCE_S):
            await exit_code


async def test_it_does_what_is_wanted_and_says_so() -> None:
    async with working() as running:
        orders = running.bridges["orders"]
        orders.counts = Counts(sent=5, trouble="x" * 5_000)
        orders.lag, orders.store, orders.in_flight = (9, 1_700), "kafka:b", 2
        orders.owned_lanes = [*range(MOST_LANES_NAMED + 1)]
        running.order(1, Wanted.RUNNING)
        report = await running.report(order=1)
        assert (report.state, report.connected, report.store) == (State.RUNNING, True, "kafka:b")
        assert (report.lag, report.in_flight, report.counts.sent) == ((9, 1_700), 2, 5)
        assert report.owned_lanes == (*range(MOST_LANES_NAMED),)
        assert len(report.counts.trouble) == 2_000
        running.order(2, Wanted.PAUSED)
        assert (await running.report(order=2)).state is State.PAUSED
        running.order(3, Wanted.STOPPED)
        assert (await running.report(order=3)).state is State.STOPPED
        assert orders.commands == [START, PAUSE, STOP]


async def test_it_sends_its_partitions_in_lines_that_a_channel_takes() -> None:
    async with working() as running:
        rows = [PartitionStatus("x" * 249, number, 0, 2**50, "\0" * 5_000) for number in range(61)]
        running.bridges["orders"].rows = rows
        running.channel.send(Ask("orders", 7))
        running.channel.send(Ask("gone", 8))
        found: list[PartitionStatus] = []
        more = {7: True, 8: True}
        async with asyncio.timeout(PATIENCE_S):
            while any(more.values()):
                message = await running.channel.receive()
                if isinstance(message, Rows):
                    found += message.rows
                    more[message.number] = message.more
        assert [row.partition for row in found] == [*range(61)]
        assert found[0] == replace(rows[0], reason="\0" * MOST_REASON_CHARS)


async def test_a_report_names_an_order_only_once_it_is_carried_out() -> None:
    async with working() as running:
        orders = running.bridges["orders"]
        running.order(1, Wanted.RUNNING)
        await running.report(order=1)
        orders.receipts.clear()
        running.order(2, Wanted.STOPPED)
        while (report := await running.report()).state is not State.STOPPING:
            pass
        assert report.order == 1
        orders.receipts.set()
        assert (await running.report(order=2)).state is State.STOPPED


async def test_a_stop_overtakes_a_pause_that_waits_for_receipts() -> None:
    async with working() as running:
        orders = running.bridges["orders"]
        running.order(1, Wanted.RUNNING)
        orders.receipts.clear()
        running.order(2, Wanted.PAUSED)
        running.order(3, Wanted.STOPPED)
        while (await running.report()).state is not State.STOPPING:
            pass
        orders.receipts.set()
        assert (await running.report(order=3)).state is State.STOPPED


async def test_a_bridge_that_is_paused_when_the_process_starts_takes_part_and_rests() -> None:
    async with working() as running:
        running.order(4, Wanted.PAUSED)
        assert (await running.report(order=4)).state is State.PAUSED
        assert running.bridges["orders"].commands == [START, PAUSE]


async def test_an_order_that_the_state_forbids_is_logged_and_counts_as_carried_out(log: LogCapture) -> None:
    async with working() as running:
        running.bridges["orders"].state = State.FAILED
        running.order(2, Wanted.PAUSED)
        assert (await running.report(order=2)).state is State.FAILED
        (refused,) = [entry for entry in log.entries if entry["event"] == "worker-order-refused"]
        assert (refused["bridge"], refused["wanted"]) == ("orders", "PAUSED")


async def test_a_change_of_state_is_told_at_once_and_numbers_soon() -> None:
    async with working() as running:
        orders = running.bridges["orders"]
        await running.report()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        orders.state, orders.reason = State.FAILED, "SOURCE_GAP: gone"
        while (report := await running.report()).state is not State.FAILED:
            pass
        assert report.reason == "SOURCE_GAP: gone"
        assert loop.time() - began_s < worker.REPORT_INTERVAL_S
        orders.counts.sent = 7
        while (await running.report()).counts.sent != 7:
            pass


async def test_asked_to_stop_it_drains_and_its_last_word_has_the_last_counts() -> None:
    async with working(orders=ObedientBridge(), stock=ObedientBridge()) as running:
        for bridge in running.bridges:
            running.order(1, Wanted.RUNNING, bridge)
            await running.report(order=1, bridge=bridge)
        running.bridges["orders"].receipts.clear()
        running.channel.send(Stop())
        while (await running.report()).state is not State.STOPPING:
            pass
        running.bridges["orders"].counts.acknowledged = 11
        running.bridges["orders"].receipts.set()
        last = {said.bridge: said for said in await running.rest() if isinstance(said, Report)}
        assert {said.state for said in last.values()} == {State.STOPPED}
        assert last["orders"].counts.acknowledged == 11
        assert await running.exit == 0


async def test_it_does_not_outlive_its_supervisor() -> None:
    async with working() as running:
        running.order(1, Wanted.RUNNING)
        await running.report(order=1)
        await running.channel.close()
        async with asyncio.timeout(PATIENCE_S):
            assert await running.exit == 0
        assert running.bridges["orders"].commands == [START, STOP]


async def test_a_worker_whose_bridges_cannot_be_made_says_why_and_ends() -> None:
    def make(_: Begin) -> dict[str, ObedientBridge]:
        raise TargetRefused("no such cluster")

    ours, theirs = channels()
    ours.send(Begin(1, "text", 5_000))
    assert await worker._be_worker(theirs, make) == 1
    assert await ours.receive() == Failed("TARGET_REFUSED: no such cluster")
    assert await ours.receive() is None


async def test_a_worker_without_a_supervisor_does_not_begin() -> None:
    ours, theirs = channels()
    await ours.close()
    assert await worker._be_worker(theirs, lambda _: {}) == 1


async def test_a_bug_ends_the_process_and_is_told(log: LogCapture) -> None:
    class Broken(ObedientBridge):
        async def command(self, command: Command) -> None:
            raise AssertionError(f"cannot {command.value}")

    async with working(orders=Broken()) as running:
        running.order(1, Wanted.RUNNING)
        assert running.exit is not None
        said = await running.rest()
        assert said[-1] == Failed("AssertionError: cannot start")
        assert await running.exit == 1
        assert [entry["event"] for entry in log.entries] == ["worker-failed"]


# ------------------------------------------------------------------ other settings


async def test_it_runs_by_other_settings_and_leaves_what_they_do_not_change() -> None:
    kept, changed, gone = ObedientBridge(), ObedientBridge(), ObedientBridge()
    async with working(kept=kept, changed=changed, gone=gone) as running:
        running.order(1, Wanted.RUNNING, "kept")
        running.order(1, Wanted.RUNNING, "changed")
        running.order(2, Wanted.STOPPED, "changed")
        await running.report(order=1, bridge="kept")
        await running.report(order=2, bridge="changed")
        running.bridges = made = {name: ObedientBridge() for name in ("kept", "changed", "new")}
        running.channel.send(Renew("other", ("changed", "new"), 7_000))
        running.order(1, Wanted.RUNNING, "new")
        running.order(3, Wanted.RUNNING, "changed")
        assert (await running.report(order=1, bridge="new")).state is State.RUNNING
        assert (await running.report(order=3, bridge="changed")).state is State.RUNNING
        assert running.begun[1] == Begin(3, "other", 5_000)
        assert (kept.commands, made["kept"].commands) == ([START], [])
        assert (changed.commands, made["changed"].commands) == ([START, STOP], [START])


async def test_settings_that_cannot_be_read_end_it_drained() -> None:
    async with working() as running:
        running.order(1, Wanted.RUNNING)
        await running.report(order=1)
        running.channel.send(Renew("bad", ("orders",), 7_000))
        said = await running.rest()
        assert Failed("CONFLICT: they do not hold") in said
        assert running.bridges["orders"].commands == [START, STOP]


async def test_a_bridge_that_was_started_amid_the_change_is_not_made_twice() -> None:
    async with working() as running:
        running.order(1, Wanted.RUNNING)
        await running.report(order=1)
        running.channel.send(Renew("other", ("orders",), 7_000))
        said = await running.rest()
        assert Failed("CONFLICT: orders was started while its settings changed") in said
        assert running.bridges["orders"].commands == [START, STOP]


async def test_an_order_to_a_bridge_that_a_reload_has_removed_ends_nothing(log: LogCapture) -> None:
    async with working(kept=ObedientBridge(), gone=ObedientBridge()) as running:
        del running.bridges["gone"]
        running.channel.send(Renew("other", (), 7_000))
        running.order(1, Wanted.RUNNING, "gone")
        running.order(1, Wanted.RUNNING, "kept")
        assert (await running.report(order=1, bridge="kept")).state is State.RUNNING
        assert not running.exit.done()
        (refused,) = [entry for entry in log.entries if entry["event"] == "worker-order-refused"]
        assert (refused["bridge"], refused["wanted"]) == ("gone", "RUNNING")
