"""A worker's process for tests: the real worker, whose bridges relay between ends in memory.

``python -m tests.fakes.worker_process MESSAGES HOW --worker N --channel D``: each bridge relays this many
messages, and behaves as `HOW` says. ``python -m tests.fakes.worker_process supervise WORKERS MESSAGES HOW``
is a supervisor's process, for tests that kill it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping

from bridge.errors import TargetRefused
from bridge.messages.message import Message
from bridge.relay.dead_letters import DeadLetters
from bridge.relay.lifecycle import Command
from bridge.relay.operated import Operated
from bridge.relay.relay import LaneEnds, RelayOptions
from bridge.runtime import logs
from bridge.runtime.clock import SystemClock
from bridge.workers import worker
from bridge.workers.channel import Begin
from bridge.workers.process import Launcher
from bridge.workers.supervisor import Supervisor
from tests.fakes.ends import FakeJournal, FakeSource, FakeStore, FakeTarget
from tests.fakes.one_lane import OneLane

BRIDGE = "orders"
SHUTDOWN_TIMEOUT_MS = 3_000


def command(messages: int, how: str) -> tuple[str, ...]:
    """Starts such a worker."""
    return (sys.executable, "-m", "tests.fakes.worker_process", str(messages), how)


class _NeverDrains(OneLane):
    """Nor can it be cancelled."""

    async def command(self, command: Command) -> None:
        while command is Command.STOP:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        await super().command(command)


class _Hangs(OneLane):
    """Holds the whole process up."""

    async def command(self, command: Command) -> None:
        if command is Command.STOP:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(3600)  # noqa: ASYNC251 - that is the fault
        await super().command(command)


class _Chatters(OneLane):
    """Logs a thousand lines at once when it starts."""

    async def command(self, command: Command) -> None:
        if command is Command.START:
            for number in range(1_000):
                logs.get(bridge=BRIDGE).info("chatter", number=number, text="x" * 500)
        await super().command(command)


def _relay(kind: type[OneLane], messages: int) -> OneLane:
    journal, store = FakeJournal(), FakeStore()
    journal.put(BRIDGE, *(Message(b"m%d" % number) for number in range(messages)))
    letters = DeadLetters(BRIDGE, "dead-letters", lambda name: FakeTarget(store, name))
    return kind(
        RelayOptions(BRIDGE),
        LaneEnds(FakeSource(journal), FakeTarget(store), letters),
        clock=SystemClock(),
    )


def _refused(begin: Begin) -> Mapping[str, Operated]:
    raise TargetRefused(f"worker {begin.worker} is not wanted here")


def _dies(_: Begin) -> Mapping[str, Operated]:
    os._exit(7)


def _first_dies(begin: Begin) -> Mapping[str, Operated]:
    return _dies(begin) if begin.worker == 1 else {BRIDGE: _relay(OneLane, 5)}


def _behaviour(messages: int, how: str) -> worker.MakeBridges:
    kinds = {"well": OneLane, "never-drains": _NeverDrains, "hangs": _Hangs, "chatters": _Chatters}
    others: Mapping[str, worker.MakeBridges] = {"refused": _refused, "dies": _dies, "first-dies": _first_dies}

    def make(begin: Begin) -> Mapping[str, Operated]:
        logs.configure("info", "json", "node-1", worker=begin.worker)
        return others[how](begin) if how in others else {BRIDGE: _relay(kinds[how], messages)}

    return make


def supervisor(workers: int, messages: int, how: str) -> Supervisor:
    """Of such workers."""
    return Supervisor(
        Launcher(command(messages, how)),
        [BRIDGE],
        workers=workers,
        settings="",
        shutdown_timeout_ms=SHUTDOWN_TIMEOUT_MS,
        clock=SystemClock(),
    )


async def _supervise(workers: int, messages: int, how: str) -> None:
    made = supervisor(workers, messages, how)
    made.start()
    await made.bridges[BRIDGE].command(Command.START)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    await stop.wait()
    await made.stop()


def main(arguments: list[str]) -> int:
    if arguments[0] == "supervise":
        logs.configure("info", "json", "node-1")
        asyncio.run(_supervise(int(arguments[1]), int(arguments[2]), arguments[3]))
        return 0
    messages, how, *_, descriptor = arguments
    return worker.run(int(descriptor), _behaviour(int(messages), how))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
