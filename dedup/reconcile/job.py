"""Reconciles delivery logs, with a state of earlier runs or without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from dedup.reconcile import lines as log_lines
from dedup.reconcile import state as earlier
from dedup.reconcile.comparison import compare
from dedup.reconcile.tables import Tables


def reconcile(
    spark: SparkSession, logs: Sequence[str], *, late_after_ms: int, state: str | None = None
) -> Tables:
    """Reconcile the logs: judge every message.

    Args:
        spark: of `session.session`, or any other.
        logs: files, directories or patterns.
        late_after_ms: messages delivered later after their event than this, or open for longer, are late.
        state: a directory for the results of earlier runs (`dedup.reconcile.state`); None: all of the logs
            are read.

    Raises:
        BadInput: see `lines.read`.
    """
    if state is not None:
        return earlier.reconcile(spark, logs, late_after_ms=late_after_ms, state=state)
    read = log_lines.read(spark, logs)
    found = compare(read.lines, read.inputs, late_after_ms=late_after_ms, kept=read.kept)
    return replace(found, left_out=read.left_out)
