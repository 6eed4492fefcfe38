"""Stores that were restored from a backup: the lines of each life of their journal are compared alone.

A life is compared as a store of its own, which has all lines that tell of it: the received ones that its
journal held, the sent ones, and those that name no session. Then the verdicts of the lives are put together.
Which of them is there now no line says for certain, so a message is lost or doubled if it is in each of them,
and unknown if it is in some.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dedup.reconcile import chains, ids, local
from dedup.reconcile.ids import Ids
from dedup.reconcile.line_format import LIFE, flow, plain_store
from dedup.reconcile.lineage import Life, Session, lives
from dedup.reconcile.sweep import between, both_ends

#: Verdicts that hold where they hold in each life, and are unknown where they hold in some.
_IN_EACH: Final = ("lost", "doubled", "unsent")
#: Verdicts that hold where they hold in one life.
_IN_ANY: Final = ("sent", "unknown")
_IN_DOUBT: Final = (
    "accepted before at another place in some of the lives of a store that was put back from a backup"
)


def lives_of(lines: DataFrame) -> Lives | None:
    """The lives of the stores that have several; None: each has one. Runs a job."""
    accepted = F.when(F.col("side") == "received", F.col("store"))
    number = F.when(accepted.isNotNull(), F.col("number"))
    rows = (
        lines.where("session IS NOT NULL")
        .groupBy("session")
        .agg(
            F.max("after").alias("after"),
            F.max(accepted).alias("store"),
            F.min(number).alias("first"),
            F.max(number).alias("last"),
            F.max(F.when(accepted.isNotNull(), F.col("committed"))).alias("committed"),
        )
        .collect()
    )
    sessions: dict[str, Session] = {}
    of_store = defaultdict[str, list[str]](list)
    for row in rows:
        after = (row.after[0], int(row.after[1])) if row.after is not None else None
        sessions[row.session] = Session(row.session, after, row.first, row.last, row.committed or 0)
        if row.store is not None:
            of_store[row.store].append(row.session)
    found = {store: lives(_with_past(names, sessions)) for store, names in of_store.items()}
    several = {store: each for store, each in found.items() if len(each) > 1}
    return Lives(several) if several else None


def _with_past(names: Sequence[str], sessions: Mapping[str, Session]) -> list[Session]:
    """The sessions of these names, and all sessions that they go back to."""
    found: dict[str, Session] = {}
    wanted = list(names)
    while wanted:
        name = wanted.pop()
        if name in sessions and name not in found:
            session = found[name] = sessions[name]
            wanted += [session.after[0]] if session.after is not None else []
    return list(found.values())


def ids_of(lines: DataFrame) -> Ids:
    """As `ids.ids`, for stores with several lives too."""
    found = lives_of(lines)
    if found is None:
        return ids.ids(lines)
    apart = found.apart(lines)
    flows = found.flows(apart.select("flow", "bridge", "stream", "store").distinct()).localCheckpoint()
    return found.ids_together(ids.ids(apart), flows)


@dataclass(frozen=True, slots=True)
class Lives:
    """The lives of each store that has several."""

    of: Mapping[str, Sequence[Life]]

    def apart(self, lines: DataFrame) -> DataFrame:
        """`lines`, with each life as a store; lines of several lives are there for each of them."""
        spark = lines.sparkSession
        known = local.table(
            spark,
            "store string, life long",
            [(store, life) for store, each in self.of.items() for life in range(len(each))],
        )
        bounds = local.table(
            spark,
            "store string, life long, session string, life_upto long",
            [
                (store, number, session, upto)
                for store, each in self.of.items()
                for number, life in enumerate(each)
                for session, upto in life.upto.items()
            ],
        )
        keys = ["store", "life", "session"]
        each = lines.join(F.broadcast(known), "store", "left").join(F.broadcast(bounds), keys, "left")
        told_apart = F.col("life").isNotNull() & (F.col("side") == "received") & F.col("session").isNotNull()
        each = each.where(~told_apart | F.coalesce(F.col("number") <= F.col("life_upto"), F.lit(False)))
        store = F.when(F.col("life").isNotNull(), F.concat("store", F.lit(LIFE), F.col("life"))).otherwise(
            F.col("store")
        )
        each = each.withColumn("store", store)
        of_life = flow(F.col("bridge"), F.col("stream"), F.col("store"))
        return each.withColumn("flow", of_life).select(*lines.columns).localCheckpoint()

    def flows(self, apart: DataFrame) -> DataFrame:
        """`flow` of a life, the flow `whole` that it is of, and what the life counts for.

        Args:
            apart: a row a flow of the lines that are apart.
        """
        rows = []
        for store, each in self.of.items():
            firm = sum(life.is_firm for life in each)
            newest = max(
                (at for at, life in enumerate(each) if life.is_firm), key=lambda at: each[at].committed_ms
            )
            rows += [
                (f"{store}{LIFE}{at}", life.is_firm, at == newest, firm, len(each))
                for at, life in enumerate(each)
            ]
        schema = "store string, is_firm boolean, is_newest boolean, firm long, lives long"
        known = local.table(apart.sparkSession, schema, rows)
        whole = flow(F.col("bridge"), F.col("stream"), plain_store("store"))
        counted = ("is_firm", "is_newest", "firm", "lives")
        return apart.join(F.broadcast(known), "store").select("flow", whole.alias("whole"), *counted)

    def late(self, late: DataFrame, flows: DataFrame) -> DataFrame:
        """`Carried.late`, each piece for each life of its flow; `flows`: of `Lives.flows`."""
        each = flows.select(F.col("whole").alias("flow"), F.col("flow").alias("of_life"))
        found = late.join(F.broadcast(each), "flow", "left")
        return found.withColumn("flow", F.coalesce("of_life", "flow")).drop("of_life")

    def together(self, judged: DataFrame, flows: DataFrame) -> DataFrame:
        """As `chains.judge`: the verdicts of all lives of a flow as those of the flow."""
        judged = judged.localCheckpoint()
        of_lives = judged.join(F.broadcast(flows), "flow")
        others = judged.join(F.broadcast(flows.select("flow")), "flow", "left_anti")
        return others.unionByName(_put_together(of_lives)).localCheckpoint()

    def ids_together(self, of_lives: Ids, flows: DataFrame) -> Ids:
        """As `ids.ids`: an ID that was accepted twice in some of the lives only is unknown."""
        place = ["store", "address", "id", "position"]
        named = of_lives.repeated.join(F.broadcast(flows.select("flow", "whole", "lives")), "flow", "left")
        repeated = (
            named.withColumn("flow", F.coalesce("whole", "flow"))
            .withColumn("store", plain_store("store"))
            .groupBy("flow", *place)
            .agg(F.count("*").alias("times"), F.max("lives").alias("lives"), F.min("detail").alias("detail"))
        )
        in_each = F.coalesce(F.col("times") >= F.col("lives"), F.lit(True))
        repeated = repeated.select(
            "flow", *place,
            F.when(in_each, F.lit("repeated-id")).otherwise("unknown").alias("kind"),
            F.when(in_each, F.col("detail")).otherwise(_IN_DOUBT).alias("detail"),
        ).localCheckpoint()  # fmt: skip
        by_store = of_lives.caches.withColumn("store", plain_store("store")).groupBy("store", "address")
        caches = by_store.agg(*(F.max(name).alias(name) for name in ("accepted", "repeated", "needed")))
        return replace(of_lives, caches=caches, repeated=repeated)


def _put_together(of_lives: DataFrame) -> DataFrame:
    """A sweep over the lives' intervals: the number of lives that give each judgement of a position."""
    counts = {
        name: F.col(name) & (F.lit(True) if name == "doubled" else F.col("is_firm"))
        if name in (*_IN_EACH, *_IN_ANY)
        else F.col(name) & F.col("is_newest")
        for name in chains.COUNTED
    }
    points = of_lives.select(
        F.col("whole").alias("flow"),
        "firm",
        "lives",
        *(counts[name].cast("int").alias(name) for name in chains.COUNTED),
        (F.col("received") & F.col("is_firm")).cast("int").alias("in_a_life"),
        both_ends(),
    )
    changes = {name: F.col(name) * F.col("change") for name in (*chains.COUNTED, "in_a_life")}
    swept = between(points, ("flow", "firm", "lives"), changes)
    said = {name: F.col(name) > 0 for name in chains.COUNTED}
    all_lives = {name: F.col("lives") if name == "doubled" else F.col("firm") for name in _IN_EACH}
    for name in _IN_EACH:
        said["unknown"] = said["unknown"] | ((F.col(name) > 0) & (F.col(name) < all_lives[name]))
        said[name] = F.col(name) >= all_lives[name]
    # Another life had it, so it is on its way only where the source still has it, which no line says.
    lost_with_a_life = said["open"] & (F.col("in_a_life") > 0)
    said["unknown"], said["open"] = said["unknown"] | lost_with_a_life, said["open"] & ~lost_with_a_life
    verdicts = (said[name].alias(name) for name in chains.COUNTED)
    found = swept.select("flow", F.lit(0).cast("long").alias("range"), "first", "end", *verdicts)
    return found.where(F.array_contains(F.array(*chains.COUNTED), True))
