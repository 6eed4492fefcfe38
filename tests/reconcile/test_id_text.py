"""The IDs of a line survive the way through Spark, whatever they are made of."""

from __future__ import annotations

import base64
import json
import os
import random

from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit, replace, struct, transform

from bridge.delivery_log import Line, LineWriter
from dedup.reconcile import id_text
from dedup.reconcile.line_format import parse
from dedup.reconcile.local import table
from tests.reconcile import specs

#: Lines of a run.
LINES = 300
#: What the text of a line is made of: an ID of these may look like a part of it.
_PIECES = ("]", ",", "[", '"', "\\", "17", "null", "x", " ", '{"base64":', "}", "é", "\n", "\0")

_ids = st.one_of(
    st.lists(st.sampled_from(_PIECES), min_size=1, max_size=6).map("".join).map(str.encode),
    st.text(min_size=1, max_size=5).filter(lambda text: text.isprintable()).map(str.encode),
    st.binary(min_size=1, max_size=4),
)
_lines = st.lists(st.tuples(st.none() | st.integers(0, 2**50 - 1), _ids), min_size=1, max_size=5)


def text(ids: list[tuple[int | None, bytes]]) -> str:
    """A received line with these IDs."""
    writer = LineWriter(node="hub", node_id="1", bridge=None, lane=0, target="hub", store="hub")
    return Line(
        side="received", writer=writer, stream="s", address="a", from_=0, upto=0, ids=ids, events=(0, 0),
        committed=0, duplicates=0,
    ).encode().decode()  # fmt: skip


def read_back(cells: list[tuple[int | None, str]]) -> list[tuple[int | None, bytes]]:
    return [(position, _bytes(shown)) for position, shown in cells]


def _bytes(shown: str) -> bytes:
    if shown.startswith('{"base64":'):
        return base64.b64decode(json.loads(shown)["base64"])
    is_marked = shown.lstrip("\\").startswith('{"base64":')
    return shown.removeprefix("\\").encode() if is_marked else shown.encode()


def of_lines(
    spark: SparkSession, lines: list[list[tuple[int | None, bytes]]]
) -> list[tuple[int, list[tuple[int | None, bytes]]]]:
    """Per line, how many IDs Spark counts, and which it finds."""
    rows = table(spark, "place long, value string", [(place, text(ids)) for place, ids in enumerate(lines)])
    ids = rows.select("place", parse(col("value"))["ids"].alias("ids"))
    cells = transform(
        id_text.cells(col("ids")), lambda cell: struct(id_text.position_of(cell), id_text.id_of(cell))
    )
    found = ids.select("place", id_text.number(col("ids")), cells).orderBy("place").collect()
    return [(number, read_back([tuple(cell) for cell in cells])) for _, number, cells in found]


def test_every_id_of_every_line_is_found_whole(spark: SparkSession) -> None:
    lines: list[list[tuple[int | None, bytes]]] = [
        [(5, b"],["), (6, b"],[17,"), (None, b"[5,")],
        [(5, b"x"), (6, b'],[7,"y'), (7, b",")],
        *specs.drawn(_lines, LINES),
    ]
    found = of_lines(spark, lines)
    assert len(found) == len(lines)
    for (number, ids), expected in zip(found, lines, strict=True):
        assert (number, ids) == (len(expected), expected)


def test_the_usual_form_is_cut_without_a_parser(spark: SparkSession) -> None:
    """A log of 100 million IDs rests on that."""
    rng = random.Random(os.environ["TEST_SEED"])
    usual = [(n, f"order-{rng.getrandbits(64):x}".encode()) for n in range(3)]
    is_plain = table(spark, "ids string", [(json.dumps([[n, v.decode()] for n, v in usual]),)])
    compact = replace(col("ids"), lit(" "))
    assert is_plain.select(id_text._is_plain(compact)).collect()[0][0]
