"""Small tables that start in Python: made in Java from JSON text, without a Python worker."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def table(spark: SparkSession, schema: str, rows: Iterable[Sequence[Any]]) -> DataFrame:
    """A frame of these rows.

    Args:
        spark: the session.
        schema: as DDL: ``path string, lines long``.
        rows: values in the schema's order: None, text, whole numbers, booleans.
    """
    names = [column.split()[0] for column in schema.split(",")]
    text = json.dumps([dict(zip(names, row, strict=True)) for row in rows])
    parsed = F.from_json(F.lit(text), f"array<struct<{schema.replace(' ', ':').replace(',:', ',')}>>")
    return spark.range(1).select(F.inline(parsed))
