"""Writes a report: Parquet tables, `summary.json`, `replay-plan.json`, `report.html`, and their hashes.

The directory is written beside its place, under a hidden name, and then renamed: it is complete or not
there. An earlier report is moved aside for that moment. On an object store, where a directory cannot be
renamed in one step, the report is complete when `SHA256SUMS` is in it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from dedup.reconcile import page, plan
from dedup.reconcile.errors import BadInput
from dedup.reconcile.rows import (
    KINDS,
    Facts,
    Finding,
    Flow,
    Hour,
    IdCache,
    Input,
    Latency,
    Total,
    rows_of,
)
from dedup.reconcile.storage import Local, Storage, place
from dedup.reconcile.summary import MAX_FINDINGS, Summary, summary
from dedup.reconcile.verify import SUMMARY, SUMS, named, sums
from dedup.replay_plan import encode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from dedup.reconcile.tables import Tables

#: Tables that are written or read at a time: some are planned while the tasks of another run.
WORKERS: Final = 3
#: Names of the tables, which are directories of Parquet files, in the order of writing: the longest first,
#: then what is made of the lines, and then what needs the comparison too, which the first one computes.
TABLES: Final = ("flows", "latency", "hours", "findings", "id_caches", "inputs")
PAGE: Final = "report.html"
PLAN: Final = "replay-plan.json"
#: Rows of latencies that the page is written from, the slowest first.
MAX_LATENCIES: Final = 1_000
#: Files that Hadoop's local file system leaves beside each file; the report's own hashes cover more.
_CHECKSUM: Final = ".crc"
#: No empty _SUCCESS file: `SHA256SUMS` says that the report is complete.
_NO_MARKS: Final = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


def write(tables: Tables, output: str, made: page.Made) -> Summary:
    """Compute the tables and write the report of them.

    Args:
        tables: what `job.reconcile` answers.
        output: the report's directory: new, empty, or an earlier report, which is replaced.
        made: when and how the report is made, for the page.

    Raises:
        BadInput: `output` holds something else.
        OSError: it cannot be written; what was there before is there still.
    """
    spark = tables.flows.sparkSession
    storage, directory = place(output, spark)
    check_output(storage, directory)
    staged = beside(directory, "partial")
    try:
        with ThreadPoolExecutor(WORKERS) as writers:
            tasks = [
                writers.submit(_write, getattr(tables, name), _for_spark(storage, f"{staged}/{name}"))
                for name in TABLES
            ]
        for task in tasks:
            task.result()
        facts, lost = collect(spark, _for_spark(storage, staged))
        facts = replace(facts, left_out=tables.left_out)
        written = write_files(storage, staged, facts, lost, made)
        publish(storage, staged, directory)
    finally:
        with suppress(OSError):
            storage.delete(staged)
    return written


def _write(table: DataFrame, path: str) -> None:
    table.write.options(**_NO_MARKS).parquet(path)


def write_files(
    storage: Storage, staged: str, facts: Facts, lost: Sequence[Finding], made: page.Made
) -> Summary:
    """Write all that is not a table, into a directory that has the tables.

    Args:
        storage: where.
        staged: the directory.
        facts: what the tables say.
        lost: findings of the kind ``lost``, for the replay plan.
        made: when and how the report is made.
    """
    outcome = summary(facts)
    for name in storage.files(staged):
        if name.endswith(_CHECKSUM):
            storage.delete(f"{staged}/{name}")
    texts = {
        SUMMARY: json.dumps(outcome.content, indent=1),
        PLAN: encode(plan.plan(lost, facts.flows)),
        PAGE: page.page(facts, outcome, made),
    }
    for name, text in texts.items():
        # No half of a surrogate pair comes here: JSON writes it as an escape, the page by its number.
        storage.write(f"{staged}/{name}", (text.rstrip("\n") + "\n").encode())
    hashes = {name: storage.sha256(f"{staged}/{name}") for name in storage.files(staged)}
    storage.write(f"{staged}/{SUMS}", sums(hashes))
    storage.sync(staged)
    return outcome


def check_output(storage: Storage, directory: str) -> None:
    """Check that writing a report there destroys nothing but an earlier report.

    Raises:
        BadInput: it holds other files, is a file, or cannot be replaced because something is mounted there.
    """
    if isinstance(storage, Local) and Path(directory).exists():
        if not Path(directory).is_dir():
            raise BadInput(f"--output {directory}: must be a directory; found a file")
        if os.path.ismount(directory):
            raise BadInput(
                f"--output {directory}: must not be a mount point, because it is replaced as a whole; "
                "name a directory in it"
            )
    there = set(storage.files(directory))
    if not there:
        return
    if SUMS not in there:
        raise BadInput(f"--output {directory}: must be new, empty or an earlier report; found {min(there)}")
    foreign = there - named(storage, directory).keys() - {SUMS}
    if foreign:
        raise BadInput(
            f"--output {directory}: must hold an earlier report only; found {min(foreign)} beside it"
        )


def publish(storage: Storage, staged: str, directory: str) -> None:
    """Give a complete report its name, in place of an earlier one.

    Raises:
        OSError: it is not there; the earlier one is.
    """
    if not storage.exists(directory):
        storage.rename(staged, directory)
        return
    aside = beside(directory, "earlier")
    storage.rename(directory, aside)
    try:
        storage.rename(staged, directory)
    except BaseException:
        storage.rename(aside, directory)
        raise
    storage.delete(aside)


def beside(directory: str, purpose: str) -> str:
    """A new hidden name in the same directory, so that a rename stays on one file system."""
    parent, _, name = directory.rstrip("/").rpartition("/")
    return f"{parent}/.{name}.{purpose}-{uuid4().hex[:12]}"


def collect(spark: SparkSession, report: str) -> tuple[Facts, list[Finding]]:
    """The facts for the page and the summary, and the lost messages; bounded by named limits."""
    from pyspark.sql import functions as F

    from dedup.reconcile import tables

    # With its schema a table is not opened once more to find it out.
    frames = {
        name: spark.read.schema(getattr(tables, name.upper())).parquet(_literal(f"{report}/{name}"))
        for name in TABLES
    }
    findings = frames["findings"]
    gravity = F.array_position(F.array(*(F.lit(kind) for kind in KINDS)), F.col("kind"))
    place_in_flow = ("bridge", "stream", "store", "first", "id")
    worst = findings.orderBy(gravity, *place_in_flow).limit(MAX_FINDINGS)
    lost = (
        findings.where("kind = 'lost' and bridge is not null").orderBy(*place_in_flow).limit(plan.MAX_RANGES)
    )
    totals = findings.groupBy("kind").agg(
        F.count("*").alias("findings"), F.coalesce(F.sum("count"), F.lit(0)).alias("messages")
    )
    hours = (
        frames["hours"]
        .groupBy("bridge", "hour_ms")
        .agg(F.sum("sent").alias("sent"), F.sum("received").alias("received"))
    )
    slowest = frames["latency"].orderBy(F.desc("p99_ms"), "bridge", "stream").limit(MAX_LATENCIES)
    asked = frames | {
        "findings": worst,
        "totals": totals,
        "hours": hours,
        "latency": slowest,
        "lost": lost,
    }
    with ThreadPoolExecutor(WORKERS) as readers:
        rows = dict(zip(asked, readers.map(_rows, asked.values()), strict=True))
    facts = Facts(
        flows=sorted(rows_of(Flow, rows["flows"]), key=_place),
        findings=rows_of(Finding, rows["findings"]),
        totals=rows_of(Total, rows["totals"]),
        inputs=sorted(rows_of(Input, rows["inputs"]), key=lambda found: found.path),
        hours=sorted(rows_of(Hour, rows["hours"]), key=lambda hour: (hour.bridge or "", hour.hour_ms)),
        latency=rows_of(Latency, rows["latency"]),
        id_caches=sorted(rows_of(IdCache, rows["id_caches"]), key=lambda row: (row.store, row.address)),
    )
    return facts, rows_of(Finding, rows["lost"])


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def _place(flow: Flow) -> tuple[bool, str, str, str]:
    """Bridges first, then the messages that clients sent."""
    return (flow.bridge is None, flow.bridge or "", flow.stream, flow.store)


def _for_spark(storage: Storage, path: str) -> str:
    return f"file://{path}" if isinstance(storage, Local) else path


def _literal(path: str) -> str:
    """A path to read, with a backslash before each character that would match others."""
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", path)
