"""Signals of a process, from its first instant on.

By default SIGHUP and SIGTERM would end it with messages on their way, and the first process of a container
would not even notice them. Until the event loop takes the signals over, nothing is open: SIGTERM and SIGINT
end the process, and a SIGHUP is kept for the loop. Imports little, because it is imported first.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False  # of `typing`, whose import takes as long as all that comes before this module
if TYPE_CHECKING:
    import signal
    from asyncio import AbstractEventLoop
    from collections.abc import Callable
    from types import FrameType
    from typing import Final
else:
    import _signal as signal  # the same without its enums, whose import takes as long

#: Signals that stop a node.
STOPS: Final = (signal.SIGTERM, signal.SIGINT)
_NAMES: Final = {int(signal.SIGTERM): "SIGTERM", int(signal.SIGINT): "SIGINT"}

_STDERR: Final = 2
#: SIGHUP, once it came before the loop took it over.
_kept: Final[set[int]] = set()


def hold() -> None:
    """Take the signals of a node: SIGTERM and SIGINT end the process with 0 and a line of the log."""
    for number in STOPS:
        signal.signal(number, _stop)
    signal.signal(signal.SIGHUP, lambda number, _: _kept.add(number))


def hold_in_worker() -> None:
    """Take the signals of a worker process: SIGTERM ends it with 0; its node acts on the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


def hand_over(loop: AbstractEventLoop, stop: Callable[[], None], hang_up: Callable[[], None]) -> None:
    """Let the loop call `stop` and `hang_up` from now on; `hang_up` also for a SIGHUP that was kept."""
    for number in STOPS:
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, hang_up)
    if _kept:
        _kept.clear()
        hang_up()


def _stop(number: int, _frame: FrameType | None) -> None:
    """End at once: nothing is open. Not by an exception, which the code that is being imported may catch."""
    try:
        os.write(_STDERR, _line(_NAMES[number]).encode())
    finally:
        os._exit(0)


def _line(name: str) -> str:
    """The event `stopped`. The log is not set up: its library may be what is being imported."""
    now = time.time()
    at = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now * 1000) % 1000:03d}Z"
    reason = f"{name} before the node had started"
    if os.isatty(_STDERR):
        return f"{at} [info] stopped reason={reason!r}\n"
    return f'{{"timestamp":"{at}","level":"info","event":"stopped","queued":null,"reason":"{reason}"}}\n'
