"""SIGHUP: until settings can be read again while a node runs, it changes nothing, and the log says so.

By default it would end the process with messages on their way: when a terminal closes, and when an operator
sends it to reload the settings.
"""

from __future__ import annotations

import asyncio
import signal

from bridge.runtime import logs


def ignore() -> None:
    """Ignore SIGHUP; called first in a process, before there is a log."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def ignore_and_log(loop: asyncio.AbstractEventLoop) -> None:
    """Log each SIGHUP from now on, for as long as the loop runs."""
    loop.add_signal_handler(signal.SIGHUP, _log_signal)


def _log_signal() -> None:
    reason = "settings are read at start: to change them, restart"
    logs.get().warning("signal-ignored", signal="SIGHUP", reason=reason)
