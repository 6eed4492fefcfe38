"""Time that jumps: an event loop whose clock moves to the next timer as soon as nothing else is to do.

`asyncio.sleep`, time-outs and `VirtualClock` all follow it, so an hour of retries takes milliseconds and
comes out the same each time. Where nothing can ever happen any more it fails instead of hanging. Not for
tests with threads or sockets: it does not wait for them.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")

#: The wall clock at the loop's beginning, ms since the epoch.
EPOCH_MS = 1_700_000_000_000


class Stuck(AssertionError):
    """No task can ever run again."""


class _Jumping(selectors.SelectSelector):
    def __init__(self, jump: Callable[[float], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if not events and timeout is None:
            raise Stuck("every task waits for something that will never happen")
        if not events and timeout:
            self._jump(timeout)
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """Starts at second 0."""

    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__(_Jumping(self._jump))

    def time(self) -> float:
        return self._now_s

    def _jump(self, seconds: float) -> None:
        self._now_s += seconds


class VirtualClock:
    """`bridge.runtime.clock.Clock` by the running loop's time."""

    def wall_ms(self) -> int:
        return EPOCH_MS + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)


def now_ms() -> int:
    """Since the test's beginning."""
    return VirtualClock().monotonic_ms()


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run `main` in virtual time; it must leave no task behind."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(_leaving_nothing(main))


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test in virtual time that must leave no task behind."""

    @functools.wraps(test)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        run(test(*args, **kwargs))

    return wrapper


async def _leaving_nothing(main: Coroutine[Any, Any, None]) -> None:
    await main
    await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"tasks left behind: {left}"
