"""The state after a run: the former state and the lines that the run has read, within the state's limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from dedup.reconcile import carried as carrying
from dedup.reconcile import collapse, id_memory
from dedup.reconcile.carried import Carried
from dedup.reconcile.events import events as events_of
from dedup.reconcile.files import LogFile
from dedup.reconcile.flows import flows as flows_of
from dedup.reconcile.flows import without_plans
from dedup.reconcile.lines import Read
from dedup.reconcile.lives import ids_of
from dedup.reconcile.local import table
from dedup.reconcile.log_names import ENDINGS, OPEN, stem
from dedup.reconcile.tables import INPUTS

#: A file as it was when it was read: `tables.INPUTS`, and when it was written last.
FILES: Final = f"{INPUTS}, modified_ms long"
_IN_DOUBT: Final = (
    "a line within this range came after its log had been put together: a copy, or a double;"
    " without --state it can be told"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a state."""

    #: Newest lines of each flow and side that are kept as they are: of a line that comes again it is known
    #: that it is the same one. 100,000 lines of 1,000 messages are 100 million messages.
    lines: int = 100_000
    #: Newest accepted IDs that are remembered per (store, address): a double further apart is not found.
    ids: int = 1_000_000
    #: Files that are gone, of which is known what was in them: the newest of them.
    files: int = 100_000


@dataclass(frozen=True, slots=True)
class Batch:
    """The files and lines of one run."""

    #: All files that exist now.
    found: Sequence[LogFile]
    #: The files that were read.
    unread: Sequence[LogFile]
    read: Read

    def superseded(self) -> list[str]:
        """Paths under which an earlier run may have read a part of what was read now, unless they are there
        still."""
        unread = {file.shown for file in self.unread}
        others = {file.shown for file in self.found} - unread
        return [name for file in unread for name in _names(file) if name not in others]

    def open_paths(self) -> list[str]:
        """The paths of files that will be read again."""
        return [file.shown for file in self.found if file.is_open]


@dataclass(frozen=True, slots=True)
class Known:
    """The content of a state's version: `collapse.STATE_COLUMNS`, `FILES`, and the carried sums."""

    lines: DataFrame | None
    files: DataFrame
    carried: Carried | None


@contextmanager
def absorbed(
    spark: SparkSession, before: Known, batch: Batch, late_after_ms: int, limits: Limits, scratch: str
) -> Iterator[Known]:
    """`before` and `batch` together; frames kept in Spark for it are released at the end.

    Args:
        spark: the session.
        before: what was known.
        batch: what was read.
        late_after_ms: see `carried.Carried.with_lines`.
        limits: of what is known then.
        scratch: a path for one Parquet table, which the result is read from.
    """
    work = _Work(spark, before, batch, limits)
    try:
        files, copies = work.files()
        events, carried = work.events(copies)
        # Most of what follows looks at the lines several times, and most often there is nothing to do.
        events.write.parquet(scratch)
        events = spark.read.parquet(scratch)
        events, carried = work.with_fewer_ids(events, carried)
        events, carried = work.with_fewer_lines(events, carried, late_after_ms)
        yield Known(events, files, carried)
    finally:
        for frame in work.kept:
            frame.unpersist()


