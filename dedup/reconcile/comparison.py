"""The comparison of the two sides of every flow: from the lines to the tables."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from dedup.reconcile import chains, pieces, times
from dedup.reconcile.carried import Carried
from dedup.reconcile.events import events as events_of
from dedup.reconcile.flows import few, without_plans
from dedup.reconcile.flows import flows as flows_of
from dedup.reconcile.ids import Ids, none
from dedup.reconcile.ids import ids as ids_of
from dedup.reconcile.lives import lives_of
from dedup.reconcile.order import out_of_order
from dedup.reconcile.rejected import rejected
from dedup.reconcile.sweep import intervals
from dedup.reconcile.tables import FLOWS, Tables


def compare(
    lines: DataFrame,
    inputs: DataFrame,
    *,
    late_after_ms: int,
    kept: Sequence[DataFrame] = (),
    carried: Carried | None = None,
) -> Tables:
    """The tables of these lines. A part is computed here, the rest when the tables are used.

    Args:
        lines: `lines.COLUMNS`, of any origin; read several times, so keep them in Spark if that is dear.
        inputs: `tables.INPUTS`, handed through.
        late_after_ms: see `job.reconcile`.
        kept: frames that `Tables.release` gives back too.
        carried: what a state keeps beside its lines (`dedup.reconcile.state`).
    """
    with ThreadPoolExecutor(2) as aside:
        # Hardly ever does a line repeat another: what is right then is computed meanwhile.
        flows_of_lines = aside.submit(flows_of, lines)
        lives_of_lines = aside.submit(lives_of, lines)
        events, of_events = events_of(lines)
    every_flow = flows_of_lines.result() if events is lines else flows_of(events)
    totals = (F.count("*"), F.max("newest_ms"), F.sum("with_ids"), F.sum("with_replays"))
    others, lost = F.max("has_others"), F.sum("with_missing")
    number, now_ms, with_ids, with_replays, with_others, with_missing = every_flow.agg(
        *totals, others, lost
    ).collect()[0]
    if with_replays:
        every_flow = without_plans(every_flow)
    flows = few(every_flow, number)
    asked = _Asked(
        late_after_ms, now_ms or 0, bool(with_ids), bool(with_replays), bool(with_others), bool(with_missing)
    )
    late = carried.late if carried is not None else None
    lives = lives_of_lines.result()
    if lives is None:
        judged, ids = _judged(events, flows, late, asked)
        judged = judged.persist(StorageLevel.MEMORY_AND_DISK)
    else:
        apart = lives.apart(events)
        of_lives = without_plans(flows_of(apart))
        mapped = lives.flows(of_lives).localCheckpoint()
        late = lives.late(late, mapped) if late is not None else None
        judged, ids = _judged(apart, few(of_lives, number), late, asked)
        judged, ids = lives.together(judged, mapped), lives.ids_together(ids, mapped)
    steps = times.steps(events, flows)
    if carried is not None:
        steps = steps.unionByName(carried.steps)
    return Tables(
        inputs=inputs,
        flows=_flow_table(every_flow, judged, ids),
        findings=_finding_table(flows, judged, events, ids),
        hours=times.hours(events, flows),
        latency=times.latency(steps),
        id_caches=ids.caches,
        kept=(*kept, *of_events, *ids.kept, judged),
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    """The parameters of the judgement."""

    late_after_ms: int
    now_ms: int
    with_ids: bool
    with_replays: bool
    with_others: bool
    with_missing: bool


def _judged(
    events: DataFrame, flows: DataFrame, late: DataFrame | None, asked: _Asked
) -> tuple[DataFrame, Ids]:
    """`chains.judge` of these lines, and the results on their IDs; `late`: pieces of lines that are gone."""
    # Results that no line needs are not even planned.
    ids = ids_of(events) if asked.with_ids else none(events.sparkSession)
    parts = pieces.of_lines(events, flows, late_after_ms=asked.late_after_ms, now_ms=asked.now_ms)
    parts = parts.unionByName(pieces.of_disorder(out_of_order(events)))
    if asked.with_replays:
        parts = parts.unionByName(pieces.of_replays(events))
    if asked.with_others:
        parts = parts.unionByName(pieces.of_other_stores(events, flows))
    if asked.with_missing:
        parts = parts.unionByName(pieces.of_missing(events))
    if late is not None:
        parts = parts.unionByName(late)
    return chains.judge(intervals(parts, flows), flows), ids


def _flow_table(flows: DataFrame, judged: DataFrame, ids: Ids) -> DataFrame:
    of_kind = {"doubled": "repeated-id", "unknown": "unknown"}
    by_id = ids.repeated.groupBy("flow").agg(
        *(F.count_if(F.col("kind") == kind).alias(f"{name}_ids") for name, kind in of_kind.items())
    )
    counted = flows.join(chains.counts(judged), "flow", "left").join(by_id, "flow", "left")
    counts = {name: F.coalesce(name, F.lit(0)) for name in chains.COUNTED}
    for name in of_kind:
        counts[name] += F.coalesce(f"{name}_ids", F.lit(0))
    return counted.withColumns(counts).select(*(column.split()[0] for column in FLOWS.split(",")))


def _finding_table(flows: DataFrame, judged: DataFrame, events: DataFrame, ids: Ids) -> DataFrame:
    nothing = F.lit(None).cast("string")
    named = flows.select("flow", "bridge", "stream", "store", "address")
    by_position = chains.findings(judged).join(named, "flow").select(
        "kind", "bridge", "stream", "store", "address", "first", "last",
        (F.col("last") - F.col("first") + 1).alias("count"), nothing.alias("id"), nothing.alias("detail"),
    )  # fmt: skip
    by_id = ids.repeated.join(named.drop("store", "address"), "flow").select(
        "kind", "bridge", "stream", "store", "address",
        F.col("position").alias("first"), F.col("position").alias("last"),
        F.lit(1).alias("count"), "id", "detail",
    )  # fmt: skip
    return by_position.unionByName(by_id).unionByName(rejected(events))
