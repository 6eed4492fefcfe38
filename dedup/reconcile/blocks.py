"""The parts of files that Spark's tasks read: the number of lines of each, and their place in the file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dedup.reconcile import files
from dedup.reconcile.files import LogFile
from dedup.reconcile.line_format import is_whole


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a file that one task reads."""

    #: As Spark names the file.
    uri: str
    #: Bytes of the whole file when Spark found it, and where in it the block starts.
    size: int
    start: int
    #: Number of its first row.
    row: int
    rows: int
    #: Rows that are no line.
    unreadable: int
    #: Whether its last row is none.
    ends_torn: bool
    #: The first row that is JSON, and yet no line; None: there is none.
    foreign: int | None
    #: Rows that may be what is left of a line: they begin as one, or with the zeros of a lost page.
    torn: int


@dataclass(frozen=True, slots=True)
class FileBlocks:
    """A file's blocks, ascending; none where it is empty."""

    file: LogFile
    blocks: Sequence[Block]

    @property
    def size(self) -> int:
        """Number of bytes read."""
        return self.blocks[0].size if self.blocks else self.file.size

    @property
    def lines(self) -> int:
        """Number of readable lines."""
        return sum(block.rows - block.unreadable for block in self.blocks)

    @property
    def unreadable(self) -> int:
        """Number of rows that are no line; without the last one of a file that is being written."""
        unreadable = sum(block.unreadable for block in self.blocks)
        return unreadable - (self.file.is_open and bool(self.blocks) and self.blocks[-1].ends_torn)

    @property
    def is_foreign(self) -> bool:
        """Whether it has rows, and none that is a line or was one."""
        return bool(self.blocks) and not self.lines and not any(block.torn for block in self.blocks)

    def with_bases(self) -> Iterator[tuple[Block, int]]:
        """Each block, and what added to a row's number makes it the line's number, from 1."""
        before = 0
        for block in self.blocks:
            yield block, before - block.row + 1
            before += block.rows


def blocks_of(spark: SparkSession, rows: DataFrame, found: Sequence[LogFile]) -> list[FileBlocks]:
    """The blocks of every file in `found`. Runs one job over all rows.

    Args:
        spark: the session.
        rows: `uri`, `size`, `block`, `row`, `is_line`, `other` (the text of what is no line).
        found: the files.
    """
    no_line = ~F.col("is_line")
    # Rows that look whole and are JSON; a torn line cannot be JSON by chance.
    is_object = is_whole(F.col("other")) & F.try_parse_json("other").isNotNull()
    counted = (
        rows.groupBy("uri", "block")
        .agg(
            F.max("size"),
            F.min("row"),
            F.count("*"),
            F.count_if(no_line),
            F.max_by(no_line, "row"),
            F.min(F.when(no_line & is_object, F.col("row"))),
            F.count_if(no_line & F.col("other").rlike(r"^[{\x00]")),
        )
        .collect()
    )
    paths = {uri: files.from_uri(spark, uri) for uri in {row[0] for row in counted}}
    blocks: defaultdict[str, list[Block]] = defaultdict(list)
    for uri, start, size, *rest in sorted(counted):
        blocks[paths[uri]].append(Block(uri, size, start, *rest))
    return [FileBlocks(file, blocks[file.path]) for file in found]
