"""Judges each interval of a flow: the verdicts of design section 7, and the findings by position."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

#: Columns of `tables.FLOWS` that count positions, and the condition on an interval of `judge`.
COUNTED = (
    "sent", "received", "lost", "doubled", "unsent", "out_of_order", "late", "open", "refused", "unknown",
)  # fmt: skip
#: Those of them that are findings.
KINDS = COUNTED[2:]


def judge(intervals: DataFrame, flows: DataFrame) -> DataFrame:
    """`flow`, `range`, `first`, `end`, and per name in `COUNTED` whether it holds for these positions.

    Only intervals for which one of them holds. No condition but `late` has to do with a clock.

    Args:
        intervals: `sweep.intervals`.
        flows: `flows.flows`, to join with.
    """
    known = flows.select(
        "flow", "bridge", "sent_upto", "sender_first", "sender_upto", "received_first", "received_upto",
        "others_upto",
    )  # fmt: skip
    conditions = _conditions()
    judged = intervals.join(known, "flow").select(
        "flow", "range", "first", "end",
        *(F.coalesce(conditions[name], F.lit(False)).alias(name) for name in COUNTED),
    )  # fmt: skip
    return judged.where(F.array_contains(F.array(*COUNTED), True))


def _conditions() -> dict[str, Column]:
    sent, received = F.col("sent") > 0, F.col("received") > 0
    in_sent_log, in_received_log = F.col("sent_covered") > 0, F.col("received_covered") > 0
    in_senders_log = in_sent_log | (F.col("sent_elsewhere") > 0)
    elsewhere = F.col("received_elsewhere") > 0
    first = F.col("first")
    stored = F.col("received") - F.col("known")
    stored_at_least = stored - F.col("may_be_known")
    mended = sent & (F.col("mended") > 0)
    missing = sent & ~received & ~mended & (F.col("refused") == 0)
    # Clients' sends have one side: nothing is to be compared.
    two_sided = F.col("bridge").isNotNull()
    below_received = first < F.col("received_upto")
    beyond_received = first >= F.col("received_upto")
    # The store confirmed them and no log shows that it has them; and nobody sends them again: the bridge has
    # gone on at another store since, or has found that this one was put back from a backup.
    left_behind = (first < F.coalesce("others_upto", F.lit(0))) | (F.col("went_back") > 0)
    is_open = two_sided & missing & beyond_received & ~left_behind
    not_received_log = ~in_received_log & ~mended
    is_lost = two_sided & missing & below_received & in_received_log
    unknown = (
        two_sided & missing & beyond_received & left_behind,
        two_sided & sent & not_received_log & (F.col("received_upto").isNull() | below_received),
        two_sided & received & ~in_sent_log & (F.col("sent_upto").isNull() | (first < F.col("sender_upto"))),
        not_received_log & (first >= F.col("received_first")) & below_received,
        ~in_senders_log & (first >= F.col("sender_first")) & (first < F.col("sender_upto")),
        (stored > 1) & (stored_at_least <= 1),
        # Which of the stores are still there no line says.
        elsewhere & ((stored > 0) | mended | is_lost),
    )
    return {
        "sent": sent,
        "received": received | mended,
        "lost": is_lost & ~elsewhere,
        "doubled": stored_at_least > 1,
        "unsent": two_sided & received & in_sent_log & ~sent,
        "out_of_order": F.col("out_of_order") > 0,
        "late": (sent & received & (F.col("late") > 0)) | (is_open & (F.col("old") > 0)),
        "open": is_open,
        "refused": F.col("refused") > 0,
        "unknown": _any(*unknown),
    }


def counts(judged: DataFrame) -> DataFrame:
    """`flow`, and per name in `COUNTED` the positions for which it holds."""
    length = F.col("end") - F.col("first")
    return judged.groupBy("flow").agg(
        *(F.sum(F.when(F.col(name), length).otherwise(0)).alias(name) for name in COUNTED)
    )


def findings(judged: DataFrame) -> DataFrame:
    """`kind`, `flow`, `first`, `last`: the positions of each kind in ranges as long as possible."""
    kinds = F.array_compact(F.array(*(F.when(F.col(name), F.lit(name.replace("_", "-"))) for name in KINDS)))
    found = judged.select("flow", "range", "first", "end", F.explode(kinds).alias("kind"))
    # First within the ranges, where there may be many, then over their edges.
    joined = found.transform(_joined, "flow", "range", "kind").transform(_joined, "flow", "kind")
    return joined.select("kind", "flow", "first", (F.col("end") - 1).alias("last"))


def _joined(found: DataFrame, *keys: str) -> DataFrame:
    """Neighbours of the same keys merged; the result has the keys, `first` and `end`."""
    by_first = Window.partitionBy(*keys).orderBy("first")
    is_new = (F.col("first") != F.lag("end").over(by_first)).cast("int")
    until_here = by_first.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        found.withColumn("is_new", F.coalesce(is_new, F.lit(0)))
        .withColumn("island", F.sum("is_new").over(until_here))
        .groupBy(*keys, "island")
        .agg(F.min("first").alias("first"), F.max("end").alias("end"))
        .drop("island")
    )


def _any(*conditions: Column) -> Column:
    result = F.lit(False)
    for condition in conditions:
        result = result | F.coalesce(condition, F.lit(False))
    return result
