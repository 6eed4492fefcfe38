"""The sweep: pieces of positions become intervals in which everything is constant.

A piece is +1 where it begins and -1 where it ends. Added up in the order of positions they say for every
interval between two such points how often it is covered, sent, received. Each flow is swept in ranges of
positions, whose pieces are cut at their edges: a task holds one range, however many lines the flow has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from dedup.reconcile.pieces import Of


def intervals(pieces: DataFrame, flows: DataFrame) -> DataFrame:
    """`flow`, `range`, `first`, `end`, and per name in `Of` (lower case) how many pieces lie on the interval.

    Intervals of a flow do not overlap, and leave nothing out between its first and its last position.

    Args:
        pieces: `flow`, `of`, `first`, `end`.
        flows: `flows.flows`, to join with.
    """
    points = _cut(pieces, flows).select("flow", "range", "of", both_ends()).unionByName(_edges(flows))
    changes = {of.name.lower(): F.when(F.col("of") == of, F.col("change")).otherwise(0) for of in Of}
    return between(points, ("flow", "range"), changes)


def both_ends() -> Column:
    """Two rows a piece with `point` and `change`: 1 at its `first`, -1 at its `end`."""
    return F.inline(
        F.array(
            F.struct(F.col("first").alias("point"), F.lit(1).alias("change")),
            F.struct(F.col("end").alias("point"), F.lit(-1).alias("change")),
        )
    )


def between(points: DataFrame, keys: Sequence[str], changes: Mapping[str, Column]) -> DataFrame:
    """`keys`, `first`, `end`, and by name the sum of all changes up to there: a row between two points.

    Args:
        points: `keys`, `point`, and the columns of `changes`.
        keys: the points of each are swept by themselves.
        changes: by name, how much the sum changes at a point.
    """
    summed = points.groupBy(*keys, "point").agg(
        *(F.sum(change).alias(name) for name, change in changes.items())
    )
    by_point = Window.partitionBy(*keys).orderBy("point")
    so_far = by_point.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return summed.select(
        *keys,
        F.col("point").alias("first"),
        F.lead("point").over(by_point).alias("end"),
        *(F.sum(name).over(so_far).alias(name) for name in changes),
    ).where("end IS NOT NULL")


def _cut(pieces: DataFrame, flows: DataFrame) -> DataFrame:
    """The pieces within their flow's positions, cut at the edges of its ranges; with the `range` of each."""
    known = flows.select("flow", "origin", F.col("end").alias("last_end"), "width")
    inside = (
        pieces.join(known, "flow")
        .withColumn("first", F.greatest("first", "origin"))
        .withColumn("end", F.least("end", "last_end"))
        .where("first < end")
    )
    start, stop = _range(F.col("first")), _range(F.col("end") - 1)
    ranges = F.when(start == stop, F.array(start)).otherwise(F.sequence(start, stop))
    edge = F.col("origin") + F.col("range") * F.col("width")
    return inside.withColumn("range", F.explode(ranges)).select(
        "flow",
        "range",
        "of",
        F.greatest("first", edge).alias("first"),
        F.least(F.col("end"), edge + F.col("width")).alias("end"),
    )


def _edges(flows: DataFrame) -> DataFrame:
    """Points that change nothing: the beginnings and ends of ranges, and those of a side's log.

    Without them a gap between two pieces in different ranges would be no interval, and an interval could lie
    on both sides of what a log reaches.
    """
    swept = flows.where("ranges > 0")
    low = F.col("origin") + F.col("range") * F.col("width")
    of_ranges = swept.select(
        "flow", "origin", "width", "end", F.explode(F.sequence(F.lit(0), F.col("ranges") - 1)).alias("range")
    ).select(
        "flow", "range", F.explode(F.array(low, F.least(low + F.col("width"), "end"))).alias("point")
    )  # fmt: skip
    reaches = ("sent_upto", "sender_first", "sender_upto", "received_first", "received_upto", "others_upto")
    of_logs = (
        swept.select("flow", "origin", "width", F.explode(F.array(*reaches)).alias("point"))
        .where("point IS NOT NULL")
        .select("flow", _range(F.col("point")).alias("range"), "point")
    )
    return of_ranges.unionByName(of_logs).select(
        "flow", "range", F.lit(None).cast("int").alias("of"), "point", F.lit(0).alias("change")
    )


def _range(position: Column) -> Column:
    return F.floor((position - F.col("origin")) / F.col("width"))
