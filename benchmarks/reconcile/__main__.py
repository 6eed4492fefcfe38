"""`make bench-reconcile`: how long Spark takes for logs of known size and known faults, DuckDB beside it."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from benchmarks import machine
from benchmarks.reconcile import generate, measured

#: Lines a side at scale 1, and what is asked.
HUNDRED_MILLION: Final = 100_000
BILLION: Final = 1_000_000
TWENTY_MILLION_IDS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Part:
    """One log and the aim for it."""

    name: str
    what: str
    lines: int
    aim: str
    ids: bool = False


PARTS: Final = (
    Part("sweep", "100 million messages", HUNDRED_MILLION, "<= 20 s"),
    Part("billion", "1 billion messages", BILLION, f"linear, driver memory {measured.MEMORY}"),
    Part("ids", "20 million explicit IDs a side", TWENTY_MILLION_IDS, "<= 90 s", ids=True),
)


def measure(engine: str, logs: Path, cores: int, known: generate.Known) -> dict[str, Any]:
    """One engine's run; ends the benchmark where its findings differ from the injected faults."""
    command = [sys.executable, "-m", "benchmarks.reconcile.measured", engine, str(logs), str(cores)]
    ran = subprocess.run(command, check=False, stdout=subprocess.PIPE)
    if ran.returncode:
        raise SystemExit(f"{engine} failed with exit code {ran.returncode}")
    result: dict[str, Any] = json.loads(ran.stdout)
    expected = {name: value for name, value in asdict(known).items() if name not in ("lines", "bytes")}
    expected |= {"unsent": 0, "open": 0, "out-of-order": 0}
    wrong = {name: (result["found"][name], value) for name, value in expected.items()}
    wrong = {name: pair for name, pair in wrong.items() if pair[0] != pair[1]}
    if wrong:
        raise SystemExit(f"{engine} is wrong (found, injected): {wrong}")
    return result


def report_spark(found: dict[str, Any], known: generate.Known, aim: str) -> None:
    """Two lines on Spark's time and memory."""
    print(
        f"  Spark: {found['seconds']:.1f} s ({found['cpu']:.1f} s of CPU) after a start-up of"
        f" {found['start-up']:.1f} s, {known.sent / found['seconds']:,.0f} messages/s"
        f" (compared after {found['comparing']:.1f} s); all that was injected was found [aim {aim}]\n"
        f"  Spark: heap at most {found['heap-mib']:,.0f} MiB (-Xmx), resident at most"
        f" {found['mib']:,.0f} MiB in Java and {found['python-mib']:,.0f} MiB in Python",
        flush=True,
    )


def run(part: Part, directory: Path, arguments: argparse.Namespace) -> float:
    """Generate, reconcile, report; returns Spark's seconds for a message."""
    lines = max(500, int(part.lines * arguments.scale))
    logs = directory / part.name / "logs"
    began = time.perf_counter()
    known = generate.write(logs, lines, ids=part.ids)
    print(
        f"{part.name}: {part.what}{'' if arguments.scale == 1 else f', x {arguments.scale:g}'}:"
        f" {lines:,} lines a side, {known.bytes / 2**20:,.0f} MiB, written in"
        f" {time.perf_counter() - began:.1f} s; injected: lost {known.lost:,}, doubled {known.doubled:,},"
        f" unknown {known.unknown:,}, id-cache-size-needed {known.needed:,}",
        flush=True,
    )
    found = measure("spark", logs, arguments.cores, known)
    report_spark(found, known, f"{part.aim}{'' if arguments.scale == 1 else ' at scale 1'}")
    if arguments.peer:
        other = measure("duckdb", logs, arguments.cores, known)
        print(
            f"  DuckDB {version('duckdb')}: {other['seconds']:.1f} s ({other['cpu']:.1f} s of CPU),"
            f" resident at most {other['mib']:,.0f} MiB (sums only, no tables and no page);"
            f" Spark took {found['seconds'] / other['seconds']:.2f} times as long,"
            f" {found['cpu'] / other['cpu']:.2f} times the CPU",
            flush=True,
        )
    if not arguments.keep:
        shutil.rmtree(logs.parent)
    return float(found["seconds"]) / known.sent


def main() -> None:
    """Run all parts, or one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reconcile", description=__doc__)
    names = [part.name for part in PARTS]
    parser.add_argument("part", nargs="?", choices=[*names, "all"], default="all")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the messages (1.0)")
    parser.add_argument("--cores", type=int, default=2, help="of Spark and of DuckDB (2)")
    parser.add_argument("--no-peer", dest="peer", action="store_false", help="without DuckDB")
    parser.add_argument("--keep", action="store_true", help="leave the logs and the reports there")
    parser.add_argument("--directory", type=Path, default=Path(), help="where the logs go (here)")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="core-bridge-bench-", dir=arguments.directory)).absolute()
    try:
        print(
            f"{machine.describe(directory)}; PySpark {version('pyspark')}, {arguments.cores} used", flush=True
        )
        chosen = [part for part in PARTS if arguments.part in (part.name, "all")]
        a_message = {part.name: run(part, directory, arguments) for part in chosen}
        if "sweep" in a_message and "billion" in a_message:
            ratio = a_message["billion"] / a_message["sweep"]
            print(f"linear: {ratio:.2f} times as long for a message as with 100 million [aim <= 1]")
    finally:
        if not arguments.keep:
            shutil.rmtree(directory)
        else:
            print(f"kept: {directory}")


if __name__ == "__main__":
    main()
