"""Findings of messages that the target knew already and did not store again."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from dedup.reconcile import id_text

_RUN = "struct<first:long,last:long,count:long,id:string,detail:string>"


def rejected(events: DataFrame) -> DataFrame:
    """As `tables.FINDINGS`, one or more a line.

    A verdict line with IDs names each. A line with one ID and more messages is a transaction's own ID, which
    stands for them all. A verdict line without IDs is a batch that came again, and has a row a run. In a line
    of other messages only their number is known: the row has the line's positions, and that count, unless a
    Kafka target names their IDs in a line beside it. What a replay plan found is no replay.
    """
    stands_for_all = (id_text.number(F.col("ids")) == 1) & (F.col("duplicates") > 1)
    is_transaction = F.col("bridge").isNull() & stands_for_all
    of_ids = F.transform(
        id_text.cells(F.col("ids")),
        lambda cell: _row(
            id_text.position_of(cell), id_text.position_of(cell),
            F.when(is_transaction, F.col("duplicates")).otherwise(1), id_text.id_of(cell),
            F.when(is_transaction, F.lit("the ID of a whole transaction")),
        ),
    )  # fmt: skip
    of_runs = F.transform(
        "runs",
        lambda run: _row(
            run[0], run[1], run[1] - run[0] + 1, F.lit(None), F.lit("the batch had been stored before")
        ),
    )
    of_line = F.array(
        _row(F.col("from"), F.col("upto") - 1, F.col("duplicates"), F.lit(None), F.lit("known among these"))
    )
    is_verdict, names = F.col("verdict").isNotNull(), _names()
    rows = F.when(names, of_ids).when(is_verdict, of_runs).otherwise(of_line)
    knows = (F.col("side") == "received") & F.col("replays").isNull()
    found = events.where(knows & (is_verdict | (F.col("duplicates") > 0)))
    # Lines that cover nothing, of which there may be many, stand beside none.
    alone = F.when(F.col("from") == F.col("upto"), F.col("line_number"))
    of_batch = Window.partitionBy("flow", "from", "upto", alone)
    found = found.withColumn("is_named", F.max(names).over(of_batch)).where(is_verdict | ~F.col("is_named"))
    return found.select(
        F.lit("rejected").alias("kind"), "bridge", "stream", "store", "address", F.inline(rows)
    )


def known_already() -> Column:
    """The number of messages that a received line says the target knew, each message in one line of its flow.

    A Kafka target names known IDs in a line of its own beside the batch's, which has counted them.
    """
    named = F.when(_names(), id_text.number(F.col("ids"))).otherwise(0)
    counted_before = _names() & F.col("bridge").isNotNull()
    return F.when(counted_before, 0).otherwise(F.greatest("duplicates", named))


def _names() -> Column:
    """Whether the line names producers' IDs that were known."""
    return F.col("verdict").isNotNull() & F.col("ids").isNotNull()


def _row(first: Column, last: Column, count: Column, id_: Column, detail: Column) -> Column:
    values = {"first": first, "last": last, "count": count, "id": id_, "detail": detail}
    return F.struct(*(value.alias(name) for name, value in values.items())).cast(_RUN)
