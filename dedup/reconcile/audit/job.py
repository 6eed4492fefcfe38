"""The audit as one job: reads both ends once, compares them, and writes the findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from dedup.reconcile.audit import bounds, compare, source
from dedup.reconcile.audit.missing import is_checked, missing
from dedup.reconcile.audit.output import FINDINGS
from dedup.reconcile.audit.plan import Plan
from dedup.reconcile.audit.summary import KINDS, MAX_FINDINGS, Finding, StreamCounts, Summary

#: Asked when everything has been read: the plan with the ends' beginnings as they are now.
Renewed = Callable[[Plan], Plan]


def audit(spark: SparkSession, plan: Plan, renewed: Renewed, output: str) -> Summary:
    """Read, compare, write ``findings.parquet`` below `output`, and sum up.

    Args:
        spark: a session.
        plan: what to read.
        renewed: what retention has deleted meanwhile must not pass for lost.
        output: a directory, on any file system that Hadoop knows.

    Raises:
        ReadFailed: in an executor, so that it comes as Spark's own error.
    """
    ends = source.read(spark, plan, "source"), source.read(spark, plan, "target")
    letters = refused(source.read(spark, plan, "letters"))
    records = compare.beside(*ends).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        arrived = counted(records, checks_ids=plan.checks_ids)  # the first action: reads everything
        return judge(spark, renewed(plan), records, letters, arrived, output)
    finally:
        records.unpersist()


def judge(
    spark: SparkSession, plan: Plan, records: DataFrame, letters: DataFrame, arrived: list[Row], output: str
) -> Summary:
    """Judge the result of `compare.beside`; as `audit`."""
    streams, places = bounds.tables(spark, plan)
    # A row a stream: computed once, and small from here on.
    bounded = bounds.bounds(streams, places, bounds.reach(records, streams, places, plan), plan)
    known = bounded.toArrow()
    bounded = spark.createDataFrame(known)
    kinds = (
        missing(records, bounded, letters, checks_ids=plan.checks_ids),
        compare.foreign(records, streams, places),
        compare.out_of_order(records, places),
    )
    found = compare.doubled(records, bounded, places, checks_ids=plan.checks_ids)
    for kind in kinds:
        found = found.unionByName(kind.withColumn("count", F.lit(1).cast("long")))
    identities = F.broadcast(streams.select("stream", "identity"))
    compare.joined(found).join(identities, "stream").select(
        "kind", F.col("identity").alias("stream"), "first", "last", "count", "id", "detail"
    ).write.mode("overwrite").parquet(f"{output}/{FINDINGS}")
    covered = dict(zip(known["stream"].to_pylist(), known["covered"].to_pylist(), strict=True))
    return _summed_up(plan, arrived, covered, spark.read.parquet(f"{output}/{FINDINGS}"))


def refused(letters: DataFrame) -> DataFrame:
    """The refused positions of dead letters (`records.letter_rows`): `stream` and `position`."""
    return letters.select(F.col("place").alias("stream"), "position")


def counted(records: DataFrame, *, checks_ids: bool) -> list[Row]:
    """For each stream its records and those that arrived; under null, target records without a source.

    Where the target has too few copies of an ID, as many records count as arrived as it has, the first ones.
    """
    stream = F.when(F.col("is_source"), F.col("place"))
    rows = records.where(F.col("is_source") | (F.col("source_copies") == 0))
    there = F.col("target_copies")
    is_short = (F.col("source_copies") > there) & (there > 0) & ~is_checked(checks_ids=checks_ids)
    in_order = Window.partitionBy("address", "id").orderBy("place", "position")
    ranked = rows.where(is_short).withColumn("has_arrived", F.row_number().over(in_order) <= there)
    rows = rows.where(~is_short).withColumn("has_arrived", there > 0).unionByName(ranked)
    return (
        rows.groupBy(stream.alias("stream"))
        .agg(F.count("*").alias("records"), F.count_if("has_arrived").alias("arrived"))
        .collect()
    )


def _summed_up(
    plan: Plan, arrived: Iterable[Row], covered: dict[int, int | None], findings: DataFrame
) -> Summary:
    counts: dict[str, dict[str, int]] = {}
    for row in findings.groupBy("stream", "kind").agg(F.sum("count").alias("count")).collect():
        counts.setdefault(row["stream"], {})[row["kind"].replace("-", "_")] = row["count"]
    sizes = {row["stream"]: (row["records"], row["arrived"]) for row in arrived}
    streams = [
        StreamCounts(
            stream=one.identity,
            topic=one.topic,
            partition=one.partition,
            target=one.target,
            first=one.start,
            upto=one.end,
            covered=covered[number],
            source=sizes.get(number, (0, 0))[0],
            arrived=sizes.get(number, (0, 0))[1],
            **counts.get(one.identity, {}),
        )
        for number, one in enumerate(plan.streams)
    ]
    others = sizes.get(None, (0, 0))[0] - sum(one.foreign for one in streams)
    return Summary(plan.bridge, streams, _worst(findings), others)


def _worst(findings: DataFrame) -> list[Finding]:
    """The findings that fit the summary's limit."""
    rank = F.array_position(F.lit(list(KINDS)), F.col("kind"))
    rows = findings.orderBy(rank, "stream", "first").limit(MAX_FINDINGS).collect()
    return [Finding(**row.asDict()) for row in rows]
