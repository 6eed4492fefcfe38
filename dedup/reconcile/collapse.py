"""Collapses old lines into fewer lines with the same content for every position: this keeps a state small.

Lines of one log that follow each other without a gap and within one hour become one line, as if the node had
sent or received one larger batch. So every verdict stays what it was, and so does the order. What such a line
does not say any more is kept beside it (`dedup.reconcile.carried`) or lost, as docs/reconcile.md says: which
lines it was made of, and how long each of its messages took.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from dedup.reconcile.events import is_missing
from dedup.reconcile.ids import is_checked
from dedup.reconcile.lines import COLUMNS
from dedup.reconcile.rejected import known_already
from dedup.reconcile.times import HOUR_MS

#: Most runs that a line made of others has, in which one more batch is begun: a row must fit a task.
RUNS_MERGED: Final = 10_000
#: Columns of a state's lines: a line's, and whether it was made of others.
STATE_COLUMNS: Final = (*COLUMNS, "is_merged")
#: The columns within which lines are merged: those of one flow, side and log.
_LOG: Final = ("flow", "side", "log_node", "node_id", "lane")
_PLACE: Final = ("path", "file_number", "line_number")
#: Names that are the same in all lines that become one.
_SHARED: Final = ("bridge", "stream", "store", "address", "target", "replays", "node")


def aged(lines: DataFrame, *, lines_kept: int, open_paths: Sequence[str]) -> DataFrame:
    """`lines` with `is_old`: not among the newest `lines_kept` of its flow and side.

    A line in a file that is still being written is never old: the file will be read again. Nor is one of
    what a store has lost: there are few, and their positions count.
    """
    moment = F.when(F.col("verdict").isNull(), F.col("upto")).otherwise(F.col("committed"))
    newest = Window.partitionBy("flow", "side", F.col("verdict").isNull()).orderBy(
        moment.desc(), F.desc("file_number"), F.desc("line_number")
    )
    is_open = F.col("path").isin(list(open_paths)) if open_paths else F.lit(False)
    return lines.withColumn("is_old", (F.row_number().over(newest) > lines_kept) & ~is_open & ~is_missing())


def collapsed(aged_lines: DataFrame) -> DataFrame:
    """`STATE_COLUMNS`: the old lines of `aged` collapsed, the others unchanged."""
    is_line = F.col("verdict").isNull() & (F.col("from") < F.col("upto"))
    carries_nothing = F.col("verdict").isNull() & (F.col("from") == F.col("upto"))
    kept = aged_lines.where(~F.col("is_old") | carries_nothing)
    parts = [
        kept,
        _merged(aged_lines.where(is_line)),
        _id_lines(aged_lines.where(F.col("is_old") & is_line)),
        _verdicts(aged_lines.where(F.col("is_old") & F.col("verdict").isNotNull())),
    ]
    return reduce(DataFrame.unionByName, (part.select(*STATE_COLUMNS) for part in parts))


def _merged(lines: DataFrame) -> DataFrame:
    """Merge old lines that follow each other. `lines` has the young ones too, which separate them."""
    in_log = Window.partitionBy(*_LOG).orderBy("file_number", "path", "line_number")
    so_far = in_log.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    alike = F.struct(
        "address",
        "target",
        "replays",
        "session",
        F.col("known").isNull().alias("unclear"),
        F.col("clock_offset").isNull().alias("measured"),
        _hour().alias("hour"),
    )
    follows = (
        F.lag("is_old").over(in_log)
        & (F.lag("upto").over(in_log) == F.col("from"))
        & F.lag("alike").over(in_log).eqNullSafe(F.col("alike"))
    )
    grouped = (
        lines.withColumn("alike", alike)
        .withColumn("begins", 1 - F.coalesce(follows, F.lit(False)).cast("int"))
        .withColumn("group", F.sum("begins").over(so_far))
        .withColumn("part", F.floor(F.sum(F.size("runs")).over(so_far) / RUNS_MERGED))
        .where("is_old")
    )
    keys = (*_LOG, "group", "part")
    # Times of a received line say how long its messages took; the sum of several would say something else.
    is_timed = (F.col("side") == "sent") | F.col("bridge").isNull()
    unknown_times = F.array(F.lit(0), F.lit(0)).cast("array<long>")
    newest_event = F.max(F.array_max("events"))
    whole = grouped.groupBy(*keys).agg(
        *(F.first(name).alias(name) for name in _SHARED),
        F.min("from").alias("from"),
        F.max("upto").alias("upto"),
        *(F.flatten(F.collect_list(name)).alias(name) for name in ("refused", "known")),
        F.first("known").isNull().alias("unclear"),
        *(F.first(name).alias(name) for name in ("session", "after")),
        F.max("number").alias("number"),
        *(F.sum(name).alias(name) for name in ("count", "duplicates")),
        F.max("committed").alias("committed"),
        F.max("recovered").alias("recovered"),
        F.max_by("clock_offset", "upto").alias("clock_offset"),
        F.when(F.first(is_timed), F.array(F.min(F.get("events", F.lit(0))), newest_event))
        .otherwise(unknown_times)
        .alias("events"),
        F.max(F.struct("file_number", "path", "line_number")).alias("place"),
    )
    runs = _runs(grouped.select(*keys, "runs"), keys)
    none = F.array().cast("array<array<long>>")
    return whole.join(runs, list(keys), "left").select(
        *_LOG, *_SHARED, "from", "upto", F.coalesce("runs", none).alias("runs"), "refused", "count",
        "duplicates", "committed", "recovered", "clock_offset", "events",
        F.lit(None).cast("string").alias("ids"), F.lit(None).cast("string").alias("verdict"),
        *(F.col(f"place.{name}") for name in _PLACE),
        F.when(~F.col("unclear"), F.col("known")).alias("known"), F.lit(False).alias("unchecked"),
        "session", "number", "after",
        F.lit(True).alias("is_merged"),
    )  # fmt: skip


def _runs(lines: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The ranges of each group, those that touch merged."""
    by_first = Window.partitionBy(*keys).orderBy("first")
    until_here = by_first.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    is_new = F.coalesce((F.col("first") != F.lag("last").over(by_first) + 1).cast("int"), F.lit(1))
    each = lines.select(*keys, F.explode("runs").alias("run")).select(
        *keys, F.get("run", F.lit(0)).alias("first"), F.get("run", F.lit(1)).alias("last")
    )
    joined = (
        each.withColumn("is_new", is_new)
        .withColumn("island", F.sum("is_new").over(until_here))
        .groupBy(*keys, "island")
        .agg(F.array(F.min("first"), F.max("last")).alias("run"))
    )
    return joined.groupBy(*keys).agg(F.array_sort(F.collect_list("run")).alias("runs"))


