"""Ends the brokers of a test process that died without ending them itself.

One small process listens to a pipe for ``+pid`` and ``-pid``. When the pipe breaks, because its owner has
ended, however it ended, it kills what is left. `PR_SET_PDEATHSIG` would do the same for one thread's
children only, and the thread that started a broker may well end before the broker may.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Final

_PROGRAM: Final = """
import os, signal, sys
watched = set()
for line in sys.stdin.buffer:
    (watched.add if line[:1] == b"+" else watched.discard)(int(line[1:]))
for pid in watched:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


class Watchdog:
    """Watches over processes from the first `watch` on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def watch(self, pid: int) -> None:
        """Have this child killed when this process ends, and its group: it leads a session of its own."""
        self._say(b"+%d\n" % pid)

    def forget(self, pid: int) -> None:
        """The child has ended: its pid may soon be another's."""
        self._say(b"-%d\n" % pid)

    def _say(self, line: bytes) -> None:
        with self._lock:
            if self._process is None:
                # A session of its own: Ctrl-C in a terminal must not end it before its time.
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _PROGRAM],
                    stdin=subprocess.PIPE,
                    start_new_session=True,
                )
            pipe = self._process.stdin
            assert pipe is not None
            pipe.write(line)
            pipe.flush()


#: One for this process.
WATCHDOG: Final = Watchdog()
