"""Converts lines to pieces of positions: covered, carried, refused, late. The sweep adds them up."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dedup.reconcile.events import is_missing, is_received, is_sent
from dedup.reconcile.line_format import flow, plain_store
from dedup.replay_plan import FORCED


class Of(IntEnum):
    """The meaning of a piece for its positions."""

    #: The sender's log covers them; a sent line carries them.
    SENT_COVERED = 0
    SENT = 1
    #: The same at the receiver.
    RECEIVED_COVERED = 2
    RECEIVED = 3
    #: Refused for good, by either side.
    REFUSED = 4
    #: Received later than allowed; sent longer ago than allowed.
    LATE = 5
    OLD = 6
    #: Received behind a later line of the flow.
    OUT_OF_ORDER = 7
    #: Received by a replay plan, on a stream of its own.
    MENDED = 8
    #: Received and left out, because the target knew it; received in a line that says that some were left out
    #: and not which.
    KNOWN = 9
    MAY_BE_KNOWN = 10
    #: A sent line of the same bridge and stream to another store covers them; another store received them.
    SENT_ELSEWHERE = 11
    RECEIVED_ELSEWHERE = 12
    #: The store had confirmed them, and did not have them any more when the bridge came to it.
    WENT_BACK = 13


#: The type of a piece in Spark.
_PIECES: Final = "array<struct<of:int,first:long,end:long>>"


def of_lines(events: DataFrame, flows: DataFrame, *, late_after_ms: int, now_ms: int) -> DataFrame:
    """A row a piece of every line: `flow`, `of`, `first`, `end` (one beyond the last).

    Args:
        events: `events.events`.
        flows: `flows.flows`, to join with.
        late_after_ms: what took longer is late; below 0: nothing is.
        now_ms: what is open is as old as it is then.
    """
    known = flows.select("flow", "offset_ms", "received_upto")
    own = events.where(is_sent() | is_received()).join(known, "flow")
    own = own.withColumn("late", _late(late_after_ms, now_ms))
    sent, late_runs = F.col("side") == "sent", F.when(F.col("late") > 0, _first_of_runs("late"))
    covers = F.when(sent, Of.SENT_COVERED).otherwise(Of.RECEIVED_COVERED)
    parts = [
        F.when(F.col("from") < F.col("upto"), F.array(_piece(covers, F.col("from"), F.col("upto")))),
        _of_runs(F.col("runs"), F.when(sent, Of.SENT).otherwise(Of.RECEIVED)),
        _of_runs(late_runs, F.when(sent, Of.OLD).otherwise(Of.LATE)),
        F.transform("refused", lambda position: _piece(F.lit(int(Of.REFUSED)), position, position + 1)),
        F.when(
            ~sent,
            F.coalesce(
                _of_runs(F.col("known"), F.lit(int(Of.KNOWN))),
                _of_runs(F.col("runs"), F.lit(int(Of.MAY_BE_KNOWN))),
            ),
        ),
    ]
    return own.select("flow", _inline(*parts))


def of_replays(events: DataFrame) -> DataFrame:
    """The messages that replay plans delivered, as pieces of the streams that they stand for.

    A plan's lines have a stream of their own, whose positions are the first stream's, and no sent lines. The
    target had been asked, so messages that the first stream's lines call received are not doubled: the target
    had lost them again. It had not been asked where the plan was forced.
    """
    brought = events.where(is_received() & F.col("replays").isNotNull())
    forced = F.when(F.col("stream").endswith(FORCED), _of_runs(F.col("runs"), F.lit(int(Of.RECEIVED))))
    mended = _of_runs(F.col("runs"), F.lit(int(Of.MENDED)))
    return brought.select(
        flow(F.col("bridge"), F.col("replays"), F.col("store")),
        _inline(mended, forced),
    )


def of_other_stores(events: DataFrame, flows: DataFrame) -> DataFrame:
    """The lines of a bridge's stream at other stores, as pieces of its flows (`has_others`)."""
    own = flows.where("has_others").select(
        "bridge", "stream", F.col("flow").alias("of_flow"), plain_store("store").alias("own_store")
    )
    others = (
        events.where(is_sent() | is_received())
        .join(own, ["bridge", "stream"])
        .where(plain_store("store") != F.col("own_store"))
    )
    sent = F.col("side") == "sent"
    covered = F.array(_piece(F.lit(int(Of.SENT_ELSEWHERE)), F.col("from"), F.col("upto")))
    received = _of_runs(F.col("runs"), F.lit(int(Of.RECEIVED_ELSEWHERE)))
    return others.select(
        F.col("of_flow").alias("flow"), F.inline(F.when(sent, covered).otherwise(received))
    ).where("first < end")


