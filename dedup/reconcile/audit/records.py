"""Converts records of either end to rows of Spark: place and duplicate ID, without bodies and keys.

A source record's ID is the one that the bridge gives it at the target: the value of its last `ID_HEADER`,
else of its last `HORNETQ_ID_HEADER`, byte for byte, else the stamp of its stream and offset (`dedup.ids`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from dedup.ids import HORNETQ_ID_HEADER, ID_HEADER, Stamp, parse
from dedup.reconcile.audit.plan import Range

#: The headers of a dead letter that say what it was.
LETTER_BRIDGE: Final = "core-bridge-bridge"
LETTER_STREAM: Final = "core-bridge-stream"
LETTER_POSITION: Final = "core-bridge-position"
#: Length of a stamped ID's text.
_STAMP_BYTES: Final = 36
#: Rows of one Arrow batch: what a task holds, besides one fetch.
ROWS_A_BATCH: Final = 10_000

Header = tuple[str, bytes | None]
#: Offset or position, headers in their order, and the ID where the end tells it apart from the headers.
Record = tuple[int, Sequence[Header], bytes | None]
Row = tuple[int, int, int, bytes | None, int | None, int | None]

#: One row a record, of either end.
SCHEMA: Final = StructType(
    [
        StructField("address", IntegerType()),
        StructField("place", IntegerType()),
        StructField("position", LongType()),
        StructField("id", BinaryType()),
        # A stamped ID's two halves: which stream (60 bits) and which position of it; null: a producer's ID.
        StructField("stamp", LongType()),
        StructField("stamped", LongType()),
    ]
)
_ARROW: Final = pa.schema(
    [
        pa.field("address", pa.int32()),
        pa.field("place", pa.int32()),
        pa.field("position", pa.int64()),
        pa.field("id", pa.binary()),
        pa.field("stamp", pa.int64()),
        pa.field("stamped", pa.int64()),
    ]
)


def source_rows(piece: Range, records: Iterable[Record]) -> Iterator[Row]:
    """Records of the source with the IDs that they must have at the target."""
    stamp = Stamp(piece.identity)
    for position, headers, _ in records:
        found = _last(headers, ID_HEADER) or _last(headers, HORNETQ_ID_HEADER)
        if found is None:
            yield (
                piece.address,
                piece.place,
                position,
                stamp.text(position).encode(),
                stamp.prefix,
                position,
            )
        else:
            yield piece.address, piece.place, position, *_told_apart(found[1])


def target_rows(piece: Range, records: Iterable[Record]) -> Iterator[Row]:
    """Records of the target with the IDs that they have; null: none."""
    for position, headers, duplicate_id in records:
        found = _last(headers, ID_HEADER) if duplicate_id is None else (ID_HEADER, duplicate_id)
        value = None if found is None else found[1]
        yield piece.address, piece.place, position, *_told_apart(value)


def letter_rows(
    bridge: str, streams: Mapping[bytes, int], _piece: Range, records: Iterable[Record]
) -> Iterator[Row]:
    """For each dead letter of these streams, the stream's number as place and the position it was refused at.

    Args:
        bridge: the bridge of the letters; empty: all bridges.
        streams: numbers by identity.
    """
    for _, headers, _ in records:
        values = dict(headers)  # the last of a name counts: a letter's own follow the message's
        stream = streams.get(values.get(LETTER_STREAM) or b"")
        position = values.get(LETTER_POSITION) or b""
        is_own = not bridge or values.get(LETTER_BRIDGE) == bridge.encode()
        if is_own and stream is not None and position.isdigit():
            yield -1, stream, int(position), None, None, None


def table(rows: Iterable[Row]) -> pa.Table:
    """The rows as one Arrow table."""
    return pa.Table.from_batches(batches(rows), _ARROW)


def batches(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """The rows as Arrow batches of at most `ROWS_A_BATCH`."""
    held: list[Row] = []
    for row in rows:
        held.append(row)
        if len(held) == ROWS_A_BATCH:
            yield _batch(held)
            held = []
    if held:
        yield _batch(held)


def _batch(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _last(headers: Sequence[Header], name: str) -> Header | None:
    """The last header of a name counts, as with Kafka's `lastHeader`."""
    for header in reversed(headers):
        if header[0] == name:
            return header
    return None


def _told_apart(value: bytes | None) -> tuple[bytes | None, int | None, int | None]:
    """An ID and, where it is a stamp, its halves. An empty ID is none: the bridge refuses its record."""
    if not value:
        return None, None, None
    if len(value) == _STAMP_BYTES and value.isascii():
        halves = parse(value.decode("ascii"))
        if halves is not None:
            return value, *halves
    return value, None, None
