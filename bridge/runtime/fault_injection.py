"""Named places where a test can make the process die as by `kill -9`.

``CORE_BRIDGE_CRASH_AT=journal.before-commit:3`` kills this process the third time that place is
reached. Unset, a crash point costs one comparison.
"""

from __future__ import annotations

import os
import signal
from typing import Final

#: All crash points; tests walk this list, so that a new one is never left untested.
NAMES: Final = (
    "journal.before-begin",
    "journal.before-commit",
    "journal.after-commit",
    "journal.before-checkpoint",
    "journal.after-checkpoint",
    "journal.before-trim",
    "link.before-batch",
    "link.after-batch",
    "link.before-chunk",
    "link.chunk-stored",
    "link.before-receipt",
    "link.after-receipt",
    "link.before-open",
    "source.before-settle",
    "source.after-settle",
    "http.before-answer",
    "http.after-chunk",
    "delivery-log.before-write",
    "delivery-log.before-fsync",
    "delivery-log.after-fsync",
    "delivery-log.before-rename",
    "delivery-log.after-rename",
    "kafka.after-begin",
    "kafka.after-send",
    "kafka.after-journal",
    "kafka.before-commit",
    "kafka.after-commit",
    "kafka-source.before-commit",
    "kafka-source.after-commit",
    "cluster.before-move",
    "cluster.after-move",
    "cluster.drain-QUIESCE",
    "cluster.drain-FREEZE",
    "cluster.drain-QUEUES",
    "cluster.drain-MOVE",
    "cluster.drain-STATE",
    "cluster.drain-next",
    "cluster.drain-moved",
    "cluster.drain-told",
    "cluster.heir-before",
    "cluster.heir-after",
)


def _read(value: str) -> tuple[str, int]:
    name, _, times = value.partition(":")
    if name and name not in NAMES:
        raise SystemExit(f"CORE_BRIDGE_CRASH_AT: no such crash point; found {name}")
    return name, int(times or 1)


_armed, _remaining = _read(os.environ.get("CORE_BRIDGE_CRASH_AT", ""))


def crash_point(name: str) -> None:
    """Kill the process if the environment names this place, and this is the time that it names."""
    global _remaining
    if _armed != name:
        return
    _remaining -= 1
    if _remaining <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
