"""The facts that collapsed lines have lost, kept beside them and added to the tables again."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from dedup.reconcile import pieces, times
from dedup.reconcile.local import table
from dedup.reconcile.pieces import Of
from dedup.reconcile.tables import FINDINGS, FLOWS, ID_CACHES, Tables

#: Columns of each frame of `Carried`.
SCHEMAS: Final = {
    "late": "flow long, of int, first long, end long",
    "steps": "bridge string, stream string, address string, ms long, messages long, most long",
    "spans": "bridge string, stream string, store string, first_ms long, last_ms long",
    "findings": FINDINGS,
    "caches": ID_CACHES,
}
_FLOW: Final = ("bridge", "stream", "store")


@dataclass(frozen=True, slots=True)
class Carried:
    """Sums over lines that were collapsed. Each frame has its columns in `SCHEMAS`."""

    #: Pieces of what was delivered late; by the `late_after_ms` of the run that put the lines together.
    late: DataFrame
    #: Delivery times, as `times.steps`.
    steps: DataFrame
    #: First and last event of received lines.
    spans: DataFrame
    #: IDs accepted twice whose lines are forgotten; and ranges of which it is unknown whether they came
    #: twice.
    findings: DataFrame
    #: `accepted`: IDs that are forgotten; `repeated`, `needed`: as known when they were.
    caches: DataFrame

    def with_lines(self, old: DataFrame, flows: DataFrame, *, late_after_ms: int) -> Carried:
        """With the sums of `old` lines, which are about to be collapsed.

        Lines that already were say nothing here: their times are 0.
        """
        received = old.where(F.col("side") == "received")
        late = pieces.of_lines(received, flows, late_after_ms=late_after_ms, now_ms=0)
        late = late.where(F.col("of") == int(Of.LATE)).unionByName(self.late)
        steps = times.steps(received, flows).unionByName(self.steps)
        oldest, newest = F.array_min("events"), F.array_max("events")
        spans = received.where(F.col("bridge").isNotNull()).select(
            *_FLOW, F.when(oldest > 0, oldest).alias("first_ms"), F.when(newest > 0, newest).alias("last_ms")
        )
        by_flow = spans.unionByName(self.spans).groupBy(*_FLOW)
        return replace(
            self,
            late=_joined(late),
            steps=steps.groupBy("bridge", "stream", "address", "ms").agg(
                F.sum("messages").alias("messages"), F.max("most").alias("most")
            ),
            spans=by_flow.agg(F.min("first_ms").alias("first_ms"), F.max("last_ms").alias("last_ms")),
        )

    def with_findings(self, findings: DataFrame) -> Carried:
        """With these findings too, each once."""
        return replace(self, findings=self.findings.unionByName(findings).distinct())

    def with_forgotten(self, caches: DataFrame) -> Carried:
        """With forgotten IDs: `tables.ID_CACHES`, of which `accepted` are forgotten."""
        both = self.caches.unionByName(caches).groupBy("store", "address")
        return replace(
            self,
            caches=both.agg(
                F.sum("accepted").alias("accepted"),
                *(F.max(name).alias(name) for name in ("repeated", "needed")),
            ),
        )

    def added_to(self, tables: Tables) -> Tables:
        """The tables, with the facts only known here. `late` and `steps` are in them already (`job.compare`).

        Runs a small job.
        """
        more, findings = self.findings, tables.findings
        if not more.isEmpty():
            named, key = more.columns, ["subject", "kind", "place"]
            keyed, known = (
                each.withColumns({"subject": _subject(*_FLOW, "address", "id"), "place": _place()})
                for each in (more, findings)
            )
            # What is known now may tell of a later first place: an ID's oldest may be forgotten.
            findings = known.join(F.broadcast(keyed), key, "left_anti").select(*named).unionByName(more)
            more = keyed.join(known, key, "left_anti").select(*named)
        return replace(
            tables,
            flows=self._flows(tables.flows, more),
            findings=findings,
            id_caches=self._caches(tables.id_caches),
        )

    def _flows(self, flows: DataFrame, more: DataFrame) -> DataFrame:
        unknown = more.where("kind = 'unknown'").groupBy(_subject(*_FLOW))
        counted = unknown.agg(F.sum("count").alias("more_unknown"))
        spans = self.spans.select(
            _subject(*_FLOW), F.col("first_ms").alias("span_first"), F.col("last_ms").alias("span_last")
        )
        whole = flows.withColumn("subject", _subject(*_FLOW)).join(counted, "subject", "left")
        changed = whole.join(spans, "subject", "left").withColumns(
            {
                "unknown": F.col("unknown") + F.coalesce("more_unknown", F.lit(0)),
                "first_ms": F.least("first_ms", "span_first"),
                "last_ms": F.greatest("last_ms", "span_last"),
            }
        )
        return changed.select(*(column.split()[0] for column in FLOWS.split(", ")))

    def _caches(self, caches: DataFrame) -> DataFrame:
        both = caches.unionByName(self.caches).groupBy("store", "address")
        return both.agg(
            F.sum("accepted").alias("accepted"), *(F.max(name).alias(name) for name in ("repeated", "needed"))
        )


def nothing(spark: SparkSession) -> Carried:
    """The carried sums before any line was collapsed."""
    return Carried(**{field.name: table(spark, SCHEMAS[field.name], []) for field in fields(Carried)})


def _joined(late: DataFrame) -> DataFrame:
    """The ranges, those that touch or overlap merged."""
    by_first = Window.partitionBy("flow", "of").orderBy("first", "end")
    before = F.max("end").over(by_first.rowsBetween(Window.unboundedPreceding, -1))
    until_here = by_first.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        late.withColumn("is_new", F.coalesce((F.col("first") > before).cast("int"), F.lit(1)))
        .withColumn("island", F.sum("is_new").over(until_here))
        .groupBy("flow", "of", "island")
        .agg(F.min("first").alias("first"), F.max("end").alias("end"))
        .drop("island")
    )


def _place() -> Column:
    """A finding's first position, never null."""
    return F.coalesce("first", F.lit(-1)).alias("place")


def _subject(*names: str) -> Column:
    """Text that stands for these columns, of which some may be null."""
    return reduce(
        F.concat,
        [
            F.coalesce(F.concat(F.length(name).cast("string"), F.lit(":"), F.col(name)), F.lit("-"))
            for name in names
        ],
    ).alias("subject")
