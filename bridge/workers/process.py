"""Starts a worker's process: a new interpreter, with one end of a channel and the node's stderr."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from typing import Protocol

from bridge.workers.channel import Channel, FromWorker


class WorkerProcess(Protocol):
    """A worker as its supervisor holds it."""

    #: The channel on which it reports and gets orders.
    channel: Channel[FromWorker]

    @property
    def pid(self) -> int:
        """The pid of its process."""

    async def wait(self) -> int:
        """Its exit code once it has ended; minus the signal that ended it."""

    def terminate(self) -> None:
        """Send SIGTERM: it drains; the second time, or while it drains already, it ends at once."""

    def kill(self) -> None:
        """Send SIGKILL."""


class StartWorker(Protocol):
    """Starts worker number `worker`."""

    async def __call__(self, worker: int) -> WorkerProcess:
        """Start the process and return it.

        Raises:
            OSError: it cannot be started.
        """


class Launcher:
    """Implements `StartWorker` with real processes.

    A new interpreter and not a fork: a fork would carry the journal's threads, locks and open files with it.
    """

    def __init__(self, command: Sequence[str]) -> None:
        """`command` gets ``--worker NUMBER --channel DESCRIPTOR`` added."""
        self._command = command

    async def __call__(self, worker: int) -> WorkerProcess:
        """Start the process and return it.

        Raises:
            OSError: it cannot be started.
        """
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            descriptor = theirs.fileno()
            arguments = ("--worker", str(worker), "--channel", str(descriptor))
            process = await asyncio.create_subprocess_exec(
                *self._command, *arguments, stdin=asyncio.subprocess.DEVNULL, pass_fds=(descriptor,)
            )
            undo.pop_all()
        return _Running(process, await Channel.on(ours, FromWorker))


class _Running:
    """Implements `WorkerProcess`."""

    def __init__(self, process: asyncio.subprocess.Process, channel: Channel[FromWorker]) -> None:
        self.channel = channel
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        return await self._process.wait()

    def terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
