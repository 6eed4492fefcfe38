from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from structlog.testing import LogCapture

from bridge.relay.lifecycle import Command, State
from bridge.workers.channel import Begin, Failed, FromWorker, Ready, Renew, Stop, ToWorker, Want, Wanted
from bridge.workers.supervisor import (
    KILL_AFTER_MS,
    LOOPING_LIVES,
    RESTART_BACKOFF,
    SILENCE_MS,
    STABLE_MS,
    Supervisor,
)
from tests.fakes.virtual_time import VirtualClock, in_virtual_time, now_ms
from tests.fakes.workers import PlayedProcess, PlayedStart, report

DRAIN_MS = 5_000
RUN, STOPPED = Wanted.RUNNING, Wanted.STOPPED


def events(log: LogCapture, name: str) -> list[dict[str, Any]]:
    return [dict(entry) for entry in log.entries if entry["event"] == name]


@asynccontextmanager
async def supervised(
    *bridges: str, workers: int = 1, play: PlayedStart | None = None
) -> AsyncIterator[tuple[Supervisor, PlayedStart]]:
    """A supervisor that has started, and leaves nothing behind."""
    play = play or PlayedStart()
    supervisor = Supervisor(
        play,
        bridges or ("orders",),
        workers=workers,
        settings="text",
        shutdown_timeout_ms=DRAIN_MS,
        clock=VirtualClock(),
    )
    supervisor.start()
    try:
        yield supervisor, play
    finally:
        await supervisor.kill()


async def hears(process: PlayedProcess, number: int) -> Sequence[ToWorker]:
    return [await process.hears() for _ in range(number)]


async def heard(process: PlayedProcess, *messages: FromWorker) -> None:
    """Returns once the supervisor has taken these in."""
    process.says(*messages)
    for _ in range(3 * len(messages) + 3):
        await asyncio.sleep(0)


@in_virtual_time
async def test_each_worker_hears_first_who_it_is_and_what_is_wanted(log: LogCapture) -> None:
    async with supervised("orders", "stock", workers=2) as (supervisor, play):
        await supervisor.bridges["stock"].command(Command.START)
        for worker in (1, 2):
            process = await play.next()
            assert await hears(process, 3) == [
                Begin(worker, "text", DRAIN_MS),
                Want("orders", STOPPED, 0),
                Want("stock", RUN, 1),
            ]
        assert [(e["worker"], e["pid"]) for e in events(log, "worker-started")] == [(1, 1000), (2, 1001)]


@in_virtual_time
async def test_an_order_goes_to_every_worker_that_lives() -> None:
    async with supervised(workers=2) as (supervisor, play):
        processes = [await play.next_ready(), await play.next_ready()]
        for process in processes:
            await hears(process, 2)
        await supervisor.bridges["orders"].command(Command.START)
        for process in processes:
            assert await process.hears() == Want("orders", RUN, 1)
        await heard(processes[0], report(acknowledged=3))
        await heard(processes[1], report(acknowledged=4))
        assert supervisor.bridges["orders"].state is State.RUNNING
        assert supervisor.bridges["orders"].counts.acknowledged == 7


@in_virtual_time
async def test_a_worker_that_dies_is_started_again_and_told_what_is_wanted_now(log: LogCapture) -> None:
    async with supervised() as (supervisor, play):
        bridge = supervisor.bridges["orders"]
        first = await play.next_ready()
        await bridge.command(Command.START)
        await heard(first, report(sent=9))
        await first.end(-9)
        second = await play.next()
        assert now_ms() == RESTART_BACKOFF.delay_ms(1)
        assert await hears(second, 2) == [Begin(1, "text", DRAIN_MS), Want("orders", RUN, 1)]
        assert bridge.counts.sent == 9
        (ended,) = events(log, "worker-ended")
        assert (ended["worker"], ended["exit"], ended["retry-in-ms"]) == (1, -9, 500)
        assert ended["log_level"] == "warning"