class _Work:
    """The steps of `absorbed`."""

    def __init__(self, spark: SparkSession, before: Known, batch: Batch, limits: Limits) -> None:
        self._spark = spark
        self._before = before
        self._batch = batch
        self._limits = limits
        #: Frames to be given back.
        self.kept: list[DataFrame] = []

    def files(self) -> tuple[DataFrame, list[str]]:
        """`FILES`, and the paths of files that were read whose very bytes were read before."""
        read = {row.path: row for row in self._batch.read.inputs.collect()}
        hashes = [row.sha256 for row in read.values()]
        known = self._before.files.where(F.col("sha256").isin(hashes)).select("sha256").distinct().collect()
        seen = {row.sha256 for row in known}
        again = self._read_before(read)
        copies = [path for path, row in read.items() if row.sha256 in seen or path in again]
        rows = [(*read[file.shown], file.modified_ms) for file in self._batch.unread]
        before = self._before.files.where(~F.col("path").isin(self._batch.superseded()))
        return self._without_oldest(before.unionByName(table(self._spark, FILES, rows))), copies

    def _read_before(self, read: Mapping[str, Row]) -> set[str]:
        """Of the files that were read, by path, those that were read when they were compressed otherwise:
        they have the same lines.
        """
        names = {name: path for path in read for name in _names(path) if name != path}
        before = self._before.files.where(F.col("path").isin([*names])).collect()
        complete = [row for row in before if not row.path.endswith(OPEN)]
        return {names[row.path] for row in complete if _content(row) == _content(read[names[row.path]])}

    def _without_oldest(self, files: DataFrame) -> DataFrame:
        there = F.col("path").isin([file.shown for file in self._batch.found])
        newest = Window.partitionBy("is_there").orderBy(F.desc("modified_ms"), "path")
        ranked = files.withColumn("is_there", there).withColumn("rank", F.row_number().over(newest))
        return ranked.where(F.col("is_there") | (F.col("rank") <= self._limits.files)).drop(
            "is_there", "rank"
        )

    def events(self, copies: Sequence[str]) -> tuple[DataFrame, Carried | None]:
        """All lines, equal ones once; and the carried sums, with the ranges that are in doubt now."""
        fresh = self._batch.read.lines.where(~F.col("path").isin(list(copies)))
        fresh = fresh.withColumn("is_merged", F.lit(False))
        carried = self._before.carried
        lines = self._before.lines
        if lines is not None:
            again = set(self._batch.superseded()) - {path for copy in copies for path in _names(copy)}
            if carried is not None:
                fresh, carried = self._told_apart(fresh, lines, carried)
            lines = lines.where(F.col("is_merged") | ~F.col("path").isin(sorted(again))).unionByName(fresh)
        events, kept = events_of(fresh if lines is None else lines)
        self.kept += kept
        return events.select(*collapse.STATE_COLUMNS), carried

    def _told_apart(self, fresh: DataFrame, lines: DataFrame, carried: Carried) -> tuple[DataFrame, Carried]:
        """New lines within lines that were put together may be copies: their messages are not counted again.

        Received ones count as unknown, because they may be doubles. Sent ones stay, for the positions that
        they name: those are a set.
        """
        whole = lines.where("is_merged AND verdict IS NULL AND from < upto").select(
            "flow", "side", F.col("from").alias("whole_from"), F.col("upto").alias("whole_upto")
        )
        within = (F.col("whole_from") <= F.col("from")) & (F.col("upto") <= F.col("whole_upto"))
        covering = fresh.where("verdict IS NULL AND from < upto").join(whole, ["flow", "side"]).where(within)
        again = covering.dropDuplicates(["path", "line_number"]).select(*fresh.columns)
        again = again.persist(StorageLevel.MEMORY_AND_DISK)
        self.kept.append(again)
        if again.isEmpty():
            return fresh, carried
        findings = again.where("side = 'received'").select(
            F.lit("unknown").alias("kind"), "bridge", "stream", "store", "address",
            F.col("from").alias("first"), (F.col("upto") - 1).alias("last"), "count",
            F.lit(None).cast("string").alias("id"), F.lit(_IN_DOUBT).alias("detail"),
        )  # fmt: skip
        rest = fresh.join(again.select("path", "line_number"), ["path", "line_number"], "left_anti")
        sent = again.where("side = 'sent'").withColumn("count", F.lit(0).cast("long"))
        return rest.unionByName(sent), carried.with_findings(findings)

    def with_fewer_ids(self, events: DataFrame, carried: Carried | None) -> tuple[DataFrame, Carried | None]:
        """The lines without the oldest IDs, where an address has too many. Repeated IDs stay findings."""
        if not id_memory.is_too_much(events, self._limits.ids):
            return events, carried
        old = id_memory.forgotten(events, self._limits.ids).persist(StorageLevel.MEMORY_AND_DISK)
        found = ids_of(events)
        self.kept += [old, *found.kept]
        names = events.select("flow", "bridge", "stream").distinct()
        findings = found.repeated.join(names, "flow").select(
            "kind", "bridge", "stream", "store", "address",
            F.col("position").alias("first"), F.col("position").alias("last"),
            F.lit(1).cast("long").alias("count"), "id", "detail",
        )  # fmt: skip
        where = ["store", "address"]
        number = old.groupBy(*where).agg(F.sum("accepted").alias("accepted"))
        caches = number.join(found.caches.drop("accepted"), where, "left")
        known = carried or carrying.nothing(self._spark)
        return id_memory.without(events, old), known.with_findings(findings).with_forgotten(caches)

    def with_fewer_lines(
        self, events: DataFrame, carried: Carried | None, late_after_ms: int
    ) -> tuple[DataFrame, Carried | None]:
        """The oldest lines put together, where a side of a flow has too many."""
        number = events.where(~F.col("is_merged")).groupBy("flow", "side").count()
        if number.where(F.col("count") > self._limits.lines).isEmpty():
            return events, carried
        aged = collapse.aged(events, lines_kept=self._limits.lines, open_paths=self._batch.open_paths())
        aged = aged.persist(StorageLevel.MEMORY_AND_DISK)
        flows = flows_of(events)
        self.kept += [aged, flows]
        known = carried or carrying.nothing(self._spark)
        return collapse.collapsed(aged), known.with_lines(
            aged.where("is_old"), without_plans(flows), late_after_ms=late_after_ms
        )


def _names(path: str) -> tuple[str, ...]:
    """A file's names while it is written, when it is complete, and when it was compressed."""
    return tuple(stem(path) + ending for ending in ENDINGS)


def _content(row: Row) -> tuple[int, int]:
    return row.lines, row.unreadable
