"""SIGHUP: a node reloads its settings (`bridge.node.reload`); its workers leave that to it.

By default the signal would end the process with messages on their way: when a terminal closes, and when an
operator sends it to reload the settings.
"""

from __future__ import annotations

import signal


def ignore() -> None:
    """Ignore SIGHUP; called first in a process, before it can do anything about it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
