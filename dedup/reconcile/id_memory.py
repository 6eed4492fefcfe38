"""Limits the producers' IDs that a state remembers, and handles the others."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from dedup.reconcile.ids import entries, is_checked

_WHERE: Final = ("store", "address")


def is_too_much(lines: DataFrame, ids_kept: int) -> bool:
    """Whether an address has more accepted IDs than `ids_kept`. Runs a job."""
    number = _with_ids(lines).groupBy(*_WHERE).agg(F.sum(_number()).alias("number"))
    return not number.where(F.col("number") > ids_kept).isEmpty()


def forgotten(lines: DataFrame, ids_kept: int) -> DataFrame:
    """`path`, `line_number`, `store`, `address`, `accepted`: whose IDs are older than the newest `ids_kept`.

    In log order, as an address's ring goes; the line in which the limit lies is still remembered.
    """
    newest = Window.partitionBy(*_WHERE).orderBy(
        *(F.desc(name) for name in ("log_node", "file_number", "path", "line_number"))
    )
    newer = F.sum("accepted").over(newest.rowsBetween(Window.unboundedPreceding, -1))
    counted = _with_ids(lines).select(
        "path", "line_number", "log_node", "file_number", *_WHERE, _number().alias("accepted")
    )
    aged = counted.withColumn("newer", newer)
    return aged.where(F.col("newer") >= ids_kept).select("path", "line_number", *_WHERE, "accepted")


def without(lines: DataFrame, old: DataFrame) -> DataFrame:
    """The lines, those of `forgotten` without their IDs; and without lines that had nothing else."""
    marks = old.select("path", "line_number", F.lit(True).alias("is_forgotten")).distinct()
    marked = lines.join(marks, ["path", "line_number"], "left")
    changed = marked.withColumn(
        "ids", F.when(F.col("is_forgotten") & _has_ids(), None).otherwise(F.col("ids"))
    )
    says_nothing = F.col("is_merged") & (F.col("from") == F.col("upto")) & F.col("ids").isNull()
    return changed.where(~says_nothing | F.col("verdict").isNotNull()).drop("is_forgotten")


def _with_ids(lines: DataFrame) -> DataFrame:
    return lines.where(_has_ids())


def _has_ids() -> Column:
    """Whether a line has accepted and checked IDs. The IDs of verdict lines are their content: they stay."""
    is_accepted = (F.col("side") == "received") & F.col("verdict").isNull()
    return is_accepted & F.col("ids").isNotNull() & is_checked()


def _number() -> Column:
    return F.size(entries(F.col("ids"))).cast("long")
