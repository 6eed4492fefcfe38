"""Follows the logs while nodes write them, and reports what is lost, doubled, or open for too long.

Spark's Structured Streaming finds the complete files, each once (its checkpoint has their names), and ticks.
At every tick the files that are still being written are read too: they are few, and their lines come again
in the complete file, where equal lines are one event. What was read is a state (`dedup.reconcile.state`),
what was said an `AlertLog`. Both are saved before Spark's checkpoint, so a batch that comes again changes
nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, TextIO

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from dedup.reconcile import alerts, files, interrupt
from dedup.reconcile import state as states
from dedup.reconcile.absorb import Limits
from dedup.reconcile.alert_log import AlertLog
from dedup.reconcile.alerts import Trouble
from dedup.reconcile.events import is_sent
from dedup.reconcile.log_names import CLOSED, COMPRESSED
from dedup.reconcile.state import State
from dedup.reconcile.tables import Tables

#: Interval at which the files and the clock are checked, in ms.
POLL_MS: Final = 2_000
#: Most complete files that one batch takes.
FILES_PER_BATCH: Final = 100
#: Spark forgets a file's name when it is this much older than the newest; a file that comes with an older
#: time of writing is not looked at.
FILE_AGE: Final = "30d"
#: Limits of the lines and IDs kept as they were read. Less than for a report: all are compared at every
#: batch.
LIMITS: Final = Limits(lines=10_000, ids=100_000)
#: Most ranges and IDs that are watched at a time; the first by flow and position.
TROUBLES: Final = 10_000
#: Spark's own source of complete files: their names, not what is in them.
_FILES: Final = "path string, modificationTime timestamp, length long, content binary"


def follow(
    spark: SparkSession,
    logs: Sequence[str],
    *,
    late_after_ms: int,
    checkpoint: str,
    out: TextIO,
    is_endless: bool = True,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> None:
    """Write an alert line to `out` for every trouble that comes or goes, until the process ends.

    Args:
        spark: of `session.session`, or any other.
        logs: directories or patterns, the same at every start with this checkpoint.
        late_after_ms: what is open for longer is an alert; below 0: nothing is.
        checkpoint: a directory on any file system that Hadoop knows. Made if it is not there; else the work
            goes on where it was, whatever ended it.
        out: gets JSON lines (`alerts.line`), each flushed. A line may come twice, with the same number, where
            the process was killed while it wrote.
        is_endless: False: take what is there now, and return.
        now_ms: the clock, ms since the epoch.

    Raises:
        BadInput: see `lines.read`; or the checkpoint belongs to other logs.
    """
    place = checkpoint.rstrip("/")
    said = AlertLog(spark, f"{place}/alerts", tuple(logs), out)
    said.say_again()
    watch = _Watch(spark, tuple(logs), late_after_ms, said, now_ms, states.load(spark, f"{place}/state"))
    writer = _changes(spark, logs).writeStream.foreachBatch(watch.look)
    writer = writer.option("checkpointLocation", f"{place}/stream")
    every = f"{POLL_MS} milliseconds"
    writer = writer.trigger(processingTime=every) if is_endless else writer.trigger(availableNow=True)
    _run(spark, writer.start(), watch)


def _run(spark: SparkSession, query: StreamingQuery, watch: _Watch) -> None:
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        interrupt.hush(spark)  # before it stops: what it is doing is cancelled, and fails
        raise
    except PySparkException as error:
        # Spark wraps what a batch raised in pages of text.
        if watch.failure is not None:
            raise watch.failure from error
        raise
    finally:
        query.stop()


def _changes(spark: SparkSession, logs: Sequence[str]) -> DataFrame:
    """A stream of the names of complete files, and of one row without a name at every tick.

    Raises:
        BadInput: a path is not there.
    """
    files.find(spark, logs, may_be_empty=True)
    complete = (
        spark.readStream.format("binaryFile")
        .schema(_FILES)
        .option("pathGlobFilter", f"*{{{','.join((CLOSED, *COMPRESSED))}}}")
        .option("recursiveFileLookup", "true")
        .option("maxFilesPerTrigger", str(FILES_PER_BATCH))
        .option("maxFileAge", FILE_AGE)
        .option("ignoreMissingFiles", "true")
    )
    tick = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "1").load()
    sources = [complete.load(path).select("path") for path in logs]
    return reduce(DataFrame.union, [*sources, tick.select(F.lit(None).cast("string").alias("path"))])


@dataclass(frozen=True, slots=True)
class _Open:
    """Positions of one sent line that are open."""

    trouble: Trouble
    #: When the source stored the first of the line's messages, ms since the epoch.
    event_ms: int


class _BatchFailed(Exception):
    """A batch was not taken: `_Watch.failure` says why."""


class _Watch:
    """The state of the watch, and its reports."""

    def __init__(
        self,
        spark: SparkSession,
        logs: Sequence[str],
        late_after_ms: int,
        said: AlertLog,
        now_ms: Callable[[], int],
        state: State,
    ) -> None:
        self._spark = spark
        self._logs = logs
        self._late_after_ms = late_after_ms
        self._said = said
        self._now_ms = now_ms
        self._state = state
        #: Of the state that was compared last; None: none was.
        self._judged: tuple[list[Trouble], list[_Open]] | None = None
        #: The error that ended the watch.
        self.failure: Exception | None = None

    def look(self, batch: DataFrame, number: int) -> None:
        """Handle one batch of `_changes`: read new lines, compare, report the changes."""
        try:
            paths = {row.path for row in batch.where(F.col("path").isNotNull()).collect()}
            self._read(paths)
            self._say(number)
        except Exception as error:  # noqa: BLE001 - `_run` raises it
            self.failure = error
            # Without the pages of the cause: Spark's own reading of them runs out of stack.
            raise _BatchFailed from None

    def _read(self, paths: set[str]) -> None:
        state = states.advance(
            self._state, self._logs, late_after_ms=self._late_after_ms, limits=LIMITS, complete=paths
        )
        if state.number != self._state.number:
            self._state, self._judged = state, None
        if self._judged is None and state.lines is not None:
            self._judged = self._judge()

    def _say(self, number: int) -> None:
        now_ms = self._now_ms()
        found, opened = self._judged or ([], [])
        after_ms = self._late_after_ms
        late = [each.trouble for each in opened if 0 <= after_ms < now_ms - each.event_ms]
        self._said.say(alerts.joined([*found, *late]), batch=number, now_ms=now_ms)

    def _judge(self) -> tuple[list[Trouble], list[_Open]]:
        """The present result of the logs: the verdicts, and what is open since when."""
        tables = self._state.tables(late_after_ms=self._late_after_ms)
        try:
            findings = tables.findings
            order = ("kind", "bridge", "stream", "store", "first", "id")
            rows = (
                findings.where(F.col("kind").isin(*alerts.VERDICTS)).orderBy(*order).limit(TROUBLES).collect()
            )
            found = [_trouble(row.kind, row, row.id) for row in rows]
            return found, self._opened(tables)
        finally:
            tables.release()

    def _opened(self, tables: Tables) -> list[_Open]:
        assert self._state.lines is not None
        flow = ["bridge", "stream", "store"]
        sent = self._state.lines.where(is_sent() & (F.col("from") < F.col("upto"))).select(
            *flow, "from", "upto", F.array_min("events").alias("event_ms")
        )
        # What a store has lost is no more on its way, and as late.
        beyond = F.coalesce(F.col("first") >= F.col("received_upto"), F.lit(False))
        reached = tables.flows.select(*flow, "received_upto").where("bridge is not null")
        missing = (
            tables.findings.where("kind in ('open', 'unknown')")
            .join(reached, flow)
            .where((F.col("kind") == "open") | beyond)
            .select(*flow, "address", "first", "last")
        )
        rows = (
            missing.join(sent, flow)
            .where("from <= last AND first < upto AND event_ms > 0")
            .withColumns({"first": F.greatest("first", "from"), "last": F.least("last", F.col("upto") - 1)})
            .orderBy("event_ms", *flow, "first")
            .limit(TROUBLES)
            .collect()
        )
        return [_Open(_trouble(alerts.LATE, row), row.event_ms) for row in rows]


def _trouble(kind: str, row: Row, id_: str | None = None) -> Trouble:
    """Of a row with a flow, an address and a range of positions; of an ID the range does not count."""
    first, last = (row["first"], row["last"]) if id_ is None else (0, 0)
    return Trouble(kind, row.bridge, row.stream, row.store, row.address, id_, first, last)
