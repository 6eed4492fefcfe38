"""Waiting for what a process logs, with the end of its log in every error."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Final

#: Longest start of a broker on a machine that does other things too, in seconds.
START_TIMEOUT_S: Final = 60.0
#: Pause between two looks at a log, in seconds.
LOOK_AGAIN_S: Final = 0.02
#: Lines of a log that an error shows.
TAIL_LINES: Final = 40
#: Characters of each: KRaft tells whole quorums in one line.
LINE_WIDTH: Final = 240
#: What lines that tell of trouble have in them, and the stack traces behind them.
TROUBLE: Final = (" WARN ", " ERROR ", "Exception", "\tat ")


class BrokerFailed(RuntimeError):
    """A broker ended, or did not get ready in time; with the end of its log."""


class PortTaken(BrokerFailed):
    """Somebody else listens where the broker was to."""


def tail(log: Path, *, only: tuple[str, ...] = ("",)) -> str:
    """The last lines of a log that have one of `only` in them."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    lines = [line[:LINE_WIDTH] for line in text.splitlines() if any(part in line for part in only)]
    return "\n".join(lines[-TAIL_LINES:])


def await_line(
    log: Path,
    wanted: str,
    process: subprocess.Popen[bytes],
    *,
    after: int = 0,
    within_s: float = START_TIMEOUT_S,
) -> None:
    """Return when the log holds `wanted` behind byte `after`.

    Raises:
        PortTaken: the process ended because its port was not free.
        BrokerFailed: it ended for another reason, or the time is over.
    """
    deadline = time.monotonic() + within_s
    while True:
        # Asked before the look: what was written before the end is seen.
        ended = process.poll() is not None
        text = log.read_bytes()[after:].decode(errors="replace")
        if wanted in text:
            return
        if ended:
            kind = PortTaken if "Address already in use" in text else BrokerFailed
            raise kind(f"ended with {process.returncode} before it logged {wanted!r}:\n{tail(log)}")
        if time.monotonic() > deadline:
            raise BrokerFailed(f"did not log {wanted!r} within {within_s:g} s:\n{tail(log)}")
        time.sleep(LOOK_AGAIN_S)
