"""Keeps N worker processes running: starts them, takes their reports, starts them again, ends them.

A worker that ends unasked is started again after a back-off that grows while its lives are short. The other
workers meanwhile relay its lanes: lanes are given out by the consumer group, not here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from bridge.delivery_log import WriteLines
from bridge.relay.backoff import Backoff
from bridge.runtime.clock import Clock
from bridge.runtime.repeated_task import RepeatedTask
from bridge.settings.fields import MOST_WORKERS
from bridge.workers.channel import (
    Ask,
    Begin,
    ChannelBroken,
    Failed,
    Lines,
    Ready,
    Renew,
    Report,
    Rows,
    Stop,
    Want,
)
from bridge.workers.lines import LinesIn
from bridge.workers.process import StartWorker, WorkerProcess
from bridge.workers.remote import RemoteBridge

#: From a worker's end to its next start: 0.5 s, doubled for each short life in a row, up to 30 s.
RESTART_BACKOFF: Final = Backoff(500, 2.0, 30_000)
#: A life of this length is not a short one: the back-off starts again from 0.5 s.
STABLE_MS: Final = 60_000
#: This many short lives in a row make the node not ready, even if the worker comes up each time.
LOOPING_LIVES: Final = 3
#: A worker reports twice a second; one that has sent nothing for so long hangs, and is killed.
SILENCE_MS: Final = 60_000
#: From the end of a worker's channel, or from SIGTERM, to SIGKILL.
KILL_AFTER_MS: Final = 2_000


@dataclass(slots=True)
class _Slot:
    """The place of one worker: its present process, and its past lives."""

    worker: int
    #: None: between two lives.
    process: WorkerProcess | None = None
    #: The beginning of this life, and whether it has come as far as taking orders.
    began_ms: int = 0
    ready: bool = False
    #: Lives that ended since one was long enough, and the ending of the last of them.
    endings: int = 0
    last_was_ready: bool = True
    last_ending: str = ""

    def lived_long(self, now_ms: int) -> bool:
        return self.ready and now_ms - self.began_ms >= STABLE_MS

    def troubled(self, now_ms: int) -> bool:
        """Whether it does not start, or does not stay up."""
        never_came_up = not self.ready and not self.last_was_ready
        return never_came_up or (self.endings >= LOOPING_LIVES and not self.lived_long(now_ms))


@dataclass(frozen=True, slots=True)
class _Ending:
    #: None: it could not be started.
    exit: int | None
    #: Empty where only the exit code is known.
    reason: str = ""

    def __str__(self) -> str:
        return self.reason or f"its process ended with {self.exit}"


class Supervisor:
    """The workers of one node. `bridges` are the bridges that run in them, as the node shows them."""

    def __init__(
        self,
        start_worker: StartWorker,
        bridges: Iterable[str],
        *,
        workers: int,
        settings: str,
        shutdown_timeout_ms: int,
        clock: Clock,
        write_lines: WriteLines | None = None,
    ) -> None:
        """Starts nothing yet.

        Args:
            start_worker: makes a process.
            bridges: names of the bridges that run in every worker.
            workers: the number of processes.
            settings: text of the settings file, by which the workers run.
            shutdown_timeout_ms: the time that a worker may take to drain.
            clock: for the length of lives.
            write_lines: makes the workers' delivery-log lines durable; None: there is no delivery log.
        """
        assert 1 <= workers <= MOST_WORKERS, f"1 to {MOST_WORKERS} workers; found {workers}"
        self.bridges: Mapping[str, RemoteBridge] = {
            name: RemoteBridge(name, self._announce) for name in bridges
        }
        self._start_worker = start_worker
        self._settings = settings
        self._shutdown_timeout_ms = shutdown_timeout_ms
        self._clock = clock
        self._write_lines = write_lines
        self._node_id = ""
        #: The last order to any bridge that is gone: a late report of it answers no order to another one of
        #: its name.
        self._orders_from = 0
        self._slots = [_Slot(number) for number in range(1, workers + 1)]
        self._stopping = asyncio.Event()
        self._killing = False
        self._tasks: list[RepeatedTask] = []
        self._log = structlog.get_logger()

    def start(self, node_id: str = "") -> None:
        """Begin to keep the workers running. Returns at once: one that cannot start is tried again.

        None runs as long as there is no bridge for it. `node_id` is the node's UUID, for the workers'
        delivery-log lines.
        """
        self._node_id = node_id
        self._begin()

    def renew(
        self, settings: str, bridges: Iterable[str], anew: Iterable[str], shutdown_timeout_ms: int
    ) -> None:
        """Let the workers run these bridges from now on, by the settings file of this text, and make those
        of `anew` anew. These, and those that are gone, are stopped.
        """
        before, names = self.bridges, tuple(bridges)
        anew = tuple(name for name in anew if name in names)
        if settings == self._settings and before.keys() == set(names) and not anew:
            return
        self._settings, self._shutdown_timeout_ms = settings, shutdown_timeout_ms
        self.bridges = {name: before.get(name) or self._made(name) for name in names}
        gone = [bridge for name, bridge in before.items() if name not in self.bridges]
        self._orders_from = max([self._orders_from, *(bridge.want.order for bridge in gone)])
        for slot in self._slots:
            if slot.process is not None:
                for bridge in gone:  # no worker answers for it any more
                    bridge.detached(slot.worker)
                slot.process.channel.send(Renew(settings, anew, shutdown_timeout_ms))
        if not self._tasks:
            self._begin()

    def _made(self, name: str) -> RemoteBridge:
        bridge = RemoteBridge(name, self._announce, self._orders_from)
        for slot in self._slots:
            if slot.process is not None:
                bridge.attached(slot.worker)
        return bridge

    def _begin(self) -> None:
        if not self.bridges:
            return
        for slot in self._slots:
            task = RepeatedTask(
                f"worker-{slot.worker}", partial(self._turn, slot), until=self._stopping.is_set
            )
            self._tasks.append(task)
            task.begin()

    async def stop(self) -> None:
        """Ask every worker to drain and end, and wait until all have; cancel it when the time is up."""
        self._stopping.set()
        for slot in self._slots:
            if slot.process is not None:
                slot.process.channel.send(Stop())
        for task in self._tasks:
            await task.ended()

    async def kill(self) -> None:
        """End the workers that `stop` has left, at once; no worker runs afterwards."""
        self._stopping.set()
        self._killing = True
        for slot in self._slots:
            if slot.process is not None:
                slot.process.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILL_AFTER_MS / 1000):
                for task in self._tasks:
                    await task.ended()
        for slot in self._slots:
            if slot.process is not None:
                slot.process.kill()
        for task in self._tasks:
            await task.ended()

    def problems(self) -> Sequence[str]:
        """Workers that do not start, or do not stay up, each in a sentence: reasons not to be ready.

        A worker that was killed and is being started again is no problem: the others have its lanes
        meanwhile.
        """
        now_ms = self._clock.monotonic_ms()
        return [
            f"worker {slot.worker} does not stay up ({slot.endings} starts): {slot.last_ending}"
            for slot in self._slots
            if slot.troubled(now_ms)
        ]

    # -- one worker ------------------------------------------------------------------------------------

    async def _turn(self, slot: _Slot) -> None:
        """One process of the worker, and the wait for the next one."""
        slot.began_ms = self._clock.monotonic_ms()
        ending = await self._live(slot)
        slot.endings = 1 if slot.lived_long(self._clock.monotonic_ms()) else slot.endings + 1
        slot.last_was_ready, slot.last_ending, slot.ready = slot.ready, str(ending), False
        if self._stopping.is_set():
            self._log.info("worker-ended", worker=slot.worker, exit=ending.exit)
            return
        delay_ms = RESTART_BACKOFF.delay_ms(slot.endings)
        self._log.warning(
            "worker-ended",
            worker=slot.worker,
            exit=ending.exit,
            reason=str(ending),
            **{"retry-in-ms": delay_ms},
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_ms / 1000):
                await self._stopping.wait()

    async def _live(self, slot: _Slot) -> _Ending:
        """One process, from its start to its end."""
        try:
            process = await self._start_worker(slot.worker)
        except OSError as error:
            return _Ending(None, f"its process could not be started: {error}")
        self._log.info("worker-started", worker=slot.worker, pid=process.pid)
        slot.process = process
        for bridge in self.bridges.values():
            bridge.attached(slot.worker)
        try:
            self._brief(slot, process)
            reason = await self._listen(slot, process)
            return _Ending(await self._reap(process), reason)
        except BaseException:
            process.kill()  # nobody listens to it any more
            raise
        finally:
            slot.process = None
            for bridge in self.bridges.values():
                bridge.detached(slot.worker)
            await process.channel.close()

    def _brief(self, slot: _Slot, process: WorkerProcess) -> None:
        """Send a worker its number first, and the wanted state of each bridge."""
        channel = process.channel
        channel.send(Begin(slot.worker, self._settings, self._shutdown_timeout_ms, self._node_id))
        for bridge in self.bridges.values():
            channel.send(bridge.want)
        if self._stopping.is_set():  # asked to while the process was being started
            channel.send(Stop())
        if self._killing:
            process.kill()

    async def _listen(self, slot: _Slot, process: WorkerProcess) -> str:
        """Take its messages until its channel ends; answers why it ended, where it said so or that was
        seen.
        """
        reason = ""
        lines = LinesIn(self._write_lines, process.channel)
        try:
            while True:
                async with asyncio.timeout(SILENCE_MS / 1000):
                    message = await process.channel.receive()
                match message:
                    case Ready():
                        slot.ready = True
                    case Report() | Rows():
                        self._heard(slot, message)
                    case Lines():
                        lines.take(message)
                    case Failed():
                        reason = message.reason
                    case None:
                        return reason
        except TimeoutError:
            reason = f"it said nothing for {SILENCE_MS // 1000} s"
        except ChannelBroken as error:
            reason = str(error)
        finally:
            await lines.end()
        process.kill()
        return reason

    def _heard(self, slot: _Slot, message: Report | Rows) -> None:
        bridge = self.bridges.get(message.bridge)
        if bridge is None:
            return  # it is gone, and the worker has not heard so yet
        if isinstance(message, Report):
            bridge.heard(slot.worker, message)
        else:
            bridge.answered(slot.worker, message)

    async def _reap(self, process: WorkerProcess) -> int:
        """Its exit code. A process that has closed its channel and lives on is killed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILL_AFTER_MS / 1000):
                return await process.wait()
        process.kill()
        return await process.wait()

    def _announce(self, message: Want | Ask) -> None:
        for slot in self._slots:
            if slot.process is not None:
                slot.process.channel.send(message)
