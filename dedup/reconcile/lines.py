"""Reads the delivery logs: a row for each line, with its place; unreadable lines are counted or named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from dedup.reconcile import files, foreign, local
from dedup.reconcile.blocks import FileBlocks, blocks_of
from dedup.reconcile.errors import BadInput
from dedup.reconcile.files import LogFile
from dedup.reconcile.line_format import SCHEMA, fields, is_ours, is_whole, parse
from dedup.reconcile.tables import INPUTS

#: Number of attempts to find the files again when a node gives one its final name meanwhile.
ATTEMPTS: Final = 5

#: The columns of `Read.lines`: a line's keys with underscores for hyphens, then
#: `flow`: hash of (bridge, stream, store), so that shuffles carry 8 bytes instead of three names;
#: `path`, `log_node` (the node in the file's name), `file_number`, `line_number` (from 1): where it stands.
COLUMNS: Final = (
    *(field.name.replace("-", "_") for field in SCHEMA if field.name != "v"),
    "flow", "path", "log_node", "file_number", "line_number",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Read:
    """The logs, read once and kept in Spark until `release`."""

    #: `COLUMNS`.
    lines: DataFrame
    #: `tables.INPUTS`.
    inputs: DataFrame
    #: The frames kept in Spark.
    kept: tuple[DataFrame, ...]
    #: As `files.Found.left_out`.
    left_out: tuple[str, ...] = ()

    def release(self) -> None:
        """Release what is kept; the frames must not be used any more."""
        for frame in self.kept:
            frame.unpersist()


def read(spark: SparkSession, paths: Sequence[str]) -> Read:
    """Every line of the logs at `paths`: files, directories or patterns, on any file system Hadoop knows.

    The files are read once, here; later work uses what is kept of them.

    Raises:
        BadInput: nothing to read, a line of another version, or JSON that is no line of a delivery log.
    """
    gone = ""
    for _ in range(ATTEMPTS):
        try:
            found = files.find(spark, paths)
            return replace(_read(spark, found.files), left_out=tuple(found.left_out))
        except FileNotFoundError as error:
            gone = str(error)
    raise BadInput(f"{gone}: was renamed or deleted at each of {ATTEMPTS} attempts to read the logs")


def _read(spark: SparkSession, found: Sequence[LogFile]) -> Read:
    """Read these files. Raises: FileNotFoundError, BadInput."""
    with files.missing_told():
        kept = _parsed(spark, found).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            blocks = blocks_of(spark, kept, found)
            _refuse_foreign(kept, blocks)
            inputs = [_input(spark, each) for each in blocks]
        except BaseException:
            kept.unpersist()
            raise
    lines = kept.where("is_line").join(F.broadcast(_places(spark, blocks)), ["uri", "block"])
    lines = lines.withColumn("line_number", F.col("row") + F.col("base")).select(*COLUMNS)
    return Read(lines, local.table(spark, INPUTS, inputs), (kept,))


def _parsed(spark: SparkSession, found: Sequence[LogFile]) -> DataFrame:
    text = F.col("value")
    raw = (
        spark.read.option("ignoredPathSegmentRegex", "")  # a node's name may begin with _ or .
        .text([file.escaped for file in found])
        .select(
            "value",
            F.col("_metadata.file_path").alias("uri"),
            F.col("_metadata.file_size").alias("size"),
            F.col("_metadata.file_block_start").alias("block"),
            # Ascends by one from line to line of a block.
            F.monotonically_increasing_id().alias("row"),
            F.when(is_whole(text), parse(text)).alias("line"),
        )
        .withColumn("is_line", is_ours("line"))
    )
    other = F.when(~F.col("is_line"), text).alias("other")
    return raw.select("uri", "size", "block", "row", "is_line", other, *fields("line"))


def _refuse_foreign(kept: DataFrame, blocks: Sequence[FileBlocks]) -> None:
    """Raises BadInput where no line of a file is a delivery log's, or one is JSON and of no known version."""
    for each in blocks:
        if each.is_foreign:
            raise BadInput(f"{each.file.shown}: none of its {each.unreadable} lines is one of a delivery log")
        for block, base in each.with_bases():
            if block.foreign is not None:
                row = kept.where(F.col("row") == block.foreign).select("other").first()
                assert row is not None, block
                place = f"{each.file.shown}: line {block.foreign + base}"
                raise BadInput(f"{place}: {foreign.complaint(row[0])}")


def _input(spark: SparkSession, found: FileBlocks) -> tuple[object, ...]:
    """A row of `tables.INPUTS`. Raises: FileNotFoundError, BadInput."""
    sha256 = files.sha256(spark, found.file, found.size)
    return found.file.shown, sha256, found.lines, found.unreadable, found.size


def _places(spark: SparkSession, blocks: Sequence[FileBlocks]) -> DataFrame:
    """For every block, its file, and the offset from a row's number to its line number."""
    rows = [
        (block.uri, block.start, each.file.shown, each.file.node, each.file.number, base)
        for each in blocks
        for block, base in each.with_bases()
    ]
    schema = "uri string, block long, path string, log_node string, file_number long, base long"
    return local.table(spark, schema, rows)
