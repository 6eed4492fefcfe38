"""The thread in which a node's delivery log is written: a volume that hangs holds up this thread and no
other."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from bridge.delivery_log.segments import SegmentWriter
from bridge.runtime import logs

#: Most calls that wait for the thread. Each of its callers has one call under way: the outbox's copier, and
#: the writer of all lanes' lines.
MOST_CALLS: Final = 8
#: How long a call may take until it is logged that the volume hangs, in seconds.
PATIENCE_S: Final = 10.0
#: How long the thread waits for the next call before it ends, in seconds.
_IDLE_S: Final = 10.0


class LogThread:
    """The calls of `SegmentWriter` for the event loop, one after the other.

    The thread is a daemon's: a process whose volume hangs can end. A caller that is cancelled leaves its call
    to the thread.
    """

    def __init__(self, segments: SegmentWriter) -> None:
        self._segments = segments
        self._calls: deque[tuple[Callable[[], None], asyncio.Future[None]]] = deque()
        self._changed = threading.Condition()
        self._is_running = False
        #: Whether it was logged that the call under way takes long.
        self._is_logged = False
        self._log = logs.get()

    async def open(self) -> None:
        """As `SegmentWriter.open`."""
        await self._call(self._segments.open)

    async def write(self, lines: Sequence[bytes]) -> None:
        """As `SegmentWriter.write`."""
        await self._call(partial(self._segments.write, lines))

    async def tick(self) -> None:
        """As `SegmentWriter.tick`."""
        await self._call(self._segments.tick)

    async def close(self) -> None:
        """As `SegmentWriter.close`."""
        await self._call(self._segments.close)

    async def _call(self, call: Callable[[], None]) -> None:
        """Wait until the thread has made the call. Raises: what the call raises. BlockingIOError: too many
        wait."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._changed:
            if len(self._calls) >= MOST_CALLS:
                raise BlockingIOError(
                    f"{MOST_CALLS} calls wait for {self._segments.directory}, which does not answer"
                )
            self._calls.append((call, done))
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._work, name="delivery-log", daemon=True).start()
            self._changed.notify()
        await asyncio.wait((done,), timeout=PATIENCE_S)
        if not done.done() and not self._is_logged:
            self._is_logged = True
            reason = f"{self._segments.directory} has not answered for {PATIENCE_S:g} s"
            self._log.warning("delivery-log-waits", reason=reason)
        await done
        self._is_logged = False

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: bool(self._calls), _IDLE_S):
                    self._is_running = False
                    return
                call, done = self._calls.popleft()
            error: BaseException | None = None
            try:
                call()
            except BaseException as failed:  # noqa: BLE001 - whatever it is, the caller raises it
                error = failed
            with suppress(RuntimeError):  # the caller's loop has ended meanwhile
                done.get_loop().call_soon_threadsafe(_answer, done, error)


def _answer(done: asyncio.Future[Any], error: BaseException | None) -> None:
    if done.done():
        return  # the caller was cancelled
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
