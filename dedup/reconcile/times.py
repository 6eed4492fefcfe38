"""The throughput of each hour, and the delivery times: by the clocks, so never a verdict."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from dedup.reconcile.events import is_received, is_sent
from dedup.reconcile.line_format import flow

HOUR_MS: Final = 3_600_000
#: Into how many parts a batch's messages are put, evenly between its event times.
PARTS: Final = 16
#: Times are kept in steps of 1 in this many: an error below 1 %, and a bounded number of steps.
STEPS: Final = 128
PERCENTILES: Final = (("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99), ("p999_ms", 0.999))
_NAMES: Final = ("bridge", "stream", "address")


def hours(events: DataFrame, flows: DataFrame) -> DataFrame:
    """`tables.HOURS`: a sent batch in the hour of its first event, a received one in that of its commit.

    What a replay plan brought counts in the stream that it stands for.
    """
    sent, received = is_sent(), is_received()
    moment = F.when(sent, F.get("events", F.lit(0))).when(received, F.col("committed"))
    offset = F.when(received, F.coalesce("clock_offset", "offset_ms")).otherwise(0)
    is_plan = F.col("replays").isNotNull()
    mended = F.when(is_plan, flow(F.col("bridge"), F.col("replays"), F.col("store"))).otherwise(F.col("flow"))
    timed = events.where((sent | received) & (F.col("count") > 0) & (moment > 0))
    timed = timed.withColumn("flow", mended).drop("stream", "address")
    timed = timed.join(flows.select("flow", "stream", "address", "offset_ms"), "flow")
    hour = F.floor((moment - offset) / HOUR_MS) * HOUR_MS
    return timed.groupBy("bridge", "stream", "address", hour.alias("hour_ms")).agg(
        *(
            F.sum(F.when(F.col("side") == side, F.col("count")).otherwise(0)).alias(side)
            for side in ("sent", "received")
        )
    )


def latency(steps: DataFrame) -> DataFrame:
    """`tables.LATENCY` of `steps`; several of the same name and time count together."""
    return _percentiles(steps)


def steps(events: DataFrame, flows: DataFrame) -> DataFrame:
    """`bridge`, `stream`, `address`, `ms`, `messages`, `most`: delivery times of bridges, by received lines.

    `ms`: such a time, rounded down to its step; `most`: the longest of a line that has messages there.
    """
    oldest, newest = F.array_min("events"), F.array_max("events")
    timed = events.where(
        is_received()
        & F.col("bridge").isNotNull()
        & (F.col("count") > 0)
        & (F.col("committed") > 0)
        & (oldest > 0)
    ).join(flows.select("flow", "offset_ms", F.col("address").alias("source_address")), "flow")
    committed = F.col("committed") - F.coalesce("clock_offset", "offset_ms")
    count = F.col("count")
    lines = timed.select(
        "bridge", "stream", F.col("source_address").alias("address"), "count",
        F.greatest(committed - newest, F.lit(0)).alias("least"),
        F.greatest(committed - oldest, F.lit(0)).alias("most"),
    )  # fmt: skip
    part, number = F.col("part"), F.col("parts")
    share = F.floor(count * (part + 1) / number) - F.floor(count * part / number)
    middle = F.col("least") + (F.col("most") - F.col("least")) * (part * 2 + 1) / (number * 2)
    lines = lines.withColumn("parts", F.least(F.lit(PARTS), "count", F.col("most") - F.col("least") + 1))
    parts = lines.select("*", F.explode(F.sequence(F.lit(0).cast("long"), number - 1)).alias("part"))
    return parts.groupBy(*_NAMES, _step(middle).alias("ms")).agg(
        F.sum(share).alias("messages"), F.max("most").alias("most")
    )


def _percentiles(steps: DataFrame) -> DataFrame:
    of_flow = Window.partitionBy(*_NAMES)
    so_far = of_flow.orderBy("ms").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = steps.withColumn("rank", F.sum("messages").over(so_far)).withColumn(
        "all", F.sum("messages").over(of_flow)
    )
    return ranked.groupBy(*_NAMES).agg(
        F.max("all").alias("count"),
        *(
            F.min(F.when(F.col("rank") >= F.col("all") * share, F.col("ms"))).alias(name)
            for name, share in PERCENTILES
        ),
        F.max("most").alias("max_ms"),
    )


def _step(milliseconds: Column) -> Column:
    """The time rounded to steps that grow with it: whole milliseconds below `STEPS`, then 1 in `STEPS`."""
    shift = F.greatest(F.floor(F.log2(F.greatest(milliseconds, F.lit(1)) / STEPS)) + 1, F.lit(0))
    width = F.pow(F.lit(2.0), shift)
    return (F.floor(milliseconds / width) * width).cast("long")
