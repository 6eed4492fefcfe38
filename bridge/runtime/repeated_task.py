"""Tasks that do the same work again and again for as long as their owner runs.

An error that ended such a task would be seen by nobody: the node would look healthy, and the work would no
longer be done. So the error of one turn is logged, and the next turn comes all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from bridge.errors import BridgeError, described
from bridge.runtime import logs

#: Pause after a turn that failed, in seconds.
PAUSE_S: Final = 1.0
#: A task that goes on failing is logged at most once in this time, in seconds.
LOG_INTERVAL_S: Final = 60.0


class RepeatedTask:
    """One such task. Each turn waits for what it needs, and then does its work once."""

    def __init__(
        self, name: str, turn: Callable[[], Awaitable[object]], *, until: Callable[[], bool] = lambda: False
    ) -> None:
        """`name` is the task's in the log; no turn begins once `until` answers True."""
        self.name = name
        #: Why the last turn failed; empty: it did not.
        self.failing = ""
        #: Turns that have failed.
        self.failures = 0
        self.task: asyncio.Task[None] | None = None
        self._turn = turn
        self._until = until
        self._log = logs.get()
        #: Failures that were logged, and when the last was, by the loop's clock.
        self._logged = 0
        self._logged_s = float("-inf")

    def begin(self) -> None:
        """Begin, in the running loop."""
        self.task = asyncio.create_task(self._run(), name=self.name)

    async def ended(self) -> None:
        """Wait until the last turn has ended, where `until` answers True."""
        if self.task is not None:
            await asyncio.wait([self.task])

    async def end(self) -> None:
        """End at once, in the middle of a turn."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])

    async def _run(self) -> None:
        while not self._until():
            try:
                await self._turn()
            except Exception as error:  # noqa: BLE001 - whatever it is, the work must go on
                self._failed(error)
                await asyncio.sleep(PAUSE_S)
            else:
                self.failing = ""

    def _failed(self, error: Exception) -> None:
        self.failing = described(error)
        self.failures += 1
        now_s = asyncio.get_running_loop().time()
        if now_s - self._logged_s < LOG_INTERVAL_S:
            return
        count, self._logged, self._logged_s = self.failures - self._logged, self.failures, now_s
        defect = {} if isinstance(error, BridgeError) else {"exc_info": error}
        self._log.error("task-failed", task=self.name, reason=self.failing, count=count, **defect)
