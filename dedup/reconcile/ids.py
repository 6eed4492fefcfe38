"""Producers' IDs where they are checked: which came again, where, and how far back their first copy was.

The only part with a row per message. Every ID is hashed; only those whose hash came more than once are
looked at again, byte for byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from dedup.reconcile import id_text, local
from dedup.reconcile.events import MAX_BROADCAST
from dedup.reconcile.tables import ID_CACHES

_WHERE: Final = ("store", "address")
#: A line among all, in 16 bytes.
_LINE: Final = ("file", "line_number")
_ID: Final = (*_WHERE, "id")


@dataclass(frozen=True, slots=True)
class Ids:
    """The results on producers' IDs."""

    #: `tables.ID_CACHES`.
    caches: DataFrame
    #: `flow`, `store`, `address`, `id` (`id_text.shown`), `position`, `kind`, `detail`: every place but the
    #: first at which an ID was accepted; each place once. `kind`: of the finding.
    repeated: DataFrame
    #: The frames kept in Spark.
    kept: tuple[DataFrame, ...]


def ids(events: DataFrame) -> Ids:
    """Evaluate the IDs of received lines where they are checked. Runs three jobs."""
    lines = events.where((F.col("side") == "received") & F.col("ids").isNotNull() & is_checked()).select(
        *_WHERE, F.xxhash64(*_WHERE).alias("where"), "flow", "stream", "log_node", "file_number",
        F.xxhash64("path").alias("file"), "line_number", "ids",
        F.col("verdict").isNull().alias("is_accepted"),
    )  # fmt: skip
    copies = lines.select("*", F.posexplode(id_text.cells(F.col("ids"))).alias("index", "cell")).select(
        F.xxhash64("where", id_text.id_of(F.col("cell"))).alias("hash"),
        *_WHERE, "flow", "stream", *_LINE, "is_accepted", "index", "cell",
    )  # fmt: skip
    again = copies.groupBy("hash").count().where("count > 1").select("hash").localCheckpoint()
    number = again.count()
    few = F.broadcast(again) if number <= MAX_BROADCAST else again
    before = _accepted_before(lines).localCheckpoint()
    rank = F.col("before") + F.when(F.col("is_accepted"), F.col("index")).otherwise(0)
    seen = copies.join(few, "hash").join(before.select(*_LINE, "before"), list(_LINE))
    seen = seen.select(
        *_WHERE, "flow", "stream", "is_accepted", rank.alias("rank"),
        id_text.position_of(F.col("cell")).alias("position"), id_text.id_of(F.col("cell")).alias("id"),
    )  # fmt: skip
    seen = seen.transform(_with_first).persist(StorageLevel.MEMORY_AND_DISK)
    return Ids(_caches(before, seen), _repeated(seen), (seen,))


def none(spark: SparkSession) -> Ids:
    """The results where no line names an ID; runs nothing."""
    repeated = "flow long, store string, address string, id string, position long, kind string, detail string"
    return Ids(local.table(spark, ID_CACHES, ()), local.table(spark, repeated, ()), ())


def is_checked() -> Column:
    """Whether a line's IDs are checked: those of clients' sends and of Kafka's streams (design rule 4).

    Not those that a replay plan brings: it has asked the target for them; nor those of which the line says
    that the target did not look them up.
    """
    of_kafka = F.col("stream").startswith("kafka:") & F.col("replays").isNull()
    return (F.col("bridge").isNull() | of_kafka) & ~F.col("unchecked")


def entries(ids: Column) -> Column:
    """See `id_text.entries`."""
    return id_text.entries(ids)


def _accepted_before(lines: DataFrame) -> DataFrame:
    """Per line its number of accepted IDs, and how many were before it at its (store, address) in log order.

    First between files, then within each: a task holds one file's lines of one address.
    """
    own = F.when(F.col("is_accepted"), id_text.number(F.col("ids"))).otherwise(0)
    numbered = lines.select(*_WHERE, "log_node", "file_number", *_LINE, own.alias("number"))
    file = (*_WHERE, "log_node", "file_number")  # of which there may be copies, each with a part of the lines
    of_place = Window.partitionBy(*_WHERE).orderBy("log_node", "file_number")
    files = numbered.groupBy(*file).agg(F.sum("number").alias("number"))
    before_file = F.sum("number").over(of_place.rowsBetween(Window.unboundedPreceding, -1))
    files = files.select(*file, F.coalesce(before_file, F.lit(0)).alias("before_file"))
    of_file = Window.partitionBy(*file).orderBy("line_number", "file")
    before_line = F.sum("number").over(of_file.rowsBetween(Window.unboundedPreceding, -1))
    placed = numbered.withColumn("before_line", F.coalesce(before_line, F.lit(0)))
    before = (F.col("before_file") + F.col("before_line")).alias("before")
    return placed.join(files, list(file)).select(*_WHERE, *_LINE, "number", before)


def _with_first(seen: DataFrame) -> DataFrame:
    """With the rank of each ID's first accepted copy, null where none was."""
    copies_of_one = Window.partitionBy(*_ID)
    first = F.min(F.when(F.col("is_accepted"), F.col("rank"))).over(copies_of_one)
    return seen.withColumn("first", first)


def _caches(before: DataFrame, seen: DataFrame) -> DataFrame:
    accepted = before.groupBy(*_WHERE).agg(F.sum("number").alias("accepted"))
    behind = seen.where("rank > first").groupBy(*_ID)
    reach = behind.agg(F.max(F.col("rank") - F.col("first")).alias("reach")).groupBy(*_WHERE)
    came_again = reach.agg(F.count("*").alias("repeated"), F.max("reach").alias("needed"))
    counts = (F.coalesce(name, F.lit(0)).cast("long").alias(name) for name in ("repeated", "needed"))
    return accepted.join(came_again, list(_WHERE), "left").select(*_WHERE, "accepted", *counts)


def _repeated(seen: DataFrame) -> DataFrame:
    """Each place at which an ID was accepted, once, however many lines name it."""
    places = seen.where("is_accepted").groupBy(*_ID, "flow", "stream", "position")
    by_rank = Window.partitionBy(*_ID).orderBy("rank")
    place = F.concat_ws(" ", "stream", F.coalesce(F.col("position").cast("string"), F.lit("?")))
    return (
        places.agg(F.min("rank").alias("rank"))
        .withColumn("detail", F.concat(F.lit("accepted before at "), F.first(place).over(by_rank)))
        .withColumn("place", F.row_number().over(by_rank))
        .where("place > 1")
        .select("flow", *_ID, "position", F.lit("repeated-id").alias("kind"), "detail")
    )
