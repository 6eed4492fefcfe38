"""Equal lines are one event, wherever and however often they were found."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

#: Rows that are sent to every task instead of being shuffled.
MAX_BROADCAST: Final = 500_000

_KEY: Final = ("flow", "from", "upto", "content")
#: Log order: of two equal lines the first counts. `path` where a file lies in two directories.
LOG_ORDER: Final = ("log_node", "file_number", "line_number", "path")


def events(lines: DataFrame) -> tuple[DataFrame, tuple[DataFrame, ...]]:
    """The lines without those that repeat another, and the frame kept in Spark for that (one job).

    A sent line repeats another that covers the same and names the same positions; a received line also has
    to say the same of when and by whom, since a target that stores a batch twice writes two lines.
    IDs do not count: a line that is recovered from a Kafka record may have come without them.
    """
    keyed = lines.withColumn("content", _content())
    repeated = keyed.groupBy(*_KEY).count().where("count > 1").drop("count")
    repeated = repeated.localCheckpoint()
    number = repeated.count()
    if number == 0:
        return lines, ()
    few = F.broadcast(repeated) if number <= MAX_BROADCAST else repeated
    best = Window.partitionBy(*_KEY).orderBy(
        F.col("committed") == 0, -F.coalesce(F.length("ids"), F.lit(0)), *LOG_ORDER
    )
    others = (
        keyed.join(few, list(_KEY)).withColumn("place", F.row_number().over(best)).where("place > 1")
        .select("path", "line_number")
    )  # fmt: skip
    kept = lines.join(others, ["path", "line_number"], "left_anti").persist(StorageLevel.MEMORY_AND_DISK)
    return kept, (kept,)


def is_received() -> Column:
    """Whether a line records messages that arrived: verdict lines do not."""
    return (F.col("side") == "received") & F.col("verdict").isNull()


def is_sent() -> Column:
    """Whether a line records messages that were sent."""
    return (F.col("side") == "sent") & F.col("verdict").isNull()


def is_missing() -> Column:
    """Whether a line records positions that the store had confirmed, and does not have any more."""
    return (F.col("side") == "sent") & F.col("verdict").isNotNull()


def _content() -> Column:
    said = F.xxhash64(
        "node_id", "lane", "address", "committed", "duplicates", "recovered", "events", "verdict",
        "session", "number",
        F.when(F.col("verdict").isNotNull(), F.col("ids")),
    )  # fmt: skip
    return F.xxhash64("side", "runs", "refused", "verdict", F.when(F.col("side") == "received", said))