def of_missing(events: DataFrame) -> DataFrame:
    """The positions that a store had confirmed, and lost when it was put back from a backup."""
    lost = events.where(is_missing() & (F.col("from") < F.col("upto")))
    return lost.select(
        "flow", F.lit(int(Of.WENT_BACK)).alias("of"), F.col("from").alias("first"), F.col("upto").alias("end")
    )


def of_disorder(lines: DataFrame) -> DataFrame:
    """The positions of `order.out_of_order`'s lines."""
    return lines.select("flow", F.inline(_of_runs(F.col("runs"), F.lit(int(Of.OUT_OF_ORDER)))))


def _piece(of: Column, first: Column, end: Column) -> Column:
    return F.struct(of.cast("int").alias("of"), first.alias("first"), end.alias("end"))


def _inline(*parts: Column) -> Column:
    """A row a piece of all these arrays, of which some may be null."""
    none = F.array().cast(_PIECES)
    return F.inline(F.concat(*(F.coalesce(part, none) for part in parts)))


def _of_runs(runs: Column, of: Column) -> Column:
    return F.transform(runs, lambda run: _piece(of, run[0], run[1] + 1))


def _late(late_after_ms: int, now_ms: int) -> Column:
    """The number of a line's messages that are late: its oldest, spread evenly between its event times.

    A received line is judged by its commit; a sent line that reaches beyond the receiver's log by `now_ms`.
    """
    if late_after_ms < 0:
        return F.lit(0).cast("long")
    by_commit = F.col("committed") - F.coalesce("clock_offset", "offset_ms")
    is_open = F.col("upto") > F.col("received_upto")
    seen = F.when(F.col("side") == "sent", F.when(is_open, F.lit(now_ms))).otherwise(
        F.when(F.col("committed") > 0, by_commit)
    )
    oldest, newest = F.array_min("events"), F.array_max("events")
    over, count = seen - late_after_ms - oldest, F.col("count")
    share = F.ceil(over.cast("double") * (count - 1) / F.nullif(newest - oldest, F.lit(0)))
    late = F.when(over > 0, F.coalesce(F.least(share, count), count)).otherwise(0)
    return F.when(F.col("bridge").isNotNull() & (oldest > 0), F.coalesce(late, F.lit(0))).otherwise(0)


def _first_of_runs(number: str) -> Column:
    """The first messages of the line: as many as the column `number` says, as ranges."""
    start = F.struct(F.col(number).alias("left"), F.array().cast("array<array<long>>").alias("taken"))

    def take(done: Column, run: Column) -> Column:
        left = done["left"]
        part = F.array(run[0], F.least(run[1], run[0] + left - 1))
        return F.struct(
            F.greatest(left - (run[1] - run[0] + 1), F.lit(0)).alias("left"),
            F.when(left > 0, F.array_append(done["taken"], part)).otherwise(done["taken"]).alias("taken"),
        )

    whole = F.col(number) >= F.col("count")
    return F.when(whole, F.col("runs")).otherwise(
        F.aggregate("runs", start, take, lambda done: done["taken"])
    )
