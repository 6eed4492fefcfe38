"""Bounds the end of a process: code that is not the node's own may hold it.

A thread that a transformer or an adapter has started, a call that blocks the event loop, a task that does not
heed its cancellation: each would keep a stopped node alive.
"""

from __future__ import annotations

import os
import threading
from typing import Final

from bridge.runtime import log_output, logs

#: From the end of the node to the end of its process, in seconds.
EXIT_S: Final = 3.0
#: What a stop may take beyond `shutdown-timeout`, in seconds: files are closed after the drain.
EXIT_GRACE_S: Final = 10.0


def bound_exit(seconds: float, code: int) -> None:
    """End the process with `code` where it still runs after `seconds`; the log names what held it."""
    timer = threading.Timer(seconds, _end, (seconds, code))
    timer.daemon = True
    timer.name = "bound-exit"
    timer.start()


def _end(seconds: float, code: int) -> None:
    held = [thread.name for thread in threading.enumerate() if not thread.daemon]
    logs.get().warning("exit-held", seconds=seconds, threads=held)
    log_output.flush()
    os._exit(code)
