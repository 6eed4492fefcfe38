"""One reconciliation in a process of its own, so that time and memory are its own; the result as JSON.

``python -m benchmarks.reconcile.measured {spark|duckdb} LOGS CORES``
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import time
from pathlib import Path
from typing import Any, Final

#: Memory limit of both: Spark as heap (-Xmx) of the driver, DuckDB as its memory_limit.
MEMORY: Final = "2g"
DUCKDB_MEMORY: Final = "2GiB"
LATE_AFTER_MS: Final = 60_000


def spark(logs: Path, cores: int) -> dict[str, Any]:
    """Run everything that `core-bridge reconcile` does, its report included."""
    from dedup.reconcile import files, report
    from dedup.reconcile.job import reconcile
    from dedup.reconcile.page import Made
    from dedup.reconcile.session import DRIVER_MEMORY, session

    if DRIVER_MEMORY != MEMORY:
        raise SystemExit(f"the aim is {MEMORY} of driver memory; a session takes {DRIVER_MEMORY}")
    began = time.perf_counter()
    started = session(f"local[{cores}]", "benchmark", log_bytes=files.bytes_here([str(logs)]))
    jvm: Any = started._jvm  # noqa: SLF001 - nothing public leads to the driver's process
    java = int(jvm.java.lang.ProcessHandle.current().pid())
    ready, cpu = time.perf_counter(), _cpu_seconds(java)
    tables = reconcile(started, [str(logs)], late_after_ms=LATE_AFTER_MS)
    read = time.perf_counter()
    content = report.write(tables, str(logs.parent / "report"), Made(0, "", LATE_AFTER_MS)).content
    ended = time.perf_counter()
    totals = {
        key: sum(bridge[key] for bridge in content["bridges"]) for key in ("sent", "received", *_COUNTS)
    }
    return {
        "found": totals | {"needed": content["id-cache-size-needed"]},
        "start-up": ready - began,
        "seconds": ended - ready,
        "comparing": read - ready,
        "cpu": _cpu_seconds(java) - cpu,
        "mib": _peak_mib(java),
        "python-mib": _peak_mib(os.getpid()),
        "heap-mib": jvm.java.lang.Runtime.getRuntime().maxMemory() / 2**20,
    }


_COUNTS: Final = ("lost", "doubled", "unsent", "unknown", "open", "out-of-order")


def duckdb(logs: Path, cores: int) -> dict[str, Any]:
    """The same findings, as sums; no tables, no page."""
    from benchmarks.reconcile import peer

    began, cpu = time.perf_counter(), time.process_time()
    found = peer.reconcile(logs, DUCKDB_MEMORY, cores)
    return {
        "found": found,
        "seconds": time.perf_counter() - began,
        "cpu": time.process_time() - cpu,
        "mib": _peak_mib(os.getpid()),
    }


def _cpu_seconds(process: int) -> float:
    """CPU time of all its threads: it is independent of other load of the machine."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_mib(process: int) -> float:
    """Most resident memory of the process."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    if match is None:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return int(match[1]) / 1024


if __name__ == "__main__":
    engine, directory, number = sys.argv[1:]
    print(json.dumps((spark if engine == "spark" else duckdb)(Path(directory), int(number))))
