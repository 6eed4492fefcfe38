"""Received lines that stand in their log behind a line of the same flow that reaches further."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from dedup.reconcile.events import is_received


def out_of_order(events: DataFrame) -> DataFrame:
    """`flow` and `runs` of these lines.

    Only lines of one node and lane are held against each other, in the order of its files and of the lines
    in them. First between files, then within each: a task holds one flow's lines of one file, of which there
    may be copies in several directories, each with a part of the lines.
    """
    chain = F.xxhash64("log_node", "node_id", "lane", "flow").alias("chain")
    lines = events.where(is_received()).select(
        chain, "flow", "file_number", "line_number", F.xxhash64("path").alias("file"), "upto", "runs"
    )
    keys = ["chain", "flow", "file_number"]
    of_chain = Window.partitionBy("chain", "flow").orderBy("file_number")
    earlier = of_chain.rowsBetween(Window.unboundedPreceding, -1)
    files = lines.groupBy(*keys).agg(F.max("upto").alias("reach"))
    before = files.select(*keys, F.max("reach").over(earlier).alias("before"))
    of_file = Window.partitionBy(*keys).orderBy("line_number", "file")
    within = F.max("upto").over(of_file.rowsBetween(Window.unboundedPreceding, -1))
    reached = lines.join(before, keys).withColumn("reached", F.greatest("before", within))
    return reached.where((F.col("upto") < F.col("reached")) & (F.size("runs") > 0)).select("flow", "runs")
