"""The main part of a worker's process: bridges that obey their supervisor and report to it.

Whatever happens, a worker outlives its supervisor by no more than a drain: the end of the channel asks it to
stop, and once it stops, a second request (SIGTERM, the end of the channel) ends it at once.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import socket
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import structlog

from bridge.errors import Conflict, described
from bridge.relay.lifecycle import Command, State
from bridge.relay.operated import Operated
from bridge.runtime import log_output, memory, signals
from bridge.runtime.event_loop import fast_loop
from bridge.workers.channel import (
    MOST_LANES_NAMED,
    MOST_ORDER_BYTES,
    MOST_REASON_CHARS,
    ROWS_AT_ONCE,
    Ask,
    Begin,
    Channel,
    Failed,
    Ready,
    Renew,
    Report,
    Rows,
    Stop,
    ToWorker,
    Want,
    Wanted,
    Written,
    shortened,
)
from bridge.workers.lines import LinesOut

#: Sets up the log and makes the bridges, by name; called in the running loop, again when the settings have
#: changed. Its errors are reported to the supervisor.
MakeBridges = Callable[[Begin], Mapping[str, Operated]]

#: Each bridge is reported this often, in seconds...
REPORT_INTERVAL_S: Final = 0.5
#: ...and at a change of state, which is checked this often.
LOOK_INTERVAL_S: Final = 0.1

_COMMANDS: Final = {
    Wanted.RUNNING: Command.START,
    Wanted.PAUSED: Command.PAUSE,
    Wanted.STOPPED: Command.STOP,
}


def run(descriptor: int, make: MakeBridges, lines: LinesOut | None = None) -> int:
    """Run as a worker until asked to stop; returns the exit code: 0 drained, 1 could not start or died.

    `descriptor` is this end of the channel, inherited; `lines` sends delivery-log lines over it. SIGTERM
    drains. A Ctrl-C on the terminal reaches this process too, but only the supervisor acts on it.
    """
    signals.hold_in_worker()
    memory.tune()
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        return runner.run(_run(socket.socket(fileno=descriptor), make, lines))


async def _run(end: socket.socket, make: MakeBridges, lines: LinesOut | None) -> int:
    return await _be_worker(await Channel.on(end, ToWorker, MOST_ORDER_BYTES), make, lines)


async def _be_worker(channel: Channel[ToWorker], make: MakeBridges, lines: LinesOut | None = None) -> int:
    lines = lines or LinesOut()
    lines.attach(channel)
    try:
        begin = await channel.receive()
        if begin is None:
            return 1
        assert isinstance(begin, Begin), f"the first message is Begin; found {type(begin).__name__}"
        try:
            bridges = make(begin)
        except Exception as error:  # noqa: BLE001 - whatever it is, the supervisor must hear of it
            channel.send(Failed(shortened(described(error))))
            return 1
        channel.send(Ready())
        return await _Worker(channel, bridges, begin, make, lines).serve()
    finally:
        await channel.close()


class _Worker:
    """One life of a worker, from Ready to the end."""

    def __init__(
        self,
        channel: Channel[ToWorker],
        bridges: Mapping[str, Operated],
        begin: Begin,
        make: MakeBridges,
        lines: LinesOut,
    ) -> None:
        self._channel = channel
        self._lines = lines
        self._bridges = bridges
        self._make = make
        self._begin = begin
        self._shutdown_timeout_ms = begin.shutdown_timeout_ms
        #: The latest order that is carried out, and the state that was reported last, by bridge.
        self._orders = dict.fromkeys(bridges, 0)
        self._reported: dict[str, State] = {}
        self._stop = asyncio.Event()
        self._log = structlog.get_logger()

    async def serve(self) -> int:
        """Obey and report until asked to stop; then drain."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._asked)
        exit_code = 0
        try:
            async with asyncio.TaskGroup() as tasks:
                lasting = [
                    tasks.create_task(self._listen(tasks), name="listen"),
                    tasks.create_task(self._report(), name="report"),
                ]
                await self._stop.wait()
                await self._drain()
                for task in lasting:
                    task.cancel()
        except* Exception as errors:  # noqa: BLE001 - a bug: the supervisor starts another process
            self._log.error("worker-failed", exc_info=errors.exceptions[0])
            self._channel.send(Failed(shortened(described(errors.exceptions[0]))))
            exit_code = 1
        return exit_code

    def _asked(self) -> None:
        if self._stop.is_set():
            log_output.flush()
            os._exit(1)  # committed messages stay so; another worker relays the others
        self._stop.set()

    async def _listen(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            match await self._channel.receive():
                case Want() as want:
                    # Orders may overtake: a stop ends a pause that waits for receipts.
                    tasks.create_task(self._obey(want), name=f"obey-{want.order}")
                case Renew() as renew:
                    self._renew(renew)
                case Written() as answer:
                    self._lines.written(answer)
                case Ask() as ask:
                    tasks.create_task(self._answer(ask), name=f"answer-{ask.number}")
                case Stop():
                    self._stop.set()
                case None:
                    self._lines.lost()
                    self._asked()
                    return
                case Begin():
                    raise AssertionError("Begin comes once")

    async def _answer(self, ask: Ask) -> None:
        """Send the partitions of a bridge, in lines that the supervisor reads one by one."""
        bridge = self._bridges.get(ask.bridge)
        rows = [] if bridge is None else await bridge.partitions()
        for first in range(0, max(len(rows), 1), ROWS_AT_ONCE):
            some = rows[first : first + ROWS_AT_ONCE]
            cut = [dataclasses.replace(row, reason=row.reason[:MOST_REASON_CHARS]) for row in some]
            self._channel.send(Rows(ask.bridge, ask.number, (*cut,), first + ROWS_AT_ONCE < len(rows)))
            await self._channel.sent()

    def _renew(self, renew: Renew) -> None:
        """Run by the settings as they are now. Where that cannot be, drain and end: the supervisor starts
        another process.
        """
        try:
            made = self._make(msgspec.structs.replace(self._begin, settings=renew.settings))
            kept = {
                name: bridge
                for name, bridge in self._bridges.items()
                if name in made and name not in renew.bridges
            }
            for name, bridge in self._bridges.items():
                if name not in kept and bridge.state is not State.STOPPED:
                    raise Conflict(f"{name} was started while its settings changed", key="bridge", found=name)
        except Exception as error:  # noqa: BLE001 - whatever it is, the supervisor must hear of it
            self._channel.send(Failed(shortened(described(error))))
            self._stop.set()
            return
        self._bridges, self._shutdown_timeout_ms = {**made, **kept}, renew.shutdown_timeout_ms
        self._orders = {name: self._orders.get(name, 0) for name in self._bridges}

    async def _obey(self, want: Want) -> None:
        bridge = self._bridges.get(want.bridge)
        if bridge is None:  # a reload has removed it, and its order was on the way
            reason = "the bridge is not in the settings any more"
            self._log.warning(
                "worker-order-refused", bridge=want.bridge, wanted=want.wanted.value, reason=reason
            )
            return
        try:
            if want.wanted is Wanted.PAUSED and bridge.state is State.STOPPED:
                # A process that has just started: its bridge takes its share of the lanes, and rests.
                await bridge.command(Command.START)
            await bridge.command(_COMMANDS[want.wanted])
        except Conflict as error:  # it has FAILED meanwhile, and reports it
            log = self._log.bind(bridge=want.bridge)
            log.warning("worker-order-refused", wanted=want.wanted.value, reason=str(error))
        if want.bridge in self._bridges:
            self._orders[want.bridge] = max(want.order, self._orders[want.bridge])
            self._report_on(want.bridge)

    async def _drain(self) -> None:
        """Stop every bridge, in the time there is; the last reports carry the last counts."""
        stopping = [
            asyncio.create_task(bridge.command(Command.STOP), name=f"stop-{name}")
            for name, bridge in self._bridges.items()
        ]
        done, late = await asyncio.wait(stopping, timeout=self._shutdown_timeout_ms / 1000)
        self._report_all()
        if late:
            self._log.warning("worker-not-drained", **{"shutdown-timeout-ms": self._shutdown_timeout_ms})
            log_output.flush()
            os._exit(1)  # not by cancelling: an end that does not close might not heed that either
        for task in done:
            task.result()

    # -- reports ---------------------------------------------------------------------------------------

    async def _report(self) -> None:
        now = asyncio.get_running_loop().time
        due = now()
        while True:
            all_due = now() >= due
            if all_due:
                due = now() + REPORT_INTERVAL_S
            for name, bridge in self._bridges.items():
                if all_due or bridge.state is not self._reported.get(name):
                    self._report_on(name)
            await self._channel.sent()
            await asyncio.sleep(LOOK_INTERVAL_S)

    def _report_all(self) -> None:
        for name in self._bridges:
            self._report_on(name)

    def _report_on(self, name: str) -> None:
        bridge = self._bridges[name]
        counts = bridge.counts
        self._reported[name] = bridge.state
        self._channel.send(
            Report(
                bridge=name,
                order=self._orders[name],
                state=bridge.state,
                reason=shortened(bridge.reason),
                store=bridge.store,
                connected=bridge.connected,
                in_flight=bridge.in_flight,
                lag=bridge.lag,
                lanes_known=bridge.lanes_known,
                counts=dataclasses.replace(counts, trouble=shortened(counts.trouble)),
                owned_lanes=tuple(bridge.owned_lanes or ())[:MOST_LANES_NAMED],
            )
        )
