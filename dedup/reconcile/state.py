"""The state of earlier runs: with it a run reads new files only, and finds what a run over all of them finds.

A state is a directory of versions (`dedup.reconcile.versions`), each with Parquet tables: the newest lines as
they were read, older ones collapsed (`collapse`), and the facts that those have lost (`carried`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from dedup.reconcile import files
from dedup.reconcile import lines as log_lines
from dedup.reconcile.absorb import FILES, Batch, Known, Limits, absorbed
from dedup.reconcile.carried import Carried
from dedup.reconcile.comparison import compare
from dedup.reconcile.errors import BadInput
from dedup.reconcile.lines import COLUMNS
from dedup.reconcile.local import table
from dedup.reconcile.tables import Tables
from dedup.reconcile.versions import Versions

#: Version of what is in the directory.
VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class State:
    """A version of a state. Its frames are read from its files, or empty."""

    spark: SparkSession
    versions: Versions
    #: 0: nothing was read yet.
    number: int
    #: `collapse.STATE_COLUMNS`.
    lines: DataFrame | None
    #: `FILES`.
    files: DataFrame
    #: None: no line was put together yet.
    carried: Carried | None
    #: Files that look like a log's, and were not read in this run.
    left_out: tuple[str, ...] = ()

    def tables(self, *, late_after_ms: int) -> Tables:
        """The tables of all lines that were read."""
        assert self.lines is not None
        inputs = self.files.drop("modified_ms")
        lines = self.lines.select(*COLUMNS)
        found = compare(lines, inputs, late_after_ms=late_after_ms, carried=self.carried)
        found = found if self.carried is None else self.carried.added_to(found)
        return replace(found, left_out=self.left_out)


def reconcile(spark: SparkSession, logs: Sequence[str], *, late_after_ms: int, state: str) -> Tables:
    """See `job.reconcile`; `state` is made if it is not there. One run at a time may use it.

    Raises:
        BadInput: see `lines.read`; or `state` was written by another version, or by another run meanwhile.
    """
    now = advance(load(spark, state), logs, late_after_ms=late_after_ms)
    return now.tables(late_after_ms=late_after_ms)


def load(spark: SparkSession, directory: str) -> State:
    """The newest version of a state.

    Raises:
        BadInput: it was written by another version of this tool.
    """
    versions = Versions(spark, directory)
    number = versions.newest()
    if number == 0:
        return State(spark, versions, 0, None, table(spark, FILES, []), None)
    note = versions.note(number)
    if note.get("v") != VERSION:
        raise BadInput(
            f"{directory}: this version of core-bridge reads states of version {VERSION};"
            f" found {note.get('v')}. Name another directory: it begins anew, from all logs that are there"
        )
    place = versions.place(number)
    carried = None
    if note["carries"]:
        names = [field.name for field in fields(Carried)]
        carried = Carried(**{name: spark.read.parquet(f"{place}/{name}") for name in names})
    lines, known = (spark.read.parquet(f"{place}/{name}") for name in ("lines", "files"))
    return State(spark, versions, number, lines, known, carried)


def advance(
    state: State,
    logs: Sequence[str],
    *,
    late_after_ms: int,
    limits: Limits | None = None,
    complete: Collection[str] | None = None,
) -> State:
    """Read the files at `logs` that are new or have changed, and save the result as a new version.

    Returns `state` with the same number where there is nothing new.

    Args:
        state: the newest version.
        logs: files, directories or patterns.
        late_after_ms: see `job.reconcile`; what is put together in this run keeps it.
        limits: other ones than a report's.
        complete: take no complete files but these (`LogFile.path`), and those that are still being written;
            there may be none. None: take all.

    Raises:
        BadInput: see `lines.read`; or another run has saved this version meanwhile. `state` stays the newest.
    """
    for _ in range(log_lines.ATTEMPTS):
        there = files.find(state.spark, logs, may_be_empty=state.number > 0 or complete is not None)
        found, state = there.files, replace(state, left_out=tuple(there.left_out))
        known = {row.path: (row.bytes, row.modified_ms) for row in state.files.collect()}
        wanted = [each for each in found if complete is None or each.is_open or each.path in complete]
        unread = [each for each in wanted if known.get(each.shown) != (each.size, each.modified_ms)]
        if not unread:
            return state
        try:
            read = log_lines.read(state.spark, [each.path for each in unread])
        except BadInput:
            # A node may have given a file its final name meanwhile: then it is looked for again.
            now = files.find(state.spark, logs, may_be_empty=True)
            if {each.path for each in unread} <= {each.path for each in now.files}:
                raise
            continue
        try:
            saved = _save(state, Batch(found, unread, read), late_after_ms, limits or Limits())
            return replace(saved, left_out=state.left_out)
        finally:
            read.release()
    raise BadInput(f"{', '.join(logs)}: files are renamed or deleted at every attempt to read them")


def _save(state: State, batch: Batch, late_after_ms: int, limits: Limits) -> State:
    """Write the next version to disk."""
    number = state.number + 1
    place = state.versions.begin(number)
    before = Known(state.lines, state.files, state.carried)
    scratch = f"{place}/read"
    with absorbed(state.spark, before, batch, late_after_ms, limits, scratch) as new:
        new.files.write.parquet(f"{place}/files")
        assert new.lines is not None
        new.lines.sortWithinPartitions("flow", "side", "from").write.parquet(f"{place}/lines")
        for field in fields(Carried) if new.carried is not None else ():
            getattr(new.carried, field.name).write.parquet(f"{place}/{field.name}")
        state.versions.discard(number, "read")
        state.versions.commit(number, {"v": VERSION, "carries": new.carried is not None})
    return load(state.spark, state.versions.name)
