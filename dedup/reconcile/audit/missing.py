"""Records of which the target has too few copies: lost, unknown, open or refused. DataFrames to DataFrames.

An ID is expected as often as the source has it, and a producer's once where IDs are checked. Most IDs are on
one record: that is there or is not. Of an ID on several records the target may have some: then the number of
missing ones is exact, and it is unknown which they are.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

#: Said of what is open because neither the bridge nor any record says how far the target has come.
UNCONFIRMED: Final = "how far the target has come is not known"
#: Why the copy of a checked ID may have been there, although nothing that the source still has brought it.
BY_EARLIER: Final = "the target may have had an earlier record with this ID: it no longer has its beginning"
#: Why what is not there may still come, although something that stands behind it in the source is there.
BY_PROOF: Final = (
    "what shows how far the target has come may be copies of records that the source no longer has"
)
#: Why copies cannot be counted while some of the records that share an ID are not known to be covered.
BY_OTHERS: Final = "records with this ID are covered and others are not: whose copies are there is not known"
_ID: Final = ("address", "id")
#: In this order they are taken to be there.
_DUE: Final = ("lost", "unknown")


def is_checked(*, checks_ids: bool) -> Column:
    """Whether a record's ID is accepted once, however often the source has it."""
    return F.lit(checks_ids) & F.col("stamp").isNull()


def missing(records: DataFrame, bounded: DataFrame, letters: DataFrame, *, checks_ids: bool) -> DataFrame:
    """`compare.FOUND`: source records that the target has no copy of, or too few.

    Args:
        records: `compare.beside`.
        bounded: `bounds.bounds`.
        letters: `stream` and `position` of what the bridge has refused.
        checks_ids: `plan.Plan.checks_ids`.
    """
    once = is_checked(checks_ids=checks_ids)
    here, there = F.col("source_copies"), F.col("target_copies")
    suspect = (there == 0) | (~once & (here > 1) & (there <= here))
    told = (
        records.where(F.col("is_source") & suspect)
        .withColumn("once", once)
        .withColumnRenamed("place", "stream")
        .join(F.broadcast(bounded.drop("address", "name")), "stream")
        .join(letters.distinct().withColumn("refused", F.lit(1)), ["stream", "position"], "left")
        .withColumn("kind", _kind())
        .withColumn("detail", _detail())
    )
    found = ("kind", "stream", "position", "id", "detail")
    alone = told.where(here == 1).select(*found)
    shared = _with_names(told.where(here > 1), bounded).transform(_with_counts)
    return alone.unionByName(_of_checked(shared).select(*found)).unionByName(
        _of_counted(shared).select(*found)
    )


def _kind() -> Column:
    """The kind of finding for a record if its ID has no copy at the target."""
    position = F.col("position")
    may_be_earlier = F.col("once") & F.col("earlier")
    return (
        F.when(F.col("refused").isNotNull(), "refused")
        .when(F.col("covered").isNull() | (position >= F.col("covered")), "open")
        .when((position < F.col("doubtful")) | (position >= F.col("surely")) | may_be_earlier, "unknown")
        .otherwise("lost")
    )


def _detail() -> Column:
    position = F.col("position")
    why_unknown = (
        F.when(position < F.col("doubtful"), F.col("reason"))
        .when(position >= F.col("surely"), BY_PROOF)
        .otherwise(BY_EARLIER)
    )
    return (
        F.when(F.col("kind") == "unknown", why_unknown)
        .when((F.col("kind") == "open") & F.col("covered").isNull(), UNCONFIRMED)
        .otherwise("")
    )


def _with_names(shared: DataFrame, bounded: DataFrame) -> DataFrame:
    """With `first_name` and `last_name`: the partitions of the first and last record of the ID."""
    for end in ("first", "last"):
        names = bounded.select(F.col("stream").alias("end_stream"), F.col("name").alias(f"{end}_name"))
        at_end = F.col(f"source_{end}.place") == F.col("end_stream")
        shared = shared.join(F.broadcast(names), at_end).drop("end_stream")
    return shared


def _with_counts(shared: DataFrame) -> DataFrame:
    """With the numbers of records of the ID that are `lost`, `unknown` or `waiting` if none has a copy.

    `left` counts, from 1 on, a record and those of its kind that come behind it: the last ones are named.
    """
    of_id = Window.partitionBy(*_ID)
    waits = ~F.col("kind").isin(*_DUE)
    group = F.when(waits, "waiting").otherwise(F.col("kind"))
    behind = Window.partitionBy(*_ID, "group").orderBy(
        F.desc(F.col("kind") == "refused"), F.desc("stream"), F.desc("position")
    )
    numbers = [F.count_if(F.col("kind") == kind).over(of_id).alias(kind) for kind in _DUE]
    return (
        shared.withColumn("group", group)
        .select("*", *numbers, F.count_if(waits).over(of_id).alias("waiting"))
        .withColumn("left", F.row_number().over(behind))
    )


def _of_checked(shared: DataFrame) -> DataFrame:
    """Of an ID that is accepted once, and has no copy: one record is missing, no matter which.

    Where one of them may have been there, the others were rightly rejected.
    """
    is_unknown, kind = F.col("unknown") > 0, F.col("kind")
    due = kind == F.when(is_unknown, "unknown").otherwise("lost")
    first = F.col("left") == F.when(is_unknown, F.col("unknown")).otherwise(F.col("lost"))
    named = F.concat_ws("; ", F.when(F.col("detail") != "", F.col("detail")), _where())
    rows = shared.where(F.col("once") & ((F.col("group") == "waiting") | (due & first)))
    return rows.withColumn("detail", F.when(F.col("group") == "waiting", F.col("detail")).otherwise(named))


def _of_counted(shared: DataFrame) -> DataFrame:
    """Of an ID that is expected as often as the source has it: as many as are missing, the last ones.

    Copies that are there may be of records that can have been deleted since, as well as of others: only what
    is missing besides all of the former is lost. Where some records of the ID are not known to be covered,
    or were refused, copies may be theirs.
    """
    there, lost = F.col("target_copies"), F.col("lost")
    waiting, due = F.col("waiting"), F.col("lost") + F.col("unknown")
    surely = F.greatest(lost - there, F.lit(0))
    perhaps = F.greatest(due - there, F.lit(0)) - surely
    mixed = (there > 0) & (due > 0) & (waiting > 0)
    number = (
        F.when(F.col("group") == "lost", surely)
        .when(F.col("group") == "unknown", perhaps)
        .when(mixed, waiting)
        .otherwise(F.greatest(waiting - there, F.lit(0)))
    )
    counted = F.concat(_where(), F.lit(", and the target "), there, F.lit(": of which is not known"))
    named = (
        F.when(there == 0, F.col("detail"))
        .when(mixed & (F.col("group") == "waiting"), F.concat(F.lit(f"{BY_OTHERS}; "), counted))
        .otherwise(F.concat_ws("; ", F.when(F.col("detail") != "", F.col("detail")), counted))
    )
    kind = F.when(mixed & (F.col("group") == "waiting"), "unknown").otherwise(F.col("kind"))
    rows = shared.where(~F.col("once") & (F.col("left") <= number))
    return rows.withColumn("detail", named).withColumn("kind", kind)


def _where() -> Column:
    """The source records that share the ID: their number, the first and the last."""
    first = F.concat("first_name", F.lit("@"), "source_first.position")
    last = F.concat("last_name", F.lit("@"), "source_last.position")
    return F.concat(
        F.lit("the source has the ID "), "source_copies", F.lit(" times, "), first, F.lit(" to "), last
    )
