"""The Python data source through which Spark reads either end: one task for each range, Arrow batches out."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from dedup.reconcile.audit import kafka_source, node_source, records
from dedup.reconcile.audit.plan import Access, Plan, Range, Role, letter_ranges, source_ranges, target_ranges
from dedup.reconcile.audit.records import SCHEMA, Record, Row

FORMAT: Final = "core-bridge-audit"

_ranges: Final = msgspec.json.Decoder(list[Range])
_access: Final = msgspec.json.Decoder(Access)


def read(spark: SparkSession, plan: Plan, role: Role) -> DataFrame:
    """One end as the plan describes it: a row a record (`records.SCHEMA`).

    For ``letters`` a row is a refused position: `place` is the number of its stream.
    """
    spark.dataSource.register(Records)
    ranges, access = {
        "source": (source_ranges, plan.source),
        "target": (target_ranges, plan.target),
        "letters": (letter_ranges, plan.target),
    }[role]
    pieces = ranges(plan)
    if not pieces:
        return spark.createDataFrame(records.table([]))
    reading = spark.read.format(FORMAT).option("access", msgspec.json.encode(access).decode())
    reading = reading.option("ranges", msgspec.json.encode(pieces).decode())
    if role == "letters":
        streams = {stream.identity: number for number, stream in enumerate(plan.streams)}
        reading = reading.option("bridge", plan.bridge).option("streams", json.dumps(streams))
    return reading.load()


class Records(DataSource):
    """Records of one end. Its options are texts without secrets: where, what, and the factory to call."""

    @classmethod
    def name(cls) -> str:
        """The name for ``spark.read.format``."""
        return FORMAT

    def schema(self) -> StructType:
        """One row a record."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - there is but one
        """A reader of the ranges that the options name."""
        return _Reader(dict(self.options))


class _Piece(InputPartition):
    def __init__(self, piece: Range) -> None:
        super().__init__(msgspec.json.encode(piece))


class _Reader(DataSourceReader):
    """Picklable: goes to the executors."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """A task for each range."""
        return [_Piece(piece) for piece in _ranges.decode(self._options["ranges"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one range. Raises: ReadFailed."""
        piece = msgspec.json.decode(partition.value, type=Range)
        access = _access.decode(self._options["access"])
        rows = self._rows(piece)
        with kafka_source.clients_silenced():
            end = _made(access)
            reader = kafka_source.read if access.kind == "kafka" else node_source.read
            for found in _driven(reader(end, piece)):
                yield from records.batches(rows(piece, found))

    def _rows(self, piece: Range) -> Callable[[Range, Iterable[Record]], Iterator[Row]]:
        if piece.role == "source":
            return records.source_rows
        if piece.role == "target":
            return records.target_rows
        streams = {name.encode(): number for name, number in json.loads(self._options["streams"]).items()}
        return partial(records.letter_rows, self._options["bridge"], streams)


def _made(access: Access) -> Any:
    """The factory's result for the settings, in this process. Raises: ReadFailed."""
    module, _, function = access.factory.partition(":")
    return getattr(importlib.import_module(module), function)(
        access.settings, access.connector, access.bridge
    )


def _driven(reading: AsyncGenerator[Sequence[Record]]) -> Iterator[Sequence[Record]]:
    """The batches of a coroutine, for Spark, which asks for one after the other.

    Between two of them the loop is suspended: nothing is fetched before Spark asks for it.
    """

    async def following() -> Sequence[Record] | None:
        return await anext(reading, None)

    async def closed() -> None:
        await reading.aclose()

    with asyncio.Runner() as runner:
        try:
            while (found := runner.run(following())) is not None:
                yield found
        finally:
            runner.run(closed())