def _id_lines(old: DataFrame) -> DataFrame:
    """The producers' IDs of old lines: lines that cover nothing, at the place of the old ones."""
    nothing = {
        "from": F.col("upto"),
        "runs": F.array().cast("array<array<long>>"),
        "refused": F.array().cast("array<long>"),
        "count": F.lit(0).cast("long"),
        "duplicates": F.lit(0).cast("long"),
        "is_merged": F.lit(True),
    }
    said = old.where((F.col("side") == "received") & F.col("ids").isNotNull() & is_checked())
    return said.withColumns(nothing)


def _verdicts(old: DataFrame) -> DataFrame:
    """The number of messages that old verdict lines rejected: one line a log, without IDs and positions."""
    keys = (*_LOG, *_SHARED, "verdict")
    return (
        old.groupBy(*keys)
        .agg(
            F.max("upto").alias("upto"),
            F.sum(known_already()).alias("duplicates"),
            F.max("committed").alias("committed"),
            F.array(F.min(F.array_min("events")), F.max(F.array_max("events"))).alias("events"),
            F.max(F.struct("file_number", "path", "line_number")).alias("place"),
        )
        .select(
            *keys, "upto", F.col("upto").alias("from"), "duplicates", "committed", "events",
            F.array().cast("array<array<long>>").alias("runs"),
            F.array().cast("array<long>").alias("refused"), F.lit(0).cast("long").alias("count"),
            F.lit(None).cast("string").alias("ids"), F.lit(False).alias("recovered"),
            F.lit(None).cast("long").alias("clock_offset"),
            *(F.col(f"place.{name}") for name in _PLACE), F.lit(True).alias("is_merged"),
            F.array().cast("array<array<long>>").alias("known"), F.lit(False).alias("unchecked"),
            F.lit(None).cast("string").alias("session"), F.lit(None).cast("long").alias("number"),
            F.lit(None).cast("array<string>").alias("after"),
        )
    )  # fmt: skip


def _hour() -> Column:
    """The hour in which `times.hours` counts a line: lines of two hours are not merged."""
    received = F.col("committed") - F.coalesce("clock_offset", F.lit(0))
    moment = F.when(F.col("side") == "sent", F.get("events", F.lit(0))).otherwise(received)
    return F.floor(moment / HOUR_MS)