@in_virtual_time
async def test_a_bridge_that_was_stopped_stays_stopped_in_the_next_process() -> None:
    async with supervised() as (supervisor, play):
        bridge = supervisor.bridges["orders"]
        first = await play.next_ready()
        await bridge.command(Command.START)
        stopping = asyncio.create_task(bridge.command(Command.STOP))
        await heard(first, report(state=State.STOPPED, order=2))
        await stopping
        await first.end(1)
        assert (await hears(await play.next(), 2))[1] == Want("orders", STOPPED, 2)


@in_virtual_time
async def test_short_lives_are_further_and_further_apart_up_to_a_limit_that_holds() -> None:
    async with supervised() as (_, play):
        starts_ms = []
        for _ in range(10):
            process = await play.next_ready()
            starts_ms.append(now_ms())
            await process.end(1)
        waits_ms = [later - earlier for earlier, later in pairwise(starts_ms)]
        assert waits_ms == [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]


@in_virtual_time
async def test_after_a_long_life_the_back_off_begins_anew() -> None:
    async with supervised() as (_, play):
        for _ in range(4):
            await (await play.next()).end(1)
        process = await play.next_ready()
        for _ in range(STABLE_MS // 10_000):
            await asyncio.sleep(10)
            process.says(report())
        before_ms = now_ms()
        await process.end(-9)
        await play.next()
        assert now_ms() - before_ms == RESTART_BACKOFF.delay_ms(1)


@in_virtual_time
async def test_a_long_life_that_never_became_ready_is_no_good_life() -> None:
    async with supervised() as (_, play):
        await (await play.next()).end(1)
        process = await play.next()
        await asyncio.sleep(SILENCE_MS / 1000 - 1)
        before_ms = now_ms()
        await process.end(1)
        await play.next()
        assert now_ms() - before_ms == RESTART_BACKOFF.delay_ms(2)


@in_virtual_time
async def test_a_worker_that_cannot_start_is_a_reason_not_to_be_ready(log: LogCapture) -> None:
    async with supervised(workers=2) as (supervisor, play):
        good, bad = await play.next_ready(), await play.next()
        await heard(good, report())
        assert supervisor.problems() == []  # it may still be coming
        bad.says(Failed("SETTINGS_CHANGED: settings.toml has changed"))
        await bad.end(1)
        third = await play.next()
        reason = "worker 2 does not stay up (1 starts): SETTINGS_CHANGED: settings.toml has changed"
        assert supervisor.problems() == [reason]
        assert events(log, "worker-ended")[0]["reason"] == "SETTINGS_CHANGED: settings.toml has changed"
        await heard(third, Ready())
        assert supervisor.problems() == []


@in_virtual_time
async def test_a_worker_that_was_killed_once_is_none() -> None:
    async with supervised() as (supervisor, play):
        await heard(first := await play.next_ready(), report())
        await first.end(-9)
        await play.next()
        assert supervisor.problems() == []


@in_virtual_time
async def test_a_worker_that_comes_up_and_dies_again_and_again_is_one_until_it_stays() -> None:
    async with supervised() as (supervisor, play):
        for life in range(LOOPING_LIVES):
            assert supervisor.problems() == [], life
            process = await play.next_ready()
            await heard(process, report())
            await process.end(-11)
        process = await play.next_ready()
        await heard(process, report())
        assert supervisor.problems() == ["worker 1 does not stay up (3 starts): its process ended with -11"]
        for _ in range(STABLE_MS // 10_000):
            await asyncio.sleep(10)
            process.says(report())
        assert supervisor.problems() == []


@in_virtual_time
async def test_a_process_that_the_system_refuses_is_tried_again(log: LogCapture) -> None:
    play = PlayedStart()
    play.fails = OSError(11, "Resource temporarily unavailable")
    async with supervised(play=play) as (supervisor, _):
        await asyncio.sleep(0.1)
        assert "could not be started: [Errno 11]" in supervisor.problems()[0]
        play.fails = None
        await play.next()
        assert events(log, "worker-ended")[0]["exit"] is None


@in_virtual_time
async def test_a_worker_that_says_nothing_is_killed() -> None:
    async with supervised() as (supervisor, play):
        process = await play.next_ready()
        process.obeys_sigterm = False
        await asyncio.sleep(SILENCE_MS / 1000 - 1)
        await heard(process, report(sent=1))
        await asyncio.sleep(SILENCE_MS / 1000 - 1)
        assert process.signals == []
        await play.next()
        assert process.signals == [signal.SIGKILL]
        assert now_ms() == 2 * SILENCE_MS - 1_000 + RESTART_BACKOFF.delay_ms(1)
        assert supervisor.bridges["orders"].counts.sent == 1


@pytest.mark.parametrize("line", [b"Traceback (most recent call last):\n", b"x" * 100_000 + b"\n"])
@in_virtual_time
async def test_a_worker_that_says_what_nobody_understands_is_killed(log: LogCapture, line: bytes) -> None:
    async with supervised() as (_, play):
        process = await play.next_ready()
        process.inside._writer.write(line)
        await play.next()
        assert process.signals == [signal.SIGKILL]
        assert "a line was" in events(log, "worker-ended")[0]["reason"]


@in_virtual_time
async def test_a_worker_that_reports_a_bridge_of_another_node_is_killed() -> None:
    async with supervised() as (_, play):
        process = await play.next_ready()
        process.says(report("stock"))
        await play.next()
        assert process.signals == [signal.SIGKILL]


@in_virtual_time
async def test_a_process_that_outlives_its_channel_is_killed() -> None:
    async with supervised() as (_, play):
        process = await play.next_ready()
        await process.inside.close()
        await play.next()
        assert process.signals == [signal.SIGKILL]
        assert now_ms() == KILL_AFTER_MS + RESTART_BACKOFF.delay_ms(1)


@in_virtual_time
async def test_stop_asks_every_worker_takes_its_last_word_and_starts_none_again(log: LogCapture) -> None:
    async with supervised(workers=2) as (supervisor, play):
        processes = [await play.next_ready(), await play.next_ready()]
        stopping = asyncio.create_task(supervisor.stop())
        for number, process in enumerate(processes, 1):
            assert (await hears(process, 3))[2] == Stop()
            process.says(report(acknowledged=number))
            assert not stopping.done()
            await process.end(0)
        await stopping
        assert supervisor.bridges["orders"].counts.acknowledged == 3
        await asyncio.sleep(100)
        assert len(play.made) == 2
        assert {entry["log_level"] for entry in events(log, "worker-ended")} == {"info"}


@in_virtual_time
async def test_a_stop_between_two_lives_ends_the_wait() -> None:
    async with supervised() as (supervisor, play):
        for _ in range(6):
            await (await play.next()).end(1)
        await asyncio.sleep(1)
        before_ms = now_ms()
        await supervisor.stop()
        assert now_ms() == before_ms


class _Slow(PlayedStart):
    """A process takes a second to start."""

    async def __call__(self, worker: int) -> PlayedProcess:
        await asyncio.sleep(1)
        return await super().__call__(worker)


@in_virtual_time
async def test_a_process_that_is_being_started_at_the_stop_is_asked_too() -> None:
    async with supervised(play=_Slow()) as (supervisor, play):
        await asyncio.sleep(0.5)
        stopping = asyncio.create_task(supervisor.stop())
        process = await play.next()
        assert (await hears(process, 3))[2] == Stop()
        await process.end(0)
        await stopping


@in_virtual_time
async def test_a_process_that_is_being_started_at_the_kill_is_killed() -> None:
    async with supervised(play=_Slow()) as (supervisor, play):
        await asyncio.sleep(0.5)
        await supervisor.kill()
        assert play.made[0].signals == [signal.SIGKILL]
        assert now_ms() == 1_000


@in_virtual_time
async def test_what_does_not_drain_in_time_gets_sigterm_and_then_sigkill() -> None:
    async with supervised(workers=2) as (supervisor, play):
        busy, stuck = await play.next_ready(), await play.next_ready()
        stuck.obeys_sigterm = False
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(DRAIN_MS / 1000):
                await supervisor.stop()
        assert (busy.signals, stuck.signals) == ([], [])
        await supervisor.kill()
        assert busy.signals == [signal.SIGTERM]
        assert stuck.signals == [signal.SIGTERM, signal.SIGKILL]
        assert now_ms() == DRAIN_MS + KILL_AFTER_MS


@in_virtual_time
async def test_a_kill_before_the_start_does_nothing() -> None:
    supervisor = Supervisor(
        PlayedStart(), ["orders"], workers=2, settings="", shutdown_timeout_ms=1, clock=VirtualClock()
    )
    await supervisor.stop()
    await supervisor.kill()


# ------------------------------------------------------------------ other settings


@in_virtual_time
async def test_workers_are_told_of_other_settings_and_their_successors_begin_with_them() -> None:
    async with supervised("orders", "stock") as (supervisor, play):
        process = await play.next_ready()
        await hears(process, 3)
        orders = supervisor.bridges["orders"]
        supervisor.renew("text", ("stock", "orders"), ("in-process",), 7_000)  # nothing new to workers
        supervisor.renew("other", ("orders", "new"), ("new", "in-process"), 7_000)
        assert await hears(process, 1) == [Renew("other", ("new",), 7_000)]
        assert supervisor.bridges.keys() == {"orders", "new"}
        assert supervisor.bridges["orders"] is orders
        await heard(process, report("stock", State.STOPPED))  # it had not heard of it yet
        new = supervisor.bridges["new"]
        await new.command(Command.START)
        assert await hears(process, 1) == [Want("new", RUN, 1)]
        stopping = asyncio.create_task(new.command(Command.STOP))
        await heard(process, report("new", State.STOPPED, order=2))
        await stopping
        await process.end(1)
        begin, *wants = await hears(await play.next(), 3)
        assert begin == Begin(1, "other", 7_000)
        assert wants == [Want("orders", STOPPED, 0), Want("new", STOPPED, 2)]


@in_virtual_time
async def test_a_late_report_answers_no_order_to_a_bridge_that_has_come_back() -> None:
    async with supervised("orders") as (supervisor, play):
        process = await play.next_ready()
        await supervisor.bridges["orders"].command(Command.START)
        supervisor.renew("none", (), (), DRAIN_MS)
        supervisor.renew("again", ("orders",), ("orders",), DRAIN_MS)
        back = supervisor.bridges["orders"]
        await back.command(Command.START)
        await heard(process, report("orders", State.RUNNING, order=1))  # of the one that is gone
        states = [back.state]
        await heard(process, report("orders", State.RUNNING, order=2))
        assert [*states, back.state] == [State.STARTING, State.RUNNING]


@in_virtual_time
async def test_no_process_runs_before_there_is_a_bridge_for_it() -> None:
    play = PlayedStart()
    supervisor = Supervisor(
        play, (), workers=1, settings="text", shutdown_timeout_ms=DRAIN_MS, clock=VirtualClock()
    )
    supervisor.start()
    assert play.made == []
    supervisor.renew("other", ("orders",), ("orders",), DRAIN_MS)
    try:
        assert await hears(await play.next(), 2) == [
            Begin(1, "other", DRAIN_MS),
            Want("orders", STOPPED, 0),
        ]
    finally:
        await supervisor.kill()


@in_virtual_time
async def test_a_command_to_a_bridge_that_is_gone_waits_for_no_worker() -> None:
    """One that an operator, or a reload that failed in part, still holds."""
    async with supervised("orders", "stock") as (supervisor, play):
        await hears(await play.next_ready(), 3)
        gone = supervisor.bridges["stock"]
        await gone.command(Command.START)
        supervisor.renew("other", ("orders",), (), 7_000)
        async with asyncio.timeout(1):
            await gone.command(Command.STOP)
        assert gone.state is State.STOPPED
