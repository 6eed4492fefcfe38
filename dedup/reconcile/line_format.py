"""One line of the delivery log in Spark: its keys, its columns, and the check for foreign lines."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from dedup.reconcile import foreign

#: A line's keys. `ids` stays JSON text: only `dedup.reconcile.ids` opens it, one row an ID.
SCHEMA: Final = StructType(
    [
        StructField("v", LongType()),
        StructField("side", StringType()),
        StructField("node", StringType()),
        StructField("node-id", StringType()),
        StructField("bridge", StringType()),
        StructField("lane", LongType()),
        StructField("stream", StringType()),
        StructField("address", StringType()),
        StructField("target", StringType()),
        StructField("store", StringType()),
        StructField("from", LongType()),
        StructField("upto", LongType()),
        StructField("runs", ArrayType(ArrayType(LongType()))),
        StructField("refused", ArrayType(LongType())),
        StructField("count", LongType()),
        StructField("ids", StringType()),
        StructField("events", ArrayType(LongType())),
        StructField("committed", LongType()),
        StructField("duplicates", LongType()),
        StructField("recovered", BooleanType()),
        StructField("verdict", StringType()),
        StructField("clock-offset", LongType()),
        StructField("known", ArrayType(ArrayType(LongType()))),
        StructField("unchecked", BooleanType()),
        StructField("session", StringType()),
        StructField("number", LongType()),
        # A session and a number.
        StructField("after", ArrayType(StringType())),
        StructField("replays", StringType()),
    ]
)
_CORRUPT: Final = "corrupt"
#: Separates a store from the number of its life, where it stands for that life (`dedup.reconcile.lives`).
LIFE: Final = "\0"


def parse(text: Column) -> Column:
    """A line's text as a struct of `SCHEMA`'s fields and `corrupt`, which is null where all could be read."""
    with_corrupt = StructType([*SCHEMA.fields, StructField(_CORRUPT, StringType())])
    options = {"columnNameOfCorruptRecord": _CORRUPT, "allowSingleQuotes": "false"}
    return F.from_json(text, with_corrupt, options)


def fields(parsed: str) -> list[Column]:
    """The keys of the struct column `parsed` as columns with underscores for hyphens, and `flow`."""
    neutral: dict[str, Column] = {
        "refused": F.array().cast("array<long>"),
        "count": F.lit(0),
        "lane": F.lit(0),
        "committed": F.lit(0),
        "duplicates": F.lit(0),
        "recovered": F.lit(False),
        "unchecked": F.lit(False),
        "node": F.lit(""),
        "node-id": F.lit(""),
        "target": F.lit(""),
        "events": F.array(F.lit(0), F.lit(0)).cast("array<long>"),
    }
    columns = []
    for name in (field.name for field in SCHEMA if field.name != "v"):
        column = F.col(f"{parsed}.`{name}`")
        if name in ("committed", "clock-offset"):
            column = _usable(column)
        if name in neutral:
            column = F.coalesce(column, neutral[name])
        if name == "known":
            # Null says that some were known and not which ones.
            none = F.array().cast("array<array<long>>")
            column = F.when(F.coalesce(F.col(f"{parsed}.duplicates"), F.lit(0)) == 0, none).otherwise(column)
        if name == "events":
            column = F.transform(column, lambda time: F.coalesce(_usable(time), F.lit(0)))
        if name == "ids":
            # The sender's IDs are not used: half of the bytes where there are many.
            column = F.when((F.col(f"{parsed}.side") == "received") & (column != "[]"), column)
        columns.append(column.alias(name.replace("-", "_")))
    return [*columns, flow(*(F.col(f"{parsed}.{name}") for name in ("bridge", "stream", "store")))]


def _usable(time: Column) -> Column:
    """A time in ms that can be computed with, else null: records may come with one in nanoseconds.

    No verdict uses a clock, so such a line counts, and only its times do not.
    """
    return F.when(time.between(-foreign.MOST_MS, foreign.MOST_MS), time)


def flow(bridge: Column, stream: Column, store: Column) -> Column:
    """The hash that stands for (bridge, stream, store). Of a million flows no two agree."""
    return F.xxhash64(bridge.isNull(), bridge, stream, store).alias("flow")


def plain_store(store: str) -> Column:
    """The store without the number of a life."""
    return F.substring_index(store, LIFE, 1)


def is_whole(text: Column) -> Column:
    """Whether a text can be one whole line.

    Spark's parser also takes the beginning of two lines that ran together, and bytes that are no text.
    """
    return text.startswith("{") & text.endswith("}") & ~text.contains('}{"v":') & F.is_valid_utf8(text)


def is_ours(parsed: str) -> Column:
    """Whether the struct column `parsed` is a line that can be read; `foreign.complaint` says why not."""

    def of(name: str) -> Column:
        return F.col(f"{parsed}.`{name}`")

    def within(column: Column, least: int, most: int) -> Column:
        return F.coalesce(column.between(least, most), F.lit(True))

    number = F.get(of("after"), F.lit(1)).try_cast("long")
    conditions = [of(_CORRUPT).isNull(), *(of(name).isNotNull() for name in foreign.REQUIRED)]
    conditions += [
        of("v") == foreign.VERSION,
        of("side").isin("sent", "received"),
        of("from").between(0, of("upto")),
        of("upto") <= foreign.MOST_UPTO,
        F.forall(
            of("runs"),
            lambda run: (
                (F.size(run) == 2) & (of("from") <= run[0]) & (run[0] <= run[1]) & (run[1] < of("upto"))
            ),
        ),
        F.coalesce(
            F.forall(of("refused"), lambda position: position.between(0, foreign.MOST_UPTO)), F.lit(True)
        ),
        F.coalesce(F.size(of("events")), F.lit(2)) == 2,
        F.coalesce(F.forall(of("known"), lambda run: F.size(run) == 2), F.lit(True)),
        of("after").isNull() | ((F.size(of("after")) == 2) & number.isNotNull()),
        *(within(of(name), 0, foreign.MOST_UPTO) for name in ("count", "duplicates")),
    ]
    return F.coalesce(reduce(and_, conditions), F.lit(False))
