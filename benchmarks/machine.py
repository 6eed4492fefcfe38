"""The machine of the figures, and the speed of its disk."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import time
from pathlib import Path


def describe(directory: Path) -> str:
    """One paragraph: processors, memory, versions, fdatasync."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"machine: {os.cpu_count()} cores ({_processor()}), {memory_gib:.0f} GiB, Linux {platform.release()},"
        f" Python {platform.python_version()}, SQLite {sqlite3.sqlite_version};"
        f" fdatasync of 64 KiB p50 {fdatasync_p50_ms(directory):.2f} ms"
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def fdatasync_p50_ms(directory: Path, rounds: int = 200) -> float:
    """Median time of one fdatasync after an append of 64 KiB."""
    path = directory / "fdatasync.tmp"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
    taken = []
    try:
        for index in range(rounds):
            os.pwrite(descriptor, b"x" * 65536, index * 65536)
            began = time.perf_counter()
            os.fdatasync(descriptor)
            taken.append(time.perf_counter() - began)
    finally:
        os.close(descriptor)
        path.unlink()
    return statistics.median(taken) * 1000
