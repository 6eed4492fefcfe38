"""Work in a daemon thread, for code that may not return: not even the end of the process waits for it.

A thread cannot be ended from outside. `asyncio.to_thread` waits for its threads when the loop closes, and the
interpreter when it exits; here both go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Work(Generic[T]):
    """Work in a thread of its own, which a coroutine waits for or gives up."""

    def __init__(self, work: Callable[[Callable[[], bool]], T], name: str) -> None:
        """`work` gets a function that answers whether it is given up; `name`: of the thread."""
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._outcome: list[T] = []
        self._error: BaseException | None = None
        #: Set in the loop once the thread has returned.
        self.returned = asyncio.Event()
        #: Nothing waits for the outcome any more: the work may end where it is.
        self.is_given_up = False
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            self._outcome.append(self._work(lambda: self.is_given_up))
        except BaseException as error:  # noqa: BLE001 - `outcome` raises it
            self._error = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            self._loop.call_soon_threadsafe(self.returned.set)

    def outcome(self) -> T:
        """The outcome, once it has returned; it is handed out once. Raises: the error of the work."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._outcome.pop()


async def abandonable(work: Callable[[], T], name: str) -> T:
    """The outcome of `work` in a thread. A caller that is cancelled leaves it running, without effect."""
    under_way = Work(lambda _: work(), name)
    await under_way.returned.wait()
    return under_way.outcome()
