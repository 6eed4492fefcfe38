"""The messages that a bridge has still to send, by its node's log: clients' messages beyond its sent lines.

A sent line is written when the receipt has come, so messages that wait for an absent target are in no sent
line. The messages that clients sent to the same stream are in the node's log at once, as received lines
without a bridge.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dedup.reconcile.events import is_received

#: Adds up the parts of the runs that lie at or beyond `reached`.
_BEYOND: Final = (
    "aggregate(runs, 0L, (sum, run) -> sum + greatest(0L, run[1] - greatest(run[0], reached) + 1))"
)


def with_waiting(flows: DataFrame, events: DataFrame) -> DataFrame:
    """`flows` with `waiting`, messages, and `waiting_since_ms`, when the first was stored; null: none.

    They are those of the flow whose sent lines reach furthest, where a bridge has several of one stream: its
    target's store was another one before. Runs a small job, and another one where something waits.
    """
    sent = flows.where("bridge is not null and sent_upto is not null")
    furthest = sent.groupBy("bridge", "stream").agg(
        F.max("sent_upto").alias("reached"),
        F.max_by("flow", F.struct("sent_upto", "store")).alias("of_flow"),
    )
    clients = flows.where("bridge is null and received_upto is not null")
    most = clients.groupBy("stream").agg(F.max("received_upto").alias("stored"))
    behind = furthest.join(most, "stream").where("stored > reached").select("stream", "reached", "of_flow")
    behind = behind.localCheckpoint()
    if behind.isEmpty():
        return flows.withColumns({"waiting": _none(0), "waiting_since_ms": _none(None)})
    lines = events.where(F.col("bridge").isNull() & is_received())
    counted = (
        lines.select("stream", "upto", "runs", F.when(F.col("committed") > 0, F.col("committed")).alias("ms"))
        .join(F.broadcast(behind), "stream")
        .where("upto > reached")
        .withColumn("beyond", F.expr(_BEYOND))
        .where("beyond > 0")
        .groupBy("of_flow")
        .agg(F.sum("beyond").alias("waiting"), F.min("ms").alias("waiting_since_ms"))
    )
    joined = flows.join(F.broadcast(counted), flows["flow"] == counted["of_flow"], "left").drop("of_flow")
    return joined.fillna(0, ["waiting"]).localCheckpoint()


def _none(value: int | None) -> Column:
    return F.lit(value).cast("long")
