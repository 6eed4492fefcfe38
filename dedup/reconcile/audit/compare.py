"""Judges the records of both ends: doubled, foreign, out of order. DataFrames to DataFrames.

Every record stands once beside the others of its duplicate ID (`beside`): one shuffle of both ends. What
comes after works on counts, or on the few records that something is wrong with. What the target has too few
copies of is `missing`'s.

`streams` and `places` are small tables, a row for each `plan.Stream` and `plan.Place` (`bounds.tables`).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from dedup.reconcile.audit.missing import is_checked

#: Positions of a place whose order is looked at together: cuts a long partition into many windows.
ORDER_BUCKET: Final = 1_000_000
#: Why an ID may be at the target oftener than the source has it.
BY_GONE: Final = "the source no longer has all its records: others with this ID may have been there"
#: A finding before positions are joined to runs: of which stream, at which source position.
FOUND: Final = ("kind", "stream", "position", "id", "detail")


def beside(source: DataFrame, target: DataFrame) -> DataFrame:
    """Records of both ends (`records.SCHEMA`) with what there is of their ID at their address.

    Adds `is_source`; `source_copies` and `target_copies`; `source_first`, `source_last`, `target_first` and
    `target_last`, each a place and a position. A record without an ID has no others.
    """
    both = source.withColumn("is_source", F.lit(True)).unionByName(
        target.withColumn("is_source", F.lit(False))
    )
    place = F.struct("place", "position")
    of_source, of_target = F.when(F.col("is_source"), place), F.when(~F.col("is_source"), place)
    of_id = Window.partitionBy("address", "id")
    with_others = both.where(F.col("id").isNotNull()).select(
        "*",
        F.count(of_source).over(of_id).alias("source_copies"),
        F.count(of_target).over(of_id).alias("target_copies"),
        F.min(of_source).over(of_id).alias("source_first"),
        F.max(of_source).over(of_id).alias("source_last"),
        F.min(of_target).over(of_id).alias("target_first"),
        F.max(of_target).over(of_id).alias("target_last"),
    )
    alone = both.where(F.col("id").isNull()).select(
        "*",
        F.col("is_source").cast("long").alias("source_copies"),
        (~F.col("is_source")).cast("long").alias("target_copies"),
        of_source.alias("source_first"),
        of_source.alias("source_last"),
        of_target.alias("target_first"),
        of_target.alias("target_last"),
    )
    return with_others.unionByName(alone)


def doubled(records: DataFrame, bounded: DataFrame, places: DataFrame, *, checks_ids: bool) -> DataFrame:
    """`FOUND`, and `count`: IDs that the target has more often than it may.

    It may have a producer's ID once where IDs are checked, and else every ID as often as the source has it. A
    stamp of the record's own place is on no other record. Of any other ID records may have gone where the
    source no longer has all of them: what is there too often is `unknown` then.
    """
    source_copies, once = F.col("source_copies"), is_checked(checks_ids=checks_ids)
    allowed = F.when(once, 1).otherwise(source_copies)
    # One row of each ID: its first copy at the target.
    found = records.where(
        ~F.col("is_source")
        & (source_copies > 0)
        & (F.col("target_copies") > allowed)
        & (F.struct("place", "position") == F.col("target_first"))
    ).select(
        "*", (F.col("target_copies") - allowed).alias("count"), F.col("source_first.place").alias("stream")
    )
    names = F.broadcast(places.select("place", "name"))
    found = (
        found.join(names, "place")
        .join(
            names.select(F.col("place").alias("last_place"), F.col("name").alias("last_name")),
            F.col("target_last.place") == F.col("last_place"),
        )
        .join(F.broadcast(bounded.select("stream", "prefix", "gone")), "stream")
    )
    at = F.lit("@")
    detail = F.concat(
        F.lit("at "), "name", at, "position", F.lit(" and "), "last_name", at, F.col("target_last.position")
    )
    is_own = (F.col("stamp") == F.col("prefix")) & (F.col("stamped") == F.col("source_first.position"))
    is_doubled = once | F.coalesce(is_own, F.lit(False)) | ~F.col("gone")
    return found.select(
        F.when(is_doubled, "doubled").otherwise("unknown").alias("kind"),
        "stream",
        F.col("source_first.position").alias("position"),
        "id",
        F.when(is_doubled, detail).otherwise(F.concat(F.lit(f"{BY_GONE}; "), detail)).alias("detail"),
        "count",
    )


def foreign(records: DataFrame, streams: DataFrame, places: DataFrame) -> DataFrame:
    """`FOUND`: target records stamped for a position of these streams where the source has no record.

    Of a compacted source they are not judged: what was there may have been taken out since.
    """
    own = streams.where(~F.col("source_compacted")).select("stream", "address", "prefix", "first", "end")
    found = (
        records.where(~F.col("is_source") & (F.col("source_copies") == 0) & F.col("stamp").isNotNull())
        .join(
            F.broadcast(own.withColumnRenamed("address", "own_address")),
            (F.col("stamp") == F.col("prefix")) & (F.col("address") == F.col("own_address")),
        )
        .where((F.col("stamped") >= F.col("first")) & (F.col("stamped") < F.col("end")))
        .join(F.broadcast(places.select("place", "name")), "place")
    )
    detail = F.concat(F.lit("at "), "name", F.lit("@"), "position")
    return found.select(
        F.lit("foreign").alias("kind"),
        "stream",
        F.col("stamped").alias("position"),
        "id",
        detail.alias("detail"),
    )


def out_of_order(records: DataFrame, places: DataFrame) -> DataFrame:
    """`FOUND`: records that stand at a place behind one of their stream with a greater source position.

    First copies count; an ID that the source has more than once says nothing of an order. A window holds
    `ORDER_BUCKET` positions of a place, and knows the greatest source position of those before it.
    """
    rows = records.where(
        ~F.col("is_source")
        & (F.col("source_copies") == 1)
        & (F.struct("place", "position") == F.col("target_first"))
    ).select(
        F.col("source_first.place").alias("stream"),
        "place",
        "position",
        F.col("source_first.position").alias("sent"),
        "id",
        F.floor(F.col("position") / ORDER_BUCKET).alias("bucket"),
    )
    keys = ["stream", "place", "bucket"]
    earlier = Window.partitionBy("stream", "place").orderBy("bucket")
    tops = rows.groupBy(*keys).agg(F.max("sent").alias("top"))
    before = tops.select(*keys, _running_max("top", earlier).alias("before"))
    within = Window.partitionBy(*keys).orderBy("position")
    late = (
        rows.withColumn("highest", _running_max("sent", within))
        .join(before, keys)
        .where(F.col("sent") < F.greatest("highest", "before"))
        .join(F.broadcast(places.select("place", "name")), "place")
    )
    return late.select(
        F.lit("out-of-order").alias("kind"),
        "stream",
        F.col("sent").alias("position"),
        "id",
        F.concat(F.lit("at "), "name").alias("detail"),
    )


def _running_max(column: str, window: object) -> Column:
    """The greatest value before a row; null before the first."""
    return F.max(column).over(window.rowsBetween(Window.unboundedPreceding, -1))  # type: ignore[attr-defined]


def joined(found: DataFrame) -> DataFrame:
    """Findings with their positions as ranges: `kind`, `stream`, `first`, `last`, `count`, `id`, `detail`.

    Neighbours of one kind, stream and detail become one finding; only a finding of one ID has an `id`, as
    text, or as ``base64:...`` where it is not UTF-8. `found` has `FOUND`, and `count`.
    """
    same = ["kind", "stream", "detail"]
    numbered = found.withColumn(
        "run", F.col("position") - F.row_number().over(Window.partitionBy(*same).orderBy("position"))
    )
    text = F.col("one").cast("string")
    readable = F.when(F.expr("is_valid_utf8(CAST(one AS STRING))"), text).otherwise(
        F.concat(F.lit("base64:"), F.base64("one"))
    )
    runs = numbered.groupBy(*same, "run").agg(
        F.min("position").alias("first"),
        F.max("position").alias("last"),
        F.sum("count").alias("count"),
        F.when(F.min("id") == F.max("id"), F.min("id")).alias("one"),
    )
    return runs.select("kind", "stream", "first", "last", "count", readable.alias("id"), "detail")
