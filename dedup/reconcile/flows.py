"""The flows that are compared: the reach of each side's log, and the number of ranges of a flow."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from dedup.reconcile.events import MAX_BROADCAST, is_missing, is_received, is_sent
from dedup.reconcile.line_format import plain_store
from dedup.reconcile.rejected import known_already
from dedup.reconcile.waiting import with_waiting

#: Lines of a flow that one task compares. A flow with more is split by position.
LINES_PER_RANGE: Final = 50_000

_NAMES: Final = ("flow", "bridge", "stream", "store")
_SUMS: Final = (
    "lines", "span", "rejected", "offsets", "measured", "with_ids", "with_replays", "with_missing",
)  # fmt: skip


def flows(events: DataFrame) -> DataFrame:
    """A row a flow, computed at once: names, reach of either side, counts, times, and its ranges.

    `sent_first`, `sent_upto`, `received_first`, `received_upto`: null where the side has no line.
    `offset_ms`: the target's clock less the source's, the mean of what sent lines say; 0 where none does.
    `newest_ms`: the latest time that a line names, by the source's clock.
    `sent_ms`: when the target committed what the newest sent line tells of; null where there is none.
    `waiting`, `waiting_since_ms`: see `waiting.with_waiting`.
    `with_ids`, `with_replays`, `with_missing`: received lines that name IDs; lines of replay plans; lines of
    what a store has lost.
    `sender_first`, `sender_upto`: the reach of the sender's log; `has_others`, `others_upto`: see
    `_with_other_stores`.
    `origin`, `width`, `ranges`: range n is ``[origin + n * width, origin + (n + 1) * width)``.
    """
    # Twice, because an aggregate whose values are text sorts its input: here the first one's are numbers.
    by_name = events.groupBy(*_NAMES, "side", "address", "target").agg(
        *_reach("sent", is_sent()),
        *_reach("received", is_received()),
        F.count("*").alias("lines"),
        F.sum((F.col("upto") - F.col("from")).cast("double")).alias("span"),
        F.max("upto").alias("newest"),
        F.sum(F.when(F.col("side") == "received", known_already()).otherwise(0)).alias("rejected"),
        F.min(_time(F.least(_event(0), _event(1)))).alias("first_ms"),
        F.max(_time(F.greatest(_event(0), _event(1)))).alias("last_ms"),
        F.max(_time(F.col("committed") - F.coalesce("clock_offset", F.lit(0)))).alias("committed_ms"),
        F.sum("clock_offset").alias("offsets"),
        F.count("clock_offset").alias("measured"),
        F.max(F.when(is_sent(), _is_own(plain_store("store"), F.col("node_id"))).cast("int")).alias("to_own"),
        F.count("ids").alias("with_ids"),
        F.count("replays").alias("with_replays"),
        F.count_if(is_missing()).alias("with_missing"),
    )
    sides = ("sent", "received")
    whole = by_name.groupBy(*_NAMES).agg(
        *(F.min(f"{side}_first").alias(f"{side}_first") for side in sides),
        *(F.max(f"{side}_upto").alias(f"{side}_upto") for side in sides),
        *(_latest(name, side) for side in sides for name in ("address", "target")),
        *(F.sum(name).alias(name) for name in _SUMS),
        F.max("to_own").alias("to_own"),
        F.min("first_ms").alias("first_ms"),
        F.max("last_ms").alias("last_ms"),
        F.max(F.when(F.col("side") == "sent", F.col("committed_ms"))).alias("sent_ms"),
        F.max(F.when(F.col("side") == "received", F.col("committed_ms"))).alias("received_ms"),
    )
    mean_ms = F.round(F.col("offsets") / F.col("measured")).cast("long")
    whole = whole.withColumn("offset_ms", F.when(F.col("measured") > 0, mean_ms).otherwise(0))
    named = whole.select(
        *_NAMES,
        *(F.coalesce(f"sent_{name}", f"received_{name}").alias(name) for name in ("address", "target")),
        "sent_first", "sent_upto", "received_first", "received_upto", "lines", "span", "rejected",
        "with_ids", "with_replays", "with_missing", "to_own",
        "first_ms", "last_ms", "offset_ms", "sent_ms",
        F.greatest("last_ms", "sent_ms", F.col("received_ms") - F.col("offset_ms")).alias("newest_ms"),
    )  # fmt: skip
    # A checkpoint, because everything joins with it: what is planned afterwards need not plan this again.
    named = named.transform(_with_other_stores).transform(_with_ranges)
    return with_waiting(named.localCheckpoint(), events)


def without_plans(flows: DataFrame) -> DataFrame:
    """The flows without those of replay plans, which count in the streams that they stand for."""
    return flows.where("with_replays = 0")


def few(flows: DataFrame, number: int) -> DataFrame:
    """`flows` to join with, sent to every task unless their `number` is too large for that."""
    return F.broadcast(flows) if number <= MAX_BROADCAST else flows


def _with_other_stores(named: DataFrame) -> DataFrame:
    """`sender_first` and `sender_upto`; `has_others`: other stores have had the bridge's stream, too; and
    `others_upto`: how far lines of them reach, null where there is none.

    A bridge delivers a stream to one store after the other: all of its sent lines are one log. But several
    nodes may read one topic under one name, each into its own journal: those are copies.
    """
    of_stream, store = Window.partitionBy("bridge", "stream"), plain_store("store")
    is_journals = F.col("stream").startswith("journal:")
    goes_elsewhere = F.coalesce(F.max("to_own").over(of_stream) == 0, F.lit(False))
    is_one_log = F.col("bridge").isNotNull() & (is_journals | goes_elsewhere)

    reaches = F.collect_list(
        F.struct(store.alias("store"), F.greatest("sent_upto", "received_upto").alias("upto"))
    ).over(of_stream)
    others = F.filter(reaches, lambda reach: reach["store"] != store)

    def among(summed: Column, own: Column) -> Column:
        return F.when(is_one_log, summed.over(of_stream)).otherwise(own)

    return named.withColumns(
        {
            "sender_first": among(F.min("sent_first"), F.col("sent_first")),
            "sender_upto": among(F.max("sent_upto"), F.col("sent_upto")),
            "has_others": is_one_log & (F.min(store).over(of_stream) != F.max(store).over(of_stream)),
            "others_upto": F.when(is_one_log, F.array_max(F.transform(others, lambda reach: reach["upto"]))),
            "lines": among(F.sum("lines"), F.col("lines")),
            "span": among(F.sum("span"), F.col("span")),
        }
    )


def _with_ranges(named: DataFrame) -> DataFrame:
    """Ranges as wide as holds `LINES_PER_RANGE` lines, if they were spread evenly.

    Never narrower than lines are on average, so that cutting lines at the ranges' edges at most doubles them.
    """
    length = F.col("end") - F.col("origin")
    by_lines = F.ceil(length / F.ceil(F.col("lines") / LINES_PER_RANGE))
    by_span = F.ceil(F.col("span") / F.col("lines"))
    return (
        named.withColumn("origin", F.least("sender_first", "received_first"))
        .withColumn("end", F.greatest("sender_upto", "received_upto"))
        .withColumn("width", F.greatest(by_lines, by_span, F.lit(1)))
        .withColumn("ranges", F.coalesce(F.ceil(length / F.col("width")), F.lit(0)))
        .drop("lines", "span")
    )


def _is_own(store: Column, node_id: Column) -> Column:
    """Whether a store is this node's journal: its identity begins with the node's."""
    return F.coalesce(store.startswith(F.concat(node_id, F.lit(":"))), F.lit(False))


def _reach(side: str, belongs: Column) -> list[Column]:
    return [
        F.min(F.when(belongs, F.col("from"))).alias(f"{side}_first"),
        F.max(F.when(belongs, F.col("upto"))).alias(f"{side}_upto"),
    ]


def _latest(name: str, side: str) -> Column:
    """The name that the side's line with the greatest upto has."""
    belongs = F.col("side") == side
    return F.max_by(F.when(belongs, F.col(name)), F.when(belongs, F.col("newest"))).alias(f"{side}_{name}")


def _event(which: int) -> Column:
    return F.get("events", F.lit(which))


def _time(milliseconds: Column) -> Column:
    """The time; null where its value says that it is not known."""
    return F.when(milliseconds > 0, milliseconds)
