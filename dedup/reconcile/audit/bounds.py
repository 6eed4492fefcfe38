"""Bounds of each stream: up to where the target covers it, and below where a missing record is excused."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from dedup.ids import Stamp
from dedup.reconcile.audit.missing import is_checked
from dedup.reconcile.audit.plan import Plan

#: Above every position (2^50).
BEYOND: Final = 2**62

#: Why a record that is not at the target may have been there, or was never to come.
BY_DELETION: Final = "the target no longer has its beginning"
BY_COMPACTION: Final = "the target is compacted, or may be: its configuration cannot be read"
BY_FILTER: Final = "the bridge has a filter or a transformer, which may have left it out"
BY_START: Final = "the bridge began at the end of its source"

_STREAMS: Final = pa.schema(
    {
        "stream": pa.int32(),
        "address": pa.int32(),
        "prefix": pa.int64(),
        "first": pa.int64(),
        "end": pa.int64(),
        "confirmed": pa.int64(),
        "source_partition": pa.int32(),
        "source_compacted": pa.bool_(),
        "replayed": pa.int64(),
        "identity": pa.string(),
        "name": pa.string(),
    }
)
_PLACES: Final = pa.schema(
    {
        "place": pa.int32(),
        "address": pa.int32(),
        "target_partition": pa.int32(),
        "begun_late": pa.bool_(),
        "settled": pa.int64(),
        "compacted": pa.bool_(),
        "name": pa.string(),
    }
)


def tables(spark: SparkSession, plan: Plan) -> tuple[DataFrame, DataFrame]:
    """The plan's streams and places as small tables."""
    address = {name: number for number, name in enumerate(plan.addresses)}
    streams = [
        {
            "stream": number,
            "address": address[one.target],
            "prefix": Stamp(one.identity).prefix,
            "first": one.start,
            "end": one.end,
            "confirmed": one.confirmed,
            "source_partition": one.partition,
            "source_compacted": one.compacted,
            "replayed": one.replayed,
            "identity": one.identity,
            "name": f"{one.topic}/{one.partition}",
        }
        for number, one in enumerate(plan.streams)
    ]
    places = [
        {
            "place": number,
            "address": address[one.topic],
            "target_partition": one.partition,
            "begun_late": one.start > 0,
            "settled": one.settled,
            "compacted": one.compacted,
            "name": f"{one.topic}/{one.partition}",
        }
        for number, one in enumerate(plan.places)
    ]
    # Arrow tables are part of the plan: no Python worker is started for them.
    return (
        spark.createDataFrame(pa.Table.from_pylist(streams, _STREAMS)),
        spark.createDataFrame(pa.Table.from_pylist(places, _PLACES)),
    )


def reach(records: DataFrame, streams: DataFrame, places: DataFrame, plan: Plan) -> DataFrame:
    """For each stream and place, the first source position that arrived there, and how far `settled` proves.

    `shown` is one beyond the last source position that was at the place before the ends of all places were
    looked at for the second time: a bridge covers in order, so all below it had been covered by then. What
    arrived is known by IDs of one stream only; of those that several records share, `first_there` takes the
    last one, and `shown` the first one. `proved` is the same by IDs that no other record can have had: where
    the source has had records that it no longer has, what is there may be theirs. What replay plans may have
    brought says nothing of `first_there`: an ID must be of positions beyond them alone, those that the source
    no longer has included. Nor does an ID, unless it is accepted once, that a record of another partition may
    have brought to the same place. What the source no longer has of this one came before all that it has.
    """
    stream = F.col("source_first.place")
    is_of_one = (F.col("source_copies") > 0) & (stream == F.col("source_last.place"))
    arrived = records.where(~F.col("is_source") & is_of_one).join(
        F.broadcast(places.select("place", "settled")), "place"
    )
    gone = streams.groupBy("address").agg(F.count_if(_has_gone()).alias("all_gone"))
    others_gone = F.col("all_gone") > _has_gone().cast("int")
    known = streams.join(gone, "address").select(
        "stream",
        "replayed",
        "prefix",
        (F.col("all_gone") > 0).alias("gone"),
        (others_gone & ~F.lit(plan.preserves_partitions)).alias("mingled"),
    )
    arrived = arrived.withColumn("stream", stream).join(F.broadcast(known), "stream")
    first, last = F.col("source_first.position"), F.col("source_last.position")
    is_own = F.coalesce((F.col("stamp") == F.col("prefix")) & (F.col("stamped") == first), F.lit(False))
    is_of_none_else = is_own | ~F.col("gone")
    is_of_stream = is_checked(checks_ids=plan.checks_ids) | ~F.col("mingled")
    is_sent_once = (F.col("replayed") == 0) & is_of_stream
    in_order = is_sent_once | ((first >= F.col("replayed")) & is_of_none_else)
    was_there = F.col("position") < F.col("settled")
    return arrived.groupBy("stream", "place").agg(
        # By their order at the place: what came again stands behind what came in order.
        F.min_by(F.when(in_order, last), F.when(in_order, F.col("position"))).alias("first_there"),
        F.max(F.when(was_there, first + 1)).alias("shown"),
        F.max(F.when(was_there & is_of_none_else, first + 1)).alias("proved"),
    )


