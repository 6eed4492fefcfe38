"""Slow, far and breaking lines: the rows of `tests/lines`, the departures, alarms behind a backlog."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.harness.certificates import make_certificates
from tests.lines import table
from tests.lines.rows import Measured, Row, run, run_each
from tests.lines.special import alarm, departures


def print_table(directory: Path, pattern: str, at_once: int) -> None:
    """Print the rows whose name contains the expression, as they end."""
    directory = directory.resolve()
    out = sys.stdout
    with Path(os.devnull).open("w") as logs, contextlib.redirect_stdout(logs):
        for text in _texts(directory, re.compile(pattern), at_once):
            print(text, file=out, flush=True)


def _texts(directory: Path, pattern: re.Pattern[str], at_once: int) -> Iterator[str]:
    certificates = directory / "certificates"
    certificates.mkdir(parents=True)
    assert list(make_certificates(certificates, "node"))
    chosen = _chosen(table.rows(), pattern)
    for row, found in run_each(
        chosen, directory / "nodes", lambda row, own: run(row, own, certificates), at_once
    ):
        yield _text(row, found)
    if to_kafka := _chosen(table.kafka_rows(), pattern):
        from tests.lines.kafka import FarCluster

        with FarCluster(directory / "kafka", at_once).running() as cluster:
            for row, found in run_each(to_kafka, directory / "edges", cluster.run, at_once):
                yield _text(row, found)
    if pattern.search("departures"):
        yield departures(directory / "departures").text
    if pattern.search("alarm"):
        yield alarm(directory / "alarm").text


def _chosen(rows: Iterable[Row], pattern: re.Pattern[str]) -> list[Row]:
    return [row for row in rows if pattern.search(row.name)]


def _text(row: Row, found: Measured | BaseException) -> str:
    return found.text if isinstance(found, Measured) else f"{row.name}: {found!r}"