def _has_gone() -> Column:
    """Whether the source has had records of the stream that it no longer has."""
    return (F.col("first") > 0) | F.col("source_compacted")


def bounds(streams: DataFrame, places: DataFrame, reached: DataFrame, plan: Plan) -> DataFrame:
    """For each stream, below which position what is missing is `open`, and what is `unknown` for `reason`.

    Adds `covered` (null: nothing is known to be covered), `surely` (up to there it is certain), `doubtful`
    (positions below it) and `reason`. And, of the stream's address, `gone`: the source has had records that
    it no longer has; `earlier`: one of those, or one that came by another way, may have been at the target
    and be gone.
    """
    here = F.col("target_partition") == F.col("source_partition")
    candidate = here if plan.preserves_partitions else F.lit(True)
    first = F.coalesce("first_there", F.lit(BEYOND))
    pairs = streams.join(F.broadcast(places), "address", "left").join(reached, ["stream", "place"], "left")
    per_stream = pairs.groupBy("stream").agg(
        F.max("shown").alias("shown"),
        F.max("proved").alias("proved"),
        F.max(F.when(F.col("begun_late") & candidate, first)).alias("deleted_below"),
        F.min("first_there").alias("began"),
        F.coalesce(F.bool_or("compacted"), F.lit(False)).alias("compacted"),
        F.coalesce(F.bool_or(F.col("begun_late") | F.col("compacted")), F.lit(False)).alias("forgetful"),
    )
    started = F.coalesce("began", F.lit(BEYOND)) if plan.from_latest else F.lit(0)
    deleted = F.coalesce("deleted_below", F.lit(0))
    everywhere = F.lit(BEYOND)
    doubtful = F.greatest(
        F.when(F.col("compacted") | F.lit(plan.is_filtered), everywhere).otherwise(0), deleted, started
    )
    reason = (
        F.when(F.lit(plan.is_filtered), BY_FILTER)
        .when(F.col("compacted"), BY_COMPACTION)
        .when(deleted >= started, BY_DELETION)
        .otherwise(BY_START)
    )
    known = per_stream.select(
        "stream", "forgetful", "shown", "proved", doubtful.alias("doubtful"), reason.alias("reason")
    )
    of_address = streams.groupBy("address").agg(F.bool_or(_has_gone()).alias("gone"))
    # A node's cache knows what clients and other bridges have sent to the address, too.
    others = F.col("gone") | F.lit(plan.target.kind == "node")
    return (
        streams.join(known, "stream")
        .join(of_address, "address")
        .withColumn("covered", F.coalesce("confirmed", "shown"))
        .withColumn("surely", F.coalesce("confirmed", "proved", F.lit(0)))
        .withColumn("earlier", F.col("forgetful") & others)
    )
